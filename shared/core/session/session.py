"""A session's log and what of it is live: entries, links, notes, the view, the newest of several answers."""

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
PruneForm = Literal["trim", "clear", "duplicate", "hide"]
"""`hide` leaves a whole message of assistant or tool out, and only under a policy that hides chatter."""
BackoffReason = Literal["thrashing", "nothing", "hook"]
_SAME_LIMIT = 0.1
"""A limit is learned with the ratio of each turn; so small a change of it changes nothing."""
TurnState = Literal["open", "claimed", "answered", "stopped", "refused", "failed"]
"""A turn ends in one of the last four; `open` still collects messages, `claimed` is being answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored message. The order of arrival is `seq`, the order of the context is `(turn, step)`."""

    seq: int
    turn: int
    step: int
    role: Role
    author: Author
    blocks: tuple[Block, ...]
    tokens: int
    """Estimated once, at insert, by the process that stored it."""
    at: datetime
    replaces: int | None = None
    """The message that it stands for: edited, or asked or answered again."""
    pinned: bool = False
    pruned: PruneForm | None = None
    """The sticky decision how this entry's tool results are shown."""
    pruned_as: Mapping[str, str | None] | None = None
    """Where a tool's own rule decided: the text of each result by its call, None for one that stays whole."""
    pruned_now: bool = False
    """Whether the newest batch of the open turn decided so: the provider still has what stands before it."""
    failed: str | None = None
    """Error code of the turn, where the blocks are what requests show of its person's message."""

    @property
    def message(self) -> Message:
        return Message(role=self.role, blocks=self.blocks)

    @property
    def mid(self) -> str:
        """The public id of a message inside its session."""
        return f"m{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A row that hides the turns `from_turn … through_turn`; a summary or digest also stands in for them."""

    id: int
    kind: CompactionKind
    from_turn: int
    through_turn: int
    through_seq: int = 0
    """The highest seq it hides, shown to the model as the range of the summary."""
    summary_text: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing worth keeping about a contact, in its own words."""

    id: int
    kind: str
    text: str
    subject: str = ""
    authority: str = "person"
    importance: int = 5
    """1 (trivia) … 9 (never forget)."""
    observed_at: datetime | None = None
    event_date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPrefix:
    """Prefix of the last request before the history; it stays while the provider may have it cached."""

    notes_block: str = ""
    """The words, as they were sent."""
    notes: tuple[int, ...] = ()
    """The notes that it shows; none of them was forgotten."""
    ended: tuple[Note, ...] = ()
    """Notes among these that have been changed or have expired since."""
    pins: frozenset[int] = frozenset()
    """Seqs of hidden messages that were pinned then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionBackoff:
    """Pause of automatic compaction until one of these changes, a person compacts, or turns have passed."""

    reason: BackoffReason
    limit: int
    model: str
    pins: tuple[int, ...]
    until_turn: int

    def holds(self, *, limit: int, model: str, pins: tuple[int, ...], turn: int) -> bool:
        same = (self.model, self.pins) == (model, pins)
        near = abs(limit - self.limit) <= _SAME_LIMIT * self.limit
        return same and near and turn < self.until_turn


def backoff_from_json(raw: Mapping[str, Any] | None) -> CompactionBackoff | None:
    return None if raw is None else CompactionBackoff(**{**raw, "pins": tuple(raw["pins"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Live part of the log: everything after `base_turn`, plus pins and the head's summary."""

    session_id: int
    base_turn: int
    flushed_turn: int
    view_epoch: int
    cycle: int
    """How many compactions were committed; names the cycle a flush belongs to."""
    head: Compaction | None
    entries: tuple[Entry, ...]
    """Live entries in the order `(turn, step)`, ended turns and the claimed one."""
    pins: tuple[Entry, ...] = ()
    """Hidden entries that are shown nevertheless: pinned ones, and corrections of the summary."""
    notes: tuple[Note, ...] = ()
    frozen: FrozenPrefix | None = None
    """Frozen prefix; None if it is built again, after a compaction or when it cannot be cached any more."""
    context_tokens: int = 0
    """The last reported or estimated size of the context, in tokens."""
    open_turn: int | None = None
    """The turn that is being answered while this view is used, if any."""
    hold_compaction: bool = False
    """Set by an undo: automatic compaction waits for the next overflow."""
    flush_thresholds: frozenset[str] = frozenset()
    """Names of the thresholds whose flush was tried in this cycle, successfully or not."""
    rest: CompactionBackoff | None = None
    """Why automatic compaction of this session has stopped, if it has."""


def is_correction(entry: Entry) -> bool:
    """Whether a hidden entry is shown because it was edited after the summary, not because it is pinned."""
    return not entry.pinned and entry.replaces is not None


def list_corrections(view: View) -> tuple[Entry, ...]:
    """The newest wording of hidden messages that were edited after the summary was written."""
    return tuple(entry for entry in view.pins if is_correction(entry))


def drop_edited(ledger: Ledger, corrections: Iterable[Entry]) -> Ledger:
    """Return the ledger without items whose sources are all edited messages; itself if there are none."""
    edited = {entry.replaces for entry in corrections}
    items = tuple(item for item in ledger.items if not item.sources or not edited.issuperset(item.sources))
    return ledger if len(items) == len(ledger.items) else replace(ledger, items=items)


def turns_of(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], ...]:
    return tuple(tuple(group) for _, group in groupby(entries, key=_TURN))


def is_answered(turn: Sequence[Entry]) -> bool:
    """Whether the turn's last word is the assistant's or an operator's, and no call that waits."""
    last = turn[-1]
    calls = any(isinstance(block, ToolUse) for block in last.blocks)
    return last.author == "operator" or (last.role == "assistant" and not calls)


def is_resolved(turn: Sequence[Entry]) -> bool:
    """Whether the turn is answered and the last thing that was tried in it did not fail."""
    tried = [result for entry in turn for result in tool_results(entry.blocks)]
    return is_answered(turn) and not (tried and tried[-1].is_error)


def find_unresolved_turns(entries: Iterable[Entry], open_turn: int | None = None) -> frozenset[int]:
    """Ended turns that are not completed, have no answer, or whose last step did not succeed."""
    return frozenset(
        turn[0].turn for turn in turns_of(entries) if turn[0].turn != open_turn and not is_resolved(turn)
    )


def drop_former(entries: Sequence[Entry], *, open_turn: int | None = None) -> tuple[Entry, ...]:
    """The entries as a request shows them: of the turns that answer one question, the newest only.

    A turn that asks a former question again counts while it is the open one, and once it has an answer; one
    that ended without leaves everything as it was. What is pinned always stays. A turn of which everything
    was erased takes no room.
    """
    again = _asked_again(entries)
    gone = _former_turns(entries, again, open_turn) if again else set()
    gone |= _erased_turns(entries, open_turn)
    if not gone:
        return tuple(entries)
    return tuple(entry for entry in entries if entry.pinned or entry.turn not in gone)


def _erased_turns(entries: Sequence[Entry], open_turn: int | None) -> set[int]:
    """Return the ended turns of which every entry was erased."""
    erased = {entry.turn for entry in entries if entry.turn != open_turn and is_erased(entry.blocks)}
    if not erased:
        return erased
    return erased - {entry.turn for entry in entries if not is_erased(entry.blocks)}


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
    """Return by turn the earlier turn whose question it repeats."""
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
