"""A session's log in memory that behaves like the one in Postgres: links, epochs, undo, restore, hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from shared.core.session.session import Compaction, Entry, FrozenPrefix, Note, PruneForm, View
from shared.core.values.errors import StaleView
from shared.core.values.messages import Author, Block

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)

Ended = Literal["answered", "stopped", "refused", "failed"]


@dataclass(slots=True, kw_only=True)
class StoredCompaction:
    compaction: Compaction
    parent: StoredCompaction | None
    active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state on which a compaction was planned; its commit fails if the state has changed."""

    epoch: int
    head: int | None


@dataclass(slots=True)
class Log:
    """A session's log.

    `entries` keeps everything for ever; `turns` lists, per turn, the entries that are in the context.
    """

    session_id: int = 7
    entries: dict[int, Entry] = field(default_factory=dict)
    replaces: dict[int, int] = field(default_factory=dict)
    turns: dict[int, list[int]] = field(default_factory=dict)
    states: dict[int, Ended] = field(default_factory=dict)
    links: list[StoredCompaction] = field(default_factory=list)
    pins: set[int] = field(default_factory=set)
    prunes: dict[int, PruneForm] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    frozen: tuple[tuple[object, ...], FrozenPrefix] | None = None
    """The cycle and the beginning of the last request; None if the provider has nothing cached."""
    open_turn: int | None = None
    """Number of the turn that collects messages and is not claimed yet; None if there is none."""
    claimed: int | None = None
    answered: int = 0
    base: int = 0
    flushed: int = 0
    epoch: int = 1
    cycle: int = 0
    head: StoredCompaction | None = None
    redo: StoredCompaction | None = None
    hold: bool = False
    minutes: int = 0
    unpinned: int = 0
    noted: int = 0

    # ---- what people and assistant write

    def accept(self, blocks: Sequence[Block], tokens: int) -> int:
        if self.open_turn is None:
            self.open_turn = self._newest_turn() + 1
            self.turns[self.open_turn] = []
        return self._store(self.open_turn, "person", blocks, tokens)

    def claim(self) -> int:
        turn = self.answered + 1
        if self.open_turn == turn:
            self.open_turn = None
        self.claimed = turn
        return turn

    def step(self, author: Author, blocks: Sequence[Block], tokens: int) -> int:
        assert self.claimed is not None
        return self._store(self.claimed, author, blocks, tokens)

    def end(self, state: Ended, prunes: dict[int, PruneForm], *, release_hold: bool = False) -> None:
        assert self.claimed is not None
        self.states[self.claimed] = state
        self.answered, self.claimed = self.claimed, None
        self.prunes.update(prunes)
        self.hold = self.hold and not release_hold

    def edit(self, seq: int, blocks: Sequence[Block], tokens: int) -> int:
        """Add a new version of an entry and return its number.

        Only in a turn that is not claimed yet does it replace the old version in the context.
        """
        turn = self.entries[seq].turn
        new = self._add(turn, "person", blocks, tokens)
        self.replaces[new] = seq
        if turn == self.open_turn:
            self.turns[turn] = [s for s in self.turns[turn] if s != seq] + [new]
        return new

    def _store(self, turn: int, author: Author, blocks: Sequence[Block], tokens: int) -> int:
        seq = self._add(turn, author, blocks, tokens)
        self.turns[turn].append(seq)
        return seq

    def _add(self, turn: int, author: Author, blocks: Sequence[Block], tokens: int) -> int:
        seq = len(self.entries) + 1
        self.minutes += 1
        self.entries[seq] = Entry(
            seq=seq,
            turn=turn,
            step=seq,
            role="assistant" if author == "assistant" else "user",
            author=author,
            blocks=tuple(blocks),
            tokens=tokens,
            at=START + timedelta(minutes=self.minutes),
        )
        return seq

    def _newest_turn(self) -> int:
        return max(self.turns, default=0)

    # ---- what is seen of it

    def view(self, *, answering: bool = False) -> View:
        """Return the session's view as a background job sees it.

        With `answering`, including the claimed turn.
        """
        last = self.claimed if answering and self.claimed is not None else self.answered
        live = [
            self._shown(seq) for turn in range(self.base + 1, last + 1) for seq in self.turns.get(turn, ())
        ]
        hidden = [self._shown(seq) for seq in sorted(self.pins) if self.entries[seq].turn <= self.base]
        return View(
            session_id=self.session_id,
            base_turn=self.base,
            flushed_turn=self.flushed,
            view_epoch=self.epoch,
            cycle=self.cycle,
            head=self.head.compaction if self.head else None,
            entries=tuple(live),
            pins=tuple(hidden),
            notes=self.notes,
            frozen=self.frozen_now,
            open_turn=self.claimed if answering else None,
            hold_compaction=self.hold,
        )

    def _shown(self, seq: int) -> Entry:
        entry = self.entries[seq]
        pinned, form = seq in self.pins, self.prunes.get(seq)
        hidden = entry.turn <= self.base
        if not pinned and form is None:
            return entry
        return replace(entry, pinned=pinned, pruned=None if hidden else form)

    @property
    def seen(self) -> Seen:
        return Seen(epoch=self.epoch, head=self.head.compaction.id if self.head else None)

    @property
    def _cycle(self) -> tuple[object, ...]:
        return self.base, self.seen.head

    @property
    def cycle_state(self) -> tuple[object, ...]:
        """The state that may change a request's beginning.

        New pins and notes do not belong to it.
        """
        return *self._cycle, self.unpinned

    # ---- what is known, and what the provider has cached

    def remember(self, text: str, *, importance: int, replaces: Note | None) -> None:
        self.noted += 1
        note = Note(id=self.noted, kind="fact", text=text, importance=importance)
        self.notes = (*(one for one in self.notes if one is not replaces), note)
        if replaces is not None and self.frozen is not None and replaces.id in self.frozen[1].notes:
            cycle, frozen = self.frozen
            self.frozen = cycle, replace(frozen, ended=(*frozen.ended, replaces))

    def forget(self, note: Note) -> None:
        self.notes = tuple(one for one in self.notes if one is not note)
        if self.frozen is not None and note.id in self.frozen[1].notes:
            self.frozen = None

    def freeze(self, block: str, notes: tuple[int, ...]) -> None:
        """Remember the beginning of a request that was sent, as the provider caches it."""
        now = self.frozen_now
        hidden = frozenset(seq for seq in self.pins if self.entries[seq].turn <= self.base)
        self.frozen = (
            self._cycle,
            FrozenPrefix(
                notes_block=block,
                notes=notes,
                ended=now.ended if now else (),
                pins=hidden & now.pins if now else hidden,
            ),
        )

    @property
    def frozen_now(self) -> FrozenPrefix | None:
        return self.frozen[1] if self.frozen is not None and self.frozen[0] == self._cycle else None

    # ---- what moves the view

    def pin(self, seq: int) -> None:
        if seq not in self.pins:
            self.pins.add(seq)
            self.epoch += 1

    def unpin(self, seq: int) -> None:
        if seq in self.pins:
            self.pins.discard(seq)
            self.epoch += 1
            self.unpinned += 1

    def compact(self, compaction: Compaction, seen: Seen) -> None:
        """Commit a compaction.

        Raises StaleView if the session has changed since `seen`.
        """
        if seen != self.seen or compaction.through_turn > self.answered:
            raise StaleView(f"session {self.session_id}")
        self._hide(compaction)
        self.hold = False

    def begin_anew(self, kind: Literal["new", "separator"]) -> bool:
        if self.answered == self.base:
            if self.head is None or self.head.compaction.kind in ("new", "separator"):
                return False
            self._move(base=self.base, head=None, redo=None, cycles=1, hold=False)
            return True
        seqs = [s for t in range(self.base + 1, self.answered + 1) for s in self.turns.get(t, ())]
        self._hide(
            Compaction(
                id=len(self.links) + 1,
                kind=kind,
                from_turn=self.base + 1,
                through_turn=self.answered,
                through_seq=max(seqs, default=0),
            )
        )
        return True

    def undo(self) -> bool:
        head = self.head
        if head is None or head.compaction.kind not in ("summary", "digest"):
            return False
        head.active = False
        self._move(base=head.compaction.from_turn - 1, head=head.parent, redo=head, cycles=0, hold=True)
        return True

    def restore(self) -> bool:
        compaction = self.redo
        if compaction is None or compaction.parent is not self.head:
            return False
        compaction.active = True
        self._move(base=compaction.compaction.through_turn, head=compaction, redo=None, cycles=0, hold=False)
        return True

    def _hide(self, compaction: Compaction) -> None:
        stored = StoredCompaction(compaction=compaction, parent=self.head)
        self.links.append(stored)
        self._move(base=compaction.through_turn, head=stored, redo=None, cycles=1, hold=False)

    def _move(
        self,
        *,
        base: int,
        head: StoredCompaction | None,
        redo: StoredCompaction | None,
        cycles: int,
        hold: bool,
    ) -> None:
        self.base, self.head, self.redo, self.hold = base, head, redo, hold
        self.epoch += 1
        self.cycle += cycles
