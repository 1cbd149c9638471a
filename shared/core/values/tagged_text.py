"""Passages between an opening and a closing tag, found in time linear in the text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_OPENING = re.compile(r"<([a-z][\w-]*+)(?:\s[^<>]*+)?>")
_CLOSING = re.compile(r"</([a-z][\w-]*+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedPassage:
    """Passage between an opening and a closing tag; `text` is without the tags.

    `start` and `end` are positions in the whole text and include both tags.
    """

    tag: str
    text: str
    start: int
    end: int


def tagged_passages(text: str, names: Collection[str] = ()) -> Iterator[TaggedPassage]:
    """Yield the passages from each opening tag to the next closing tag of the same name, in order, without
    overlaps.

    `names` restricts the tags; empty allows all lower-case names. The time is linear even for many tags that
    are never closed.
    """
    closings: dict[str, list[int]] = {}
    for closing in _CLOSING.finditer(text):
        closings.setdefault(closing[1], []).append(closing.start())
    at = 0
    for opening in _OPENING.finditer(text) if closings else ():
        tag = opening[1]
        if opening.start() < at or (names and tag not in names):
            continue
        places = closings.get(tag, [])
        number = bisect_left(places, opening.end())
        if number == len(places):
            continue
        at = places[number] + len(tag) + 3
        yield TaggedPassage(tag=tag, text=text[opening.end() : places[number]], start=opening.start(), end=at)


def replace_tagged(text: str, *, by: str) -> str:
    """Return the text with each tagged passage, tags included, replaced by `by`."""
    pieces: list[str] = []
    at = 0
    for passage in tagged_passages(text):
        pieces += [text[at : passage.start], by]
        at = passage.end
    return "".join([*pieces, text[at:]])
