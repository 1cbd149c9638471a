"""One person on two channels: codes that are easy to type, and why a link is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Without 0, 1, I and O, which people mistake for each other: 40 bits in eight characters."""
CODE_CHARS = 8
CODE_MINUTES = 10
CODES_PER_HOUR = 3
"""Per person, used or not."""
GUESSES = 5
"""Wrong codes per session, and per person, within GUESS_MINUTES; then right ones are wrong, too."""
GUESSES_OF_ALL = 200
"""In the whole deployment, within the same time."""
GUESS_MINUTES = 10

LinkRefusal = Literal[
    "no_code", "own_code", "too_many_codes", "busy", "with_human", "group", "not_here", "moved"
]
"""Reason of a refused link. `no_code` covers unknown, used and expired codes, and too many tries."""
UnlinkRefusal = Literal["not_linked", "which", "busy", "with_human", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Two persons are one from now on."""

    session_id: int
    """Session that continues."""
    archived_session_id: int
    other_channel: str
    agent: str
    """Agent of the session that continues."""
    other_agent: str
    notes_merged: int = 0
    again: bool = False
    """True if the same code was used again after it had succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLink:
    """Link between channels that `/unlink` can separate."""

    id: int
    channel: str
    title: str
    linked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Two persons again."""

    session_id: int
    """Went on, and stays with the others."""
    back_session_id: int
    """Is the joined one's own again."""
    addresses: tuple[int, ...]
    """Lead there from now on."""
    channel: str
    is_caller: bool
    """Whether the command came from one of these places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedLine:
    author: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSession:
    """An earlier conversation that went on elsewhere, to read."""

    public_id: str
    channel: str
    archived_at: datetime
    messages: Sequence[ArchivedLine]


def parse_code(words: str) -> str | None:
    """Return a typed code without blanks and dashes, in upper case; None if it cannot be a code."""
    code = "".join(char for char in words.upper() if char not in " -–—_.`\u00a0")
    return code if len(code) == CODE_CHARS and set(code) <= set(CODE_ALPHABET) else None


def format_code(code: str) -> str:
    """In two groups."""
    half = CODE_CHARS // 2
    return f"{code[:half]}-{code[half:]}"
