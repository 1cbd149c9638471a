"""State of background jobs: claims, ends of jobs, results of flushes and compactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shared.core.session.ledger import Ledger
from shared.core.session.session import CompactionKind, View
from shared.core.session.summary import five_fields
from shared.core.session.turns import Spending

FlushOutcome = Literal["saved", "nothing", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session as a job or a command finds it: whose it is, and its view with entries."""

    session_id: int
    contact_id: int
    anonymous: bool
    agent: str
    agent_config: Mapping[str, Any]
    view: View
    answered_turn: int
    head_id: int | None
    redo_id: int | None
    context_limit: int
    token_ratio: float
    fixed_tokens: int
    """Tokens of a request besides summary, pins and messages; at first system and tools of the last call."""
    talk_ratio: float | None = None
    """The model's tokens per estimated token of summary, pins and messages; None takes `token_ratio`."""
    reserved_tokens: int = 0
    """Tokens that a request keeps free for recalled passages."""
    token_scale: Mapping[str, Any] = field(default_factory=dict)
    """How the session's model counts each kind of text, as it is stored."""
    learned_scale: Mapping[str, Any] | None = None
    """The scale to store with a change of the view; None keeps the stored one."""
    channel: str = ""
    """Where the last answered turn came from: its limits hold for the gauge and for silent turns."""
    measured_by: str = ""
    """The model whose count the session's numbers are."""
    brought: bool = False
    """A program's key or a site's token said who this is: never the owner of this installation."""
    contact_kind: Literal["person", "group"] = "person"
    display_name: str = ""
    timezone: str | None = None
    goal: str = ""
    mode: str = ""
    compaction: str = ""
    """`off` while automatic summaries are switched off in this conversation."""
    compact_at: int | None = None
    """Limit that was chosen for this conversation; None: as the agent is configured."""

    def with_sizes_of(self, after: SessionState) -> SessionState:
        """Return this state with the sizes of the request that follows a change of the view."""
        return replace(
            self,
            fixed_tokens=after.fixed_tokens,
            talk_ratio=after.talk_ratio,
            reserved_tokens=after.reserved_tokens,
            learned_scale=after.learned_scale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim:
    """The right to do one job, until its epoch is raised."""

    id: int
    kind: Literal["flush", "compact", "tidy", "import"]
    session_id: int
    key: str
    trigger: str
    payload: Mapping[str, Any]
    attempt: int
    faults: int
    epoch: int
    worker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTicket:
    """A flush that was begun: the range it reads, the row it reports to."""

    id: int
    from_turn: int
    through_turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport:
    """How a flush went, and what it cost."""

    outcome: FlushOutcome
    model: str
    stray_text: str = ""
    """Text of the silent turn, which is never shown."""
    error: str = ""
    spent: tuple[Spending, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCompaction:
    """A compaction that was planned, written and audited, about to be committed by compare-and-set."""

    kind: CompactionKind
    from_turn: int
    through_turn: int
    from_seq: int
    through_seq: int
    trigger: str
    summary_text: str
    ledger: Ledger
    contract: Mapping[str, Any]
    audit: Mapping[str, Any]
    tokens: int
    tokens_before: int
    model: str
    cost_micro: int | None
    duration_ms: int
    flush_id: int | None
    focus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """How a job ends: `done`, `dead`, or `due` again after `retry_seconds`; an error counts as a fault."""

    outcome: Mapping[str, Any]
    state: Literal["done", "dead", "due"] = "done"
    error: str = ""
    retry_seconds: float = 0.0
    failures: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How an earlier compaction job of the session ended."""

    trigger: str
    state: str
    faults: int
    outcome: Mapping[str, Any]
    age_seconds: float

    @property
    def committed(self) -> bool:
        return "compaction" in self.outcome

    @property
    def failures(self) -> int:
        """Attempts that broke, and a digest that stands in for a summary which no model could write."""
        if self.state == "dead" and "nothing" not in self.outcome:
            return max(1, self.faults)
        return int(self.committed and self.outcome.get("kind") == "digest")

    @property
    def tells_nothing(self) -> bool:
        """A job that never came to ask a model says nothing about how it would have gone."""
        return "nothing" in self.outcome or bool(self.outcome.get("in_backoff"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEnd:
    """How the summary of some range came to be, in any conversation."""

    model: str
    """Model that wrote it; empty for a digest."""
    unusable: frozenset[str]
    """Models whose answers could not be used."""
    age_seconds: float
    session_id: int = 0
    is_own: bool = True
    """True if it belongs to the conversation that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Recent ends of a session's jobs, by Postgres' clock."""

    ends: tuple[JobEnd, ...]
    """Ends of its compaction jobs, newest first, without upgrades of digests."""
    idle_seconds: float
    unanswered: bool
    written: tuple[SummaryEnd, ...] = ()
    """The summaries of all sessions lately, newest first."""
    turn_micro: float = 0.0
    """Average price of the newest turns in micro-dollars; 0 without a known price."""
    summary_tokens: int | None = None
    """Average answer to the session's newest requests for a summary; None before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A ledger that was made early, in case the real summary fails."""

    parent: int | None
    """Head that the checkpoint continues."""
    from_turn: int
    through_turn: int
    ledger: Ledger
    model: str
    audit: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 0
    cost_micro: int | None = None

    def helps(self, from_turn: int, through_turn: int) -> bool:
        """Return whether it can replace a summary of this range: at least half of it, nothing beyond."""
        covered = self.through_turn - self.from_turn + 1
        inside = self.from_turn == from_turn and self.through_turn <= through_turn
        return inside and 2 * covered >= through_turn - from_turn + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """A session as it stood before a compaction hid `from_turn … through_turn`, with these turns live."""

    state: SessionState
    compaction_id: int
    kind: str
    from_turn: int
    through_turn: int
    tokens: int
    """Tokens of the text that replaces these turns."""
    ledger: Ledger = field(default_factory=Ledger)
    """The record that stands in for them; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStored:
    """Stored compaction, undo or restore, as screens receive it."""

    compaction_id: int
    event_seq: int
    payload: Mapping[str, Any]
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRefused:
    """Refusal of a change, with its reason."""

    reason: Literal[
        "nothing_to_undo", "crosses_new", "crosses_separator", "crosses_window", "would_not_fit",
        "nothing_to_restore", "newer_turns",
    ]  # fmt: skip
    advice: str
    values: Mapping[str, int] = field(default_factory=dict)
    """Numbers in it, by name."""


def build_window_compaction(view: View, through_turn: int, *, flush_id: int | None) -> NewCompaction:
    """Return a compaction that hides live turns up to this one and keeps the head's summary."""
    seqs = [entry.seq for entry in view.entries if entry.turn <= through_turn]
    head = view.head
    ledger = head.ledger if head else Ledger()
    return NewCompaction(
        kind="window",
        from_turn=view.base_turn + 1,
        through_turn=through_turn,
        from_seq=min(seqs),
        through_seq=max(seqs),
        trigger="window",
        summary_text=head.summary_text if head else "",
        ledger=ledger,
        contract=five_fields(ledger),
        audit={},
        tokens=head.tokens if head else 0,
        tokens_before=view.context_tokens,
        model="",
        cost_micro=0,
        duration_ms=0,
        flush_id=flush_id,
    )
