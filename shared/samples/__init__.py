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
"""What a sample's messages are stored under; no browser's own message can be."""
SAMPLE_CID = "sample-"
"""What their ids on screens begin with. `…-ask` is what a person asks about it by the guide's button."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was said on a day, and answered."""

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


@cache
def load_year() -> tuple[Exchange, ...]:
    return tuple(Exchange(**one) for one in _read_year()["exchanges"])


def load_year_questions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What the year tells once: a question, and the answers that are right."""
    return tuple((one["question"], tuple(one["answers"])) for one in _read_year()["questions"])


def _read_year() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(__file__).with_name("year.json").read_text("utf-8"))
    return told


def find_answer(said: str) -> str | None:
    """How the sample answers this; None for what is not of it."""
    return next((one.assistant for one in load_year() if one.person == said), None)
