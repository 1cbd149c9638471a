"""Store of jobs, flushes, compactions and their undo, for workers and commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.compaction import jobs_sql as sql
from shared.adapters.postgres.compaction.job_requests import LATE_SECONDS, request_late_flush, request_upgrade
from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, Record, build_value, store_method
from shared.adapters.postgres.turns.spend_sql import LEFT_BEHIND, SWEEP_RESERVATION
from shared.adapters.postgres.turns.turn_sql import FROZEN, LOAD
from shared.adapters.postgres.turns.turns import add_descriptions, build_entry, record_calls, sum_spending
from shared.adapters.postgres.turns.view_state import build_state
from shared.core.compaction.jobs import total_cost
from shared.core.context.build_context import LeftOut
from shared.core.session.ledger import ledger_to_json
from shared.core.session.session import Compaction, View, drop_former
from shared.core.session.session_state import (
    ChangeRefused,
    CompactionStored,
    FlushReport,
    FlushTicket,
    JobClaim,
    NewCompaction,
    SessionState,
)
from shared.core.session.turns import DueJob, JobOrder, Spending
from shared.core.values.errors import LeaseLost, StaleView, UnknownSession

_LATE_AFTER = {"new": 0.0, "separator": 0.0, "done": 30.0}
"""Seconds until the late flush of turns, by the kind of change that hid them.

