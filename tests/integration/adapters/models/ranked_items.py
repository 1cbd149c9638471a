"""Passages as they are ranked."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.core.memory.recall import FoundPassage, Ranked

PATIENCE = 10.0
"""A busy machine may need more than a deployment gives; the server that is slow needs thrice as much."""


def item(number: int, text: str) -> Ranked:
    passage = FoundPassage(
        lane="said",
        owner=1,
        number=number,
        at=datetime(2026, 3, 1, tzinfo=UTC),
        text=text,
        terms=5,
        hits=(1,),
    )
    return Ranked(passage, 1.0 / number)
