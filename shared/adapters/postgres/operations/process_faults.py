"""Processes that stood still or crashed: recorded once each, with what follows for the work they were at."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg

from shared.adapters.postgres.compaction.jobs_sql import END_JOB, MARK_TROUBLED
from shared.adapters.postgres.db.leases import WORKER_IS_ALIVE
from shared.adapters.postgres.db.pool import PoolStore, store_method
from shared.core.ops.process_faults import (
    MAX_PROCESS_FAULTS,
    REASON,
    RETRY_SECONDS,
    ProcessFault,
)

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

_RECORD = """
INSERT INTO process_faults (id, role, cause, place, work, session_id, turn_no)
VALUES ($1, $2, $3, $4, $5, (SELECT id FROM sessions WHERE id = $6),
        (SELECT $7::bigint FROM sessions WHERE id = $6))
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_COUNT = "SELECT count(*) FROM process_faults WHERE work = $1"
_REST_TURN = f"""
UPDATE sessions SET leased_by = NULL,
       retry_at = CASE WHEN $4::float8 > 0 THEN greatest(retry_at, now() + make_interval(secs => $4))
                       ELSE now() END
 WHERE id = $1 AND answered_turn = $2 - 1 AND next_turn > $2
   AND (turn_epoch = $3 OR NOT EXISTS (SELECT FROM workers w WHERE w.id = leased_by AND {WORKER_IS_ALIVE}))
"""
"""Also where another process has claimed the turn since, and has stood still at it, too.

The epoch stays: the next claim still sees that the attempt before it ended without a word.
"""
_BLAME_TURN = """
UPDATE turns SET process_faults = process_faults + 1
 WHERE session_id = $1 AND turn_no = $2 AND state IN ('open', 'claimed')
"""
_FAULTS_OF_TURN = """
SELECT process_faults FROM turns WHERE session_id = $1 AND turn_no = $2 AND state IN ('open', 'claimed')
"""
_END_UPDATE = """
UPDATE telegram_updates SET handled_at = now(), error = $3
 WHERE bot_id = $1 AND update_id = $2 AND handled_at IS NULL
"""
_END_DELIVERY = """
UPDATE deliveries SET state = 'dead', error = $3
 WHERE session_id = $1 AND turn_no = $2 AND state IN ('queued', 'sending', 'sent')
"""
_GIVEN_UP = f"""
SELECT work FROM process_faults WHERE work <> 'other'
 GROUP BY work HAVING count(*) >= {MAX_PROCESS_FAULTS} ORDER BY max(at) DESC LIMIT 10000
"""


class PostgresProcessFaults(PoolStore):
    """Each method is one transaction; raises StorageUnavailable."""

    @store_method
    async def record(self, fault: ProcessFault) -> bool:
        """Store a fault and what follows from it; False where it was stored before.

        A turn rests for `RETRY_SECONDS` after its first fault. After the second it is due at once, and the
        next claim ends it. A job, an update and a delivery are given up here by the second fault.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            work = await _name_work(connection, fault)
            session_id, turn = await _find_place(connection, fault)
            # A session is locked before its rows of other tables everywhere.
            if session_id is not None:
                await connection.execute("SELECT FROM sessions WHERE id = $1 FOR UPDATE", session_id)
            recorded = await connection.fetchval(
                _RECORD, fault.id, fault.role, fault.cause, fault.place, work, session_id, turn
            )
            if recorded is None:
                return False
            is_last = await connection.fetchval(_COUNT, work) >= MAX_PROCESS_FAULTS
            await _apply(connection, fault, is_last=is_last)
        return True

    @store_method
    async def list_given_up(self) -> frozenset[str]:
        """Return the work that has stopped as many processes as it may."""
        return frozenset(row["work"] for row in await self._pool.fetch(_GIVEN_UP))


async def _name_work(connection: Connection, fault: ProcessFault) -> str:
    """Jobs are counted by their key: the next one about the same has another number."""
    if fault.kind != "job":
        return fault.work
    key = await connection.fetchval("SELECT key FROM jobs WHERE id = $1", int(fault.ids[0]))
    return fault.work if key is None else f"job {key}"


async def _find_place(connection: Connection, fault: ProcessFault) -> tuple[int | None, int | None]:
    """Return the session and the turn that the fault is about."""
    match fault.kind, fault.ids:
        case ("turn" | "delivery", (session, turn, *_)):
            return int(session), int(turn)
        case ("message" | "index", (session, *_)):
            return int(session), None
        case ("job", (job, *_)):
            return await connection.fetchval("SELECT session_id FROM jobs WHERE id = $1", int(job)), None
        case _:
            return None, None


async def _apply(connection: Connection, fault: ProcessFault, *, is_last: bool) -> None:
    match fault.kind, fault.ids:
        case "turn", (session, turn, epoch):
            ids = {"session_id": int(session), "turn": int(turn)}
            await connection.execute(*_BLAME_TURN(**ids))
            faults = await connection.fetchval(*_FAULTS_OF_TURN(**ids)) or 0
            rest = 0.0 if faults >= MAX_PROCESS_FAULTS else RETRY_SECONDS
            await connection.execute(*_REST_TURN(**ids, epoch=int(epoch), rest_seconds=rest))
        case "job", (job, epoch):
            if is_last:
                await connection.execute(MARK_TROUBLED, [int(job)])
            await connection.execute(
                END_JOB, int(job), int(epoch), "dead" if is_last else "due", REASON, {"advice": REASON}, 1,
                RETRY_SECONDS, [{"code": fault.cause}],
            )  # fmt: skip
        case "update", (bot, update) if is_last:
            await connection.execute(_END_UPDATE, int(bot), int(update), REASON)
        case "delivery", (session, turn) if is_last:
            await connection.execute(_END_DELIVERY, int(session), int(turn), REASON)
        case _:
            return