For other kinds they are LATE_SECONDS.
"""


class PostgresJobs(PoolStore):
    """Store of jobs of all kinds, and of flushes, compactions and their undo, for workers and commands.

    Each method but `sweep_reservations` is one transaction and raises StorageUnavailable. A compaction is
    committed only if the view's epoch is still the one that the job has read.
    """

    @store_method
    async def load_state(self, session_id: int) -> SessionState:
        """Return the session with its live entries of ended turns, all from one moment; changes nothing.

        Raises UnknownSession.
        """
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            row = await connection.fetchrow(*sql.STATE(session_id=session_id))
            if row is None:
                raise UnknownSession(f"session {session_id}")
            rows = await connection.fetch(
                *LOAD(
                    session_id=session_id,
                    base_turn=row["base_turn"],
                    through_turn=row["answered_turn"],
                )
            )
            frozen = await connection.fetchval(
                *FROZEN(session_id=session_id, base_turn=row["base_turn"], head=row["head"])
            )
            entries = await add_descriptions(connection, drop_former([build_entry(entry) for entry in rows]))
        return build_state({**row, "frozen": frozen}, entries)

    @store_method
    async def request_job(self, session_id: int, order: JobOrder) -> int | None:
        """Store a job, due after `order.delay_seconds`, and return its id.

        Returns None, without effect, if a job with its key is due or running. Exception: an order without
        delay and with trigger `overflow` makes such a delayed job due now, and returns its id.
        """
        asked = {
            "kind": order.kind, "session_id": session_id, "key": order.key, "trigger": order.trigger,
            "payload": dict(order.payload),
        }  # fmt: skip
        later = order.delay_seconds
        statement = sql.ASK_JOB_LATER(**asked, delay_seconds=later) if later else sql.ASK_JOB(**asked)
        job_id: int | None = await self._pool.fetchval(*statement)
        return job_id

    @store_method
    async def find_due_job(self, session_id: int) -> DueJob | None:
        """Return the session's due job with the lowest id, without claiming it; None if there is none.

        Jobs that are due later do not count.
        """
        row = await self._pool.fetchrow(*_DUE_JOB(session_id=session_id))
        return None if row is None else build_value(DueJob, row)

    @store_method
    async def due_jobs(self, *, limit: int = 200) -> list[DueJob]:
        """Return at most `limit` jobs of all sessions that are due or whose worker died.

        They are sorted by due time, the longest due first; none is claimed. Jobs whose kind an operator has
        paused, has no free place or is unknown here are left out.
        """
        return [build_value(DueJob, row) for row in await self._pool.fetch(*sql.DUE_JOBS(limit=limit))]

    @store_method
    async def claim_job(self, job_id: int, *, worker_id: int) -> JobClaim | None:
        """Claim a job for this worker and raise its epoch; return the claim.

        Returns None if the job has ended or is not due yet, if a living worker holds it, if another job of
        its session runs, or if its kind is paused or has no free place.
        """
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(*sql.LOCK_KIND(job_id=job_id))
                row = await connection.fetchrow(*sql.CLAIM_JOB(job_id=job_id, worker_id=worker_id))
        except asyncpg.UniqueViolationError:
            return None
        if row is None:
            return None
        return build_value(JobClaim, row, worker_id=worker_id)

    @store_method
    async def end_job(
        self,
        job: JobClaim,
        *,
        state: str,
        outcome: Mapping[str, Any],
        error: str = "",
        retry_seconds: float = 0.0,
        successor: JobOrder | None = None,
        failures: Sequence[Mapping[str, Any]] = (),
    ) -> DueJob | None:
        """End a claimed job as `done`, `dead`, or `due` again after `retry_seconds`.

        `error` is "" unless the attempt failed; `failures` are appended to the job's list. `dead` also marks
        the session as troubled. Inserts the successor unless a job with its key waits; returns it if it is
        due at once, else None. Raises LeaseLost if another worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if state == "dead":
                await connection.execute(*sql.MARK_TROUBLED(job_ids=[job.id]))
            ended = await connection.fetchval(
                *sql.END_JOB(
                    job_id=job.id,
                    epoch=job.epoch,
                    state=state,
                    error=error[:2000],
                    outcome=dict(outcome),
                    faults=int(bool(error)),
                    retry_seconds=retry_seconds,
                    failures=[dict(failure) for failure in failures],
                ),
            )
            if ended is None:
                raise LeaseLost(f"job {job.id}")
            if successor is None:
                return None
            job_id: int | None = await connection.fetchval(
                *sql.ASK_JOB_LATER(
                    kind=successor.kind, session_id=job.session_id, key=successor.key,
                    trigger=successor.trigger, payload=dict(successor.payload),
                    delay_seconds=successor.delay_seconds,
                ),
            )  # fmt: skip
            if job_id is None or successor.delay_seconds:
                return None
            return DueJob(id=job_id, kind=successor.kind)

    @store_method
    async def begin_flush(
        self, job: JobClaim, *, cycle: int, threshold: str, from_turn: int, through_turn: int
    ) -> FlushTicket:
        """Record the start of a memory flush of turns `from_turn` to `through_turn`, and return its ticket.

        A repeated start for the same cycle, threshold and last turn continues the stored flush, whose first
        turn the ticket has. Raises LeaseLost if another worker has the job.
        """
        row = await self._pool.fetchrow(
            *sql.BEGIN_FLUSH(
                session_id=job.session_id,
                cycle=cycle,
                threshold=threshold,
                from_turn=from_turn,
                through_turn=through_turn,
                job_id=job.id,
                epoch=job.epoch,
            )
        )
        if row is None:
            raise LeaseLost(f"job {job.id}")
        return FlushTicket(id=row["id"], from_turn=row["from_turn"], through_turn=row["through_turn"])

    @store_method
    async def end_flush(
        self, job: JobClaim, ticket: FlushTicket, report: FlushReport, *, contact_id: int
    ) -> None:
        """Store a flush's report and book its model calls.

        Unless the flush failed, its turns count as read. `contact_id` is the person to whom the calls are
        charged. Raises LeaseLost if another worker has the job.
        """
        spent = report.spent
        async with self._pool.acquire() as connection, connection.transaction():
            await _refuse_lost_lease(connection, job)
            await connection.execute(
                *sql.END_FLUSH(
                    flush_id=ticket.id, outcome=report.outcome, stray_text=report.stray_text,
                    error=report.error[:2000], model=report.model,
                    tokens=sum(sum_spending(spent)[:4]),
                    cost_micro=total_cost(spent),
                ),
            )  # fmt: skip
            await _spend(connection, job, "flush", spent, contact_id)
            if report.outcome != "failed":
                await connection.execute(
                    *sql.ADVANCE_CURSOR(
                        session_id=job.session_id,
                        through_turn=ticket.through_turn,
                    )
                )

    @store_method
    async def add_context_tokens(self, job: JobClaim, tokens: int, *, seen: SessionState) -> None:
        """Add `tokens`, which may be negative, to the session's stored size of its context.

        No effect if a turn or a compaction has changed that size since `seen`. Raises LeaseLost if another
        worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _refuse_lost_lease(connection, job)
            await connection.execute(
                *sql.ADD_CONTEXT_TOKENS(
                    session_id=job.session_id, tokens=tokens, view_epoch=seen.view.view_epoch,
                    answered_turn=seen.answered_turn, context_tokens=seen.view.context_tokens,
                )
            )  # fmt: skip

    @store_method
    async def record_spending(
        self, job: JobClaim, *, purpose: str, spent: Sequence[Spending], contact_id: int
    ) -> None:
        """Book the model calls of a job under `purpose`, whether or not they were useful.

        `contact_id` is the person to whom they are charged. Does not check the claim, since the calls are
        paid.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _spend(connection, job, purpose, spent, contact_id)

    @store_method
    async def record_compaction(
        self,
        job: JobClaim,
        compaction: NewCompaction,
        *,
        seen: SessionState,
        spent: Sequence[Spending],
        left_out: LeftOut | None = None,
    ) -> CompactionStored:
        """Store a compaction and move the session's view, so that its turns are hidden behind it.

        The same transaction books `spent`, stores an event for the screens, and for a digest inserts the job
        that replaces it. `left_out` computes tokens that the policy leaves out of requests; None means none.
        Raises StaleView if the view has changed since `seen`, and LeaseLost if another worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(*sql.LOCK_SESSION(session_id=job.session_id))
            await _refuse_lost_lease(connection, job)
            if (
                session is None
                or session["view_epoch"] != seen.view.view_epoch
                or session["head"] != seen.head_id
                or compaction.through_turn > session["answered_turn"]
            ):
                raise StaleView(f"session {job.session_id}")
            row = await connection.fetchrow(*_insert_compaction(compaction, job, session["head"]))
            assert row is not None
            after = await _context_after(
                connection, session, compaction.through_turn, compaction.tokens, seen.fixed_tokens, left_out,
                talk_ratio=seen.talk_ratio,
            )  # fmt: skip
            await connection.execute(*_SET_SIZE(compaction_id=row["id"], after=after))
            if compaction.kind == "digest":
                await request_upgrade(connection, job.session_id, row["id"], compaction.audit)
            await _spend(connection, job, "compact", spent, seen.contact_id)
            summarised = compaction.kind in ("summary", "digest")
            if summarised:
                await connection.execute(
                    *_COUNT_COMPACTION(session_id=job.session_id),
                )
            return await _move(
                connection, session, base=compaction.through_turn, head=row["id"], redo=None, cycles=1,
                context_tokens=after, reserved=seen.reserved_tokens, token_scale=seen.learned_scale,
                hold=session["hold_compaction"] and not summarised,
                state="done" if summarised else compaction.kind, shown=row["id"],
            )  # fmt: skip

    @store_method
    async def find_compaction(self, job: JobClaim) -> Mapping[str, Any] | None:
        """Return the outcome of the compaction that an earlier attempt at this job committed.

        It has the keys compaction (its id), kind, before and after (tokens), and turns. None without one.
        """
        row = await self._pool.fetchrow(*sql.COMPACTION_OF(session_id=job.session_id, job_id=job.id))
        return None if row is None else dict(row)

    @store_method
    async def undo_compaction(
        self,
        session_id: int,
        *,
        limit_tokens: int,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
        left_out: LeftOut | None = None,
        hold: bool = True,
    ) -> CompactionStored | ChangeRefused:
        """Undo the newest compaction, so that its messages are in the context again, byte for byte.

        `hold` stops automatic compaction, which would hide them again. `fixed_tokens` is the size of system
        text and tools, and `reserved_tokens` the room for recalled passages. `talk_ratio` is the measured per
        estimated tokens, None for the session's stored one; `left_out` computes tokens that the policy leaves
        out, None if hidden entries count nothing. Stores an event for the screens. Returns ChangeRefused,
        without effect, if there is no summary or digest to undo, or if the context would exceed
        `limit_tokens`. Raises UnknownSession.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(*sql.LOCK_SESSION(session_id=session_id))
            if session is None:
                raise UnknownSession(f"session {session_id}")
            head = await _load_compaction(connection, session["head"])
            if head is None:
                return ChangeRefused(reason="nothing_to_undo", advice="Nothing has been summarised yet.")
            if head["kind"] not in ("summary", "digest"):
                return _NOT_CROSSED[head["kind"]]
            parent = await _load_compaction(connection, head["parent"])
            base = head["from_turn"] - 1
            tokens = parent["tokens"] if parent else 0
            after = await _context_after(
                connection, session, base, tokens, fixed_tokens, left_out, talk_ratio=talk_ratio
            )
            if after > limit_tokens:
                return ChangeRefused(
                    reason="would_not_fit",
                    advice=f"The originals need about {after:,} tokens and {limit_tokens:,} is the most, "
                    "so they cannot all come back at once. They stay readable under Original.",
                    values={"needed": after, "most": limit_tokens},
                )
            await connection.execute(*_UNDO(compaction_id=head["id"]))
            return await _move(
                connection, session, base=base, head=head["parent"], redo=head["id"], cycles=0,
                context_tokens=after, reserved=reserved_tokens, hold=hold, state="undone", shown=head["id"],
            )  # fmt: skip

    @store_method
    async def restore_compaction(
        self,
        session_id: int,
        *,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
        left_out: LeftOut | None = None,
    ) -> CompactionStored | ChangeRefused:
        """Restore the compaction that was undone last; this is possible until the next compaction.

        Automatic compaction works again. The token parameters are those of `undo_compaction`. Stores an event
        for the screens. Returns ChangeRefused, without effect, if there is none to restore. Raises
        UnknownSession.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(*sql.LOCK_SESSION(session_id=session_id))
            if session is None:
                raise UnknownSession(f"session {session_id}")
            compaction = await _load_compaction(connection, session["redo"])
            if compaction is None or compaction["parent"] != session["head"]:
                return ChangeRefused(
                    reason="nothing_to_restore", advice="There is no undone summary to restore."
                )
            await connection.execute(*_RESTORE(compaction_id=compaction["id"]))
            if compaction["kind"] == "digest":
                # The job that should replace the digest may have ended while the digest was undone.
                await request_upgrade(connection, session_id, compaction["id"], compaction["audit"])
            after = await _context_after(
                connection, session, compaction["through_turn"], compaction["tokens"], fixed_tokens, left_out,
                talk_ratio=talk_ratio,
            )  # fmt: skip
            return await _move(
                connection, session, base=compaction["through_turn"], head=compaction["id"], redo=None,
                cycles=0,
                context_tokens=after, reserved=reserved_tokens, hold=False, state="restored",
                shown=compaction["id"],
            )  # fmt: skip

    @store_method
    async def start_new_conversation(
        self,
        session_id: int,
        *,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
    ) -> CompactionStored | ChangeRefused:
        """Hide all ended turns behind a compaction without a summary, for `/new`; notes stay.

        Undo never crosses it. If no flush has read some of these turns, a job of the same transaction reads
        them later. The token parameters are those of `undo_compaction`. Stores an event for the screens.
        Returns ChangeRefused if nothing is left to hide. Raises UnknownSession.
        """
        return await self._hide_all(session_id, "new", fixed_tokens, talk_ratio, reserved_tokens)

    @store_method
    async def insert_separator(
        self,
        session_id: int,
        *,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
    ) -> CompactionStored | ChangeRefused:
        """Hide all ended turns behind a separator, for `/separator`; undo never crosses it.

        If no flush has read some of these turns, a job of the same transaction reads them later. The token
        parameters are those of `undo_compaction`. Stores an event for the screens. Returns ChangeRefused if
        nothing is left to hide. Raises UnknownSession.
        """
        return await self._hide_all(session_id, "separator", fixed_tokens, talk_ratio, reserved_tokens)

    async def _hide_all(
        self,
        session_id: int,
        kind: Literal["new", "separator"],
        fixed_tokens: int,
        talk_ratio: float | None,
        reserved: int,
    ) -> CompactionStored | ChangeRefused:
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(*sql.LOCK_SESSION(session_id=session_id))
            if session is None:
                raise UnknownSession(f"session {session_id}")
            base, through = session["base_turn"], session["answered_turn"]
            head = await _load_compaction(connection, session["head"])
            if through == base and (head is None or head["kind"] in ("new", kind)):
                return ChangeRefused(reason="nothing_to_undo", advice=_NOTHING_BEFORE[kind])
            if through == base and head is not None and head["kind"] == "separator":
                # No turn is left to hide: the separator itself becomes the beginning of a new conversation.
                await connection.execute(*_BECOME_NEW(compaction_id=head["id"]))
                return await _move(
                    connection, session, base=base, head=head["id"], redo=None, cycles=1,
                    context_tokens=fixed_tokens, reserved=reserved, hold=False, state="new", shown=head["id"],
                )  # fmt: skip
            if through == base:
                # Only a summary is left to hide; a compaction needs turns, so the head is dropped instead.
                return await _move(
                    connection, session, base=base, head=None, redo=None, cycles=1,
                    context_tokens=fixed_tokens, reserved=reserved, hold=False, state="new", shown=None,
                )  # fmt: skip
            bounds = await connection.fetchrow(
                *sql.BOUNDS(
                    session_id=session_id,
                    after_turn=base,
                    through_turn=through,
                )
            )
            assert bounds is not None
            compaction = await connection.fetchval(
                *_HIDE_ALL(
                    session_id=session_id, kind=kind, from_turn=base + 1, through_turn=through,
                    from_seq=bounds["first"], through_seq=bounds["last"], parent=session["head"],
                ),
            )  # fmt: skip
            after = await _context_after(connection, session, through, 0, fixed_tokens, talk_ratio=talk_ratio)
            return await _move(
                connection, session, base=through, head=compaction, redo=None, cycles=1,
                context_tokens=after, reserved=reserved, hold=False, state=kind, shown=compaction,
            )  # fmt: skip

    @store_method
    async def load_job_outcome(self, job_id: int) -> tuple[str, Mapping[str, Any]]:
        """Return (state, outcome) of a job; ("dead", {}) if it does not exist."""
        row = await self._pool.fetchrow(*_OUTCOME(job_id=job_id))
        return ("dead", {}) if row is None else (row["state"], row["outcome"])

    @store_method
    async def find_waiting_job(self, session_id: int, key: str) -> int | None:
        """Return the id of the session's due or running job with this key; None if there is none."""
        job_id: int | None = await self._pool.fetchval(
            *_WAITING_JOB(session_id=session_id, key=key),
        )  # fmt: skip
        return job_id

    @store_method
    async def record_command(self, session_id: int, payload: Mapping[str, Any]) -> int:
        """Store an event with a command's result for every screen of the session; return its number."""
        event_seq: int = await self._pool.fetchval(
            *_ADD_RESULT(session_id=session_id, payload=dict(payload)),
        )  # fmt: skip
        return event_seq

    @store_method
    async def list_held_jobs(self, worker_id: int) -> list[int]:
        """Return the ids of running jobs that the process `worker_id` has claimed."""
        rows = await self._pool.fetch(*_HELD_JOBS(worker_id=worker_id))
        return [row["id"] for row in rows]

    @store_method
    async def release_jobs(self, worker_id: int, job_ids: Collection[int]) -> int:
        """Make those of these jobs due now that the process `worker_id` holds; return their number."""
        rows = await self._pool.fetch(
            *_RELEASE_JOBS(worker_id=worker_id, job_ids=list(job_ids)),
        )  # fmt: skip
        return len(rows)

    @store_method
    async def release_orphans(self, *, limit: int = 200) -> int:
        """Make at most `limit` running jobs of dead workers due, whatever their kind; return their number.

        Their former claims are lost, and flushes that they left running count as failed.
        """
        return len(await self._pool.fetch(*sql.RELEASE_ORPHANS(limit=limit)))

    @store_method
    async def sweep_reservations(self) -> int:
        """Settle reservations that ended work has left held, with the costs that the ledger has for the work.

        Returns their number. Each is settled in its own transaction.
        """
        rows = await self._pool.fetch(*LEFT_BEHIND())
        for row in rows:
            await self._pool.execute(*SWEEP_RESERVATION(reservation_id=row["id"]))
        return len(rows)

    @store_method
    async def settle_pages(self) -> int:
        """Mark answers to web pages as delivered a minute after they were stored; return their number.

        Only answers of ended turns count. A crash in an earlier version could leave them unmarked.
        """
        return len(await self._pool.fetch(sql.SETTLE_PAGES))

    @store_method
    async def backfill_contacts(self) -> int:
        """Copy the person's name and kind into at most 1,000 sessions that lack them; return their number."""
        return len(await self._pool.fetch(*sql.COPY_CONTACTS()))


