"""Assembly of one stream's events into blocks, usage and stop reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from shared.adapters.models.dialects.ends import FAULT, read_end
from shared.adapters.models.dialects.hidden_text import HiddenText
from shared.adapters.models.dialects.opaque_state import MOST_CHARS, seal
from shared.adapters.models.dialects.tool_arguments import UnreadableArguments, read_pieces
from shared.adapters.models.dialects.usage_fields import convert_usage, find_usage, read_count
from shared.core.values.errors import ModelAnswerUnusable
from shared.core.values.messages import (
    REPLACEMENT,
    Block,
    ProviderBlock,
    Text,
    Thinking,
    ToolUse,
    ends_in_half,
    storable,
    storable_json,
)
from shared.ports import StopReason, TokenCounter, Usage

_REASONS: Mapping[str, StopReason] = {
    "end_turn": "end_turn",
    "pause_turn": "end_turn",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "window_exceeded",
}

Event = Mapping[str, Any]
"""One event of a stream in the form of the Messages API; `type` is its kind."""
SERVER_TOOL_USE = "server_tool_use"
"""Kind of a block in which the model calls a tool that the provider runs."""
_DELTA_FIELDS = {"text": "text_delta", "partial_json": "input_json_delta", "thinking": "thinking_delta"}
"""Types of deltas that come without a type, by the field that they have."""
_OURS = frozenset({"text", "thinking", "tool_use"})
_PART_OF_DELTA = {"text_delta": "text", "thinking_delta": "thinking"}
_PART_KINDS = frozenset({"text", "thinking"})
_MOST_DIGITS = 6
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")


class BrokenAnswer(Exception):
    """Raised for an answer that cannot be used although its stream ended.

    `hint` is a sentence for the model before the next call; "" if there is none.
    """

    def __init__(self, reason: str, *, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


FAULTY_CALL = (
    "Your last answer could not be used: {fault}. Call tools with a JSON object as arguments, or answer."
)
CALL_IN_TEXT = (
    "Your last answer could not be used: it had a call of a tool as text. Call tools by the interface for "
    "tools, or answer without them."
)
"""Sentences that the model gets after an answer that could not be used."""


@dataclass(slots=True)
class _Part:
    kind: str
    id: str = ""
    name: str = ""
    text: list[str] = field(default_factory=list)
    half: str = ""
    """First half of a surrogate pair whose second half comes with the next piece; else ""."""
    signature: str = ""
    is_signed: bool = False
    """Whether the server sent a signature, even an empty one."""
    given: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Block as it was opened, if its kind is known only to the provider; else empty."""
    closed: bool = False
    first: str = ""
    """Text of the block's start, which some servers repeat as first delta."""

    def add(self, piece: str) -> str:
        """Add a piece and return it in storable form, after a half character that waited for it."""
        piece = self.half + piece
        self.half = piece[-1] if ends_in_half(piece) else ""
        piece = storable(piece[:-1] if self.half else piece)
        self.text.append(piece)
        return piece

    def get_text(self) -> str:
        """Return the text so far; a half character at its end is replaced."""
        return "".join(self.text) + (REPLACEMENT if self.half else "")


