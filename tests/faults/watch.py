"""How soon what a fault interrupted is taken up again, told by the epochs of turns and jobs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.kit.deployment.breakable_servers import Case

GLANCE_SECONDS = 0.05
LOOK_SECONDS = 20.0

_LIVES = """EXISTS (SELECT FROM workers w WHERE w.id = leased_by AND w.stopped_at IS NULL
                     AND w.beat > now() - interval '4 s')"""
_HELD = """
SELECT 'turn' AS what, s.id, s.turn_epoch AS epoch FROM sessions s JOIN workers w ON w.id = s.leased_by
 WHERE w.pid = $1 AND w.stopped_at IS NULL AND s.answered_turn < s.next_turn - 1
   AND (s.retry_at IS NULL OR s.retry_at <= now())
UNION ALL
SELECT 'job', j.id, j.epoch FROM jobs j JOIN workers w ON w.id = j.leased_by
 WHERE w.pid = $1 AND w.stopped_at IS NULL AND j.state = 'running'
"""
"""What the process with this pid is doing."""
_DUE = f"""
SELECT 'turn' AS what, id, turn_epoch AS epoch FROM sessions
 WHERE answered_turn < next_turn - 1 AND (retry_at IS NULL OR retry_at <= now())
   AND (leased_by IS NULL OR NOT {_LIVES})
UNION ALL
SELECT 'job', id, epoch FROM jobs WHERE state = 'due' AND due_at <= now()
"""
"""What waits for somebody to take it up."""
_NOW = """
SELECT 'turn' AS what, id, turn_epoch AS epoch, answered_turn >= next_turn - 1 AS over, false AS behind
  FROM sessions WHERE id = ANY ($1::bigint[])
UNION ALL
SELECT 'job', j.id, j.epoch, j.state IN ('done', 'dead'), j.state = 'due' AND EXISTS (
         SELECT FROM jobs o WHERE o.session_id = j.session_id AND o.state = 'running' AND o.id <> j.id)
  FROM jobs j WHERE j.id = ANY ($2::bigint[])
"""

Found = tuple[str, int, int]
"""What it is, its id, and its epoch at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Something that a fault interrupted, on the monotonic clock."""

    fault: str
    what: str
    id: int
    epoch: int
    at: float


@dataclass(slots=True)
class Watch:
    """Look, strike, say `struck`; from then on until it is taken up again, each thing found is timed.

    Taken up again: its epoch is a higher one, so another attempt runs. What was over before the fault came
    was not interrupted and does not count.
    """

    case: Case
    seconds: list[tuple[Hit, float]] = field(default_factory=list)
    behind: dict[Hit, float] = field(default_factory=dict)
    """For how long of it a job only waited for another one of its session: one of them runs at a time.

    Where a worker is killed every few seconds that other one is taken up again each time and comes to no end;
    how soon it is taken up is timed by itself.
    """
    late: list[float] = field(default_factory=list)
    """By how many seconds each glance came late: so long everybody waits for a core of this machine."""
    _pending: list[Hit] = field(default_factory=list)
    _found: list[Found] = field(default_factory=list)
    _glanced: float | None = None
    _connection: asyncpg.Connection[asyncpg.Record] | None = None
    _reads: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who looks before a kill and who glances all the time share one connection."""

    async def run(self) -> None:
        """Until it is cancelled; Postgres may be away meanwhile."""
        while True:
            await self.glance()
            before = time.monotonic()
            await asyncio.sleep(GLANCE_SECONDS)
            self.late.append(time.monotonic() - before - GLANCE_SECONDS)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    @property
    def waits(self) -> int:
        return len(self._pending)

    async def look_before_kill(self, pid: int) -> None:
        """Finds nothing when Postgres is away: nobody knows what the process is doing."""
        self._found = await self._read(_HELD, pid) or []

    async def look_before_wipe(self) -> None:
        self._found = await self._read(_DUE) or []

    def struck(self, fault: str) -> None:
        now = time.monotonic()
        for what, number, epoch in self._found:
            self._pending.append(Hit(fault=fault, what=what, id=number, epoch=epoch, at=now))
        self._found = []

    async def glance(self) -> None:
        if not self._pending:
            self._glanced = None
            return
        ids = [[hit.id for hit in self._pending if hit.what == what] for what in ("turn", "job")]
        now = {(what, number): told for what, number, *told in await self._read(_NOW, *ids) or ()}
        if not now:
            return
        seen = time.monotonic()
        left: list[Hit] = []
        for hit in self._pending:
            epoch, over, behind = now.get((hit.what, hit.id), (hit.epoch, True, False))
            if epoch > hit.epoch:
                self.seconds.append((hit, seen - hit.at))
            elif not over:
                left.append(hit)
                self.behind[hit] = self.behind.get(hit, 0.0) + behind * (seen - (self._glanced or seen))
        self._pending, self._glanced = left, seen

    async def last_glance(self, *, within_seconds: float) -> None:
        """One that is answered: the glance before it may have been broken off."""
        end, answered = time.monotonic() + within_seconds, False
        while not answered and time.monotonic() < end:
            if not (answered := await self._read("SELECT 1") is not None):
                await asyncio.sleep(GLANCE_SECONDS)
        await self.glance()

    async def _read(self, sql: str, *arguments: object) -> list[Any] | None:
        """None while Postgres is away."""
        async with self._reads:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self.case.connect()
                return [
                    tuple(row) for row in await self._connection.fetch(sql, *arguments, timeout=LOOK_SECONDS)
                ]
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                await self.close()
                return None


def percentiles(seconds: Iterable[float]) -> dict[str, float | int]:
    """How many, and the p50, p99 and maximum in seconds; of none there is only the number."""
    ordered = sorted(seconds)
    if not ordered:
        return {"n": 0}
    return {
        "n": len(ordered),
        "p50": round(_at(ordered, 0.50), 2),
        "p99": round(_at(ordered, 0.99), 2),
        "max": round(ordered[-1], 2),
    }


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
