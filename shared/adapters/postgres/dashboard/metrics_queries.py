"""Durations of turns and jobs, and numbers of waiting work, for `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from shared.adapters.postgres.dashboard import metrics_sql as sql
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Pool, PoolStore
from shared.adapters.postgres.turns.counters import SpentToday

STAGES = ("wait", "model", "turn", "job_wait", "job")
"""Stages of a turn (until claimed, until the model answered, until ended) and of a job (waiting, running)."""
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets in seconds."""
_AT_MOST = 20_000
"""Maximum rows that one scrape reads; the next one continues."""


@dataclass(slots=True)
class Histogram:
    """Counts per bucket and sum of seconds, since this process started."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, counts: list[int], seconds: float) -> None:
        """Add new counts and the sum of their durations in seconds.

        There is one count per bucket, and one for durations above all bounds.
        """
        self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
        self.seconds += seconds


class Durations(PoolStore):
    """Durations of turns and jobs; each scrape adds the rows written since the last one.

    Rows from before the first scrape do not count. `stages` has a histogram by stage. Raises
    StorageUnavailable.
    """

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._usage: int | None = None
        self._jobs: str | None = None
        self.stages = {stage: Histogram() for stage in STAGES}

    async def catch_up(self) -> None:
        """Add at most 20,000 rows per table that were written since the last call.

        The caller must not call it concurrently.
        """
        found = await read_page(
            self._pool,
            *sql.DURATIONS_SINCE(
                usage=self._usage,
                jobs=self._jobs,
                buckets=list(BUCKETS),
                limit=_AT_MOST,
            ),
        )
        for row in found["stages"]:
            self.stages[row["stage"]].add(row["counts"], row["seconds"])
        self._usage, self._jobs = found["usage"], found["jobs"]


class MetricsInsights(PoolStore):
    """Read-only queries of gauges, whose cost does not grow with the history.

    They raise StorageUnavailable.
    """

    def __init__(self, pool: Pool, *, timezone: str, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(pool)
        self._today = SpentToday(pool, timezone, clock=clock)

    def in_zone(self, timezone: str) -> MetricsInsights:
        """Return the same queries with another zone for days."""
        return MetricsInsights(self._pool, timezone=timezone)

    async def load_gauges(self) -> dict[str, Any]:
        """Return the present values by name, with `spent_today_micro` in micro-dollars."""
        spent = await self._today.read()
        return {**await read_page(self._pool, sql.GAUGES), "spent_today_micro": spent["spent"]}


Turn: TypeAlias = tuple[int, int]
"""Session's internal id and turn number."""


class AnswerTimes(PoolStore):
    """Speed of the newest answers; times of ended turns are cached. Raises StorageUnavailable."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._ended: dict[Turn, Mapping[str, Any]] = {}

    async def read(self) -> dict[str, Any]:
        """Return `{turns_day, first_token_p95_ms, overhead_turns, overhead_p95_ms}` of the last day.

        At most the newest 500 model calls count. The overhead is the time of an answer without the model, for
        turns without tools. The percentiles are in milliseconds, None without a turn; `turns_day` and
        `overhead_turns` are the numbers of measured turns.
        """
        calls = [
            ((session_id, turn_no), model_ms)
            for session_id, turn_no, model_ms in await read_page(self._pool, *sql.NEWEST_CALLS())
        ]
        turns = await self._load_turns({turn for turn, _ in calls})
        first = [one["first_token_ms"] for one in turns.values() if one["first_token_ms"] is not None]
        ours = [
            max(0.0, turns[turn]["answered_ms"] - model_ms)
            for turn, model_ms in calls
            if model_ms is not None and turn in turns and turns[turn]["answered_ms"] is not None
        ]
        return {
            "turns_day": len(first), "first_token_p95_ms": _find_percentile(first, 0.95),
            "overhead_turns": len(ours), "overhead_p95_ms": _find_percentile(ours, 0.95),
        }  # fmt: skip

    async def _load_turns(self, wanted: Collection[Turn]) -> Mapping[Turn, Mapping[str, Any]]:
        kept = {turn: one for turn, one in self._ended.items() if turn in wanted}
        fresh = [turn for turn in wanted if turn not in kept]
        rows = []
        if fresh:
            sessions, numbers = ([turn[at] for turn in fresh] for at in (0, 1))
            rows = await read_page(self._pool, *sql.TIMES_OF_TURNS(sessions=sessions, turns=numbers))
        found = {(row["turn"][0], row["turn"][1]): row for row in rows}
        self._ended = kept | {turn: row for turn, row in found.items() if row["has_ended"]}
        return kept | found


def _find_percentile(values: Collection[float], share: float) -> float | None:
    """Return the value at a share (0 to 1) of the ordered values, interpolated; None without values."""
    if not values:
        return None
    ordered = sorted(float(value) for value in values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
