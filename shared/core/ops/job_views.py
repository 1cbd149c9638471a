"""Operators' actions on jobs and uncertain deliveries, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.session.turns import DueJob

JobVerb = Literal["retry", "cancel"]
DeliveryVerb = Literal["arrived", "send_again"]
JOB_STATES = ("due", "running", "failing", "done", "dead")
"""States by which jobs are filtered; `failing` jobs will be retried after an error, others are
stored states.
"""
JOB_KINDS = ("flush", "compact", "tidy", "import")
DOUBTS = ("uncertain", "dead", "waiting")
"""States of deliveries on the page of problems; `waiting` parts are queued for a chat that refuses them."""
ASKED_AGAIN = "sent again by an operator"
"""Reason, stored until it arrives, why an answer is sent after a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMatch:
    """Filter of a list of jobs; empty fields match all."""

    state: str = ""
    kind: str = ""
    session: str = ""
    """Public id of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKey:
    """Key of one part of an answer."""

    session: str
    """Public id of the session."""
    turn: int
    part: int

    def __str__(self) -> str:
        return f"{self.session}/{self.turn}/{self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Job or delivery that was skipped, with the reason for the operator."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkChanged:
    """Result of an operator's action: changed and skipped objects, and jobs to announce as `rung`."""

    changed: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    rung: tuple[DueJob, ...] = ()
    more: int = 0
    """Number of matching objects left for another request."""
