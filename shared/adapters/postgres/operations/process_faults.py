"""Store of processes that hung or crashed, each recorded once, with the consequences for their work."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg

from shared.adapters.postgres.compaction.jobs_sql import END_JOB, MARK_TROUBLED
from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.ops.process_faults import (
    MAX_PROCESS_FAULTS,
    REASON,
    RETRY_SECONDS,
    ProcessFault,
)

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

_RECORD = Named("""
INSERT INTO process_faults (id, role, cause, place, work, session_id, turn_no)
VALUES (:fault_id, :role, :cause, :place, :work, (SELECT id FROM sessions WHERE id = :session_id),
        (SELECT :turn::bigint FROM sessions WHERE id = :session_id))
ON CONFLICT (id) DO NOTHING RETURNING id
""")
_COUNT = Named("SELECT count(*) FROM process_faults WHERE work = :work")
_DELAY_TURN = Named("""
UPDATE sessions SET leased_by = NULL,
       retry_at = CASE WHEN :delay_seconds::float8 > 0 THEN
          greatest(retry_at, now() + make_interval(secs => :delay_seconds))
                       ELSE now() END
 WHERE id = :session_id AND answered_turn = :turn - 1 AND next_turn > :turn
   AND (turn_epoch = :epoch OR NOT EXISTS
        (SELECT FROM workers w WHERE w.id = leased_by AND worker_is_alive(w)))
""")
"""Release and delay a turn, also if another process has claimed it since and hangs too.

The epoch stays, so the next claim sees that the attempt before it ended without a result.
"""
_BLAME_TURN = Named("""
UPDATE turns SET process_faults = process_faults + 1
 WHERE session_id = :session_id AND turn_no = :turn AND state IN ('open', 'claimed')
""")
_FAULTS_OF_TURN = Named("""
SELECT process_faults FROM turns WHERE session_id = :session_id AND turn_no = :turn
   AND state IN ('open', 'claimed')
""")
_END_UPDATE = Named("""
UPDATE telegram_updates SET handled_at = now(), error = :reason
 WHERE bot_id = :bot_id AND update_id = :update_id AND handled_at IS NULL
""")
_END_DELIVERY = Named("""
UPDATE deliveries SET state = 'dead', error = :reason
 WHERE session_id = :session_id AND turn_no = :turn AND state IN ('queued', 'sending', 'sent')
""")
_GIVEN_UP = Named(
    """
SELECT work FROM process_faults WHERE work <> 'other'
 GROUP BY work HAVING count(*) >= :most ORDER BY max(at) DESC LIMIT 10000
""",
    most=MAX_PROCESS_FAULTS,
)


class PostgresProcessFaults(PoolStore):
    """Store of process faults; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def record(self, fault: ProcessFault) -> bool:
        """Store a fault and its consequences in one transaction; return False if it is already stored.

        A turn is released: it waits for RETRY_SECONDS after its first fault; after the second it is due at
        once, and the next claim ends it. A job is due again after RETRY_SECONDS. A job, a Telegram update and
        a delivery are given up after the second fault. Other work has no consequence here.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            work = await _name_work(connection, fault)
            session_id, turn = await _find_place(connection, fault)
            # A session is locked before its rows in other tables everywhere.
            if session_id is not None:
                await connection.execute(*_LOCK_SESSION(session_id=session_id))
            recorded = await connection.fetchval(
                *_RECORD(
                    fault_id=fault.id,
                    role=fault.role,
                    cause=fault.cause,
                    place=fault.place,
                    work=work,
                    session_id=session_id,
                    turn=turn,
                )
            )
            if recorded is None:
                return False
            is_last = await connection.fetchval(*_COUNT(work=work)) >= MAX_PROCESS_FAULTS
            await _apply(connection, fault, is_last=is_last)
        return True

    @store_method
    async def list_given_up(self) -> frozenset[str]:
        """Return the names of work that has stopped MAX_PROCESS_FAULTS processes and is not tried again.

        A name is such as `turn 3 7`, or `job` with the job's key. At most the newest 10,000.
        """
        return frozenset(row["work"] for row in await self._pool.fetch(*_GIVEN_UP()))


async def _name_work(connection: Connection, fault: ProcessFault) -> str:
    """Return the name under which faults are counted.

    A job's is its key, since the next job of the same kind has another id.
    """
    if fault.kind != "job":
        return fault.work
    key = await connection.fetchval(*_KEY_OF_JOB(job_id=int(fault.ids[0])))
    return fault.work if key is None else f"job {key}"


async def _find_place(connection: Connection, fault: ProcessFault) -> tuple[int | None, int | None]:
    """Return the ids of the session and the turn that the fault is about, each None if it has none."""
    match fault.kind, fault.ids:
        case ("turn" | "delivery", (session, turn, *_)):
            return int(session), int(turn)
        case ("message" | "index", (session, *_)):
            return int(session), None
        case ("job", (job, *_)):
            return await connection.fetchval(*_SESSION_OF_JOB(job_id=int(job))), None
        case _:
            return None, None


async def _apply(connection: Connection, fault: ProcessFault, *, is_last: bool) -> None:
    match fault.kind, fault.ids:
        case "turn", (session, turn, epoch):
            ids = {"session_id": int(session), "turn": int(turn)}
            await connection.execute(*_BLAME_TURN(**ids))
            faults = await connection.fetchval(*_FAULTS_OF_TURN(**ids)) or 0
            delay = 0.0 if faults >= MAX_PROCESS_FAULTS else RETRY_SECONDS
            await connection.execute(*_DELAY_TURN(**ids, epoch=int(epoch), delay_seconds=delay))
        case "job", (job, epoch):
            if is_last:
                await connection.execute(*MARK_TROUBLED(job_ids=[int(job)]))
            await connection.execute(
                *END_JOB(
                    job_id=int(job), epoch=int(epoch), state="dead" if is_last else "due", error=REASON,
                    outcome={"advice": REASON}, faults=1, retry_seconds=RETRY_SECONDS,
                    failures=[{"code": fault.cause}],
                ),
            )  # fmt: skip
        case "update", (bot, update) if is_last:
            await connection.execute(*_END_UPDATE(bot_id=int(bot), update_id=int(update), reason=REASON))
        case "delivery", (session, turn) if is_last:
            await connection.execute(*_END_DELIVERY(session_id=int(session), turn=int(turn), reason=REASON))
        case _:
            return


_LOCK_SESSION = Named("SELECT FROM sessions WHERE id = :session_id FOR UPDATE")
_KEY_OF_JOB = Named("SELECT key FROM jobs WHERE id = :job_id")
_SESSION_OF_JOB = Named("SELECT session_id FROM jobs WHERE id = :job_id")
