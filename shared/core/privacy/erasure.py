"""Forgetting as values: what would go, what went, and how a record loses what it said of certain messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from shared.core.session.ledger import Ledger

WISH_MINUTES = 10
"""Minutes for which a preview may be confirmed."""
COUNTED = ("entries", "compactions", "notes", "artifacts", "attachments", "pins")
"""Counts that people see; others are internal."""
_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    counts: Mapping[str, int]
    """By table."""

    @property
    def anything(self) -> bool:
        return any(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    erasure_id: int
    counts: Mapping[str, int]
    finished: bool = True
    """False while a worker continues the erasure."""
    marks: Mapping[int, int] | None = None
    """Session → number of the event that clears its screens."""


def drop_sources(ledger: Ledger, seqs: Collection[int]) -> Ledger:
    """Return the ledger without items from these messages, and without items of unknown source."""
    gone = set(seqs)
    items = tuple(item for item in ledger.items if item.sources and not gone & set(item.sources))
    topics = tuple(
        topic
        for topic in ledger.topics
        if not any(topic.from_seq <= seq <= topic.through_seq for seq in gone)
    )
    return replace(
        ledger, narrative="", items=items, identifiers=(), clauses=(), sections=(), topics=topics,
        form="ledger", title="",
    )  # fmt: skip


def is_about(text: str, erased: str) -> bool:
    """Whether two texts share a word: rather one note too many goes than one too few."""
    return bool(set(_WORD.findall(text.casefold())) & set(_WORD.findall(erased.casefold())))
