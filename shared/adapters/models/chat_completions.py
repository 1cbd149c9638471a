"""Conversion of requests and answers between the Messages API and Chat Completions.

Servers agree on less than their documents say: ids, indexes and the end of an answer may be missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from shared.adapters.models.dialects.answer_shapes import list_choices, read_reason
from shared.adapters.models.dialects.ends import FAULT, read_end
from shared.adapters.models.dialects.growing_parts import GrowingText, clean_name, read_call
from shared.adapters.models.dialects.message_order import arrange, fill_content, simplify_schema
from shared.adapters.models.dialects.opaque_state import StateCollector, find_state
from shared.adapters.models.dialects.usage_fields import convert_usage, find_usage
from shared.adapters.models.error_mapping import build_error, read_refusal
from shared.adapters.models.stream_parser import Event
from shared.adapters.models.wire import Json
from shared.core.values.errors import ModelAnswerUnusable
from shared.core.values.messages import Block, Image, Message, Text, ToolResult, ToolUse
from shared.core.verdicts.abilities import Ability
from shared.ports import ModelCard, ModelRequest, PictureContent, ToolSpec

SHORT_OUTPUT, LONG_OUTPUT = "max_tokens", "max_completion_tokens"
"""Two names of the output limit: all servers accept the first, except for OpenAI's newer models."""
NOTHING_MISSING: frozenset[Ability] = frozenset()
"""Empty set: the server has refused no ability."""
STATE_INDEX = -1
"""Index of the block that holds a server's own state; it precedes all other blocks."""
_MOST_MARKS = 3
"""Maximum cache marks on messages; one more marks the end of the system prompt."""
_NOTHING = "(nothing)"
_TEXT_PARTS = (None, "text", "output_text")
_ID_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH = 9
"""Length of the ids of tool calls; Mistral accepts only nine letters and digits."""


