"""Log of a session and its live part, the view: entries, compactions, notes, and repeated questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from shared.core.session.ledger import Ledger
from shared.core.values.messages import (
    Author,
    Block,
    Message,
    Role,
    ToolUse,
    is_erased,
    tool_results,
    tool_uses,
)

_TURN: Callable[[Entry], int] = attrgetter("turn")
CompactionKind = Literal["summary", "digest", "separator", "new", "window"]
"""Kinds of compactions.

`summary` was written by a model, `digest` by the program; `separator` and `new` hide all earlier messages
without a summary; `window` hides old messages and keeps the summary.
"""
PruneForm = Literal["trim", "clear", "duplicate", "hide"]
"""Short forms of an entry's tool results; `hide` leaves out a whole message of the assistant or a tool."""
BackoffReason = Literal["thrashing", "nothing", "hook"]
"""Reasons of a pause: summaries that free too little, nothing to summarise, or a hook that refused."""
_SAME_LIMIT = 0.1
"""Share of the limit by which it may change without ending a pause, since learned ratios move it each turn.
"""
TurnState = Literal["open", "claimed", "answered", "stopped", "refused", "failed"]
"""States of a turn: `open` collects messages, `claimed` is being answered, the other four are final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Stored message of the log.

    Entries are numbered by `seq` in the order of storing; requests show them by `(turn, step)`.
    """

    seq: int
    turn: int
    step: int
    role: Role
    author: Author
    blocks: tuple[Block, ...]
    tokens: int
    """Estimated tokens, counted once when the entry was stored."""
    at: datetime
    replaces: int | None = None
    """`seq` of the message that this one edits, asks again or answers again; None for a new message."""
    pinned: bool = False
    pruned: PruneForm | None = None
    """Form in which requests show the entry's tool results; None shows them whole.

    It never becomes longer again.
    """
    pruned_as: Mapping[str, str | None] | None = None
    """Shown texts by tool call, if a tool's rule made them; a value of None shows the result whole."""
    pruned_now: bool = False
    """True if the newest batch of pruning shortened this entry."""
    failed: str | None = None
    """Error code of the failed turn of this message, whose `blocks` are then its short form; None if it did
    not fail.
    """

    @property
    def message(self) -> Message:
        """Message with the role and the blocks of this entry."""
        return Message(role=self.role, blocks=self.blocks)

    @property
    def mid(self) -> str:
        """Public id of the message inside its session, such as `m12` for `seq` 12."""
        return f"m{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Stored compaction: it hides the turns `from_turn` to `through_turn`, both included.

    `summary_text` and `ledger` replace them in requests; both are empty for kinds without a summary. `tokens`
    is the size of the text.
    """

    id: int
    kind: CompactionKind
    from_turn: int
    through_turn: int
    through_seq: int = 0
    """Highest `seq` that the compaction hides; the model reads it as the end of the summary's range."""
    summary_text: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Fact about a contact in long-term memory; `authority` names its author, as in `Entry.author`."""

    id: int
    kind: str
    text: str
    subject: str = ""
    authority: str = "person"
    importance: int = 5
    """Weight from 1 (trivial) to 9 (never to be forgotten)."""
    observed_at: datetime | None = None
    event_date: str | None = None
    """Day of which the note speaks, as ISO date; None if it names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPrefix:
    """Notes and pins as the last request sent them before the history.

    Requests repeat them unchanged while the provider may have that prefix cached.
    """

    notes_block: str = ""
    """Text of the notes as the last request sent it."""
    notes: tuple[int, ...] = ()
    """Ids of the notes in `notes_block`; none of them has been forgotten."""
    ended: tuple[Note, ...] = ()
    """Notes in `notes_block` that have since been changed or expired."""
    pins: frozenset[int] = frozenset()
    """`seq` of hidden messages that were pinned when the prefix was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionBackoff:
    """Pause of automatic compaction, with the state of the session at its start.

    It ends at turn `until_turn`, when the limit, the model or the pins change, or when a person compacts.
    """

    reason: BackoffReason
    limit: int
    model: str
    pins: tuple[int, ...]
    until_turn: int

    def holds(self, *, limit: int, model: str, pins: tuple[int, ...], turn: int) -> bool:
        """Return whether the pause still applies: same model and pins, and `turn` is below `until_turn`.

        `turn` is the newest ended turn; `limit`, that of the budget, may differ by a tenth from that at the
        start.
        """
        same = (self.model, self.pins) == (model, pins)
        near = abs(limit - self.limit) <= _SAME_LIMIT * self.limit
        return same and near and turn < self.until_turn


def backoff_from_json(raw: Mapping[str, Any] | None) -> CompactionBackoff | None:
    """Return the pause of compaction from its stored JSON; None if none is stored."""
    return None if raw is None else CompactionBackoff(**{**raw, "pins": tuple(raw["pins"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Live part of a session's log: entries after turn `base_turn`, pins, and the newest summary (`head`).

    `flushed_turn` is the last turn whose memory was saved; `view_epoch` is raised by each change of the view.
    `head` is None before the first compaction.
    """

    session_id: int
    base_turn: int
    flushed_turn: int
    view_epoch: int
    cycle: int
    """Number of committed compactions; a memory flush is counted per cycle."""
    head: Compaction | None
    entries: tuple[Entry, ...]
    """Live entries in the order `(turn, step)`: those of ended turns and of the turn being answered."""
    pins: tuple[Entry, ...] = ()
    """Hidden entries that requests still show: pinned ones, and edits of summarised messages."""
    notes: tuple[Note, ...] = ()
    frozen: FrozenPrefix | None = None
    """Notes and pins as last sent; None if they must be built again after a compaction or an expired cache.
    """
    context_tokens: int = 0
    """Last reported or estimated size of the context, in tokens."""
    open_turn: int | None = None
    """Number of the turn being answered; None if there is none."""
    hold_compaction: bool = False
    """True after an undo: automatic compaction waits until the context overflows."""
    flush_thresholds: frozenset[str] = frozenset()
    """Names of the thresholds at which a memory flush was tried in this cycle, whatever its result."""
    backoff: CompactionBackoff | None = None
    """Pause of automatic compaction; None if there is none."""


