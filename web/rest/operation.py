"""One operation of REST, and the router in which handlers register theirs; nothing else is served."""

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
    """Dataclass whose fields are the fields of the JSON object."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Reply = web.StreamResponse | Mapping[str, Any] | DataclassReply | None
"""Result of a handler: a response, a JSON object as dataclass or mapping, or None for 404."""
Handler = Callable[..., Awaitable[Reply]]
_Registered = TypeVar("_Registered", bound=Handler)
_PATTERN = re.compile(r"\{(\w+):(?:[^{}]|\{[^{}]*\})*\}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """The signature of `handler` says what is taken: after the request its parts of the path by position,
    then fields of the query, or of the body where the method has one. Its docstring is the description.
    A handler that needs services is a method of a class that is constructed with them.
    """

    method: str
    pattern: str
    """Pattern of the router; parts of the path may have a regular expression."""
    handler: Handler
    group: str = ""
    """The chapter of the description; what has none is a page, and not described."""
    anyone: bool = False
    visitor: bool = False
    """True if visitors may call it for their own conversation."""
    scope: Scope | None = None
    """Scope that an API key needs; None if keys are not allowed."""
    role: Role | None = None
    """From which on an operator may."""
    scraper: bool = False
    """True if a scraper of metrics may call it."""
    finds_caller: bool = False
    """The handler itself finds out who asks: it takes more than the address to know."""
    rate: Literal["", "reads", "commands", "exports"] = ""
    """Rate limit of visitors that the operation counts for."""
    answers: Mapping[int, Any] = field(default_factory=dict)
    """Statuses and what comes with them; None is for what is no JSON."""
    events: Mapping[str, Any] = field(default_factory=dict)
    """With `Accept: text/event-stream`: names of events and what they hold."""
    refusals: tuple[int, ...] = ()
    """Statuses of errors, in addition to those of every operation."""
    media: str | tuple[str, ...] = JSON
    """Media types of an answer; several if the caller chooses between forms of a file."""
    takes: str = JSON
    """The media type of the body."""
    body: str = ""
    """Name of the body's schema; by default the name of the operation."""
    strict: bool = False
    """True if unknown fields are refused instead of ignored."""
    most_bytes: int = 256 * 1024
    missing: str = "There is nothing at this address."
    """Message of the error with status 404."""
    head: bool = True
    """False for streamed answers: to HEAD they would send their body."""

    def __post_init__(self) -> None:
        allowed = (self.anyone, self.visitor, self.scope, self.role, self.scraper)
        assert any(allowed), f"{self.method} {self.pattern} must say who may come"

    @property
    def path(self) -> str:
        return _PATTERN.sub(r"{\1}", self.pattern)

    @property
    def name(self) -> str:
        """Name of the handler in camel case."""
        first, *others = self.handler.__name__.split("_")
        return first + "".join(map(str.capitalize, others))

    @property
    def owner(self) -> str:
        """Whole name of the class whose method the handler is; empty for a plain function."""
        outer = self.handler.__qualname__.rpartition(".")[0]
        return f"{self.handler.__module__}.{outer}" if outer and not outer.endswith("<locals>") else ""

    @property
    def names_session(self) -> bool:
        """True if API keys name the conversation by `?session_id=`; a visitor has exactly one."""
        themselves = self.anyone or self.finds_caller or self.scope is None
        return self.visitor and not themselves and "/sessions/{id}" not in self.path

    @property
    def summary(self) -> str:
        """First paragraph of the handler's docstring on one line; empty without a docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def description(self) -> str:
        paragraphs = (inspect.getdoc(self.handler) or "").split("\n\n")[1:]
        return " ".join(" ".join(paragraphs).split())


class HandlerTable:
    """Objects whose methods are handlers, each with the services that its methods use."""

    def __init__(self, objects: Iterable[object] = ()) -> None:
        self._by_class: dict[str, object] = {}
        self.replace(objects)

    def replace(self, objects: Iterable[object]) -> None:
        """Use other objects from the next request on, after a change of settings."""
        self._by_class = {f"{type(one).__module__}.{type(one).__qualname__}": one for one in objects}

    def bind(self, operation: Operation) -> Handler:
        """Return the handler as a method of its object, or the plain function. Raises KeyError."""
        owner = operation.owner
        return MethodType(operation.handler, self._by_class[owner]) if owner else operation.handler


class OperationRouter(list[Operation]):
    """List of the operations of one subject, in the order of the description."""

    def __init__(self, group: str = "dashboard", **usual: Any) -> None:
        """Create a router; `usual` has default values for the fields of its operations."""
        self._usual = {"group": group, **usual}

    def on(
        self, place: str, answer: Any = None, *, status: int = 200, **terms: Any
    ) -> Callable[[_Registered], _Registered]:
        """Return a decorator that registers a handler: `@router.on("GET /jobs", Jobs, role="viewer")`.

        `place` is the method and the path below `/api/v1`, `terms` are fields of `Operation`. The shape of
        the answer is `answer`, else the dataclass or TypedDict that the handler returns. With a role,
        refusals default to 404 and 409; for GET to 404, and only if the path has a parameter.
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
        """Register a page or another route outside REST, for browsers and scrapers."""
        method, path = place.split()

        def register(handler: _Registered) -> _Registered:
            self.append(Operation(method=method, pattern=path, handler=handler, **terms))
            return handler

        return register


def _returned_shape(handler: Handler) -> Any:
    """Return the dataclass or TypedDict that the return annotation names; None if it names no shape."""
    named = get_type_hints(handler, include_extras=True).get("return")
    parts = get_args(named) if get_origin(named) in (Union, UnionType) else (named,)
    kinds = [kind for kind in parts if kind not in (NoneType, web.StreamResponse)]
    is_shape = len(kinds) == 1 and (is_dataclass(kinds[0]) or is_typeddict(kinds[0]))
    return kinds[0] if is_shape else None
