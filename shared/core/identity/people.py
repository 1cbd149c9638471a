"""Links between the channels of one person: codes, results, and archived conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Characters of link codes, without 0, 1, I and O, which people confuse."""
CODE_HOURS = 1
"""Hours for which the code of a request for access to a bot is valid."""
CODE_CHARS = 8
"""Characters of a link code."""
CODE_MINUTES = 10
"""Minutes for which a link code is valid."""
CODES_PER_HOUR = 3
"""Most codes that one person may request per hour, used or not."""
GUESSES = 5
"""Wrong codes per session and per person within `GUESS_MINUTES`, after which right ones are refused, too."""
GUESSES_OF_ALL = 200
"""Wrong codes in the whole deployment within `GUESS_MINUTES`, after which all codes are refused."""
GUESS_MINUTES = 10
"""Minutes over which wrong codes are counted."""

LinkRefusal = Literal[
    "no_code", "own_code", "too_many_codes", "busy", "with_human", "group", "not_here", "moved"
]
"""Reason why a link is refused. `no_code` covers unknown, used and expired codes, and too many tries."""
UnlinkRefusal = Literal["not_linked", "which", "busy", "with_human", "moved"]
"""Reason why `/unlink` is refused; `which` means that several channels are linked and none was clearly
named.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedContacts:
    """Result of a link: two contacts now belong to one person, with one active session.

    `other_channel` and `other_agent` are those of the archived session; `notes_merged` is the number of
    duplicate notes that were dropped.
    """

    session_id: int
    """Id of the session that continues."""
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
    """Linked channel that `/unlink` can separate; `title` is its name for people."""

    id: int
    channel: str
    title: str
    linked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlinkedContact:
    """Result of `/unlink`: the linked contact is separate again, with its former session."""

    session_id: int
    """Id of the shared session, which stays with the other channels."""
    back_session_id: int
    """Id of the separated person's former session, which is active again."""
    addresses: tuple[int, ...]
    """Ids of the addresses that lead to the former session now."""
    channel: str
    is_caller: bool
    """True if the command came from one of these addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedLine:
    """Message of an archived conversation, as it is shown: its author, text and time."""

    author: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSession:
    """Conversation that ended by a link, since the person continues in another one; it can still be read."""

    public_id: str
    channel: str
    archived_at: datetime
    messages: Sequence[ArchivedLine]


def parse_code(words: str) -> str | None:
    """Return a typed link code in upper case, without blanks, dashes, dots and backticks.

    None if the rest cannot be a code of 8 characters.
    """
    code = "".join(char for char in words.upper() if char not in " -–—_.`\u00a0")
    return code if len(code) == CODE_CHARS and set(code) <= set(CODE_ALPHABET) else None


def format_code(code: str) -> str:
    """Return a link code of 8 characters in two groups, such as `ABCD-EFGH`."""
    half = CODE_CHARS // 2
    return f"{code[:half]}-{code[half:]}"
