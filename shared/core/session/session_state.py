"""State that background jobs read and write: claims, ends of jobs, results of flushes and compactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from shared.core.session.ledger import Ledger
from shared.core.session.session import CompactionKind, View
from shared.core.session.summary import five_fields
from shared.core.session.turns import Spending

FlushOutcome = Literal["saved", "nothing", "failed"]
"""Results of a memory flush: notes were written, there was nothing to save, or the model call failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Session as a job or a command loads it: its owner, settings, sizes, and view with entries.

    `answered_turn` is the newest answered turn, `head_id` the compaction in force, `redo_id` the undone one
    that can be restored; ids are None if there is none. `context_limit` and `fixed_tokens` are tokens.
    """

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
    """Tokens of a request besides summary, pins and messages; before a compaction, system and tools of the
    last call.
    """
    talk_ratio: float | None = None
    """Model's tokens per estimated token of summary, pins and messages; None uses `token_ratio`."""
    reserved_tokens: int = 0
    """Tokens that requests keep free for recalled passages."""
    token_scale: Mapping[str, Any] = field(default_factory=dict)
    """Stored ratios of the model's tokens to estimated ones, by kind of text."""
    learned_scale: Mapping[str, Any] | None = None
    """Ratios to store together with a change of the view; None keeps the stored ones."""
    channel: str = ""
    """Channel of the last answered turn; its limits apply to the gauge and to background calls."""
    measured_by: str = ""
    """Name of the model whose token counts the session stores."""
    brought: bool = False
    """True if an API key or a site's token identified the person, who is then never the owner of the
    installation.
    """
    contact_kind: Literal["person", "group"] = "person"
    display_name: str = ""
    timezone: str | None = None
    goal: str = ""
    mode: str = ""
    compaction: str = ""
    """`off` if automatic summaries are switched off in this conversation."""
    compact_at: int | None = None
    """Context limit in tokens chosen for this conversation; None uses the agent's setting."""
    turn_times: tuple[datetime, ...] = ()
    """Times of the newest turns, from which the lifetime of the provider's cache follows."""

    def with_sizes_of(self, after: SessionState) -> SessionState:
        """Return this state with `fixed_tokens`, `talk_ratio`, `reserved_tokens` and `learned_scale` of
        `after`.
        """
        return replace(
            self,
            fixed_tokens=after.fixed_tokens,
            talk_ratio=after.talk_ratio,
            reserved_tokens=after.reserved_tokens,
            learned_scale=after.learned_scale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim:
    """Right of one worker to run one job; another claim raises the job's epoch and ends it.

    `attempt` is the number of this attempt, from 1; `faults` counts earlier attempts that failed.
    """

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
    """Memory flush that has started: the id of its row, and the first and last turn that it reads."""

    id: int
    from_turn: int
    through_turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport:
    """Result of a memory flush: its outcome, the model's name, and the costs of its calls."""

    outcome: FlushOutcome
    model: str
    stray_text: str = ""
    """Text that the model wrote during the flush; never shown."""
    error: str = ""
    """Text of the error of a failed flush; empty without one."""
    spent: tuple[Spending, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCompaction:
    """Compaction that was planned, written and audited, and is ready to be committed; nothing is stored yet.

    Ranges include both ends. `cost_micro` is in micro-dollars, None if unknown; `flush_id` is the memory
    flush before it, None if there was none.
    """

    kind: CompactionKind
    from_turn: int
    through_turn: int
    from_seq: int
    through_seq: int
    trigger: str
    summary_text: str
    ledger: Ledger
    contract: Mapping[str, Any]
    """Summary in the JSON form of `five_fields`."""
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
    """End of an attempt at a job: `done`, `dead` (failed for good), or `due` again after `retry_seconds`.

    A non-empty `error` counts as a fault.
    """

    outcome: Mapping[str, Any]
    state: Literal["done", "dead", "due"] = "done"
    error: str = ""
    retry_seconds: float = 0.0
    failures: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """End of an earlier compaction job of a session, with its stored outcome."""

    trigger: str
    state: str
    faults: int
    outcome: Mapping[str, Any]
    age_seconds: float

    @property
    def committed(self) -> bool:
        """True if the job committed a compaction."""
        return "compaction" in self.outcome

    @property
    def failures(self) -> int:
        """Number of failed attempts: of a dead job at least 1, of a committed digest 1, else 0.

        A digest counts because no model could write the summary.
        """
        if self.state == "dead" and "nothing" not in self.outcome:
            return max(1, self.faults)
        return int(self.committed and self.outcome.get("kind") == "digest")

    @property
    def is_inconclusive(self) -> bool:
        """True if the end says nothing about the models: the job was unneeded, of no help, or asked none."""
        return "nothing" in self.outcome or bool(self.outcome.get("in_backoff"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEnd:
    """Writing of a recent summary, in any session: by which model, and which models failed at it."""

    model: str
    """Name of the model that wrote the summary; empty for a digest."""
    unusable: frozenset[str]
    """Names of models whose answers were unusable for this summary."""
    age_seconds: float
    session_id: int = 0
    is_own: bool = True
    """True if the summary belongs to the session whose pace is examined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPace:
    """Recent ends of a session's jobs and its activity, measured by the clock of Postgres.

    `idle_seconds` is the time since the last activity; `unanswered` is True if a turn waits for its answer.
    """

    ends: tuple[JobEnd, ...]
    """Ends of compaction jobs, newest first, without those that replaced a digest."""
    idle_seconds: float
    unanswered: bool
    written: tuple[SummaryEnd, ...] = ()
    """Recent summaries of all sessions, newest first."""
    turn_micro: float = 0.0
    """Average price of the newest turns in micro-dollars; 0 if no price is known."""
    summary_tokens: int | None = None
    """Average tokens of the newest summaries that models wrote for the session; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Ledger of the turns `from_turn` to `through_turn`, written early and used if the real summary fails."""

    parent: int | None
    """Id of the compaction (head) that the checkpoint continues; None if there was none."""
    from_turn: int
    through_turn: int
    ledger: Ledger
    model: str
    audit: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 0
    cost_micro: int | None = None

    def helps(self, from_turn: int, through_turn: int) -> bool:
        """Return whether the checkpoint can replace a summary of the turns `from_turn` to `through_turn`.

        It must begin with the range, cover at least half of it, and not go beyond it.
        """
        covered = self.through_turn - self.from_turn + 1
        inside = self.from_turn == from_turn and self.through_turn <= through_turn
        return inside and 2 * covered >= through_turn - from_turn + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTurns:
    """Turns `from_turn` to `through_turn` that a compaction hid, for reading or summarising them again.

    `state` is the session as it was before, in which these turns are live.
    """

    state: SessionState
    compaction_id: int
    kind: str
    from_turn: int
    through_turn: int
    tokens: int
    """Tokens of the text that replaces the hidden turns."""
    ledger: Ledger = field(default_factory=Ledger)
    """Ledger of the hiding compaction; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStored:
    """Result of committing, undoing or restoring a compaction.

    `event_seq` and `payload` are the event that clients receive; sizes of the context before and after are in
    tokens.
    """

    compaction_id: int
    event_seq: int
    payload: Mapping[str, Any]
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRefused:
    """Refusal of undo, restore, `/new` or a separator, as a value: the context is unchanged.

    `reason` is for the program, and selects the text in the person's language; `advice` is that text in
    English.
    """

    reason: Literal[
        "nothing_to_undo", "crosses_new", "crosses_separator", "crosses_window", "would_not_fit",
        "nothing_to_restore", "newer_turns",
    ]  # fmt: skip
    advice: str
    values: Mapping[str, int] = field(default_factory=dict)
    """Numbers in `advice`, by the name of their placeholder."""


def build_window_compaction(view: View, through_turn: int, *, flush_id: int | None) -> NewCompaction:
    """Return a compaction of kind `window` that hides the live turns up to and including `through_turn`, for
    the caller to commit.

    It keeps the present summary. `flush_id` is the memory flush before it, None without one. Raises
    ValueError if no live entry is of these turns.
    """
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
