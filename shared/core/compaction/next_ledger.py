"""Next ledger of a summary: reading a model's answer, applying it without losing items, and joining parts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import reduce
from typing import Any, get_args

from shared.core.session.ledger import ItemKind, Ledger, LedgerItem, Section
from shared.core.session.session import Entry
from shared.core.session.summary import (
    ITEM_CHARS,
    LETTERS,
    convert_to_ledger,
    fit_ledger,
    form_of,
    item_number,
    render_summary,
    shorten_line,
    truncate_words,
)
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.identifiers import merge_identifiers
from shared.core.values.messages import storable_json
from shared.core.values.searching import normalise
from shared.core.values.secrets_filter import redact
from shared.core.values.tokens import Count

NARRATIVE_WORDS = 120
"""Most words of a narrative; longer ones are cut."""
MAX_NEW_ITEMS = 40
"""Most items that one answer may add."""
REASON_CHARS = 200
"""Most characters of the reason why an item was closed."""
_MAX_TRIES = 200

KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
"""Kinds of items."""
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_LINE = re.compile(
    r"^[\s*•#-]*(?P<word>[a-z]+)(?:\s+(?P<id>[a-z]\d{1,6}))?\W{0,3}?:(?P<said>.+)$", re.IGNORECASE
)
_CITED = re.compile(r"(?<!\s)\s*+[\[(]((?:[\s,;]*+#\d{1,15})+)\s*+[\])]")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """Item to be added to a ledger by a model or the program; it has no id yet.

    `sources` are the `seq` of the entries that state it.
    """

    kind: ItemKind
    text: str
    sources: tuple[int, ...] = ()
    author: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPatch:
    """Changes to a ledger as a model proposes them, before the audit.

    `replace` has pairs of item id and new text, `close` pairs of item id and reason. An empty narrative keeps
    the former one.
    """

    narrative: str = ""
    add: tuple[NewItem, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    close: tuple[tuple[str, str], ...] = ()
    notes: tuple[Any, ...] | None = None
    """Notes for long-term memory, as the model wrote them; None if they were not requested or are missing."""
    title: str = ""
    """Title of the conversation; empty if the model gave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Result for a model's answer without usable content, with the reason in English."""

    reason: str


def parse_ledger_patch(text: str) -> LedgerPatch | Unreadable:
    """Return the changes in a model's answer: its first JSON object with `narrative` or `add`, else its
    lines.

    Lines have the form `narrative: …` or `fact: text [#12]`. Returns Unreadable, with the reason, if the
    answer has neither; never raises.
    """
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
    most_new: int = MAX_NEW_ITEMS,
    keep_form: bool = False,
) -> Ledger:
    """Return the former ledger with the changes applied; each open item stays open or is closed with a
    reason.

    Items that were closed before are dropped. At most `most_new` items are added; one with the text of an
    open item only adds its sources. `identifiers` are merged into those of the ledger. Unless `keep_form` is
    set, sections of the former ledger become items.
    """
    if not keep_form:
        former = convert_to_ledger(former)
    closing = {id_: reason for id_, reason in patch.close if reason.strip()}
    new_text = {id_: text for id_, text in patch.replace if text.strip()}
    items = [
        _apply_change(item, new_text.get(item.id), closing.get(item.id))
        for item in former.items
        if item.closed is None
    ]
    places = {
        normalise(item.text): at for at, item in reversed(list(enumerate(items))) if item.closed is None
    }
    number = max(former.last_number, *(item_number(item.id) for item in former.items), 0)
    for new in patch.add[:most_new]:
        told = normalise(shorten_line(new.text, ITEM_CHARS))
        place = places.get(told)
        if place is not None:
            known = items[place]
            items[place] = replace(known, sources=_merge_sources(known.sources, new.sources))
            continue
        number += 1
        places[told] = len(items)
        items.append(_number_item(new, number))
    return replace(
        former,
        narrative=truncate_words(patch.narrative, NARRATIVE_WORDS) or former.narrative,
        items=tuple(items),
        identifiers=merge_identifiers(former.identifiers, identifiers),
        last_number=number,
    )


def json_objects(text: str) -> Iterable[Mapping[str, Any]]:
    """Yield each complete JSON object in a text, in order, at the top or inside an object that is cut off.

    Trailing commas are tolerated; some objects may come twice.
    """
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
    """Return the changes in lines such as `narrative: …`, `KIND: text [#12]` or `close ID: reason`.

    Returns None if no line has the narrative.
    """
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
    """Return pairs of id and text from an object such as `{"f3": "…"}` or a list of objects with an id."""
    if isinstance(raw, Mapping):
        return tuple((str(key), value) for key, value in raw.items() if isinstance(value, str))
    rows = (row for row in _list(raw) if isinstance(row, Mapping))
    found = ((str(row.get("id")), row.get(value_name)) for row in rows)
    return tuple((id_, value) for id_, value in found if isinstance(value, str))


