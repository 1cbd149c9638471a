"""The ledger a summary is made of: items that can leave only with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from shared.core.session.summary_strategy import SummaryForm

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
    day: str = ""
    """Day of the newest source by the person's clock; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a summary that was written as text; without a heading it is the whole."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Topic of a range of hidden turns, so that its messages can be found again."""

    label: str
    from_turn: int
    through_turn: int
    from_seq: int
    through_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    narrative: str = ""
    items: tuple[LedgerItem, ...] = ()
    identifiers: tuple[str, ...] = ()
    """Numbers, names, URLs and paths of the hidden range, word for word."""
    clauses: tuple[tuple[str, str], ...] = ()
    """Identifiers, each with the words around it; one without a clause is not in it."""
    last_number: int = 0
    """The number of the newest id ever given; ids are never used twice."""
    form: SummaryForm = "ledger"
    sections: tuple[Section, ...] = ()
    """The text itself, where the form is one of text; items beside it are kept by code."""
    topics: tuple[Topic, ...] = ()
    title: str = ""
    """Title of the conversation in lists unless the person has named it; no model reads it."""


def ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    """Return the ledger as JSON without empty fields of other forms."""
    raw: dict[str, Any] = {
        "narrative": ledger.narrative,
        "items": [
            {
                "id": item.id,
                "kind": item.kind,
                "text": item.text,
                "sources": list(item.sources),
                "author": item.author,
                "closed": item.closed,
                **({"day": item.day} if item.day else {}),
            }
            for item in ledger.items
        ],
        "identifiers": list(ledger.identifiers),
        "last_number": ledger.last_number,
    }
    if ledger.clauses:
        raw["clauses"] = dict(ledger.clauses)
    if ledger.form != "ledger":
        raw["form"] = ledger.form
    if ledger.sections:
        raw["sections"] = [{"heading": part.heading, "text": part.text} for part in ledger.sections]
    if ledger.topics:
        raw["topics"] = [
            {
                "label": topic.label,
                "turns": [topic.from_turn, topic.through_turn],
                "seqs": [topic.from_seq, topic.through_seq],
            }
            for topic in ledger.topics
        ]
    if ledger.title:
        raw["title"] = ledger.title
    return raw


def ledger_from_json(raw: Mapping[str, Any]) -> Ledger:
    form = raw.get("form", "ledger")
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
                day=item.get("day", ""),
            )
            for item in raw.get("items", ())
        ),
        identifiers=tuple(raw.get("identifiers", ())),
        clauses=tuple(raw.get("clauses", {}).items()),
        last_number=raw.get("last_number", 0),
        form=form if form in get_args(SummaryForm) else "ledger",
        sections=tuple(
            Section(heading=part["heading"], text=part["text"]) for part in raw.get("sections", ())
        ),
        topics=tuple(_topic(topic) for topic in raw.get("topics", ())),
        title=raw.get("title", ""),
    )


def _topic(raw: Mapping[str, Any]) -> Topic:
    (from_turn, through_turn), (from_seq, through_seq) = raw["turns"], raw["seqs"]
    return Topic(
        label=raw["label"],
        from_turn=from_turn,
        through_turn=through_turn,
        from_seq=from_seq,
        through_seq=through_seq,
    )
