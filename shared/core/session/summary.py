"""Turns a model's answer into the next ledger: read leniently, applied with conservation by code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from shared.core.session.ledger import ItemKind, Ledger, LedgerItem
from shared.core.session.rendering import (
    ITEM_CHARS,
    LEFT_OUT,
    LETTERS,
    first_words,
    fit_ledger,
    five_fields,
    in_ledger_form,
    item_number,
    render_summary,
    shortened,
)
from shared.core.session.summary_rules import MAX_NEW_ITEMS, NARRATIVE_WORDS
from shared.core.values.identifiers import merged_identifiers
from shared.core.values.messages import storable_json
from shared.core.values.searching import normalised
from shared.core.values.secrets_filter import redact

__all__ = [
    "LEFT_OUT", "first_words", "fit_ledger", "five_fields", "render_summary", "shortened", "LedgerPatch",
    "NewItem", "Unreadable", "parse_ledger_patch", "apply_patch", "ITEM_CHARS", "KINDS",
]  # fmt: skip

REASON_CHARS = 200

KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_LINE = re.compile(
    r"^[\s*•#-]*(?P<word>[a-z]+)(?:\s+(?P<id>[a-z]\d{1,6}))?\W{0,3}?:(?P<said>.+)$", re.IGNORECASE
)
_CITED = re.compile(r"\s*[\[(]((?:[\s,;]*#\d{1,15})+)\s*[\])]")


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
    notes: tuple[Any, ...] | None = None
    """Where they were asked for: what is to be kept beyond the record, as the model wrote it."""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    reason: str


def parse_ledger_patch(text: str) -> LedgerPatch | Unreadable:
    """The first JSON object of the right shape in a text, whatever stands around it, or else its lines."""
    if not text.strip():
        return Unreadable(reason="the answer is empty")
    for raw in json_objects(text):
        if raw.keys() & {"narrative", "add"}:
            return _patch(raw)
    if (patch := _from_lines(text)) is not None:
        return patch
    if "{" not in text:
        return Unreadable(reason="there is no JSON object in it")
    cut_off = text.count("{") > text.count("}")
    return Unreadable(reason="the JSON is cut off" if cut_off else "the JSON cannot be read")


def apply_patch(
    former: Ledger,
    patch: LedgerPatch,
    *,
    identifiers: Sequence[str] = (),
    seqs: frozenset[int] | None = None,
    most_new: int = MAX_NEW_ITEMS,
    keep_form: bool = False,
) -> Ledger:
    """The next ledger: an item of the former one is open, or closed with a reason, but never gone.

    Items that were closed before are history of the former row and do not come along. With `seqs`, new
    items may cite only these. A former text becomes items, too, unless `keep_form` leaves it as it is.
    """
    if not keep_form:
        former = in_ledger_form(former)
    closing = {id_: reason for id_, reason in patch.close if reason.strip()}
    new_text = {id_: text for id_, text in patch.replace if text.strip()}
    items = [
        _carried(item, new_text.get(item.id), closing.get(item.id))
        for item in former.items
        if item.closed is None
    ]
    places = {
        normalised(item.text): at for at, item in reversed(list(enumerate(items))) if item.closed is None
    }
    number = max(former.last_number, *(item_number(item.id) for item in former.items), 0)
    for new in patch.add[:most_new]:
        if seqs is not None:
            new = replace(new, sources=tuple(seq for seq in new.sources if seq in seqs))
        told = normalised(shortened(new.text, ITEM_CHARS))
        place = places.get(told)
        if place is not None:
            known = items[place]
            items[place] = replace(known, sources=_united(known.sources, new.sources))
            continue
        number += 1
        places[told] = len(items)
        items.append(_fresh(new, number))
    return replace(
        former,
        narrative=first_words(patch.narrative, NARRATIVE_WORDS) or former.narrative,
        items=tuple(items),
        identifiers=merged_identifiers(former.identifiers, identifiers),
        last_number=number,
    )


def json_objects(text: str) -> Iterable[Mapping[str, Any]]:
    """Every whole object in a text; one that is cut off gives those inside it. Some may come twice."""
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
            yield storable_json(raw)
            at = candidate.find("{", end)


_MAX_TRIES = 200


def _patch(raw: Mapping[str, Any]) -> LedgerPatch:
    narrative, title = raw.get("narrative"), raw.get("title")
    items = (_new_item(item) for item in _list(raw.get("add")))
    return LedgerPatch(
        narrative=narrative if isinstance(narrative, str) else "",
        add=tuple(item for item in items if item is not None),
        replace=_pairs(raw.get("replace"), "text"),
        close=_pairs(raw.get("close"), "reason"),
        notes=tuple(raw["notes"]) if isinstance(raw.get("notes"), list) else None,
        title=title if isinstance(title, str) else "",
    )


def _from_lines(text: str) -> LedgerPatch | None:
    """`narrative: …`, `KIND: text [#12]`, `replace ID: text`, `close ID: reason`; None without the first."""
    narrative, title, add = "", "", []
    changed: dict[str, list[tuple[str, str]]] = {"replace": [], "close": []}
    for found in map(_LINE.match, text.splitlines()):
        if found is None:
            continue
        word, id_, said = found["word"].lower(), found["id"], found["said"].strip("* ")
        if word == "narrative":
            narrative = narrative or said
        elif word == "title":
            title = title or said
        elif word in changed and id_ is not None:
            changed[word].append((id_.lower(), said))
        elif word.rstrip("s") in KINDS:
            told = _CITED.sub("", said).strip()
            sources = _seqs(" ".join(_CITED.findall(said)))
            add.append(NewItem(kind=_kind(word), text=told, sources=sources))
    if not narrative:
        return None
    return LedgerPatch(
        narrative=narrative,
        add=tuple(item for item in add if item.text),
        replace=tuple(changed["replace"]),
        close=tuple(changed["close"]),
        title=title,
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
        author=author if author in ("person", "assistant", "tool", "operator", "program") else "person",
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
        return replace(item, closed=shortened(redact(reason), REASON_CHARS))
    return item if text is None else replace(item, text=shortened(text, ITEM_CHARS))


def _fresh(new: NewItem, number: int) -> LedgerItem:
    return LedgerItem(
        id=f"{LETTERS[new.kind]}{number}",
        kind=new.kind,
        text=shortened(new.text, ITEM_CHARS),
        sources=new.sources,
        author=new.author,
    )


def _united(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*old, *new}))
