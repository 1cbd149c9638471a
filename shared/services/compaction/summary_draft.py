"""A summary while it is written, and what is returned of it: ledger, scores, faults, rejected attempts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.core.compaction.audit import AuditVerdict
from shared.core.compaction.note_requests import NoteWish
from shared.core.compaction.plan import CompactionPlan
from shared.core.session.ledger import Ledger
from shared.core.session.session import CompactionKind
from shared.core.session.turns import total_cost
from shared.services.compaction.summary_tasks import SummaryTasks
from shared.services.turns.spend_tracker import SpendTracker

_FAULTS_STORED = 40
_CODE = re.compile(r"([a-z]+(?:_[a-z]+)+)(?::|$)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|(?<=missing: )[^;]*")
"""Faults quote what they complain of."""

OnProgress = Callable[[int, str], Awaitable[None]]
"""`(percent, stage)`"""


def redact_quotes(fault: str) -> str:
    """For logs and operators: what is quoted may be anybody's words."""
    return _QUOTED.sub("…", fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAttempt:
    """An answer that could not be used, or a call that brought none."""

    step: str
    model: str
    fault: str
    scores: Mapping[str, float] = field(default_factory=dict)
    cost_micro: int | None = None
    """What its calls have cost; None where nobody knows, or nobody was asked."""

    @property
    def costs(self) -> dict[str, int]:
        """For the row that tells of it: what nobody knows is left out."""
        return {} if self.cost_micro is None else {"cost_micro": self.cost_micro}

    @property
    def as_stored(self) -> dict[str, Any]:
        """In the audit of what was written in the end."""
        return {"step": self.step, "model": self.model, "fault": self.fault[:300], **self.costs}

    @property
    def code(self) -> str:
        """The fault for operators: an error's code, or what was wrong without anybody's words."""
        code = _CODE.match(self.fault)
        return code[1] if code else redact_quotes(self.fault)[:200] or "not_usable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """A ledger that may be committed, and how it came to be."""

    kind: CompactionKind
    ledger: Ledger
    verdict: AuditVerdict | None
    """Of the last step; None for a digest alone."""
    model: str
    duration_ms: int
    audit: Mapping[str, Any] = field(default_factory=dict)
    """Scores, faults and rejected attempts of all steps, as they are stored and shown."""
    attempts: tuple[SummaryAttempt, ...] = ()
    notes: tuple[NoteWish, ...] | None = None
    """Where they were asked for and answered, whatever became of the summary."""


@dataclass(slots=True, kw_only=True)
class SummaryDraft:
    plan: CompactionPlan
    purse: SpendTracker
    tasks: SummaryTasks
    on_progress: OnProgress
    models: list[str]
    """Who is asked, in this order; the first that works stays."""
    named: set[int]
    message_tokens: int
    most_attempts: int
    title: str = ""
    """What the conversation is called: asked for until it has been answered, with what is asked anyway."""
    model: str = ""
    way: str = "fold"
    digested: bool = False
    portions: int = 0
    splits: int = 0
    attempts: list[SummaryAttempt] = field(default_factory=list)
    verdicts: list[AuditVerdict] = field(default_factory=list)
    notes: tuple[NoteWish, ...] | None = None
    paid_before: int = 0
    """How many calls were paid for before the one that runs."""

    def record_failure(
        self, step: str, model: str, fault: str, *, scores: Mapping[str, float] | None = None
    ) -> None:
        """The call that was made last brought nothing that can be used."""
        calls = self.purse.spent[self.paid_before :]
        cost = total_cost(calls) if calls else None
        self.attempts.append(
            SummaryAttempt(step=step, model=model, fault=fault, scores=dict(scores or {}), cost_micro=cost)
        )


def build_summary_audit(writing: SummaryDraft, ledger: Ledger) -> dict[str, Any]:
    """The worst score of all steps, and everything that was wrong on the way."""
    scores: dict[str, float] = {}
    for verdict in writing.verdicts:
        for name, score in verdict.scores.items():
            scores[name] = min(scores.get(name, score), score)
    soft = [fault for verdict in writing.verdicts for fault in verdict.soft_faults]
    return {
        "form": ledger.form,
        "way": "digest" if writing.digested and not writing.verdicts else writing.way,
        "portions": writing.portions,
        "scores": scores,
        "soft_faults": soft[:_FAULTS_STORED],
        "dropped": sum(len(verdict.dropped_items) for verdict in writing.verdicts),
        "attempts": [attempt.as_stored for attempt in writing.attempts],
        "named": sorted(writing.named),
    }
