"""Operators' changes of jobs and deliveries; a row that has changed since it was shown is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from shared.adapters.postgres.compaction.jobs_sql import MARK_TROUBLED
from shared.adapters.postgres.dashboard import job_list_sql as sql
from shared.adapters.postgres.db.pool import PoolStore, build_value, store_method
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.core.ops.job_views import DeliveryVerb, JobMatch, JobVerb, PartKey, Skipped, WorkChanged
from shared.core.session.turns import DueJob

_NAMED_AT_MOST = 100
_TRIES = 3


class PostgresJobChanges(PoolStore):
    """Store of operators' changes of jobs and deliveries; it raises StorageUnavailable.

    Each method that changes is one transaction with an audit entry.
    """

    @store_method
    async def list_matching(
        self, verb: JobVerb, match: JobMatch, *, after: int, through: int, limit: int
    ) -> list[int]:
        """Return ids of at most `limit` matching jobs that allow the change `verb`, oldest first.

        The ids are above `after` and at most `through`. Changes nothing.
        """
        matching = sql.render_matching(verb, match)(
            kind=match.kind, session=match.session or None, after=after, through=through, limit=limit
        )
        rows = await self._pool.fetch(*matching)
        return [row["id"] for row in rows]

    async def change_jobs(self, verb: JobVerb, ids: Sequence[int], *, actor: str) -> WorkChanged:
        """Retry dead and delayed jobs, which are due at once with all their attempts, or cancel waiting ones.

        Returns the ids of changed jobs, and why others were skipped. The caller rings for those in `rung`.
        """
        for left in reversed(range(_TRIES)):
            try:
                return await self._change_jobs(verb, ids, actor)
            except asyncpg.UniqueViolationError:
                # Another request inserted the same job in this instant; the next attempt sees and skips it.
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    @store_method
    async def _change_jobs(self, verb: JobVerb, ids: Sequence[int], actor: str) -> WorkChanged:
        async with self._pool.acquire() as connection, connection.transaction():
            if verb == "cancel":
                await connection.execute(*MARK_TROUBLED(job_ids=list(ids)))
            rows = await connection.fetch(*(sql.RETRY if verb == "retry" else sql.CANCEL)(ids=list(ids)))
            changed = {row["id"]: build_value(DueJob, row) for row in rows}
            missed = [number for number in ids if number not in changed]
            left = await connection.fetch(*sql.SKIPPED_JOBS(missed=missed, verb=verb)) if missed else []
            if changed:
                await _note(connection, actor, f"job.{verb}", [f"job:{one}" for one in sorted(changed)])
        return WorkChanged(
            changed=tuple(str(one) for one in sorted(changed)),
            skipped=tuple(Skipped(what=str(row["id"]), why=row["why"]) for row in left),
            rung=tuple(changed[one] for one in sorted(changed)) if verb == "retry" else (),
        )

    @store_method
    async def set_kind(
        self, kind: str, *, paused: bool, concurrency: int | None, version: int, actor: str
    ) -> bool:
        """Pause a kind of job, or limit its parallel jobs; `concurrency` None means no limit.

        Returns False, without effect, if it has changed since `version`, which is 0 before the first change.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            change = sql.SET_KIND(
                kind=kind, paused=paused, concurrency=concurrency, actor=actor, version=version
            )
            if await connection.fetchval(*change) is None:
                return False
            detail = {"paused": paused, "concurrency": concurrency}
            await append_audit(
                connection, actor=actor, action="job.kind", about=f"job_kind:{kind}", detail=detail
            )
        return True

    @store_method
    async def change_deliveries(
        self, verb: DeliveryVerb, parts: Sequence[PartKey], *, actor: str
    ) -> WorkChanged:
        """Mark uncertain or dead deliveries as arrived, or queue them for the bot process to send again.

        Returns the changed parts, and why others were skipped.
        """
        columns = {
            "sessions": [one.session for one in parts],
            "turns": [one.turn for one in parts],
            "parts": [one.part for one in parts],
        }
        async with self._pool.acquire() as connection, connection.transaction():
            change = sql.MARK_ARRIVED if verb == "arrived" else sql.SEND_AGAIN
            rows = await connection.fetch(*change(**columns))
            done = sorted(row["place"] for row in rows)
            left = [
                row
                for row in await connection.fetch(*sql.SKIPPED_PARTS(**columns))
                if row["place"] not in done
            ]
            changed = tuple(str(parts[place - 1]) for place in done)
            if changed:
                await _note(connection, actor, f"delivery.{verb}", [f"delivery:{one}" for one in changed])
        skipped = tuple(Skipped(what=str(parts[row["place"] - 1]), why=row["why"]) for row in left)
        return WorkChanged(changed=changed, skipped=skipped)


async def _note(connection: Any, actor: str, action: str, things: Sequence[str]) -> None:
    about = things[0] if len(things) == 1 else ""
    detail = {"count": len(things), "of": list(things[:_NAMED_AT_MOST])} if not about else {}
    await append_audit(connection, actor=actor, action=action, about=about, detail=detail)