class AnswerParser:
    """Parser of one attempt's events; events of unknown kinds are ignored, as the API demands."""

    def __init__(self, hidden: HiddenText | None = None, *, keeps_unsigned: bool = False) -> None:
        """Start a parser; `hidden` removes thoughts and calls from the text, None removes nothing.

        `keeps_unsigned` keeps thinking without a signature as the server's state.
        """
        self._hidden = hidden
        self._keeps_unsigned = keeps_unsigned
        self.withdrawn = False
        """Whether text that was already returned turned out to be a thought, in the last `take_all`."""
        self._parts: dict[int, _Part] = {}
        self._places: dict[int, int] = {}
        """Key of the part for each index, since some servers reuse an index for the next block."""
        self._usage = Usage()
        self._reason: str | None = None
        self._told_output = False
        self.started = False
        self.ended = False
        self.chars = 0
        """Characters of all text, thinking and tool arguments so far."""

    def take_all(self, events: Iterable[Event]) -> str:
        """Process events up to the last one of the answer; return the visible text in them.

        If `withdrawn` is true afterwards, the text replaces all that was returned before.
        """
        pieces: list[str] = []
        self.withdrawn = False
        for event in events:
            pieces.append(self._add(event, pieces))
            if self.ended:
                break
        return "".join(pieces)

    def _add(self, event: Event, pieces: list[str]) -> str:
        piece = self.take(event)
        if self._hidden is not None and self._hidden.take_withdrawn():
            self.withdrawn = True
            pieces.clear()
        return piece

    @property
    def is_whole(self) -> bool:
        """Whether the end of the answer was received, with or without the last event."""
        return self.ended or self._reason is not None

    def take(self, event: Event) -> str:
        """Process one event; return the visible text in it, "" if it has none.

        Raises ModelAnswerUnusable if the server reports a fault as end.
        """
        match event.get("type"):
            case "message_start":
                self.started = True
                self._count(convert_usage(find_usage(_mapping(event.get("message"))) or {}))
            case "content_block_start":
                return self._open(_index(event), _mapping(event.get("content_block")))
            case "content_block_delta":
                return self._extend(_index(event), _mapping(event.get("delta")))
            case "content_block_stop":
                if (part := self._parts.get(self._find_place(event))) is not None:
                    part.closed = True
            case "message_delta":
                self._end_with(_mapping(event.get("delta")).get("stop_reason"))
                usage = convert_usage(find_usage(event) or {})
                self._told_output = self._told_output or usage.get("output_tokens") is not None
                self._count(usage)
            case "message_stop":
                self._end_with(event.get("stop_reason"))
                self._count(convert_usage(find_usage(event) or {}))
                self.ended = True
                return self._release_held()
            case _:
                pass
        return ""

    def build_blocks(self) -> tuple[Block, ...]:
        """Return the answer's blocks.

        Raises BrokenAnswer for a call without a name, with arguments that are no JSON object, or written as
        text.
        """
        return drop_unpaired(self.build_unpaired_blocks())

    def build_unpaired_blocks(self) -> tuple[Block, ...]:
        """Return the blocks like `build_blocks`, but also unanswered calls of the provider's own tools."""
        found = (self._block(part) for _, part in sorted(self._parts.items()))
        blocks = tuple(block for block in found if block is not None)
        if self._hidden is not None and self._hidden.has_calls and not _says_anything(blocks):
            raise BrokenAnswer("the answer is a call of a tool as text", hint=CALL_IN_TEXT)
        return blocks

    @property
    def paused(self) -> bool:
        """Whether the provider has paused for its own tools and must be asked to continue."""
        return self._reason == "pause_turn"

    @property
    def is_empty(self) -> bool:
        """Whether neither a content block nor a stop reason has arrived."""
        return not self._parts and self._reason is None

    @property
    def says_anything(self) -> bool:
        """Whether a tool call, or text that is not blank, has arrived."""
        return any(part.kind == "tool_use" or part.get_text().strip() for part in self._parts.values())

    def end_unannounced(self) -> None:
        """Set the stop reason of an answer whose server sent none.

        It is "max_tokens" if the answer stops within a word, else "end_turn".
        """
        text = "".join(part.get_text() for part in self._parts.values() if part.kind == "text").rstrip()
        is_whole = self._has_calls() or not text or not text[-1].isalnum()
        self._reason = "end_turn" if is_whole else "max_tokens"

    def _end_with(self, reason: object) -> None:
        """Set the stop reason in the words of the Messages API; ignore a missing one.

        Raises ModelAnswerUnusable if the reason is a fault of the server.
        """
        if not isinstance(reason, str) or not reason:
            return
        known = reason if reason in _REASONS else read_end(reason)
        if known == FAULT:
            raise ModelAnswerUnusable(f"the server ended the answer by {reason!r}")
        self._reason = known

    def find_stop_reason(self) -> StopReason:
        """Return the stop reason: what the server said, "end_turn" if it said nothing.

        "tool_use" and "end_turn" are exchanged if they contradict the calls in the answer.
        """
        told = _REASONS.get(self._reason or "")
        if told == "end_turn" and self._has_calls():
            return "tool_use"
        if told == "tool_use" and not self._has_calls():
            return "end_turn"
        if told is not None:
            return told
        return "tool_use" if self._has_calls() else "end_turn"

    def _has_calls(self) -> bool:
        return any(part.kind == "tool_use" for part in self._parts.values())

    def build_usage(self) -> Usage:
        """Return the provider's usage; its `known` is False if the provider sent no counts."""
        return self._usage if self._usage.context_tokens else replace(self._usage, known=False)

    def estimate_spent(self, counter: TokenCounter, factor: float) -> Usage | None:
        """Return the usage of a discarded attempt, with its output estimated unless its final count arrived.

        Returns None if the answer had not begun. `factor` multiplies the counter's tokens.
        """
        if not self.started:
            return None
        usage = self.build_usage()
        if self._told_output or not usage.known:
            return usage
        estimate = round(counter.count_tokens(self.words()) * factor)
        return replace(usage, output_tokens=max(usage.output_tokens, estimate))

    def words(self) -> str:
        """Return all text, thinking and tool arguments so far."""
        return "\n".join(part.get_text() for part in self._parts.values())

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Add counts, which are cumulative; missing or smaller ones change nothing."""
        self._usage = Usage(
            input_tokens=max(self._usage.input_tokens, read_count(usage.get("input_tokens"))),
            output_tokens=max(self._usage.output_tokens, read_count(usage.get("output_tokens"))),
            cache_read_tokens=max(
                self._usage.cache_read_tokens, read_count(usage.get("cache_read_input_tokens"))
            ),
            cache_write_tokens=max(
                self._usage.cache_write_tokens, read_count(usage.get("cache_creation_input_tokens"))
            ),
            cache_hour_tokens=max(
                self._usage.cache_hour_tokens,
                read_count(_mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
            ),
        )

    def _open(self, index: int, block: Mapping[str, Any]) -> str:
        block = storable_json(block)
        part = _Part(
            kind=str(block.get("type")), id=str(block.get("id") or ""), name=str(block.get("name") or "")
        )
        self._parts[self._place(index, part)] = part
        first = part.first = str(block.get("thinking" if part.kind == "thinking" else "text") or "")
        part.signature = str(block.get("signature") or "")
        part.is_signed = "signature" in block
        part.given = _mapping(block.get("input"))
        if part.kind == "tool_use" and isinstance(given := block.get("input"), str):
            part.add(given)
        if part.kind not in _OURS:
            part.raw = dict(block)
        if part.kind == "text":
            return self._add_text(part, first) if first else ""
        if first:
            part.add(first)
        return ""

    def _extend(self, index: int, delta: Mapping[str, Any]) -> str:
        kind = delta.get("type") or next(
            (kind for name, kind in _DELTA_FIELDS.items() if name in delta), None
        )
        self.chars += sum(len(text) for text in delta.values() if isinstance(text, str))
        part = self._parts.get(self._places.get(index, index))
        wanted = _PART_OF_DELTA.get(str(kind))
        if part is None or (wanted is not None and part.kind != wanted and part.kind in _PART_KINDS):
            part = _Part(kind=wanted or "text")
            self._parts[self._place(index, part)] = part
        first, part.first = part.first, ""
        if first and first in (delta.get("text"), delta.get("thinking")):
            return ""
        match kind:
            case "text_delta":
                return self._add_text(part, str(delta.get("text") or ""))
            case "input_json_delta":
                part.add(str(delta.get("partial_json") or ""))
            case "thinking_delta":
                part.add(str(delta.get("thinking") or ""))
            case "signature_delta":
                part.is_signed = True
                part.signature += storable(str(delta.get("signature") or ""))
            case _:
                pass
        return ""

    def _place(self, index: int, part: _Part) -> int:
        """Return the key for a new part: its index, or the next free key if another part has it."""
        taken = self._parts.get(index)
        is_repeated = taken is not None and taken.kind == part.kind and taken.id == part.id and not taken.text
        place = index if taken is None or is_repeated else max(self._parts) + 1
        self._places[index] = place
        return place

    def _find_place(self, event: Event) -> int:
        index = _index(event)
        return self._places.get(index, index)

    def _add_text(self, part: _Part, text: str) -> str:
        if part.kind != "text":
            part.add(text)
            return ""
        if self._hidden is None:
            return part.add(text)
        visible = self._hidden.add(text)
        if self._hidden.withdrawn:
            for one in self._parts.values():
                if one.kind == "text":
                    one.text.clear()
                    one.half = ""
        return part.add(visible) if visible else ""

    def _release_held(self) -> str:
        """Return text that was held because it could have been the beginning of a tag."""
        if self._hidden is None or not (held := self._hidden.end()):
            return ""
        texts = [part for part in self._parts.values() if part.kind == "text"]
        if not texts:
            texts = [self._parts.setdefault(max(self._parts, default=-1) + 1, _Part(kind="text"))]
        return texts[-1].add(held)

    def _block(self, part: _Part) -> Block | None:
        text = part.get_text()
        match part.kind:
            case "text":
                return Text(text=text) if text else None
            case "thinking":
                if part.signature:
                    return Thinking(text=text, signature=part.signature)
                return self._seal_unsigned(part, text)
            case "tool_use":
                return self._tool_use(part, text)
            case _:
                return _parse_provider_block(part, text)

    def _seal_unsigned(self, part: _Part, text: str) -> Block | None:
        """Return thinking without a signature as a state block; None if the server does not need it back."""
        if not (self._keeps_unsigned and text and len(text) <= MOST_CHARS):
            return None
        thought = {"type": "thinking", "thinking": text}
        return ProviderBlock(raw=seal({**thought, "signature": ""} if part.is_signed else thought))

    def _tool_use(self, part: _Part, raw: str) -> Block | None:
        try:
            told = read_pieces(part.text, name=part.name) if raw.strip() else {}
            given = storable_json(told) or part.given
        except UnreadableArguments as error:
            if self.find_stop_reason() in ("max_tokens", "window_exceeded"):
                return None  # the answer was cut in the middle of this call
            fault = f"{part.name}: {error}"
            raise BrokenAnswer(fault, hint=FAULTY_CALL.format(fault=fault)) from error
        if not part.name:
            fault = "a call of a tool has no name"
            raise BrokenAnswer(fault, hint=FAULTY_CALL.format(fault=fault))
        return ToolUse(id=part.id or f"call_{uuid4().hex}", name=part.name, input=given)


def _parse_provider_block(part: _Part, text: str) -> Block | None:
    """Return a block of an unknown kind as the provider sent it; None if it is incomplete."""
    if not part.closed or not _KIND.fullmatch(part.kind):
        return None
    raw = dict(part.raw)
    if "input" in raw and text.strip():
        try:
            raw["input"] = storable_json(json.loads(text))
        except ValueError:
            return None
    return ProviderBlock(raw=raw)


def drop_unpaired(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return blocks without the provider's tool calls that lack a result, and results without a call.

    The provider would refuse either.
    """
    theirs = [block for block in blocks if isinstance(block, ProviderBlock)]
    if not theirs:
        return blocks
    asked = {str(block.raw.get("id")) for block in theirs if block.kind == SERVER_TOOL_USE}
    answered = {str(block.raw["tool_use_id"]) for block in theirs if "tool_use_id" in block.raw}
    both = asked & answered

    def stays(block: Block) -> bool:
        if not isinstance(block, ProviderBlock):
            return True
        if block.kind == SERVER_TOOL_USE:
            return str(block.raw.get("id")) in both
        return "tool_use_id" not in block.raw or str(block.raw["tool_use_id"]) in both

    return tuple(block for block in blocks if stays(block))


def _says_anything(blocks: Iterable[Block]) -> bool:
    return any(
        not isinstance(block, Text | Thinking) or (isinstance(block, Text) and block.text.strip())
        for block in blocks
    )


def _index(event: Event) -> int:
    index = event.get("index")
    if isinstance(index, str) and index.isascii() and index.isdigit() and len(index) < _MOST_DIGITS:
        return int(index)
    return index if isinstance(index, int) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
