"""Plan of the nightly tidying of notes: duplicates are merged, outdated notes leave the prompt."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil

from shared.core.context.memory import ALIKE_AT, is_near_gist
from shared.core.context.notes import Authority, Durability

DROPPED_AT_MOST = 0.25
"""Largest share of live notes that one night may drop as duplicates; a larger plan is not carried out."""
EPHEMERAL_DAYS = 14
"""Days after which an ephemeral note without a date is outdated."""
_WEIGHT: dict[Authority, int] = {"tool": 0, "assistant": 1, "operator": 2, "person": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNote:
    """Note as the tidying compares it; `gist` holds hashes of its words.

    `scope` is the name of the agent; notes of different scopes are never compared. `expired` is True if the
    note is marked already.
    """

    id: int
    scope: str
    gist: tuple[int, ...]
    authority: Authority
    durability: Durability
    event_date: str | None
    observed: date
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyPlan:
    """Plan of one night: notes to drop as duplicates, and notes to mark as expired, by id.

    It is carried out elsewhere.
    """

    doubles: tuple[tuple[int, int], ...] = ()
    """Pairs of a duplicate note and the note that replaces it."""
    expired: tuple[int, ...] = ()
    refused: int = 0
    """Number of duplicates that were not dropped because they were too many; 0 otherwise."""


def plan_tidying(notes: Sequence[LiveNote], *, today: date) -> TidyPlan:
    """Return which notes are duplicates of another in their scope, and which are newly outdated on `today`.

    Of two nearly equal notes, the one of more authority stays, else the newer one. If the duplicates are more
    than a quarter of the notes, none is dropped, and `refused` is their number.
    """
    doubles: list[tuple[int, int]] = []
    scopes: dict[str, list[LiveNote]] = defaultdict(list)
    for note in notes:
        scopes[note.scope].append(note)
    for scope in scopes.values():
        doubles += _doubles(scope)
    expired = tuple(note.id for note in notes if not note.expired and is_past(note, today))
    if len(doubles) > max(1, int(DROPPED_AT_MOST * len(notes))):
        return TidyPlan(expired=expired, refused=len(doubles))
    return TidyPlan(doubles=tuple(doubles), expired=expired)


def is_past(note: LiveNote, today: date) -> bool:
    """Return whether an ephemeral note is outdated on `today`: the day, month or year that it names is over.

    A note without a date is outdated 14 days after it was observed. Other notes are never outdated.
    """
    if note.durability != "ephemeral":
        return False
    if note.event_date is None:
        return today > note.observed + timedelta(days=EPHEMERAL_DAYS)
    return today.isoformat()[: len(note.event_date)] > note.event_date


def _doubles(notes: Sequence[LiveNote]) -> list[tuple[int, int]]:
    """Return pairs of a note and a nearly equal note of more authority; of equal authority, the newer one
    stays.
    """
    best_first = sorted(notes, key=lambda note: (_WEIGHT[note.authority], note.id), reverse=True)
    common = Counter(word for note in notes for word in note.gist)
    kept: dict[int, list[LiveNote]] = defaultdict(list)
    doubles: list[tuple[int, int]] = []
    for note in best_first:
        telling = _rarest(note.gist, common)
        heir = next((one for one in _list_once(kept, telling) if is_near_gist(note.gist, one.gist)), None)
        if heir is not None:
            doubles.append((note.id, heir.id))
            continue
        for word in telling:
            kept[word].append(note)
    return doubles


def _rarest(gist: Sequence[int], common: Counter[int]) -> list[int]:
    """Return the rarest words of a note, of which two nearly equal notes must share at least one."""
    ranked = sorted(gist, key=lambda word: (common[word], word))
    return ranked[: len(ranked) - ceil(ALIKE_AT * len(ranked)) + 1]


def _list_once(kept: dict[int, list[LiveNote]], words: Iterable[int]) -> Iterable[LiveNote]:
    seen: set[int] = set()
    for word in words:
        for note in kept[word]:
            if note.id not in seen:
                seen.add(note.id)
                yield note