def build_completion_body(
    request: ModelRequest,
    card: ModelCard,
    wire_name: str,
    *,
    missing: Collection[Ability] = NOTHING_MISSING,
) -> Json:
    """Return the body of a streamed call; earlier parts keep their bytes as a conversation grows.

    `missing` are abilities that the server has refused, besides those that the card lacks. With the ability
    `cache`, cache marks are set, as OpenAI's newer models allow; other servers cache prefixes unasked.
    """
    with_marks = "cache" in card.capabilities and "prompt_cache_options" not in missing
    marks = sorted(request.cache_at)[-_MOST_MARKS:] if with_marks else []
    system = [_text("\n\n".join(part.text for part in request.system if part.text.strip()))]
    messages: list[Json] = [{"role": "system", "content": system}] if system[0]["text"] else []
    if marks:
        _mark(messages, but=0)
    for at, message in enumerate(request.messages):
        told = list(build_messages(message, request, card, state_of=wire_name, missing=missing))
        if at in marks:
            _mark(told, but=request.behind_mark if at == marks[-1] else 0)
        messages += told
    # With moving marks, text stays in parts: a prefix that was sent as a string would differ from its parts.
    told_as = _split_parts if "cache" in card.capabilities else _plain
    arranged = [told_as(message) for message in arrange(messages, missing)]
    body: Json = {"model": wire_name, "messages": [_filled(message, missing) for message in arranged]}
    tools = [_tool(tool, missing) for tool in request.tools if tool.provider is None]
    if tools and "tools" in card.capabilities:
        body["tools"] = tools
    output = LONG_OUTPUT if "max_tokens" in missing else SHORT_OUTPUT
    body[output] = max(1, min(request.max_output_tokens, card.max_output))
    if request.json_schema is not None and "json" in card.capabilities:
        named = {"name": "answer", "schema": dict(request.json_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if marks:
        body["prompt_cache_options"] = {"mode": "explicit"}
    body["stream"] = True
    if "stream_options" not in missing:
        body["stream_options"] = {"include_usage": True}
    return body


def _filled(message: Json, missing: Collection[Ability]) -> Json:
    return {**message, "content": fill_content(message["content"], missing)} if missing else message


def _mark(messages: Sequence[Json], *, but: int) -> None:
    """Set a cache mark on the last part of the messages, not counting the last `but` parts.

    Sets none if there are too few parts.
    """
    parts = [part for message in messages for part in message["content"]]
    if but < len(parts):
        parts[-1 - but]["prompt_cache_breakpoint"] = {"mode": "explicit"}


def _plain(message: Json) -> Json:
    """Return the message with its text parts joined to a string; unchanged if it has pictures."""
    parts = message["content"]
    if all(part["type"] == "text" for part in parts):
        return {**message, "content": "\n\n".join(part["text"] for part in parts) or None}
    return message


def _split_parts(message: Json) -> Json:
    return {**message, "content": message["content"] or None}


def _tool(tool: ToolSpec, missing: Collection[Ability]) -> Json:
    schema = dict(tool.input_schema)
    parameters = simplify_schema(schema) if "schema_keywords" in missing else schema
    told = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": told}


def build_messages(
    message: Message,
    request: ModelRequest,
    card: ModelCard,
    *,
    state_of: str = "",
    missing: Collection[Ability] = NOTHING_MISSING,
) -> Iterator[Json]:
    """Yield the messages for one message: each tool result as its own message, then the text and the calls.

    With `state_of`, the model's name, its stored state is added to the calls.
    """
    has_tools = "tools" in card.capabilities
    for block in message.blocks:
        if has_tools and isinstance(block, ToolResult):
            text = f"Error: {block.text}" if block.is_error else block.text
            id_ = shorten_id(block.tool_use_id)
            yield {"role": "tool", "tool_call_id": id_, "content": [_text(text or _NOTHING)]}
    pictures = request.pictures if "images" in card.capabilities and message.role == "user" else {}
    parts = [part for block in message.blocks if (part := _part(block, pictures, told=not has_tools))]
    state = find_state(message.blocks, state_of, missing) if state_of else {}
    extras = state.get("extras", {})
    calls = [_call(block, extras) for block in message.blocks if has_tools and isinstance(block, ToolUse)]
    if parts or calls:
        said = {"role": message.role, "content": parts}
        yield {**said, "tool_calls": calls, **state.get("fields", {})} if calls else said


def _call(call: ToolUse, extras: Mapping[str, Any]) -> Json:
    given = json.dumps(dict(call.input), ensure_ascii=False)
    told: Json = {
        "id": shorten_id(call.id),
        "type": "function",
        "function": {"name": call.name, "arguments": given},
    }
    return {**told, "extra_content": dict(extras[call.id])} if call.id in extras else told


def _part(block: Block, pictures: Mapping[int, PictureContent], *, told: bool) -> Json | None:
    """Return a part for a block; `told` renders tool calls as text, for models without tools."""
    match block:
        case Text(text=text) if text.strip():
            return _text(text)
        case Image(attachment_id=id_) if id_ in pictures:
            data = base64.b64encode(pictures[id_].body).decode("ascii")
            return {"type": "image_url", "image_url": {"url": f"data:{pictures[id_].mime};base64,{data}"}}
        case Image(description=description):
            return _text(f"[image: {description or 'not described'}]")
        case ToolUse(name=name, input=given) if told:
            return _text(f"[called {name} with {json.dumps(dict(given), ensure_ascii=False)}]")
        case ToolResult(text=text) if told:
            return _text(f"[tool result: {text}]")
    return None


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def shorten_id(id_: str) -> str:
    """Return an id of nine letters and digits, which every server accepts; equal `id_` give equal results."""
    number = int.from_bytes(hashlib.sha256(id_.encode()).digest()[:8], "big")
    letters = []
    for _ in range(_ID_LENGTH):
        number, at = divmod(number, len(_ID_CHARS))
        letters.append(_ID_CHARS[at])
    return "".join(letters)


@dataclass(slots=True)
class _StreamedCall:
    """Tool call that arrives in pieces; its block begins once its name and an argument have come."""

    block: int
    id: object = None
    name: str = ""
    begun: bool = False
    our_id: str = field(default_factory=lambda: f"call_{uuid4().hex}")
    """Id of the call in this program; servers leave ids out or reuse them in each answer."""
    held: list[str] = field(default_factory=list)
    """Arguments not yet sent: they came before the name, or the call may be a repetition."""
    sent: list[str] = field(default_factory=list)
    twin: _StreamedCall | None = None
    """Call with the same id and name at another index."""

    @property
    def arguments(self) -> str:
        """JSON text of the arguments so far, sent and held parts together."""
        return "".join((*self.sent, *self.held))


class ChunkTranslator:
    """Translator of one answer's chunks into the events that `AnswerParser` reads."""

    def __init__(self) -> None:
        self._begun = False
        self._choice: object = None
        """Index of the choice that is read; other choices are ignored."""
        self._reason = ""
        self._refused = False
        self._said = False
        self._text = GrowingText()
        self._calls: list[_StreamedCall] = []
        self._state = StateCollector()
        self._by_index: dict[object, _StreamedCall] = {}
        self._by_id: dict[object, _StreamedCall] = {}
        self._usage: Json = {}
        self._counted_at_end = False

    def take(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of a chunk; one `ping` if it has no others.

        Raises ModelError if the choice is an error.
        """
        events: list[Event] = [] if self._begun else [{"type": "message_start"}]
        self._begun = True
        choice = self._find_choice(list_choices(chunk))
        delta = choice.get("delta")
        if usage := find_usage(chunk, choice, delta):
            self._note_usage(convert_usage(usage))
            self._counted_at_end = not choice
        elif "prompt_eval_count" in chunk or "tokens_evaluated" in chunk:
            self._note_usage(convert_usage(chunk))
        if isinstance(choice.get("error"), Mapping | str):
            raise build_error(read_refusal(200, {"error": choice["error"]}))
        reason = read_reason(choice, delta) or read_reason(chunk)
        self._reason = reason or self._reason
        events += self._translate_choice(choice, delta, is_last=bool(reason))
        return events or [{"type": "ping"}]

    def _find_choice(self, choices: Sequence[object]) -> Mapping[str, Any]:
        """Return the chunk's choice whose index came first in the answer; empty if it has none."""
        for choice in choices:
            if not isinstance(choice, Mapping):
                continue
            index = _key(choice.get("index"))
            if self._choice is None:
                self._choice = index
            if index is None or index == self._choice:
                return choice
        return {}

    def _note_usage(self, usage: Json) -> None:
        """Keep the larger count of each kind, since some servers reset their counts to 0 at the end."""
        for name, count in usage.items():
            self._usage[name] = max(count, self._usage.get(name, 0)) if type(count) is int else count

    def take_whole(self, answer: Mapping[str, Any]) -> list[Event]:
        """Return the events of an answer that came as one object instead of a stream."""
        return self.take(answer)

    def end(self, *, announced: bool = False) -> list[Event]:
        """Return the last events; without `message_stop`, which marks the answer as cut, if no end is known.

        An end is a reason, a count of tokens after the last choice, or `announced`, a mark in the stream.
        Raises ModelAnswerUnusable if the reason is a fault, or an announced answer is empty.
        """
        has_answer = self._said or bool(self._calls)
        if announced and not self._reason and not has_answer:
            raise ModelAnswerUnusable("the server ended the answer before it began")
        last = self._end_parts()
        if not self._reason and not (has_answer and (announced or self._counted_at_end)):
            return last
        reason = "refusal" if self._refused else read_end(self._reason)
        if reason == FAULT:
            raise ModelAnswerUnusable(f"the server ended the answer by {self._reason!r}")
        if self._calls and reason == "end_turn":
            reason = "tool_use"
        ended = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": self._usage}
        return [*last, ended, {"type": "message_stop"}]

    def _end_parts(self) -> list[Event]:
        """Return events for text and calls held back, and for the state that came with the calls."""
        events: list[Event] = []
        if text := self._text.end():
            events.append(build_delta_event("text_delta", 0, text=text))
        for call in self._calls:
            is_repetition = call.twin is not None and call.arguments == call.twin.arguments
            if not call.begun and not is_repetition:
                events += self._begin(call)
        if self._calls and (state := self._state.build()) is not None:
            events.append({"type": "content_block_start", "index": STATE_INDEX, "content_block": state})
            events.append({"type": "content_block_stop", "index": STATE_INDEX})
        return events

    def _translate_choice(
        self, choice: Mapping[str, Any], delta: object, *, is_last: bool
    ) -> Iterator[Event]:
        message = choice.get("message")
        if isinstance(delta, Mapping) and delta:
            yield from self._translate_delta(delta, is_last=is_last)
        elif isinstance(message, Mapping):
            yield from self._translate_delta(message, is_message=True)
        elif isinstance(text := choice.get("text"), str):
            yield from self._translate_delta({"content": text})
        if "tool_calls" in choice:
            yield from self._translate_calls(choice)

    def _translate_delta(
        self, delta: Mapping[str, Any], *, is_message: bool = False, is_last: bool = False
    ) -> Iterator[Event]:
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = self._said = True
            yield build_delta_event("text_delta", 0, text=refusal)
        self._state.take(delta)
        if text := _join_text(delta):
            self._said = True
            piece = self._text.add_message(text) if is_message else self._text.add(text, is_last=is_last)
            if piece:
                yield build_delta_event("text_delta", 0, text=piece)
        if "tool_calls" in delta or "function_call" in delta:
            yield from self._translate_calls(delta)

    def _translate_calls(self, holder: Mapping[str, Any]) -> Iterator[Event]:
        calls = holder.get("tool_calls")
        told = [calls] if isinstance(calls, Mapping) else calls if isinstance(calls, list) else []
        for call in told:
            if isinstance(call, Mapping):
                yield from self._translate_call(call)
        if not told and isinstance(legacy := holder.get("function_call"), Mapping):
            yield from self._translate_call({"index": 0, "function": legacy})

    def _translate_call(self, part: Mapping[str, Any]) -> Iterator[Event]:
        name, given = read_call(part)
        call = self._find_call(part, name)
        self._state.take_call(call.our_id, part)
        if given is not None and not isinstance(given, str):
            # An empty object is a placeholder for arguments in later parts.
            given = json.dumps(given) if given else None
        if given:
            call.held.append(given)
        if call.name and call.held and call.twin is None:
            yield from self._begin(call)

    def _find_call(self, part: Mapping[str, Any], name: str) -> _StreamedCall:
        """Return the call that a streamed part belongs to, and store the part's id, index and name in it.

        With an index, a part without a name belongs to the call with its id, else to the call of its index. A
        named part belongs to the call of its index, unless its id, or without ids its name, differs: then to
        the call with its id, else to a new one, since some servers give all calls the index 0.

        Without an index, a name begins a call, unless the newest one has the same id; a part without a name
        belongs to the call with its id, else to the newest.
        """
        index, id_ = _key(part.get("index")), _key(part.get("id")) or None
        known = self._by_id.get(id_) if id_ is not None else None
        twin = None
        if index is not None:
            call = self._by_index.get(index)
            if known is not None and (not name or (call is not None and _is_another(call, id_, name))):
                call = known
            elif call is not None and _is_another(call, id_, name):
                call = None
            elif call is None and known is not None and known.name == name:
                twin = known
        else:
            newest = self._calls[-1] if self._calls else None
            begins = bool(name) and (newest is None or id_ is None or newest.id != id_)
            call = None if begins else known or newest
        if call is None:
            call = _StreamedCall(block=len(self._calls) + 1, twin=twin)
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if id_ is not None:
            call.id = call.id or id_
            self._by_id.setdefault(id_, call)
        if name and not call.begun and name != call.name:
            call.name = name if name.startswith(call.name) else call.name + name
        return call

    @staticmethod
    def _begin(call: _StreamedCall) -> Iterator[Event]:
        """Yield the beginning of a call's block, unless it has begun, and the arguments that were held."""
        if not call.begun:
            call.begun = True
            block = {"type": "tool_use", "id": call.our_id, "name": clean_name(call.name), "input": {}}
            yield {"type": "content_block_start", "index": call.block, "content_block": block}
        for given in call.held:
            yield build_delta_event("input_json_delta", call.block, partial_json=given)
        call.sent += call.held
        call.held = []


def _is_another(call: _StreamedCall, id_: object, name: str) -> bool:
    """Return whether a named part with the index of `call` begins another call."""
    if not name or not call.name:
        return False
    if id_ is not None and call.id is not None:
        return id_ != call.id
    return call.begun and name != call.name


def _key(value: object) -> object:
    """Return an id or index that is a string or a number; None for other values."""
    return value if isinstance(value, str | int) else None


def build_delta_event(kind: str, index: int, **fields: str) -> Event:
    """Return a Messages event that adds to the block at `index`; `kind` is the delta's type, `fields` its
    content.
    """
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def _join_text(delta: Mapping[str, Any]) -> str:
    """Return the text of a delta without thoughts; its content is a string or a list of parts."""
    content = delta.get("content")
    if not content or _is_thought(delta):
        return ""
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content if isinstance(content, list) else (content,)
    return "".join(_text_of(part) for part in parts)


def _text_of(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") not in _TEXT_PARTS or _is_thought(part):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _is_thought(part: Mapping[str, Any]) -> bool:
    """Return whether a part is marked as a thought, as Google and gateways to it mark them."""
    if part.get("thought") is True:
        return True
    extra = part.get("extra_content")
    google = extra.get("google") if isinstance(extra, Mapping) else None
    return isinstance(google, Mapping) and google.get("thought") is True
