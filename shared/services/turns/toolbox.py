"""Tools that a model may call: their list per agent, the check of arguments, and running a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import structlog

from shared.core.context.agents import AllowedTools, without_limits
from shared.core.session.turns import StepOutcome
from shared.core.values.messages import Image, Text, ToolResult, ToolUse, storable
from shared.ports import Tool, ToolContext, ToolFailed, ToolFile, ToolImage, ToolOutput, ToolSpec

MAX_PROBLEMS_SHOWN = 3
"""Most problems of arguments that one result names."""
_SHOWN_CHARS = 300
_RULES = (
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "format",
)  # fmt: skip
"""JSON schema keywords that define allowed values."""
_KINDS = {
    "integer": "a whole number", "number": "a number", "string": "a text", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip


class ArgumentChecker:
    """Checker of one tool's arguments against its JSON schema."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec

    def find_fault(self, given: Any) -> str | None:
        """Return what is wrong with the arguments, at most 3 problems, as text for the model; None if nothing
        is.
        """
        if not isinstance(given, Mapping):
            return f"{self._spec.name} was not run: its arguments must be a JSON object."
        problems = [_describe_problem(error, self._spec) for error in self._find_errors(dict(given))]
        if not problems:
            return None
        lines = "\n".join(f"- {line}" for line in problems)
        return f"{self._spec.name} was not run, because its arguments do not fit:\n{lines}"

    def _find_errors(self, given: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        for error in self._validator.iter_errors(given):
            found.append(error)
            if len(found) == MAX_PROBLEMS_SHOWN:
                break
        return found

    @cached_property
    def _validator(self) -> Any:
        return build_validator(self._spec.input_schema)


def build_validator(schema: Mapping[str, Any]) -> Any:
    """Return a JSON schema validator that fetches no schema and ignores patterns, since a schema may be
    foreign.
    """
    import jsonschema
    from referencing import Registry

    extend: Any = jsonschema.validators.extend
    kinds = extend(
        jsonschema.Draft202012Validator, {"pattern": _accept_anything, "patternProperties": _accept_anything}
    )
    return kinds(dict(schema), registry=Registry())


def _accept_anything(*_: Any) -> None:
    return None


def _describe_problem(error: Any, spec: ToolSpec) -> str:
    field = ".".join(str(part) for part in error.absolute_path)
    known = spec.input_schema.get("properties") or {}
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        names = ", ".join(f"`{name}`" for name in missing)
        return f"{_in_field(field)}{names} is missing. {_list_known(known) if not field else ''}".rstrip()
    if error.validator == "additionalProperties":
        return (
            f"{_in_field(field)}{_short(error.message)}. {_list_known(known) if not field else ''}".rstrip()
        )
    rules = {name: error.schema[name] for name in _RULES if name in error.schema}
    allowed = f" Allowed: {_short(json.dumps(rules, ensure_ascii=False, default=str))}" if rules else ""
    return f"`{field or 'the arguments'}`: {_describe_wrong_value(error)}.{allowed}"


def _describe_wrong_value(error: Any) -> str:
    kind = _KINDS.get(error.validator_value) if isinstance(error.validator_value, str) else None
    if error.validator != "type" or kind is None:
        return _short(error.message)
    return f"{_short(json.dumps(error.instance, ensure_ascii=False, default=str))} is not {kind}"


def _in_field(field: str) -> str:
    return f"`{field}`: " if field else ""


def _list_known(known: Mapping[str, Any]) -> str:
    if not known:
        return "It takes no arguments."
    return f"It takes {', '.join(f'`{name}`' for name in list(known)[:20])}."


def _short(text: str) -> str:
    """Return a text cut to `_SHOWN_CHARS` characters in the middle."""
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[: _SHOWN_CHARS // 2]} … {text[-_SHOWN_CHARS // 2 :]}"


T = TypeVar("T")
log = structlog.get_logger(__name__)

OUTPUT_CHARS = 1_000_000
"""Most characters of a tool's output; the middle of longer output is cut. Shorter results may become
artifacts.
"""
IMAGES_PER_CALL = 4
"""Most pictures of one tool call; further ones are left out."""
SUBJECT_CHARS = 60
"""Most characters of a call's subject."""
CANCEL_SECONDS = 2.0
"""Seconds that a cancelled tool has to end before it is abandoned."""
MAX_CACHED_TOOLBOXES = 256
"""Most toolboxes of agents that a process caches; a full cache is cleared."""


class ToolSource(Protocol):
    """Source of tools that change while the program runs; the number `version` grows with each change."""

    @property
    def version(self) -> int: ...
    def tools(self) -> Sequence[Tool]: ...


ToolSearch = Callable[[Sequence[Tool]], Sequence[Tool]]
"""Function that replaces many tools by a few, with which the model searches for and calls them."""


class ToolImageStore(Protocol):
    """Store of pictures and files that tools return; gives the block that follows the tool results.

    `store_image` also returns a line for the tool's result, and raises ToolFailed if the picture cannot be
    shown.
    """

    async def store_image(self, session_id: int, image: ToolImage, *, by: str) -> tuple[Image, str]: ...
    async def store_file(self, session_id: int, file: ToolFile) -> Text: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """Result of one tool call; `images` and `files` follow the results of the whole round."""

    result: ToolResult
    status: StepOutcome
    images: tuple[Image, ...] = ()
    files: tuple[Text, ...] = ()
    fault: Exception | None = None
    """Unexpected exception of the tool, such as its timeout or an unavailable database; None if there was
    none.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfferedTool:
    tool: Tool
    arguments: ArgumentChecker
    shown: ToolSpec | None
    """Description offered to the model; None for a tool that is not offered, whose run explains why."""


class Toolbox:
    """Tools of one agent; `run` has a timeout and an output limit, and never raises for a failing tool."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        source: ToolSource | None = None,
        images: ToolImageStore | None = None,
        search: ToolSearch | None = None,
    ) -> None:
        self._offers = {
            tool.spec.name: _OfferedTool(
                tool=tool, arguments=ArgumentChecker(tool.spec), shown=without_limits(tool.spec)
            )
            for tool in tools
        }
        self._source = source
        self._images = images
        self._search = search
        self._provider: tuple[ToolSpec, ...] = ()
        self._boxes: dict[str, Toolbox] = {}
        self._version: int | None = None

    def for_agent(self, agent_config: Mapping[str, Any]) -> Toolbox:
        """Return the toolbox with the tools that an agent's configuration allows; cached until the source's
        list changes.
        """
        self._refresh()
        section = agent_config.get("tools")
        key = "" if not section else json.dumps(section, sort_keys=True, default=str)
        if key not in self._boxes:
            if len(self._boxes) >= MAX_CACHED_TOOLBOXES:
                self._boxes.clear()
            self._boxes[key] = self._build(AllowedTools.of(section))
        return self._boxes[key]

    def _refresh(self) -> None:
        """Clear the cached toolboxes if the source's list of tools has changed."""
        version = None if self._source is None else self._source.version
        if version != self._version:
            self._version = version
            self._boxes.clear()

    def _build(self, allowed: AllowedTools) -> Toolbox:
        ours = {name: offer for name, offer in self._offers.items() if allowed.has(name)}
        from_source = self._source.tools() if self._source is not None else ()
        brought: Sequence[Tool] = [
            tool
            for tool in from_source
            if allowed.has(tool.spec.name)
            and allowed.has_server(find_server(tool))
            and tool.spec.name not in self._offers
        ]
        waiting = [tool for tool in brought if is_waiting(tool)]
        brought = [tool for tool in brought if not is_waiting(tool)]
        if self._search is not None and len(brought) > allowed.search_above:
            brought = self._search(brought)
        theirs = {
            tool.spec.name: _OfferedTool(tool=tool, arguments=ArgumentChecker(tool.spec), shown=tool.spec)
            for tool in brought
        }
        held = {
            tool.spec.name: _OfferedTool(tool=tool, arguments=ArgumentChecker(tool.spec), shown=None)
            for tool in waiting
        }
        return self._copy_with(held | theirs | ours, allowed.provider)

    def _copy_with(self, offers: Mapping[str, _OfferedTool], provider: tuple[ToolSpec, ...] = ()) -> Toolbox:
        box = Toolbox((), images=self._images)
        box._offers, box._provider = dict(offers), provider
        return box

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Descriptions of the offered tools, sorted by name, then the provider's own; the stable order serves
        its cache.
        """
        names = set(self._offers)
        ours = tuple(shown for name in sorted(names) if (shown := self._offers[name].shown) is not None)
        return (*ours, *(spec for spec in self._provider if spec.name not in names))

    def server_of(self, name: str) -> str:
        """Return the name of the MCP server that provides a tool; empty for built-in and unknown tools."""
        offer = self._offers.get(name)
        return "" if offer is None else find_server(offer.tool)

    def restrict_to(self, names: frozenset[str]) -> Toolbox:
        """Return a toolbox with only the tools of these names; tools that the provider runs are left out."""
        return self._copy_with({name: offer for name, offer in self._offers.items() if name in names})

    def is_idempotent(self, name: str) -> bool:
        """Return whether a call can safely be repeated; False for an unknown tool."""
        offer = self._offers.get(name)
        return offer is not None and offer.tool.idempotent

    def describe_subject(self, call: ToolUse) -> str:
        """Return the subject of a call in a few words for the person who waits; empty if the tool
        names none.
        """
        offer = self._offers.get(call.name)
        tell = getattr(offer.tool, "subject", None) if offer is not None else None
        if tell is None:
            return ""
        try:
            return storable(str(tell(call.input)))[:SUBJECT_CHARS]
        except Exception:
            log.warning("tool_subject_failed", tool=call.name, exc_info=True)
            return ""

    async def run(self, call: ToolUse, *, context: ToolContext) -> ToolCallResult:
        """Check the arguments of a call, run it and return its result; failures become results for the model.

        Pictures and files are stored; without a store for them, the result says that they cannot be shown or
        sent. The call is logged with its outcome and length, without its text.
        """
        ran = await self._run(call, context)
        known = call.name if call.name in self._offers else "unknown"
        log.info(
            "tool_called",
            tool=known,
            outcome=ran.status,
            chars=len(ran.result.text),
            session_id=context.session_id,
            turn=context.turn,
        )
        return ran

    async def _run(self, call: ToolUse, context: ToolContext) -> ToolCallResult:
        offer = self._offers.get(call.name)
        if offer is None:
            return _build_failure(call, f"There is no tool called {call.name[:80]!r}.")
        tool = offer.tool
        try:
            if offer.shown is not None and (fault := offer.arguments.find_fault(call.input)):
                return _build_failure(call, fault)
            output = await run_with_timeout(
                tool.run(call.input, context=context), seconds=tool.timeout_seconds
            )
            return await self._build_result(call, tool, output, context)
        except ToolFailed as error:
            return _build_failure(call, cap_output(str(error), find_output_cap(tool)))
        except TimeoutError as error:
            late = _build_failure(call, f"{call.name} took longer than {tool.timeout_seconds:g} seconds.")
            return replace(late, fault=error)
        except Exception as error:
            log.exception("tool_failed", tool=call.name, session_id=context.session_id, turn=context.turn)
            return replace(_build_failure(call, f"{call.name} failed."), fault=error)

    async def _build_result(
        self, call: ToolUse, tool: Tool, output: object, context: ToolContext
    ) -> ToolCallResult:
        text = output.text if isinstance(output, ToolOutput) else output
        given, known = (output.images, output.kept) if isinstance(output, ToolOutput) else ((), ())
        if text is not None and not isinstance(text, str):
            return _build_failure(call, f"{call.name} returned something that is neither text nor a picture.")
        images, told = await self._store_images(call, given, context)
        made = output.files if isinstance(output, ToolOutput) else ()
        files: list[Text] = []
        if self._images is not None:
            files = [await self._images.store_file(context.session_id, file) for file in made]
            told += [f"Stored: {file.name}, {len(file.body):,} bytes." for file in made]
        else:
            told += [f"[{file.name} was made, which cannot be sent from here.]" for file in made]
        words = "\n".join(part for part in (text or "", *told) if part.strip())
        words = words or f"{call.name} returned nothing."
        result = ToolResult(tool_use_id=call.id, text=cap_output(words, find_output_cap(tool)))
        return ToolCallResult(result=result, status="done", images=(*known, *images), files=tuple(files))

    async def _store_images(
        self, call: ToolUse, given: Sequence[ToolImage], context: ToolContext
    ) -> tuple[tuple[Image, ...], list[str]]:
        kept: list[Image] = []
        told: list[str] = []
        for image in given[:IMAGES_PER_CALL]:
            if self._images is None:
                told.append("[A picture was returned, which cannot be shown here.]")
                continue
            try:
                shown, words = await self._images.store_image(context.session_id, image, by=call.name)
            except ToolFailed as error:
                told.append(f"[{error}]")
            else:
                kept.append(shown)
                told.append(words)
        if len(given) > IMAGES_PER_CALL:
            told.append(f"[{len(given) - IMAGES_PER_CALL} more pictures were left out.]")
        return tuple(kept), told


async def run_with_timeout(work: Coroutine[Any, Any, T], *, seconds: float) -> T:
    """Return the result of `work`. Raises TimeoutError after `seconds`, ToolFailed if `work` was cancelled
    inside.

    After the timeout `work` is cancelled; work that does not end within 2 seconds of that is abandoned.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return _outcome(task)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_SECONDS)
    raise TimeoutError


def _outcome(task: asyncio.Future[T]) -> T:
    if task.cancelled():
        raise ToolFailed("It was interrupted before it was done.")
    return task.result()


def find_server(tool: Tool) -> str:
    """Return the name of the MCP server that provides a tool; empty for built-in tools."""
    return str(getattr(tool, "server", ""))


def is_waiting(tool: Tool) -> bool:
    """Return whether the tool's description changed and an administrator must approve it."""
    waits = getattr(tool, "waits", None)
    return bool(waits is not None and waits())


def find_output_cap(tool: Tool) -> int:
    """Return the most characters of a tool's output: its own `output_chars`, at most `OUTPUT_CHARS`."""
    return min(OUTPUT_CHARS, int(getattr(tool, "output_chars", OUTPUT_CHARS)))


def cap_output(text: str, most: int = OUTPUT_CHARS) -> str:
    """Return a tool's output without characters that the database refuses, cut in the middle above `most`
    characters.

    The note in place of the middle comes on top.
    """
    text = storable(text)
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _build_failure(call: ToolUse, text: str) -> ToolCallResult:
    return ToolCallResult(
        result=ToolResult(tool_use_id=call.id, text=storable(text), is_error=True), status="failed"
    )
