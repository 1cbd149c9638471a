"""Ledger of a summary: its items, which are removed only with a reason, and its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from shared.core.session.summary_strategy import SummaryForm

ItemKind = Literal[
    "goal", "fact", "decision", "question", "action", "constraint", "preference", "artifact", "promise"
]
"""Kinds of statements in a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerItem:
    """One statement of a summary, such as a fact or a promise; `id` is a letter for its kind and a number."""

    id: str
    kind: ItemKind
    text: str
    sources: tuple[int, ...] = ()
    """Numbers (`seq`) of the entries that state it."""
    author: str = "person"
    """Author of the statement, as in `Entry.author`."""
    closed: str | None = None
    """Reason why the item no longer holds; None while it holds."""
    day: str = ""
    """ISO date of the newest source in the person's time zone; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Part of a summary that was written as text; an empty heading means that it is the whole text."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Subject of a range of hidden turns, by which their messages are found again.

    Turns and entries (`seq`) are given by their first and last number, both included.
    """

    label: str
    from_turn: int
    through_turn: int
    from_seq: int
    through_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Structured content of a summary, from which its text is rendered.

    `narrative` is free text; `items` are single statements, open and closed.
    """

    narrative: str = ""
    items: tuple[LedgerItem, ...] = ()
    identifiers: tuple[str, ...] = ()
    """Numbers, names, URLs and paths of the hidden range, copied literally."""
    clauses: tuple[tuple[str, str], ...] = ()
    """Pairs of an identifier and the text around it; identifiers without such a text are missing here."""
    last_number: int = 0
    """Number of the newest item id; ids are never used again."""
    form: SummaryForm = "ledger"
    sections: tuple[Section, ...] = ()
    """Text of a summary in a text form; `items` are then kept by the program."""
    topics: tuple[Topic, ...] = ()
    title: str = ""
    """Title of the conversation in lists, unless the person gave one; never sent to a model."""


def ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    """Return the ledger as JSON for the database; optional fields are left out when empty."""
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
    """Return the ledger that `ledger_to_json` wrote; missing fields take their defaults, as does an unknown
    form.

    Raises KeyError if an item, section or topic lacks a required field.
    """
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
