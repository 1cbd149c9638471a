"""Duties: background work that workers repeat on a schedule, each with a period and a time limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

DutyName: TypeAlias = Literal[
    "session_list", "erasures", "reservations", "recall_index", "hourly_stats", "owed_flushes",
    "contacts", "page_deliveries", "consolidation", "partitions", "retention",
]  # fmt: skip
"""Names of the duties, the keys of `SCHEDULES`."""
DUTY_NAMES: tuple[DutyName, ...] = get_args(DutyName)
"""Names of all duties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DutySchedule:
    """Schedule of a duty: `seconds` between two runs, and the seconds that one run may take.

    A period divides a minute or an hour, since arq's cron jobs have no others.
    """

    seconds: int
    timeout_seconds: float


SCHEDULES: Mapping[DutyName, DutySchedule] = {
    # Several turns within this period cause only one update of the list.
    "session_list": DutySchedule(seconds=2, timeout_seconds=30),
    "erasures": DutySchedule(seconds=3, timeout_seconds=300),
    # Money reserved by a crashed process counts against the caps until it is released.
    "reservations": DutySchedule(seconds=5, timeout_seconds=30),
    "recall_index": DutySchedule(seconds=10, timeout_seconds=120),
    # The dashboard's hourly figures are at most this period old.
    "hourly_stats": DutySchedule(seconds=15, timeout_seconds=60),
    "owed_flushes": DutySchedule(seconds=30, timeout_seconds=30),
    "contacts": DutySchedule(seconds=300, timeout_seconds=60),
    "page_deliveries": DutySchedule(seconds=300, timeout_seconds=30),
    "consolidation": DutySchedule(seconds=300, timeout_seconds=60),
    "partitions": DutySchedule(seconds=300, timeout_seconds=60),
    "retention": DutySchedule(seconds=3600, timeout_seconds=1800),
}
"""Schedule of each duty."""
LATE_PERIODS = 5
"""Periods without a success after which a duty counts as late, if `LATE_SECONDS` have also passed."""
LATE_SECONDS = 300
"""Seconds without a success after which a duty counts as late, if `LATE_PERIODS` have also passed."""
