"""Parsing of recalled text: which messages, notes and files a stored request contained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shared.core.context.memory import core_line, words_of_line
from shared.core.context.prompts import NO_LONGER
from shared.core.memory.recall import LATER_NOTE_MARK, NOTE_MARK, OF_FILES

_HEAD = re.compile(r"(?:[A-Z][a-z]+, )?([0-9]{4}-[0-9]{2}-[0-9]{2})(?: \([a-z0-9 ]+\))?:")
_MESSAGE = re.compile(r"(?:#([0-9]{1,18})|earlier) ([^\n:]{1,80}): ")
_NOTE_MARKS = (NOTE_MARK, LATER_NOTE_MARK)
_FILE = re.compile(r"\[([^\n\]]+)\] ")


class SentPassage(NamedTuple):
    """Recalled message, or a part of one, that a request contained."""

    day: str
    """ISO date in the person's time zone."""
    seq: int
    """Number (`seq`) in the conversation; 0 for a message of an earlier conversation."""
    text: str
    author: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMemory:
    """Messages, notes and files that a stored request contained, in its order."""

    passages: tuple[SentPassage, ...] = ()
    notes: tuple[str, ...] = ()
    """Texts of recalled notes."""
    files: tuple[str, ...] = ()
    """File names, most with a heading after ` › `."""


def parse_recalled(text: str) -> SentMemory:
    """Return the passages of a text that `render_passages` made; lines that are none are ignored."""
    passages: list[SentPassage] = []
    notes: list[str] = []
    files: list[str] = []
    for head, line in _items(text):
        if line.startswith(_NOTE_MARKS):
            notes.append(line.removeprefix(NOTE_MARK).removeprefix(LATER_NOTE_MARK))
        elif head == "":
            files += [found[1]] if (found := _FILE.match(line)) else []
        elif found := _MESSAGE.match(line):
            passages.append(
                SentPassage(day=head, seq=int(found[1] or 0), text=line[found.end() :], author=found[2])
            )
    return SentMemory(passages=tuple(passages), notes=tuple(notes), files=tuple(dict.fromkeys(files)))


def parse_note_lines(block: str) -> tuple[str, ...]:
    """Return the texts of the notes in a request's block of notes, without those marked as outdated."""
    begin = core_line("")
    lines = [line for line in block.split("\n") if line.startswith(begin)]
    return tuple(words_of_line(line) for line in lines if not line.endswith(f"{NO_LONGER})"))


def _items(text: str) -> Iterator[tuple[str, str]]:
    """Yield each passage with its day; the day is empty for passages of files."""
    head, lines = "", list[str]()
    for line in text.split("\n"):
        day = _HEAD.fullmatch(line)
        is_files = line == f"{OF_FILES}:"
        begins = (
            bool(_MESSAGE.match(line)) or line.startswith(_NOTE_MARKS) or (head == "" and _FILE.match(line))
        )
        if (day or is_files or begins) and lines:
            yield head, "\n".join(lines)
            lines = []
        if day or is_files:
            head = day[1] if day else ""
        else:
            lines.append(line)
    if lines:
        yield head, "\n".join(lines)