def _list(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _apply_change(item: LedgerItem, text: str | None, reason: str | None) -> LedgerItem:
    if reason is not None:
        return replace(item, closed=shorten_line(redact(reason), REASON_CHARS))
    return item if text is None else replace(item, text=shorten_line(text, ITEM_CHARS))


def _number_item(new: NewItem, number: int) -> LedgerItem:
    return LedgerItem(
        id=f"{LETTERS[new.kind]}{number}",
        kind=new.kind,
        text=shorten_line(new.text, ITEM_CHARS),
        sources=new.sources,
        author=new.author,
    )


def _merge_sources(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*old, *new}))


def join_ledgers(parts: Sequence[Ledger], form: SummaryForm) -> Ledger:
    """Return one ledger with the content of all parts, in order; item ids of the first part are kept.

    In a text form, texts of the same heading are joined; otherwise all parts become narrative and items.
    Raises TypeError for an empty sequence.
    """
    if form_of(form).is_text:
        return _join_texts(parts, form)
    return reduce(_with_part, (convert_to_ledger(part) for part in parts))


def shorten_ledger(ledger: Ledger, limit: int, count: Count) -> Ledger:
    """Return a joined ledger cut to `limit` tokens without a model, where possible.

    The beginning of each line of the narrative is kept, 120 words in all; then it is cut as in `fit_ledger`.
    """
    narratives = ledger.narrative.splitlines()
    each = NARRATIVE_WORDS // max(1, len(narratives))
    narrative = " ".join(truncate_words(text, each) for text in narratives)
    return fit_ledger(replace(ledger, narrative=narrative), limit, count)


def group_parts(parts: Sequence[Ledger], room: int, count: Count) -> list[list[Ledger]]:
    """Return neighbouring ledgers in groups, in order, so that the text of each group fits into `room`
    tokens.

    A group has at least two ledgers where possible, even above `room`, so that repeated merging ends.
    """
    groups: list[list[Ledger]] = []
    left = 0
    for part in parts:
        size = count(render_summary(part))
        if groups and (size <= left or len(groups[-1]) < 2):
            groups[-1].append(part)
        else:
            groups.append([part])
            left = room
        left -= size
    return groups


def _with_part(ledger: Ledger, part: Ledger) -> Ledger:
    standing = [item for item in part.items if item.closed is None]
    closed = tuple(item for item in ledger.items if item.closed is not None)
    new = tuple(
        NewItem(kind=item.kind, text=item.text, sources=item.sources, author=item.author) for item in standing
    )
    added = apply_patch(ledger, LedgerPatch(add=new), identifiers=part.identifiers, most_new=len(new))
    narrative = "\n".join(text for text in (ledger.narrative, part.narrative) if text)
    return replace(added, items=(*closed, *added.items), narrative=narrative)


def _join_texts(parts: Sequence[Ledger], form: SummaryForm) -> Ledger:
    """Return one ledger with the texts of the parts under their headings, and their items next to them."""
    bare = reduce(_with_part, (replace(part, form="ledger", sections=(), narrative="") for part in parts))
    told = tuple(part if part.sections else _as_text(part) for part in parts)
    return replace(bare, form=form, sections=join_sections(told))


def join_sections(parts: tuple[Ledger, ...]) -> tuple[Section, ...]:
    """Return the sections of all parts, with texts of the same heading joined in order, one per line."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for section in part.sections:
            found.setdefault(section.heading, []).append(section.text)
    return tuple(Section(heading=heading, text="\n".join(texts)) for heading, texts in found.items())


def _as_text(part: Ledger) -> Ledger:
    """Return the ledger with its narrative as its only section; unchanged without a narrative."""
    return replace(part, sections=(Section(heading="", text=part.narrative),)) if part.narrative else part


def with_days(ledger: Ledger, entries: Iterable[Entry], zone: tzinfo) -> Ledger:
    """Return the ledger with each item's `day` set to the newest day of its sources among `entries`.

    Days are in the time zone `zone`. Items without a source among the entries keep their day.
    """
    days = {entry.seq: entry.at.astimezone(zone).date().isoformat() for entry in entries}
    items = (
        replace(item, day=max((days[seq] for seq in item.sources if seq in days), default=item.day))
        for item in ledger.items
    )
    return replace(ledger, items=tuple(items))
