"""The ledger a summary is made of: items that can leave only with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ItemKind = Literal[
    "goal", "fact", "decision", "question", "action", "constraint", "preference", "artifact", "promise"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerItem:
    id: str
    kind: ItemKind
    text: str
    sources: tuple[int, ...] = ()
    """Seqs of the entries that say so."""
    author: str = "person"
    closed: str | None = None
    """Why the item left, or None while it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    narrative: str = ""
    items: tuple[LedgerItem, ...] = ()
    identifiers: tuple[str, ...] = ()
    """Numbers, names, URLs and paths of the hidden range, word for word."""
    last_number: int = 0
    """The number of the newest id ever given; ids are never used twice."""


def ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "narrative": ledger.narrative,
        "items": [
            {
                "id": item.id,
                "kind": item.kind,
                "text": item.text,
                "sources": list(item.sources),
                "author": item.author,
                "closed": item.closed,
            }
            for item in ledger.items
        ],
        "identifiers": list(ledger.identifiers),
        "last_number": ledger.last_number,
    }


def ledger_from_json(raw: Mapping[str, Any]) -> Ledger:
    return Ledger(
        narrative=raw.get("narrative", ""),
        items=tuple(
            LedgerItem(
                id=item["id"],
                kind=item["kind"],
                text=item["text"],
                sources=tuple(item.get("sources", ())),
                author=item.get("author", "person"),
                closed=item.get("closed"),
            )
            for item in raw.get("items", ())
        ),
        identifiers=tuple(raw.get("identifiers", ())),
        last_number=raw.get("last_number", 0),
    )
