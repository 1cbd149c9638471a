"""Conversations that we wrote: the demo plays them into a person's own one, `evertalk eval` asks about them.

Begin with `load_year`. The demo's model answers a sentence of a sample as the sample does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE_KEY = "sample:"
"""Prefix of the ids under which a sample's messages are stored; browsers cannot use it."""
SAMPLE_CID = "sample-"
"""Prefix of their ids on screens. `…-ask` is a question by the guide's button."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Messages of one day, with answers."""

    date: str
    person: str
    assistant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlay:
    """A sample that is being played: how many exchanges of it are in the conversation."""

    session_id: int
    address_id: int
    begun_turn: int
    """Tells the plays of one conversation apart, should a person remove the first."""
    played: int
    total: int

    @property
    def next_id(self) -> str:
        """With how many follow: screens know the last message by its 0."""
        return f"{self.begun_turn}-{self.total - self.played - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedSample:
    """A sample that plays no further message."""

    seqs: tuple[int, ...]
    """Its messages and their answers."""
    begun_turn: int
    has_own_talk: bool
    """Whether other messages of the person are in the conversation."""


@cache
def load_year() -> tuple[Exchange, ...]:
    return tuple(Exchange(**one) for one in _read_year()["exchanges"])


def load_year_questions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Fact that the year states once: a question, and its right answers."""
    return tuple((one["question"], tuple(one["answers"])) for one in _read_year()["questions"])


def _read_year() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(__file__).with_name("year.json").read_text("utf-8"))
    return told


def find_answer(said: str) -> str | None:
    """How the sample answers this; None for what is not of it."""
    return next((one.assistant for one in load_year() if one.person == said), None)
