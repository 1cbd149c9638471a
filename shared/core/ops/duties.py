"""Duties: background work that the workers repeat by the clock, each with its period and its timeout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

DutyName: TypeAlias = Literal[
    "session_list", "erasures", "reservations", "recall_index", "hourly_stats", "owed_flushes",
    "contacts", "page_deliveries", "consolidation", "partitions", "retention",
]  # fmt: skip
DUTY_NAMES: tuple[DutyName, ...] = get_args(DutyName)


@dataclass(frozen=True, slots=True, kw_only=True)
class DutySchedule:
    """How often a duty runs, and how long one run may take; both in seconds.

    A period divides a minute or an hour, since arq's cron jobs have no others.
    """

    seconds: int
    timeout_seconds: float


SCHEDULES: Mapping[DutyName, DutySchedule] = {
    # Turns that follow each other faster are one change of the list.
    "session_list": DutySchedule(seconds=2, timeout_seconds=30),
    "erasures": DutySchedule(seconds=3, timeout_seconds=300),
    # Money that a dead process had reserved counts against the caps until it is released.
    "reservations": DutySchedule(seconds=5, timeout_seconds=30),
    "recall_index": DutySchedule(seconds=10, timeout_seconds=120),
    # The dashboard's numbers by the hour are behind by at most this period.
    "hourly_stats": DutySchedule(seconds=15, timeout_seconds=60),
    "owed_flushes": DutySchedule(seconds=30, timeout_seconds=30),
    "contacts": DutySchedule(seconds=300, timeout_seconds=60),
    "page_deliveries": DutySchedule(seconds=300, timeout_seconds=30),
    "consolidation": DutySchedule(seconds=300, timeout_seconds=60),
    "partitions": DutySchedule(seconds=300, timeout_seconds=60),
    "retention": DutySchedule(seconds=3600, timeout_seconds=1800),
}
LATE_PERIODS = 5
LATE_SECONDS = 300
"""A duty that has not succeeded for five of its periods, and for five minutes, is late."""
