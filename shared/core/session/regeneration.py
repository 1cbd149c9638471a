"""Questions that are answered again: which turns a later one takes the place of, and whose answer that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shared.core.session.session import Entry
from shared.core.values.messages import tool_uses


def without_former(entries: Sequence[Entry], *, open_turn: int | None = None) -> tuple[Entry, ...]:
    """The entries as a request shows them: of the turns that answer one question, the newest only.

    A turn that asks a former question again counts while it is the open one, and once it has an answer; one
    that ended without leaves everything as it was. What is pinned always stays.
    """
    again = _asked_again(entries)
    if not again:
        return tuple(entries)
    gone = _former_turns(entries, again, open_turn)
    return tuple(entry for entry in entries if entry.pinned or entry.turn not in gone)


def former_answer(entries: Iterable[Entry], open_turn: int) -> str | None:
    """The public id of the answer that the open turn's will take the place of; None when there is none."""
    known = list(entries)
    root = _asked_again(known).get(open_turn)
    if root is None:
        return None
    mine = _turns_about(known, root)
    answers = [
        entry for entry in known if entry.turn in mine and entry.turn < open_turn and _is_answer(entry)
    ]
    return answers[-1].mid if answers else None


def _asked_again(entries: Sequence[Entry]) -> dict[int, int]:
    """By turn, the question of an earlier turn that it asks once more."""
    asked = {entry.turn: entry.replaces for entry in entries if entry.replaces and _is_question(entry)}
    first = {root: min(_turns_about(entries, root)) for root in asked.values() if root}
    return {turn: root for turn, root in asked.items() if root and first[root] < turn}


def _former_turns(entries: Sequence[Entry], again: dict[int, int], open_turn: int | None) -> set[int]:
    answered = {entry.turn for entry in entries if _is_answer(entry) or entry.author == "operator"}
    gone: set[int] = set()
    for root in set(again.values()):
        turns = sorted(_turns_about(entries, root))
        good = [turn for turn in turns if turn == open_turn or turn in answered] or turns[:1]
        gone |= {turn for turn in turns if turn != good[-1]}
    return gone


def _turns_about(entries: Iterable[Entry], root: int) -> set[int]:
    return {entry.turn for entry in entries if _is_question(entry) and root in (entry.seq, entry.replaces)}


def _is_question(entry: Entry) -> bool:
    return entry.author == "person"


def _is_answer(entry: Entry) -> bool:
    return entry.author == "assistant" and not tool_uses(entry.blocks)
