"""Text with entities, and a rendered answer as messages, with a file where it is longer.

Entities point into the text by UTF-16 units, as Telegram counts.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_FLAGS = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_HANGUL_TAILS = range(0x1160, 0x1200)


def is_grapheme_boundary(text: str, at: int) -> bool:
    """Whether a person would see the characters around `at` as two."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return (before, after) != ("\r", "\n")
    if before == _JOINER or after == _JOINER or _extends(after):
        return False
    return not (_is_flag(before) and _is_flag(after) and _flags_before(text, at) % 2)


def _extends(char: str) -> bool:
    code = ord(char)
    in_tail = code in _SKIN_TONES or code in _TAGS or code in _HANGUL_TAILS
    return in_tail or unicodedata.category(char) in ("Mn", "Me", "Mc")


def _is_flag(char: str) -> bool:
    return ord(char) in _FLAGS


def _flags_before(text: str, at: int) -> int:
    start = at
    while start and _is_flag(text[start - 1]):
        start -= 1
    return at - start


def is_visible(text: str) -> bool:
    """Whether Telegram would take it as a text: not only blanks, joiners and accents on nothing."""
    return any(unicodedata.category(char)[0] in "LNPS" for char in text)


def measure_width(text: str) -> int:
    """Columns in a fixed-width font, where East Asian characters and pictures take two."""
    if text.isascii():
        return len(text)
    columns, start = 0, 0
    for at in range(1, len(text) + 1):
        if is_grapheme_boundary(text, at):
            columns += _cluster_width(text[start:at])
            start = at
    return columns


def _cluster_width(cluster: str) -> int:
    if _EMOJI_STYLE in cluster or _is_flag(cluster[0]):
        return min(2, 2 * len(cluster))
    return max(_char_width(char) for char in cluster)


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


EntityType = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEntity:
    """`offset` and `length` count UTF-16 code units."""

    type: EntityType
    offset: int
    length: int
    url: str | None = None
    language: str | None = None

    @property
    def end(self) -> int:
        return self.offset + self.length

    def to_api(self) -> dict[str, str | int]:
        """The Bot API's MessageEntity."""
        fields: dict[str, str | int] = {"type": self.type, "offset": self.offset, "length": self.length}
        if self.url is not None:
            fields["url"] = self.url
        if self.language is not None:
            fields["language"] = self.language
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedText:
    """A whole answer, of any length. Entities are sorted, never empty, and one inside another or apart."""

    text: str = ""
    entities: tuple[TextEntity, ...] = ()

    def followed_by(self, note: str) -> RenderedText:
        """With a word of ours below, which no open fence of the answer can swallow."""
        return RenderedText(text=f"{self.text}\n\n{note}" if self.text else note, entities=self.entities)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """One message. `gap` is what nobody would see between it and the next part; it is not sent."""

    text: str
    entities: tuple[TextEntity, ...] = ()
    gap: str = ""


MESSAGE_UNITS = 4_096
LIVE_UNITS = 3_800
"""While an answer is being written, so that its next words still fit."""
MESSAGE_ENTITIES = 100
ENTITY_BYTES = 8_000
"""Telegram refuses messages whose entities take about 9,500 bytes; addresses of links take most."""

_ENTITY_OVERHEAD_BYTES = 24
_EMPTIEST = 2
"""A part is cut at a better place only if it is then at least one half full."""


def split(rendered: RenderedText, *, limit: int = MESSAGE_UNITS) -> tuple[MessagePart, ...]:
    """Parts in order; the texts joined with the gaps behind them are the rendered text.

    While a text grows, all parts but the last two stay as they are, as long as the limit does.
    """
    text = _MeasuredText.of(rendered)
    parts: list[MessagePart] = []
    start = 0
    while start < len(text.text):
        end = text.furthest(start, limit)
        cut = len(text.text) if end >= len(text.text) else text.cut(start, end)
        part, start = text.part(start, cut)
        if is_visible(part.text):
            parts.append(part)
        elif parts:  # nothing to send: thousands of spaces in a line of code
            parts[-1] = replace(parts[-1], gap=parts[-1].gap + part.text + part.gap)
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredText:
    """`offsets` has the UTF-16 offset of every character and of the end; `blocks` the code blocks' ranges."""

    text: str
    offsets: list[int]
    entities: tuple[TextEntity, ...]
    blocks: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, rendered: RenderedText) -> _MeasuredText:
        offsets = [0, *accumulate(2 if ord(char) > 0xFFFF else 1 for char in rendered.text)]
        at = {offset: index for index, offset in enumerate(offsets)}
        blocks = tuple((at[e.offset], at[e.end]) for e in rendered.entities if e.type == "pre")
        return cls(text=rendered.text, offsets=offsets, entities=rendered.entities, blocks=blocks)

    def furthest(self, start: int, limit: int) -> int:
        """The last index at which a part from `start` could end by the three limits."""
        end = bisect_right(self.offsets, self.offsets[start] + limit) - 1
        first, last = self.offsets[start], self.offsets[end]
        count = size = 0
        for entity in self.entities:
            if entity.end <= first:
                continue
            if entity.offset >= last:
                break
            count += 1
            size += _ENTITY_OVERHEAD_BYTES + len((entity.url or entity.language or "").encode())
            if (count > MESSAGE_ENTITIES or size > ENTITY_BYTES) and entity.offset > first:
                return bisect_right(self.offsets, entity.offset) - 1
        return end

    def cut(self, start: int, end: int) -> int:
        """The best place up to `end`: blank line, line, space, and at last between two characters."""
        half = start + (end - start) // _EMPTIEST
        best, best_rank = 0, 0
        for at in range(end, half, -1):
            rank = self._rank(at)
            if rank > best_rank:
                best, best_rank = at, rank
                if rank == _BEST:
                    break
        if best:
            return best
        return next((at for at in range(end, start, -1) if is_grapheme_boundary(self.text, at)), end)

    def _rank(self, at: int) -> int:
        """How good a cut before the character at `at` is; 0 is none."""
        char, before = self.text[at], self.text[at - 1]
        if char == "\n":
            blank = self.text.startswith("\n\n", at) or before == "\n"
            return (3 if blank else 2) if self.in_block(at) else (_BEST if blank else 4)
        return 1 if char in " \t" and not before.isspace() else 0

    def in_block(self, at: int) -> bool:
        """Whether a code block has characters on both sides of `at`."""
        number = bisect_right(self.blocks, (at, -1)) - 1
        return number >= 0 and self.blocks[number][0] < at < self.blocks[number][1]

    def part(self, start: int, cut: int) -> tuple[MessagePart, int]:
        """The part up to `cut`, and where the next begins: behind whitespace, but with code's indentation."""
        end = cut
        while end > start + 1 and self.text[end - 1].isspace():
            end -= 1
        after = cut
        while after < len(self.text) and self.text[after].isspace():
            after += 1
        if self.in_block(cut) and after < len(self.text):
            line = self.text.rfind("\n", cut, after)
            after = line + 1 if line >= 0 else cut
        gap = self.text[end:after]
        return MessagePart(text=self.text[start:end], entities=self._within(start, end), gap=gap), after

    def _within(self, start: int, end: int) -> tuple[TextEntity, ...]:
        first, last = self.offsets[start], self.offsets[end]
        found = []
        for entity in self.entities:
            offset, until = max(entity.offset, first), min(entity.end, last)
            if entity.offset >= last:
                break
            if offset < until:
                found.append(replace(entity, offset=offset - first, length=until - offset))
        return tuple(found)


_BEST = 5
