"""What the silent jobs work on and leave behind: claims of jobs, results of flushes and compactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shared.core.ledger import Ledger
from shared.core.session import LinkKind, View
from shared.core.turns import Spending

FlushOutcome = Literal["saved", "nothing", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session as a job or a command finds it: whose it is, and its view with entries."""

    session_id: int
    party_id: int
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
    """System and tools of the last call, as its audit row says; 0 before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim:
    """The right to do one job, until its epoch is raised."""

    id: int
    kind: Literal["flush", "compact"]
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
    stray_text: str
    """Words that nobody will see."""
    error: str
    model: str
    spent: tuple[Spending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNote:
    kind: str
    text: str
    subject: str
    importance: int
    hash: bytes
    authority: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLink:
    """A compaction that was planned, written and audited, about to be committed by compare-and-set."""

    kind: LinkKind
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
    spent: tuple[Spending, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStored:
    """The commit of a compaction, its undo or its restore, as screens are told of it."""

    link_id: int
    event_seq: int
    payload: Mapping[str, Any]
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was changed, and why."""

    reason: Literal["nothing_to_undo", "crosses_new", "would_not_fit", "nothing_to_restore", "newer_turns"]
    advice: str
