"""Background jobs: claim one, run it, store its end, and order the next. A worker cannot reach people."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import structlog

from shared.core.compaction.jobs import LATE, next_job, retry_seconds
from shared.core.ops.process_faults import REASON
from shared.core.session.session_state import JobClaim, JobDone, SessionState
from shared.core.session.turns import DueJob, JobOrder
from shared.core.values.errors import EvertalkError, LeaseLost, StorageUnavailable
from shared.core.values.money import cache_life
from shared.ports import Doorbell, StorageLimiter
from shared.runtime import CrashPoint, Tracer
from shared.services.compaction.checkpoints import CheckpointService
from shared.services.compaction.compactor import MODEL_SECONDS, Compactor
from shared.services.compaction.flusher import FAULTS_AT_MOST, Flusher
from shared.services.compaction.import_summaries import ImportSummariser
from shared.services.compaction.silent_requests import SilentRequests
from shared.services.compaction.summarizer import redact_quotes
from shared.services.memory.upkeep import MemoryConsolidator, RecallIndexer
from shared.services.turns.session_service import UNKNOWN_LEASE_SECONDS
from shared.work_marks import mark_work

log = structlog.get_logger(__name__)

RETRY_SECONDS = 15.0
"""Seconds before a failed job is tried again; a late flush waits longer after each fault."""
JOB_TIMEOUT_SECONDS = 570.0
"""Seconds after which a job is stopped.

They are more than `MODEL_SECONDS`, so that a digest can be made, and less than the queue's limit, so that the
job's end can be stored.
"""
MAX_STORAGE_RETRIES = 570
"""Tries to store a job's end, one second apart, while Postgres is unavailable; else it would stay running."""
RELEASE_SECONDS = 5.0
"""Seconds to release an interrupted job while the process stops."""


class JobStore(Protocol):
    """Store of background jobs, which also keeps their claims.

    `claim_job` returns None if the job is not due, or may not run beside another job. `end_job` ends a claim
    as `done`, `dead`, or `due` again after `retry_seconds`, inserts the successor, and returns it if it is
    due at once, else None. `add_context_tokens` raises the session's gauge, unless it has changed since
    `seen`. `find_due_job` returns None without one. Raises LeaseLost if the claim is lost, and
    StorageUnavailable.
    """

    async def find_due_job(self, session_id: int) -> DueJob | None: ...
    async def load_state(self, session_id: int) -> SessionState: ...
    async def claim_job(self, job_id: int, *, worker_id: int) -> JobClaim | None: ...
    async def list_held_jobs(self, worker_id: int) -> list[int]: ...
    async def release_jobs(self, worker_id: int, job_ids: Collection[int]) -> int: ...
    async def add_context_tokens(self, job: JobClaim, tokens: int, *, seen: SessionState) -> None: ...
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
    ) -> DueJob | None: ...


