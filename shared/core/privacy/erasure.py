"""Erasure as values: preview, report, and the removal of erased messages from a ledger."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from shared.core.session.ledger import Ledger

WISH_MINUTES = 10
"""Minutes for which a preview can be confirmed."""
COUNTED = ("entries", "compactions", "notes", "artifacts", "attachments", "pins")
"""Tables whose counts people see; other counts are internal."""
_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Numbers of rows that an erasure would delete; nothing was deleted yet."""

    counts: Mapping[str, int]
    """Number of rows to be deleted, by table."""

    @property
    def anything(self) -> bool:
        """True if at least one row would be deleted."""
        return any(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of an erasure so far; `counts` are the numbers of deleted rows by table."""

    erasure_id: int
    counts: Mapping[str, int]
    finished: bool = True
    """False while a worker continues the erasure."""
    marks: Mapping[int, int] | None = None
    """Number of the event that clears clients' screens, by session id; None without such events."""


def drop_sources(ledger: Ledger, seqs: Collection[int]) -> Ledger:
    """Return the ledger without items that cite a message in `seqs` or have no source.

    All texts, identifiers and the title are dropped, too, and so are topics around these messages.
    """
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
    """Return whether two texts share a word of four letters or more, in any case of letters.

    It decides about notes, where erasing one too many is better than one too few.
    """
    return bool(set(_WORD.findall(text.casefold())) & set(_WORD.findall(erased.casefold())))
