"""Operators' actions on jobs and uncertain deliveries, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.session.turns import DueJob

JobVerb = Literal["retry", "cancel"]
DeliveryVerb = Literal["arrived", "send_again"]
JOB_STATES = ("due", "running", "failing", "done", "dead")
"""`failing` is what will be tried again after an error; the others are states of the row."""
JOB_KINDS = ("flush", "compact", "tidy", "import")
DOUBTS = ("uncertain", "dead", "waiting")
"""States of deliveries on the page of problems; `waiting` parts are queued for a chat that refuses them."""
ASKED_AGAIN = "sent again by an operator"
"""Why an answer is on its way after a later one; it stands in its row until it has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMatch:
    """Filter of jobs on a page."""

    state: str = ""
    kind: str = ""
    session: str = ""
    """The public id of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKey:
    """One part of an answer."""

    session: str
    """The public id."""
    turn: int
    part: int

    def __str__(self) -> str:
        return f"{self.session}/{self.turn}/{self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Object that was skipped, with the reason for the operator."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkChanged:
    """Work that an operator changed, what was skipped and why, and the jobs that wait now as `rung`."""

    changed: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    rung: tuple[DueJob, ...] = ()
    more: int = 0
    """Number of matching objects left for the next request."""