class JobRunner:
    """Runner of a worker's background jobs."""

    def __init__(
        self,
        *,
        worker_id: int,
        store: JobStore,
        flusher: Flusher,
        compactor: Compactor,
        checkpoints: CheckpointService,
        consolidator: MemoryConsolidator,
        import_summariser: ImportSummariser,
        silent_requests: SilentRequests,
        doorbell: Doorbell,
        crash_point: CrashPoint,
        indexer: RecallIndexer,
        tracer: Tracer,
        storage_limiter: StorageLimiter,
        given_up: Collection[str] = (),
    ) -> None:
        """Set up the runner; `given_up` has keys of jobs that crashed processes and are not run again."""
        self._given_up = given_up
        self._storage_limiter = storage_limiter
        self._tracer = tracer
        self._indexer = indexer
        self._worker_id = worker_id
        self._store = store
        self._flusher = flusher
        self._compactor = compactor
        self._checkpoints = checkpoints
        self._consolidator = consolidator
        self._import_summariser = import_summariser
        self._silent_requests = silent_requests
        self._doorbell = doorbell
        self._crash_point = crash_point
        self._running: list[int] = []
        self._strange: dict[int, float] = {}
        """Jobs that the table assigns to this process but that it does not run, with the time when each was
        noticed.
        """

    def follow(self, other: JobRunner) -> None:
        """Use the settings-dependent parts of `other` from the next job on; running jobs keep the former
        ones.
        """
        self._flusher = other._flusher
        self._compactor = other._compactor
        self._checkpoints = other._checkpoints
        self._consolidator = other._consolidator
        self._import_summariser = other._import_summariser
        self._silent_requests = other._silent_requests

    async def run(self, job_id: int) -> None:
        """Claim a job and run it; return at once if it is not due. Its row ends as done, dead or due again.

        Failures are logged and stored. Afterwards the session's next due job is announced, and the session is
        indexed. Raises StorageUnavailable only if the claim fails.
        """
        self._running.append(job_id)
        try:
            await self._run(job_id)
        finally:
            self._running.remove(job_id)

    async def release_unknown_jobs(self) -> None:
        """Release jobs that the database has assigned to this process for 2 seconds, but that it does not
        run.

        Such jobs exist if a claim or an end got no reply, or if a promoted standby lacks the end. Raises
        StorageUnavailable.
        """
        before, now = set(self._running), time.monotonic()
        strange = set(await self._store.list_held_jobs(self._worker_id)) - before - set(self._running)
        self._strange = {job: self._strange.get(job, now) for job in strange}
        lasting = {job for job, since in self._strange.items() if now - since >= UNKNOWN_LEASE_SECONDS}
        if lasting and (found := await self._store.release_jobs(self._worker_id, lasting)):
            log.warning("jobs_released", count=found)

    async def _run(self, job_id: int) -> None:
        job = await self._store.claim_job(job_id, worker_id=self._worker_id)
        if job is None:
            return
        self._crash_point("after_job_claim")
        if f"job {job.key}" in self._given_up:
            if await self._end(job, state="dead", outcome={"advice": REASON}, error=REASON):
                await self._report_end(job, "dead")
            return
        with mark_work("job", job.id, job.epoch):
            await self._attempt(job)

    async def _attempt(self, job: JobClaim) -> None:
        try:
            async with self._storage_limiter():
                successor = await self._run_and_store_end(job)
        except LeaseLost:
            log.info("job_lease_lost", job_id=job.id)
        except StorageUnavailable as error:
            log.warning("job_storage_unavailable", job_id=job.id, kind=job.kind, reason=str(error))
            await self._end(job, state="due", outcome={"deferred": "storage"}, retry_seconds=1.0)
        except asyncio.CancelledError:
            await self._release_interrupted(job)
            raise
        except Exception as error:
            log.exception("job_failed", job_id=job.id, kind=job.kind, session_id=job.session_id)
            await self._end_failed(job, error)
        else:
            await self._ring_next(job, successor)
            await self._indexer.index_session(job.session_id)

    async def _run_and_store_end(self, job: JobClaim) -> DueJob | None:
        """Run the job, store its end, and return the next job if it is due at once; None otherwise."""
        async with asyncio.timeout(JOB_TIMEOUT_SECONDS):
            done = await self._run_traced(job)
        successor = await self._store.end_job(
            job,
            state=done.state,
            outcome=done.outcome,
            error=done.error,
            retry_seconds=done.retry_seconds,
            successor=await self._plan_successor(job) if done.state != "due" else None,
            failures=done.failures,
        )
        await self._report_end(job, done.state)
        return successor

    async def _run_traced(self, job: JobClaim) -> JobDone:
        about = {"job": job.id, "kind": job.kind, "session": job.session_id, "attempt": job.attempt}
        with self._tracer.span("job", {**about, "trigger": job.trigger}) as span:
            done = await self._run_by_kind(job)
            span.set_attributes(state=done.state)
            return done

    async def _run_by_kind(self, job: JobClaim) -> JobDone:
        if job.kind == "tidy":
            return await self._consolidator.consolidate(job)
        if job.kind == "import":
            return await self._import_summariser.summarise(job)
        if job.kind == "compact":
            return await (
                self._checkpoints.upgrade_digest(job)
                if job.trigger == "upgrade"
                else self._compactor.compact(job)
            )
        if job.trigger == LATE:
            return await self._flusher.flush_late(job)
        return await self._flush(job)

    async def _flush(self, job: JobClaim) -> JobDone:
        deadline = time.monotonic() + MODEL_SECONDS
        state = await self._store.load_state(job.session_id)
        done = await self._flusher.flush_early(job, state)
        try:
            return await self._follow_flush(job, state, done, deadline=deadline)
        except (LeaseLost, StorageUnavailable):
            raise
        except Exception:
            # The turns have been read: another attempt would pay for reading later ones only.
            log.exception("checkpoint_failed", job_id=job.id, session_id=job.session_id)
            return done

    async def _follow_flush(
        self, job: JobClaim, before: SessionState, done: JobDone, *, deadline: float
    ) -> JobDone:
        """Count the notes of an early flush, make a checkpoint if its threshold asks for one, and return the
        job's end.
        """
        if done.outcome.get("outcome") == "saved":
            await self._count_notes(job, before)
        if done.state == "due" or job.payload.get("threshold") not in await self._checkpoint_thresholds(
            before
        ):
            return done
        made = await self._checkpoints.make_checkpoint(
            job, await self._store.load_state(job.session_id), deadline=deadline
        )
        return replace(done, outcome={**done.outcome, "checkpoint": made})

    async def _count_notes(self, job: JobClaim, before: SessionState) -> None:
        """Add the tokens of the saved notes to the session's gauge, unless a turn has measured it
        meanwhile.
        """
        now = await self._store.load_state(job.session_id)
        added = await self._silent_requests.estimate_growth(before, now)
        await self._store.add_context_tokens(job, added, seen=before)

    async def _checkpoint_thresholds(self, state: SessionState) -> frozenset[str]:
        """Return the names of flush thresholds at which a checkpoint is also written."""
        return (await self._silent_requests.build_next(state)).policy.timing.checkpoint_marks

    async def _ring_next(self, job: JobClaim, successor: DueJob | None) -> None:
        """Announce the session's next due job, since only one job of a session runs at a time."""
        with contextlib.suppress(StorageUnavailable):
            waiting = successor if successor is not None else await self._store.find_due_job(job.session_id)
            if waiting is not None:
                await self._doorbell.ring(waiting)

    async def _end_failed(self, job: JobClaim, error: Exception) -> None:
        is_late = job.trigger == LATE
        dead = job.trigger == "manual" or (not is_late and job.faults + 1 >= FAULTS_AT_MOST)
        advice = error.advice if isinstance(error, EvertalkError) else EvertalkError.advice
        ended = await self._end(
            job,
            state="dead" if dead else "due",
            outcome={"advice": advice},
            error=f"{type(error).__name__}: {redact_quotes(str(error))}",
            retry_seconds=retry_seconds(job.faults) if is_late else RETRY_SECONDS,
            failures=({"attempt": job.attempt, "code": type(error).__name__},),
        )
        if ended:
            await self._report_end(job, "dead" if dead else "due")

    async def _report_end(self, job: JobClaim, state: str) -> None:
        """Announce the stored end of a compaction, so that no client shows its progress any longer.

        Nothing is announced if the job is due again, since its progress then continues.
        """
        if job.kind == "compact" and state != "due":
            ended = "failed" if state == "dead" else "done"
            await self._compactor.report_progress(job, 100, ended, state=ended)

    async def _end(self, job: JobClaim, **how: Any) -> bool:
        """Store a job's end, waiting while Postgres is unavailable; return False if that failed or the claim
        was lost.
        """
        for _ in range(MAX_STORAGE_RETRIES):
            try:
                await self._store.end_job(job, **how)
            except LeaseLost:
                log.info("job_lease_lost", job_id=job.id)
                return False
            except StorageUnavailable:
                await asyncio.sleep(1.0)
                continue
            return True
        log.error("job_end_failed", job_id=job.id)
        return False

    async def _release_interrupted(self, job: JobClaim) -> None:
        """Release an interrupted job, so that another worker can start it at once."""
        with contextlib.suppress(LeaseLost, StorageUnavailable, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._store.end_job(job, state="due", outcome={"deferred": "interrupted"})

    async def _plan_successor(self, job: JobClaim) -> JobOrder | None:
        """Return the next job that the session needs; None if it needs none or that cannot be found out.

        The work of `job` is stored already, so an error must not make it fail; the session's next turn
        requests what is due. Raises StorageUnavailable.
        """
        try:
            return await self._plan_next(job)
        except StorageUnavailable:
            raise
        except Exception:
            log.exception("successor_not_planned", job_id=job.id, session_id=job.session_id)
            return None

    async def _plan_next(self, job: JobClaim) -> JobOrder | None:
        """Return the next job that the session needs; None if it needs none."""
        if job.kind == "tidy":
            return None
        if job.kind == "import":
            following = await self._import_summariser.plan_next(job.session_id)
            return None if following is None or following.key == job.key else following
        state = await self._store.load_state(job.session_id)
        prepared = await self._silent_requests.build_next(state)
        order = next_job(
            state.view,
            budget=prepared.budget,
            policy=prepared.policy,
            context_tokens=state.view.context_tokens + prepared.reserved,
            ratio=prepared.ratio,
            model=prepared.card.name,
            cache_seconds=cache_life(state.turn_times).total_seconds(),
        )
        return None if order is None or order.key == job.key else order