_NOT_CROSSED: Mapping[str, ChangeRefused] = {
    "new": ChangeRefused(
        reason="crosses_new", advice="A new conversation was started after the last summary."
    ),
    "separator": ChangeRefused(
        reason="crosses_separator", advice="A separator was set after the last summary."
    ),
    "window": ChangeRefused(
        reason="crosses_window", advice="Older messages have left the window since the last summary."
    ),
}
_NOTHING_BEFORE = {
    "new": "It's already a new conversation.",
    "separator": "Nothing comes before this point.",
}


async def _refuse_lost_lease(connection: Connection, job: JobClaim) -> None:
    """Lock the job's session and the job until the commit. Raises LeaseLost if another worker has the job."""
    locked = await connection.fetchval(
        *sql.LOCK_SESSION_AND_RUNNING(session_id=job.session_id, job_id=job.id, epoch=job.epoch)
    )
    if locked is None:
        raise LeaseLost(f"job {job.id}")


async def _lock_job(connection: Connection, job: JobClaim) -> None:
    """Lock the job until the commit, for a caller that holds its session or writes nothing to it.

    Raises LeaseLost if another worker has the job.
    """
    if await connection.fetchval(*sql.LOCK_RUNNING(job_id=job.id, epoch=job.epoch)) is None:
        raise LeaseLost(f"job {job.id}")


