"""How long turns and jobs took, and what waits just now: read in small steps, for `/metrics`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shared.adapters.postgres.dashboard import metrics_sql as sql
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Pool
from shared.adapters.postgres.turns.counters import SpentToday

STAGES = ("wait", "model", "turn", "job_wait", "job")
"""Until a turn is begun; until its model has answered; until it is over; of jobs: waiting, running."""
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_AT_MOST = 20_000
"""Rows that one scrape reads; what is left is read by the next."""


@dataclass(slots=True)
class Histogram:
    """Counts since this process began to look, as Prometheus wants them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, counts: list[int], seconds: float) -> None:
        self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
        self.seconds += seconds


class Durations:
    """Each scrape reads what was written since the last; a row is counted once by each process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._usage: int | None = None
        self._jobs: str | None = None
        self.stages = {stage: Histogram() for stage in STAGES}

    async def catch_up(self) -> None:
        """Not by two at a time: the caller sees to it."""
        found = await read_page(self._pool, sql.SINCE, self._usage, self._jobs, list(BUCKETS), _AT_MOST)
        for row in found["stages"]:
            self.stages[row["stage"]].add(row["counts"], row["seconds"])
        self._usage, self._jobs = found["usage"], found["jobs"]


class MetricsInsights:
    """Reads only, and nothing that grows with the history."""

    def __init__(self, pool: Pool, *, timezone: str) -> None:
        self._pool = pool
        self._today = SpentToday(pool, timezone)

    async def load_gauges(self) -> dict[str, Any]:
        spent = await self._today.read()
        return {**await read_page(self._pool, sql.GAUGES), "spent_today_micro": spent["spent"]}
