"""Operators' actions on jobs and uncertain deliveries, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.session.turns import DueJob

JobVerb = Literal["retry", "cancel"]
"""Actions of operators on jobs: run a failed job again, or end a waiting one."""
DeliveryVerb = Literal["arrived", "send_again"]
"""Actions of operators on an uncertain delivery: it arrived, or it is to be sent again."""
JOB_STATES = ("due", "running", "failing", "done", "dead")
"""States by which jobs are filtered; `failing` jobs will be retried after an error, others are
stored states.
"""
JOB_KINDS = ("flush", "compact", "tidy", "import")
"""Kinds of jobs by which lists are filtered."""
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
    """Key of one part of an answer that is sent in several messages; `part` is its number within the turn."""

    session: str
    """Public id of the session."""
    turn: int
    part: int

    def __str__(self) -> str:
        """Return the key as text: session, turn and part, separated by slashes."""
        return f"{self.session}/{self.turn}/{self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Job or delivery that an operator's action left unchanged, with the reason in English."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkChanged:
    """Result of an operator's action on several jobs or deliveries.

    `changed` has the keys of changed objects, `rung` the jobs that the caller must announce to workers.
    """

    changed: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    rung: tuple[DueJob, ...] = ()
    more: int = 0
    """Number of matching objects left for another request."""