async def _spend(
    connection: Connection, job: JobClaim, purpose: str, spent: Sequence[Spending], contact_id: int
) -> None:
    await record_calls(
        connection, spent, session_id=job.session_id, contact_id=contact_id, job_id=job.id, purpose=purpose
    )


def _insert_compaction(
    compaction: NewCompaction, job: JobClaim, parent: int | None
) -> tuple[str, *tuple[object, ...]]:
    return sql.INSERT_COMPACTION(
        session_id=job.session_id,
        job_id=job.id,
        parent=parent,
        kind=compaction.kind,
        trigger=compaction.trigger,
        from_turn=compaction.from_turn,
        through_turn=compaction.through_turn,
        from_seq=compaction.from_seq,
        through_seq=compaction.through_seq,
        summary_text=compaction.summary_text,
        ledger=ledger_to_json(compaction.ledger),
        contract=dict(compaction.contract),
        audit=dict(compaction.audit),
        focus=compaction.focus,
        tokens=compaction.tokens,
        tokens_before=compaction.tokens_before,
        model=compaction.model,
        cost_micro=compaction.cost_micro,
        duration_ms=compaction.duration_ms,
        flush_id=compaction.flush_id,
    )


async def _context_after(
    connection: Connection,
    session: Record,
    base: int,
    summary_tokens: int,
    fixed_tokens: int,
    left_out: LeftOut | None = None,
    *,
    talk_ratio: float | None = None,
) -> int:
    """Return the estimated tokens of the next request after the view has moved to turn `base`.

    The estimate includes fixed parts, the summary and pins. `talk_ratio` None means the session's stored
    ratio. With `left_out`, hidden entries count in full, less what that function leaves out; else they count
    nothing.
    """
    # Without a function of the policy, hidden entries count as hidden, which is wrong only if the policy
    # changed.
    view = await _view_after(connection, session, base, summary_tokens, whole=left_out is not None)
    live = sum(entry.tokens for entry in view.entries) - (left_out(view) if left_out else 0)
    pinned: int = await connection.fetchval(*sql.PINNED_TOKENS(session_id=session["id"], base_turn=base))
    ratio: float = session["token_ratio"] if talk_ratio is None else talk_ratio
    return fixed_tokens + round(ratio * (live + pinned + summary_tokens))


