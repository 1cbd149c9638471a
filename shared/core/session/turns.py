"""What a turn is made of while it is being answered: the claim, the steps, the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from shared.core.session.ledger import ledger_from_json
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Compaction, Entry, FrozenPrefix, Note, View
from shared.core.values.messages import Block

StepOutcome = Literal["done", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Spending limits in micro-dollars per day; None is no limit. Days end at midnight in `timezone`."""

    total: int | None
    person: int | None
    visitor: int | None
    session: int | None
    network: int | None = None
    """Of all anonymous visitors who come from one address of IPv4, or one /56 of IPv6."""
    visitors_hour: int | None = None
    """Of all anonymous visitors together, per hour."""
    timezone: str = "UTC"

    @property
    def limits(self) -> tuple[int | None, ...]:
        """In the order that statements know them by."""
        return self.visitor, self.person, self.session, self.total, self.network, self.visitors_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to answer one turn, until another process raises the epoch."""

    session_id: int
    turn: int
    epoch: int
    worker_id: int
    attempt: int
    faults: int
    """How often it failed without a transient cause."""
    stop_requested: bool
    told_waiting: bool
    party_id: int
    address_id: int
    channel: str
    anonymous: bool
    agent: str
    agent_config: Mapping[str, Any]
    token_ratio: float
    context_tokens: int
    measured_by: str
    """The model whose count `context_tokens` and `token_ratio` are; empty before the first."""
    token_ratios: Mapping[str, float]
    """What was learned of the models that answered here before that one."""
    turn_times: tuple[datetime, ...]
    """When the newest turns began."""
    reservation_id: int | None
    reserved_micro: int
    refused_scope: str | None
    """The spending cap that said no, if one did."""
    view: View
    """Without entries: these come along or are loaded in the next statement."""
    near_caps: bool = False
    """With what this turn may cost, most of some cap is used, and nobody was told today."""
    brought: bool = False
    """A program's key or a site's token said who this is: never the owner of this installation."""
    party_kind: Literal["person", "group"] = "person"
    display_name: str = ""
    timezone: str | None = None
    """The person's own, where their browser told it."""
    goal: str = ""
    mode: str = ""
    recallable: bool = False
    """Whether anything can be found that is not live: hidden messages, what the agent's files say."""
    erased_turn: int = 0
    """Up to here everything was forgotten."""
    after_death: bool = False
    """The attempt before this one ended without a word."""
    entries: tuple[Entry, ...] | None = None
    """Of the view and the turn, where they came along with the claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One model call, as the ledger of usage keeps it."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    known: bool
    cost_micro: int | None
    request_id: str = ""
    aborted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingWarning:
    """Scopes (`party`, `session`, `total`) that were nearly used up; the event that says so to the person."""

    scopes: tuple[str, ...]
    event_seq: int | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)


def total_cost(calls: Sequence[Spending]) -> int | None:
    """Unknown as soon as that of one call is."""
    costs = [call.cost_micro for call in calls]
    return None if None in costs else sum(cost or 0 for cost in costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAudit:
    """What one call was given and what was done to make it fit; one row per turn."""

    model_alias: str
    model_context_limit: int
    input_budget: int
    hard_limit: int
    estimated_before: int
    estimated_after_summary: int
    estimated_after_prune: int
    reported: int | None
    context_tokens: int
    summary_triggered: bool = False
    prune_triggered: bool = False
    overflow_rejected: bool = False
    parts: Mapping[str, int] = field(default_factory=dict)
    part_hashes: tuple[str, ...] = ()
    entry_from: int = 0
    entry_through: int = 0
    base_turn: int = 0
    head: int | None = None
    prune_seqs: tuple[int, ...] = ()
    renderer_version: int = 1
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What else it takes to make the same request again, see `services/replaying.py`."""
    model_ms: int | None = None
    """How long all of the turn's calls of its model took; None where nobody measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """Everything that is kept of what the model saw at a turn's last call."""

    audit: ContextAudit
    head: Compaction | None
    entries: tuple[Entry, ...]
    """Live ones and pins, in the order of the context; how each was shortened then, the audit says."""
    parts: Mapping[str, str]
    """sha256 in hex → text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A job to be asked for in the same transaction; asking twice is asking once."""

    kind: Literal["flush", "compact"]
    key: str
    trigger: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a turn ends, all that is committed with it."""

    state: Literal["answered", "stopped", "refused", "failed"]
    blocks: tuple[Block, ...] | None
    """The answer's entry, or None when only a notice is shown."""
    tokens: int
    screen: Mapping[str, Any]
    """What the screen's event says beyond the entry: a notice's text, `partial`, `error`."""
    error_code: str | None = None
    refused_scope: str | None = None
    """Whose cap said no, if one did: `party`, `session` or `total`."""
    spent: tuple[Spending, ...] = ()
    settled_micro: int = 0
    audit: ContextAudit | None = None
    prompt_parts: Mapping[str, str] = field(default_factory=dict)
    """sha256 in hex → body, those that this process has not stored yet."""
    prunes: tuple[PruneDecision, ...] = ()
    context_tokens: int | None = None
    """The size of the whole view after this turn, also when less of it was sent."""
    turn_tokens: int = 0
    """What this turn alone adds to a view, in the model's unit."""
    context_limit: int | None = None
    token_ratio: float | None = None
    measured_by: str | None = None
    view_epoch: int | None = None
    """Of the view that was answered from, when a summary was waited for; None is the claim's."""
    release_hold: bool = False
    job: JobOrder | None = None
    first_text_at: float | None = None
    """When the answer's first text was there, on the process's monotonic clock; None when there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStored:
    """What the commit of an answer says: numbers for the screen, and the job to ring for."""

    event_seq: int
    payload: Mapping[str, Any]
    job_id: int | None
    another_waits: bool
    """Whether a further turn was there at the moment of the commit; what comes later has its own caller."""
    view_moved: bool = False
    """A summary was made or taken back while this turn ran: what was measured for it is out of date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a picture of a turn shows, empty when nobody could say, and what it cost to look."""

    attachment_id: int
    description: str
    session_id: int
    party_id: int
    turn: int
    spent: tuple[Spending, ...]
    reservation_id: int | None


def link_from_json(raw: Mapping[str, Any] | None) -> Compaction | None:
    """The head link as a row of Postgres turned into JSON."""
    if raw is None:
        return None
    return Compaction(
        id=raw["id"],
        kind=raw["kind"],
        from_turn=raw["from_turn"],
        through_turn=raw["through_turn"],
        through_seq=raw["through_seq"],
        summary_text=raw["summary_text"],
        ledger=ledger_from_json(raw["ledger"]),
        tokens=raw["tokens"],
    )


def notes_from_json(raw: list[Mapping[str, Any]] | None) -> tuple[Note, ...]:
    return tuple(
        Note(
            id=item["id"],
            kind=item["kind"],
            text=item["text"],
            subject=item["subject"],
            authority=item["authority"],
            importance=item["importance"],
            observed_at=datetime.fromisoformat(item["observed_at"]),
            event_date=item["event_date"],
        )
        for item in raw or ()
    )


def frozen_from_json(raw: Mapping[str, Any] | None) -> FrozenPrefix | None:
    if raw is None:
        return None
    return FrozenPrefix(
        notes_block=raw["block"],
        notes=tuple(raw["notes"]),
        ended=notes_from_json(raw["ended"]),
        pins=frozenset(raw["pins"]),
    )