def is_correction(entry: Entry) -> bool:
    """Return whether an entry of `View.pins` is there because it edits a hidden message, and not as a pin."""
    return not entry.pinned and entry.replaces is not None


def list_corrections(view: View) -> tuple[Entry, ...]:
    """Return the hidden entries that edit a message after its summary was written, with their newest
    wording.
    """
    return tuple(entry for entry in view.pins if is_correction(entry))


def drop_edited(ledger: Ledger, corrections: Iterable[Entry]) -> Ledger:
    """Return the ledger without items all of whose sources were edited; items without sources stay.

    `corrections` are the edits; each names in `replaces` the message that it edits.
    """
    edited = {entry.replaces for entry in corrections}
    items = tuple(item for item in ledger.items if not item.sources or not edited.issuperset(item.sources))
    return ledger if len(items) == len(ledger.items) else replace(ledger, items=items)


def turns_of(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], ...]:
    """Return the entries in groups of neighbours with the same turn, in their order."""
    return tuple(tuple(group) for _, group in groupby(entries, key=_TURN))


def is_answered(turn: Sequence[Entry]) -> bool:
    """Return whether the turn ends with a message of an operator, or of the assistant without tool calls."""
    last = turn[-1]
    calls = any(isinstance(block, ToolUse) for block in last.blocks)
    return last.author == "operator" or (last.role == "assistant" and not calls)


def is_resolved(turn: Sequence[Entry]) -> bool:
    """Return whether the turn is answered and its last tool result is no error."""
    tried = [result for entry in turn for result in tool_results(entry.blocks)]
    return is_answered(turn) and not (tried and tried[-1].is_error)


def find_unresolved_turns(entries: Iterable[Entry], open_turn: int | None = None) -> frozenset[int]:
    """Return the numbers of ended turns that have no answer or whose last tool result is an error.

    `open_turn` is the turn being answered, which never counts; None if there is none.
    """
    return frozenset(
        turn[0].turn for turn in turns_of(entries) if turn[0].turn != open_turn and not is_resolved(turn)
    )


def drop_former(entries: Sequence[Entry], *, open_turn: int | None = None) -> tuple[Entry, ...]:
    """Return the entries that a request shows: of several turns with the same question, only the newest.

    A turn that repeats a question replaces the earlier ones once it is answered or while it is open. Turns of
    erased entries only are left out. Pinned entries stay in any case.
    """
    again = _find_repeated_questions(entries)
    gone = _former_turns(entries, again, open_turn) if again else set()
    gone |= _erased_turns(entries, open_turn)
    if not gone:
        return tuple(entries)
    return tuple(entry for entry in entries if entry.pinned or entry.turn not in gone)


def _erased_turns(entries: Sequence[Entry], open_turn: int | None) -> set[int]:
    """Return the numbers of ended turns whose entries were all erased."""
    erased = {entry.turn for entry in entries if entry.turn != open_turn and is_erased(entry.blocks)}
    if not erased:
        return erased
    return erased - {entry.turn for entry in entries if not is_erased(entry.blocks)}


def former_answer(entries: Iterable[Entry], open_turn: int) -> str | None:
    """Return the public id of the newest earlier answer to the question that `open_turn` repeats.

    None if the turn repeats no question, or if no earlier answer is among the entries.
    """
    known = list(entries)
    root = _find_repeated_questions(known).get(open_turn)
    if root is None:
        return None
    mine = _turns_about(known, root)
    answers = [
        entry for entry in known if entry.turn in mine and entry.turn < open_turn and _is_answer(entry)
    ]
    return answers[-1].mid if answers else None


def _find_repeated_questions(entries: Sequence[Entry]) -> dict[int, int]:
    """Return the `seq` of the repeated question for each turn that repeats one."""
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