async def _view_after(
    connection: Connection, session: Record, base: int, summary_tokens: int, *, whole: bool
) -> View:
    """Return the view of the turns after `base`, each entry with the tokens of its shown form.

    A hidden entry counts in full with `whole`, else zero.
    """
    rows = await connection.fetch(
        *LOAD(
            session_id=session["id"],
            base_turn=base,
            through_turn=session["answered_turn"],
        )
    )
    sizes = await connection.fetch(
        *sql.SHOWN_SIZES(
            session_id=session["id"],
            base_turn=base,
            through_turn=session["answered_turn"],
            whole=whole,
        )
    )
    shown = {row["seq"]: row["tokens"] for row in sizes}
    entries = drop_former([build_entry(row) for row in rows])
    return View(
        session_id=session["id"],
        base_turn=base,
        flushed_turn=session["flushed_turn"],
        view_epoch=session["view_epoch"],
        cycle=session["cycle"],
        head=Compaction(id=0, kind="digest", from_turn=1, through_turn=base, tokens=summary_tokens),
        entries=tuple(
            entry if entry.failed else replace(entry, tokens=shown[entry.seq])
            for entry in entries
            if entry.turn > base
        ),
        pins=tuple(entry for entry in entries if entry.turn <= base),
    )


async def _load_compaction(connection: Connection, compaction_id: int | None) -> Record | None:
    if compaction_id is None:
        return None
    return await connection.fetchrow(*_COMPACTION(compaction_id=compaction_id))


