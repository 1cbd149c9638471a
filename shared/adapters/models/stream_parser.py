"""Puts the events of one stream together into blocks, usage and the reason it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
SERVER_TOOL_USE = "server_tool_use"
_OURS = frozenset({"text", "thinking", "tool_use"})
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")


class BrokenAnswer(Exception):
    """The stream ended, but what it said cannot be used."""


@dataclass(slots=True)
class _Part:
    kind: str
    id: str = ""
    name: str = ""
    text: list[str] = field(default_factory=list)
    half: str = ""
    """Of a character whose other half comes with the next piece."""
    signature: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)
    """As it was opened, for blocks that only the provider understands."""
    closed: bool = False

    def add(self, piece: str) -> str:
        """The piece as it can be kept and shown, with the half that waited for it."""
        piece = self.half + piece
        self.half = piece[-1] if ends_in_half(piece) else ""
        piece = storable(piece[:-1] if self.half else piece)
        self.text.append(piece)
        return piece

    def get_text(self) -> str:
        return "".join(self.text) + (REPLACEMENT if self.half else "")


class AnswerParser:
    """One attempt; events of kinds that are not known are passed over, as the API asks of its readers."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._usage = Usage()
        self._reason: str | None = None
        self._told_output = False
        self.started = False
        self.ended = False
        self.chars = 0
        """Of all that was said, thought and given to tools so far."""

    def take_all(self, events: Iterable[Event]) -> str:
        """Up to the last one of the answer; returns the visible text in them."""
        pieces = []
        for event in events:
            pieces.append(self.take(event))
            if self.ended:
                break
        return "".join(pieces)

    def take(self, event: Event) -> str:
        """Adds one event; returns the piece of visible text in it, if any."""
        match event.get("type"):
            case "message_start":
                self.started = True
                self._count(_mapping(_mapping(event.get("message")).get("usage")))
            case "content_block_start":
                return self._open(_index(event), _mapping(event.get("content_block")))
            case "content_block_delta":
                return self._extend(_index(event), _mapping(event.get("delta")))
            case "content_block_stop":
                if _index(event) in self._parts:
                    self._parts[_index(event)].closed = True
            case "message_delta":
                self._reason = _mapping(event.get("delta")).get("stop_reason") or self._reason
                usage = _mapping(event.get("usage"))
                self._told_output = self._told_output or usage.get("output_tokens") is not None
                self._count(usage)
            case "message_stop":
                self.ended = True
            case _:
                pass
        return ""

    def build_blocks(self) -> tuple[Block, ...]:
        """All that was said; raises BrokenAnswer for a tool call whose input is no JSON object."""
        return drop_unpaired(self.build_unpaired_blocks())

    def build_unpaired_blocks(self) -> tuple[Block, ...]:
        """The same with calls of the provider's own tools that it has not answered yet."""
        found = (self._block(part) for _, part in sorted(self._parts.items()))
        return tuple(block for block in found if block is not None)

    @property
    def paused(self) -> bool:
        """The provider wants to be asked to go on, because its own tools take long."""
        return self._reason == "pause_turn"

    def find_stop_reason(self) -> StopReason:
        if self._reason is not None and self._reason in _REASONS:
            return _REASONS[self._reason]
        has_tools = any(part.kind == "tool_use" for part in self._parts.values())
        return "tool_use" if has_tools else "end_turn"

    def build_usage(self) -> Usage:
        """As the provider counted; servers that say nothing, or 0 for all, are not believed."""
        return self._usage if self._usage.context_tokens else replace(self._usage, known=False)

    def estimate_spent(self, counter: TokenCounter, factor: float) -> Usage | None:
        """What an attempt cost that is thrown away; output is estimated unless its final count arrived."""
        if not self.started:
            return None
        usage = self.build_usage()
        if self._told_output or not usage.known:
            return usage
        estimate = round(counter.count_tokens(self.words()) * factor)
        return replace(usage, output_tokens=max(usage.output_tokens, estimate))

    def words(self) -> str:
        """All that was said, thought and given to tools."""
        return "\n".join(part.get_text() for part in self._parts.values())

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Counts are cumulative; a server that leaves one out, or sets it back to 0, changes nothing."""
        self._usage = Usage(
            input_tokens=max(self._usage.input_tokens, parse_count(usage.get("input_tokens"))),
            output_tokens=max(self._usage.output_tokens, parse_count(usage.get("output_tokens"))),
            cache_read_tokens=max(
                self._usage.cache_read_tokens, parse_count(usage.get("cache_read_input_tokens"))
            ),
            cache_write_tokens=max(
                self._usage.cache_write_tokens, parse_count(usage.get("cache_creation_input_tokens"))
            ),
            cache_hour_tokens=max(
                self._usage.cache_hour_tokens,
                parse_count(_mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
            ),
        )

    def _open(self, index: int, block: Mapping[str, Any]) -> str:
        block = storable_json(block)
        part = _Part(
            kind=str(block.get("type")), id=str(block.get("id", "")), name=str(block.get("name", ""))
        )
        self._parts[index] = part
        first = str(block.get("thinking" if part.kind == "thinking" else "text") or "")
        part.signature = str(block.get("signature") or "")
        part.given = _mapping(block.get("input"))
        if part.kind not in _OURS:
            part.raw = dict(block)
        first = part.add(first) if first else ""
        return first if part.kind == "text" else ""

    def _extend(self, index: int, delta: Mapping[str, Any]) -> str:
        kind = delta.get("type")
        self.chars += sum(len(text) for text in delta.values() if isinstance(text, str))
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(kind="thinking" if kind == "thinking_delta" else "text")
        match kind:
            case "text_delta":
                piece = part.add(str(delta.get("text") or ""))
                return piece if part.kind == "text" else ""
            case "input_json_delta":
                part.add(str(delta.get("partial_json") or ""))
            case "thinking_delta":
                part.add(str(delta.get("thinking") or ""))
            case "signature_delta":
                part.signature += storable(str(delta.get("signature") or ""))
            case _:
                pass
        return ""

    def _block(self, part: _Part) -> Block | None:
        text = part.get_text()
        match part.kind:
            case "text":
                return Text(text=text) if text else None
            case "thinking":
                # Without its signature a thinking block would be refused when it comes back.
                return Thinking(text=text, signature=part.signature) if part.signature else None
            case "tool_use":
                return self._tool_use(part, text)
            case _:
                return _parse_provider_block(part, text)

    def _tool_use(self, part: _Part, raw: str) -> Block | None:
        try:
            given = storable_json(json.loads(raw)) if raw.strip() else part.given
        except ValueError as error:
            if self.find_stop_reason() in ("max_tokens", "window_exceeded"):
                return None  # the answer was cut in the middle of this call
            raise BrokenAnswer(f"the input of {part.name!r} is not JSON") from error
        if not isinstance(given, Mapping) or not part.id or not part.name:
            raise BrokenAnswer(f"the call of {part.name!r} is incomplete")
        return ToolUse(id=part.id, name=part.name, input=given)


def _parse_provider_block(part: _Part, text: str) -> Block | None:
    """A kind that is not ours is kept as it came, so that the words around it stay as they are."""
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
    """A call of the provider's own tool without its result, or the other way, would be refused."""
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


def _index(event: Event) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def parse_count(value: object) -> int:
    """JSON's true is no number, though Python takes it for one."""
    return value if type(value) is int else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
