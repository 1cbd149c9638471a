"""Turns a model's answer into the next ledger, and a ledger into the text that people and models read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from shared.core.identifiers import merged_identifiers
from shared.core.ledger import ItemKind, Ledger, LedgerItem
from shared.core.memory import normalised
from shared.core.prompts import NARRATIVE_WORDS

ITEM_CHARS = 300
REASON_CHARS = 200
MAX_NEW_ITEMS = 40
LEFT_OUT = "left out for room"

KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
_LETTERS: dict[ItemKind, str] = {
    "goal": "g",
    "fact": "f",
    "decision": "d",
    "question": "q",
    "action": "a",
    "constraint": "c",
    "preference": "p",
    "artifact": "t",
    "promise": "m",
}
_HEADINGS: tuple[tuple[ItemKind, str], ...] = (
    ("goal", "Goals"),
    ("constraint", "What must not be done"),
    ("decision", "Decisions"),
    ("fact", "Facts"),
    ("preference", "Preferences"),
    ("artifact", "Things made or named"),
    ("promise", "Promises"),
    ("action", "Action items"),
    ("question", "Open questions"),
)
_FIRST_TO_GO: tuple[ItemKind, ...] = (
    "artifact",
    "fact",
    "promise",
    "preference",
    "action",
    "decision",
    "question",
    "goal",
    "constraint",
)
"""In which order kinds make room when a ledger has grown too long."""
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    kind: ItemKind
    text: str
    sources: tuple[int, ...] = ()
    author: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPatch:
    """What a model wants to change; nothing in it is believed before the audit."""

    narrative: str = ""
    add: tuple[NewItem, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    close: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    reason: str


def parse_ledger_patch(text: str) -> LedgerPatch | Unreadable:
    """The first JSON object of the right shape in a text, whatever stands around it."""
    if not text.strip():
        return Unreadable(reason="the answer is empty")
    if "{" not in text:
        return Unreadable(reason="there is no JSON object in it")
    for raw in _objects(text):
        if raw.keys() & {"narrative", "add"}:
            return _patch(raw)
    cut_off = text.count("{") > text.count("}")
    return Unreadable(reason="the JSON is cut off" if cut_off else "the JSON cannot be read")


def apply_patch(
    former: Ledger,
    patch: LedgerPatch,
    *,
    identifiers: Sequence[str] = (),
    seqs: frozenset[int] | None = None,
    most_new: int = MAX_NEW_ITEMS,
) -> Ledger:
    """The next ledger: an item of the former one is open, or closed with a reason, but never gone.

    Items that were closed before are history of the former row and do not come along. With `seqs`, new
    items may cite only these.
    """
    closing = {id_: reason for id_, reason in patch.close if reason.strip()}
    new_text = {id_: text for id_, text in patch.replace if text.strip()}
    items = [
        _carried(item, new_text.get(item.id), closing.get(item.id))
        for item in former.items
        if item.closed is None
    ]
    number = max(former.last_number, *(_number(item.id) for item in former.items), 0)
    for new in patch.add[:most_new]:
        if seqs is not None:
            new = replace(new, sources=tuple(seq for seq in new.sources if seq in seqs))
        place = _place_of(items, new.text)
        if place is not None:
            known = items[place]
            items[place] = replace(known, sources=_united(known.sources, new.sources))
            continue
        number += 1
        items.append(_fresh(new, number))
    return Ledger(
        narrative=first_words(patch.narrative, NARRATIVE_WORDS) or former.narrative,
        items=tuple(items),
        identifiers=merged_identifiers(former.identifiers, identifiers),
        last_number=number,
    )


def fit_ledger(ledger: Ledger, limit: int, count: Count) -> Ledger:
    """Closes items, the least needed kinds and the oldest first, until the text has `limit` tokens."""
    while (excess := count(render_summary(ledger)) - limit) > 0:
        smaller = _with_less(ledger, excess, count)
        if smaller == ledger:
            break
        ledger = smaller
    return ledger


def _with_less(ledger: Ledger, excess: int, count: Count) -> Ledger:
    """Without identifiers and items of about `excess` tokens, as far as there are any."""
    identifiers = ledger.identifiers
    while identifiers and excess > 0 and len(identifiers) > _LEAST_IDENTIFIERS:
        excess -= count(identifiers[0])
        identifiers = identifiers[1:]
    leaving: set[str] = set()
    for item in _by_need(ledger.items):
        if excess <= 0:
            break
        excess -= count(_line(item))
        leaving.add(item.id)
    items = tuple(replace(i, closed=LEFT_OUT) if i.id in leaving else i for i in ledger.items)
    return replace(ledger, items=items, identifiers=identifiers)


_LEAST_IDENTIFIERS = 20


def render_summary(ledger: Ledger) -> str:
    """Markdown, always in the same order; closed items are not in it."""
    parts = [ledger.narrative.strip()] if ledger.narrative.strip() else []
    for kind, heading in _HEADINGS:
        lines = [_line(item) for item in ledger.items if item.kind == kind and item.closed is None]
        if lines:
            parts.append("\n".join((f"## {heading}", *lines)))
    if ledger.identifiers:
        parts.append(f"## Exact names and numbers\n{' · '.join(ledger.identifiers)}")
    return "\n\n".join(parts)


def five_fields(ledger: Ledger) -> dict[str, Any]:
    """The output contract: summary_text, key_facts, decisions, open_questions, action_items."""

    def texts(*kinds: ItemKind) -> list[str]:
        return [item.text for item in ledger.items if item.kind in kinds and item.closed is None]

    return {
        "summary_text": ledger.narrative,
        "key_facts": texts("goal", "fact", "constraint", "preference", "artifact"),
        "decisions": texts("decision"),
        "open_questions": texts("question"),
        "action_items": texts("action", "promise"),
    }


def first_words(text: str, most: int) -> str:
    words = text.split()
    return " ".join(words) if len(words) <= most else f"{' '.join(words[:most])} …"


def shortened(text: str, chars: int) -> str:
    """One line, cut between words, so that no half number appears that nobody wrote."""
    line = " ".join(text.split())
    if len(line) <= chars:
        return line
    head = line[:chars].rsplit(" ", 1)[0] if " " in line[:chars] else line[: chars - 1]
    return f"{head} …"


def _objects(text: str) -> Iterable[Mapping[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    for candidate in (text, _TRAILING_COMMA.sub("", text)):
        at = candidate.find("{")
        tries = 0
        while at != -1 and tries < _MAX_TRIES:
            tries += 1
            try:
                raw, end = decoder.raw_decode(candidate, at)
            except (ValueError, RecursionError):
                at = candidate.find("{", at + 1)
                continue
            yield raw
            at = candidate.find("{", end)


_MAX_TRIES = 200


def _patch(raw: Mapping[str, Any]) -> LedgerPatch:
    narrative = raw.get("narrative")
    items = (_new_item(item) for item in _list(raw.get("add")))
    return LedgerPatch(
        narrative=narrative if isinstance(narrative, str) else "",
        add=tuple(item for item in items if item is not None),
        replace=_pairs(raw.get("replace"), "text"),
        close=_pairs(raw.get("close"), "reason"),
    )


def _new_item(raw: object) -> NewItem | None:
    if isinstance(raw, str):
        raw = {"text": raw}
    if not isinstance(raw, Mapping) or not isinstance(raw.get("text"), str) or not raw["text"].strip():
        return None
    author = str(raw.get("author", "person")).lower()
    return NewItem(
        kind=_kind(raw.get("kind")),
        text=raw["text"],
        sources=_seqs(raw.get("sources")),
        author=author if author in ("person", "assistant", "tool", "operator") else "person",
    )


def _kind(raw: object) -> ItemKind:
    said = str(raw).lower().rstrip("s")
    return next((kind for kind in KINDS if kind == said), "fact")


def _seqs(raw: object) -> tuple[int, ...]:
    found = re.findall(r"\d{1,15}", json.dumps(raw)) if isinstance(raw, list | int | str) else []
    return tuple(sorted({int(number) for number in found}))


def _pairs(raw: object, value_name: str) -> tuple[tuple[str, str], ...]:
    """From `{"f3": "…"}`, or from a list of objects with an id."""
    if isinstance(raw, Mapping):
        return tuple((str(key), value) for key, value in raw.items() if isinstance(value, str))
    rows = (row for row in _list(raw) if isinstance(row, Mapping))
    found = ((str(row.get("id")), row.get(value_name)) for row in rows)
    return tuple((id_, value) for id_, value in found if isinstance(value, str))


def _list(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _carried(item: LedgerItem, text: str | None, reason: str | None) -> LedgerItem:
    if reason is not None:
        return replace(item, closed=shortened(reason, REASON_CHARS))
    return item if text is None else replace(item, text=shortened(text, ITEM_CHARS))


def _fresh(new: NewItem, number: int) -> LedgerItem:
    return LedgerItem(
        id=f"{_LETTERS[new.kind]}{number}",
        kind=new.kind,
        text=shortened(new.text, ITEM_CHARS),
        sources=new.sources,
        author=new.author,
    )


def _place_of(items: Sequence[LedgerItem], text: str) -> int | None:
    wanted = normalised(shortened(text, ITEM_CHARS))
    return next(
        (i for i, item in enumerate(items) if item.closed is None and normalised(item.text) == wanted), None
    )


def _united(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*old, *new}))


def _number(id_: str) -> int:
    digits = id_[1:]
    return int(digits) if digits.isdecimal() else 0


def _by_need(items: Sequence[LedgerItem]) -> list[LedgerItem]:
    standing = [item for item in items if item.closed is None]
    return sorted(
        standing,
        key=lambda item: (item.author == "person", _FIRST_TO_GO.index(item.kind), _number(item.id)),
    )


def _line(item: LedgerItem) -> str:
    marks = [f"#{seq}" for seq in item.sources[:3]]
    if item.author != "person":
        marks.append(f"by the {item.author}")
    return f"- {item.text} ({', '.join(marks)})" if marks else f"- {item.text}"
