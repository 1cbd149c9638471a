"""Operations of the REST interface, and the router in which handlers register them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from types import MethodType, NoneType, UnionType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from aiohttp import web
from typing_extensions import is_typeddict

from shared.core.identity.api_keys import Scope
from shared.core.identity.operators import Role

V1 = "/api/v1"
JSON = "application/json"


class DataclassReply(Protocol):
    """Dataclass that is returned as a JSON object with its fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Reply = web.StreamResponse | Mapping[str, Any] | DataclassReply | None
"""Result of a handler: a response, a JSON object as dataclass or mapping, or None for status 404."""
Handler = Callable[..., Awaitable[Reply]]
_Registered = TypeVar("_Registered", bound=Handler)
_PATTERN = re.compile(r"\{(\w+):(?:[^{}]|\{[^{}]*\})*\}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """Operation of the REST interface.

    The signature of `handler` says what it takes: the call, then parts of the path by position, then fields
    of the query, or of the body for methods with a body. Its docstring is the description. A handler that
    needs services is a method of a class that is constructed with them.
    """

    method: str
    pattern: str
    """Path pattern of the router; parts of the path may have a regular expression."""
    handler: Handler
    group: str = ""
    """Section of the OpenAPI document; empty for pages, which are not described."""
    anyone: bool = False
    """Whether everyone may call it without authentication."""
    visitor: bool = False
    """Whether visitors may call it for their own conversation."""
    scope: Scope | None = None
    """Scope that an API key needs; None if API keys are not allowed."""
    role: Role | None = None
    """Minimum role of an operator; None if operators are not allowed."""
    scraper: bool = False
    """Whether a scraper of metrics may call it."""
    finds_caller: bool = False
    """Whether the handler itself identifies the caller, because that needs more than the request's
    headers.
    """
    rate: Literal["", "reads", "commands", "exports"] = ""
    """Rate limit of visitors that the operation counts towards before its handler runs; empty if the handler
    counts, or nothing does. `commands` and `exports` count towards the limit of messages.
    """
    answers: Mapping[int, Any] = field(default_factory=dict)
    """Type of the JSON answer by status; None for an answer that is not JSON. An object that a handler
    returns gets the lowest of these statuses.
    """
    events: Mapping[str, Any] = field(default_factory=dict)
    """Type of the data by event name, for requests with `Accept: text/event-stream`."""
    refusals: tuple[int, ...] = ()
    """Statuses of errors, in addition to those that every operation can return."""
    media: str | tuple[str, ...] = JSON
    """Media type of the answer; several if the caller can choose a format."""
    takes: str = JSON
    """Media type of the body."""
    body: str = ""
    """Name of the body's schema; empty for the name of the operation."""
    strict: bool = False
    """Whether unknown fields of the body are refused instead of ignored."""
    most_bytes: int = 256 * 1024
    """Maximum bytes of an operator's JSON body; bodies of visitors and programs have `MAX_BODY_BYTES`."""
    missing: str = "There is nothing at this address."
    """Message of the error with status 404."""
    head: bool = True
    """Whether HEAD is allowed; False for streams, which would send their body."""

    def __post_init__(self) -> None:
        allowed = (self.anyone, self.visitor, self.scope, self.role, self.scraper)
        assert any(allowed), f"{self.method} {self.pattern} must say who may come"
        knows_nobody = self.anyone or self.finds_caller
        assert not (self.rate and knows_nobody), f"{self.method} {self.pattern} must count in its handler"

    @property
    def path(self) -> str:
        """Path as in the description of the API: `{name}` without the regular expression of a parameter."""
        return _PATTERN.sub(r"{\1}", self.pattern)

    @property
    def name(self) -> str:
        """Name of the handler in camel case."""
        first, *others = self.handler.__name__.split("_")
        return first + "".join(map(str.capitalize, others))

    @property
    def owner(self) -> str:
        """Full name of the class whose method the handler is; empty for a function."""
        outer = self.handler.__qualname__.rpartition(".")[0]
        return f"{self.handler.__module__}.{outer}" if outer and not outer.endswith("<locals>") else ""

    @property
    def names_session(self) -> bool:
        """Whether API keys name the conversation by `?session_id=`, since the path does not name it.

        Visitors need not, since they have their own.
        """
        themselves = self.anyone or self.finds_caller or self.scope is None
        return self.visitor and not themselves and "/sessions/{id}" not in self.path

    @property
    def summary(self) -> str:
        """First paragraph of the handler's docstring as one line; empty without a docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def description(self) -> str:
        """Further paragraphs of the handler's docstring as one line."""
        paragraphs = (inspect.getdoc(self.handler) or "").split("\n\n")[1:]
        return " ".join(" ".join(paragraphs).split())


class HandlerTable:
    """Objects whose methods are handlers, by class."""

    def __init__(self, objects: Iterable[object] = ()) -> None:
        self._by_class: dict[str, object] = {}
        self.replace(objects)

    def replace(self, objects: Iterable[object]) -> None:
        """Use other objects from the next request on; called after settings changed."""
        self._by_class = {f"{type(one).__module__}.{type(one).__qualname__}": one for one in objects}

    def bind(self, operation: Operation) -> Handler:
        """Return the handler bound to its object, or the function itself.

        Raises KeyError if the object is missing.
        """
        owner = operation.owner
        return MethodType(operation.handler, self._by_class[owner]) if owner else operation.handler


class OperationRouter(list[Operation]):
    """List of the operations of one subject, in the order of the OpenAPI document."""

    def __init__(self, group: str = "dashboard", **usual: Any) -> None:
        """Create an empty router; `usual` are default values for fields of its operations."""
        self._usual = {"group": group, **usual}

    def on(
        self, place: str, answer: Any = None, *, status: int = 200, **terms: Any
    ) -> Callable[[_Registered], _Registered]:
        """Return a decorator that registers a handler: `@router.on("GET /jobs", Jobs, role="viewer")`.

        `place` is the method and the path below `/api/v1`, `terms` are fields of `Operation`. The type of the
        answer is `answer`, else the dataclass or TypedDict that the handler returns. With a role, `refusals`
        are 404 and 409 by default; for GET 404, and only if the path has a parameter.
        """
        method, path = place.split()
        terms = {**self._usual, **terms}
        if terms.get("role"):
            terms.setdefault("refusals", ((404,) if "{" in path else ()) if method == "GET" else (404, 409))

        def register(handler: _Registered) -> _Registered:
            answers = {status: answer or _returned_shape(handler)}
            settled = {"answers": answers, **terms}
            self.append(Operation(method=method, pattern=V1 + path, handler=handler, **settled))
            return handler

        return register

    def page(self, place: str, **terms: Any) -> Callable[[_Registered], _Registered]:
        """Return a decorator that registers a page or another route outside of REST."""
        method, path = place.split()

        def register(handler: _Registered) -> _Registered:
            self.append(Operation(method=method, pattern=path, handler=handler, **terms))
            return handler

        return register


def _returned_shape(handler: Handler) -> Any:
    """Return the dataclass or TypedDict in the return annotation; None if it does not name exactly one."""
    named = get_type_hints(handler, include_extras=True).get("return")
    parts = get_args(named) if get_origin(named) in (Union, UnionType) else (named,)
    kinds = [kind for kind in parts if kind not in (NoneType, web.StreamResponse)]
    is_shape = len(kinds) == 1 and (is_dataclass(kinds[0]) or is_typeddict(kinds[0]))
    return kinds[0] if is_shape else None
