"""What the provider would bill for a request: the published cache rules over hashes of its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.core.context.build_context import BuiltContext
from shared.core.values.messages import Block, Image, ProviderBlock, Text, Thinking, ToolResult, ToolUse
from shared.core.values.tokens import MESSAGE_OVERHEAD, Count, estimate_blocks, estimate_tools
from shared.ports import ToolSpec
from tests.kit.fakes.messages_api.cache import LOOK_BACK_BLOCKS, MIN_CACHEABLE

SHORT_SECONDS, LONG_SECONDS = 300.0, 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Input tokens by what they cost."""

    uncached: int = 0
    read: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        return self.uncached + self.read + self.written


@dataclass(slots=True)
class _Kept:
    lives_seconds: float
    until: float


class ProviderCache:
    """One model's cache, for one session; asked with the time of the call, in seconds."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._sizes: dict[int, int] = {}
        self._entries: dict[int, _Kept] = {}

    def bill(
        self,
        built: BuiltContext,
        tools: Sequence[ToolSpec],
        *,
        now: float,
        lives_seconds: float = SHORT_SECONDS,
    ) -> Billed:
        """Looks up, writes what is marked, and says what was uncached, read and written."""
        pieces, marks = self._pieces(built, tools)
        total = pieces[-1][1]
        marks = [index for index in marks if pieces[index][1] >= MIN_CACHEABLE]
        hit = self._longest(pieces, marks, now)
        read = 0 if hit is None else pieces[hit][1]
        end = read
        for index in marks:
            end = max(end, pieces[index][1])
            self._entries[pieces[index][0]] = _Kept(lives_seconds, now + lives_seconds)
        return Billed(uncached=total - end, read=read, written=end - read)

    def _longest(self, pieces: Sequence[tuple[int, int]], marks: Sequence[int], now: float) -> int | None:
        for mark in reversed(marks):
            for index in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1):
                kept = self._entries.get(pieces[index][0])
                if kept is not None and kept.until > now:
                    kept.until = now + kept.lives_seconds
                    return index
        return None

    def _pieces(
        self, built: BuiltContext, tools: Sequence[ToolSpec]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """For each block the hash of everything up to it and its tokens, and where the marks stand."""
        chained = hash(tuple((tool.name, tool.description) for tool in tools))
        size = estimate_tools(tools, self._count)
        pieces: list[tuple[int, int]] = []
        marks: list[int] = []
        for part in built.system:
            chained, size = hash((chained, hash(part.text))), size + MESSAGE_OVERHEAD + self._text(part.text)
            pieces.append((chained, size))
            if part.cache:
                marks.append(len(pieces) - 1)
        last = max(built.cache_at, default=-1)
        for index, message in enumerate(built.messages):
            size += MESSAGE_OVERHEAD
            for block in message.blocks:
                key = hash((message.role, *_identity(block)))
                chained, size = hash((chained, key)), size + self._size(key, block)
                pieces.append((chained, size))
            if index in built.cache_at:
                marks.append(len(pieces) - 1 - (built.behind_mark if index == last else 0))
        return pieces, marks

    def _text(self, text: str) -> int:
        key = hash(text)
        if key not in self._sizes:
            self._sizes[key] = self._count(text)
        return self._sizes[key]

    def _size(self, key: int, block: Block) -> int:
        if key not in self._sizes:
            self._sizes[key] = estimate_blocks((block,), self._count) - MESSAGE_OVERHEAD
        return self._sizes[key]


def _identity(block: Block) -> tuple[object, ...]:
    match block:
        case Text(text=text) | Thinking(text=text):
            return (type(block).__name__, text)
        case ToolUse(id=id_, name=name):
            return ("use", id_, name)
        case ToolResult(tool_use_id=id_, text=text):
            return ("result", id_, text)
        case Image() | ProviderBlock():
            return ("image", id(block))