async def _move(
    connection: Connection,
    session: Record,
    *,
    base: int,
    head: int | None,
    redo: int | None,
    cycles: int,
    context_tokens: int,
    reserved: int,
    hold: bool,
    state: str,
    shown: int | None,
    replaces: int | None = None,
    token_scale: Mapping[str, Any] | None = None,
) -> CompactionStored:
    event_seq = await connection.fetchval(
        *sql.MOVE_VIEW(
            session_id=session["id"],
            base_turn=base,
            head=head,
            redo=redo,
            cycles=cycles,
            context_tokens=context_tokens,
            hold=hold,
            reserved=reserved,
            token_scale=token_scale and dict(token_scale),
        )
    )
    if base > session["flushed_turn"]:
        await request_late_flush(
            connection, session["id"], delay_seconds=_LATE_AFTER.get(state, LATE_SECONDS)
        )
    compaction = await _load_compaction(connection, shown)
    before = session["context_tokens"]
    payload = _payload(compaction, state=state, before=before, after=context_tokens)
    if replaces is not None:
        replaced = await _load_compaction(connection, replaces)
        payload["replaces"] = str(replaced["public_id"]) if replaced else ""
    await connection.execute(
        *sql.ADD_EVENT(
            session_id=session["id"],
            event_seq=event_seq,
            kind="compaction",
            payload=payload,
        )
    )
    return CompactionStored(
        compaction_id=compaction["id"] if compaction else 0,
        event_seq=event_seq,
        payload=payload,
        tokens_before=before,
        tokens_after=context_tokens,
    )


