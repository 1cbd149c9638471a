"""Written sample conversations: the demo plays one in a person's conversation, `evertalk eval` asks about it.

The demo's model answers a message of a sample as the sample does. Begin with `load_year`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE_KEY = "sample:"
"""Prefix of the ids under which messages of a sample are stored; clients cannot use it."""
SAMPLE_CID = "sample-"
"""Prefix of the ids of a sample's messages in clients; `…-ask` is a question asked by the guide's button."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Message of a person and its answer, with the date of the day."""

    date: str
    person: str
    assistant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlay:
    """Sample that is being played; `played` of its `total` exchanges are in the conversation."""

    session_id: int
    address_id: int
    begun_turn: int
    """First turn of this play, which tells it apart from another play in the same conversation."""
    played: int
    total: int

    @property
    def next_id(self) -> str:
        """Id of the next message.

        It ends with the number of messages that follow, so that 0 is the last one.
        """
        return f"{self.begun_turn}-{self.total - self.played - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedSample:
    """Sample that was stopped and plays no further message."""

    seqs: tuple[int, ...]
    """Numbers of the sample's messages and their answers in the log."""
    begun_turn: int
    has_own_talk: bool
    """Whether the conversation contains other messages of the person."""


@cache
def load_year() -> tuple[Exchange, ...]:
    """Return the exchanges of the sample "year", in order."""
    return tuple(Exchange(**one) for one in _read_year()["exchanges"])


def load_year_questions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return questions about facts that the sample "year" states once, each with its correct answers."""
    return tuple((one["question"], tuple(one["answers"])) for one in _read_year()["questions"])


def _read_year() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(__file__).with_name("year.json").read_text("utf-8"))
    return told


def find_answer(said: str) -> str | None:
    """Return the answer that the sample gives to a message; None for a message that is not in it."""
    return next((one.assistant for one in load_year() if one.person == said), None)