def _payload(compaction: Record | None, *, state: str, before: int, after: int) -> dict[str, Any]:
    if compaction is None:
        shown = {"id": "", "state": state, "kind": "new", "trigger": "manual", "can_undo": False}
        return {**shown, "before": before, "after": after}
    summary = compaction["kind"] in ("summary", "digest")
    return {
        "id": str(compaction["public_id"]),
        "state": state,
        "kind": compaction["kind"],
        "trigger": compaction["trigger"],
        "before": before,
        "after": after,
        "through_turn": compaction["through_turn"],
        "from_mid": f"m{compaction['from_seq']}",
        "to_mid": f"m{compaction['through_seq']}",
        "summary": compaction["summary_text"],
        "can_undo": summary and state != "undone",
    }


still_mine, spend_on, context_after, insert_compaction, move_view = (
    _lock_job, _spend, _context_after, _insert_compaction, _move
)  # fmt: skip
"""Names under which other stores use these functions."""
_DUE_JOB = Named("""
SELECT id, kind, attempt FROM jobs
 WHERE session_id = :session_id AND state = 'due' AND due_at <= now()
 ORDER BY id LIMIT 1
""")
_SET_SIZE = Named("UPDATE compactions SET tokens_after = :after WHERE id = :compaction_id")
_COUNT_COMPACTION = Named("""
UPDATE session_totals SET compaction_count = compaction_count + 1 WHERE session_id = :session_id
""")
_UNDO = Named("UPDATE compactions SET active = false, undone_at = now() WHERE id = :compaction_id")
_RESTORE = Named("UPDATE compactions SET active = true, undone_at = NULL WHERE id = :compaction_id")
_BECOME_NEW = Named("UPDATE compactions SET kind = 'new' WHERE id = :compaction_id")
_HIDE_ALL = Named("""
INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq,
                   parent, trigger)
VALUES (:session_id, :kind, :from_turn, :through_turn, :from_seq, :through_seq, :parent, 'manual')
   RETURNING id
""")
_OUTCOME = Named("SELECT state, outcome FROM jobs WHERE id = :job_id")
_WAITING_JOB = Named("""
SELECT id FROM jobs WHERE session_id = :session_id AND key = :key AND state IN ('due', 'running')
""")
_ADD_RESULT = Named("""
WITH s AS (UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = :session_id
           RETURNING next_event_seq - 1 AS event_seq)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT :session_id, event_seq, 'command.result', :payload FROM s RETURNING event_seq
""")
_HELD_JOBS = Named("SELECT id FROM jobs WHERE state = 'running' AND leased_by = :worker_id")
_RELEASE_JOBS = Named("""
UPDATE jobs SET state = 'due', leased_by = NULL, due_at = now()
 WHERE state = 'running' AND leased_by = :worker_id AND id = ANY (:job_ids::bigint[]) RETURNING id
""")
_COMPACTION = Named("SELECT * FROM compactions WHERE id = :compaction_id")
