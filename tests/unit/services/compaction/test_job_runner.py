"""End of a background job: what is stored and announced, whatever fails after the job's work."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.core.session.session_state import JobClaim, JobDone
from shared.core.values.errors import LeaseLost, ModelUnavailable, StorageUnavailable
from shared.services.compaction.job_runner import JobRunner


class Job:
    """A runner with fakes around it, and what it stored and announced of its only job."""

    def __init__(self, done: JobDone | Exception, *, kind: str = "compact", trigger: str = "limit") -> None:
        self.done = done
        self.claim = JobClaim(
            id=7, kind=cast("Any", kind), session_id=1, key="key", trigger=trigger,
            payload={"threshold": trigger}, attempt=1, faults=0, epoch=1, worker_id=1,
        )  # fmt: skip
        self.ends: list[Mapping[str, Any]] = []
        self.announced: list[tuple[int, str]] = []
        self.plan_error: Exception | None = None
        self.checkpoint_error: Exception | None = None

    def runner(self, **more: Any) -> JobRunner:
        parts: dict[str, Any] = {
            "worker_id": 1, "store": self, "flusher": self, "compactor": self, "checkpoints": self,
            "consolidator": self, "import_summariser": self, "silent_requests": self, "doorbell": self,
            "crash_point": lambda _: None, "indexer": self, "tracer": self, "storage_limiter": self.limit,
        }  # fmt: skip
        return JobRunner(**{**parts, **more})

    async def run(self, **more: Any) -> None:
        await self.runner(**more).run(7)

    # ---- the store

    async def claim_job(self, _: int, *, worker_id: int) -> JobClaim:
        return self.claim

    async def load_state(self, _: int) -> Any:
        return SimpleNamespace()

    async def find_due_job(self, _: int) -> None:
        return None

    async def end_job(self, _: JobClaim, **how: Any) -> None:
        self.ends.append(how)

    # ---- the services

    async def compact(self, _: JobClaim) -> JobDone:
        if isinstance(self.done, Exception):
            raise self.done
        return self.done

    async def flush_early(self, job: JobClaim, _: Any) -> JobDone:
        return await self.compact(job)

    async def make_checkpoint(self, *_: Any, **__: Any) -> bool:
        if self.checkpoint_error is not None:
            raise self.checkpoint_error
        return True

    async def build_next(self, _: Any) -> Any:
        if self.plan_error is not None:
            raise self.plan_error
        timing = SimpleNamespace(checkpoint_marks=frozenset({"half"}))
        return SimpleNamespace(policy=SimpleNamespace(timing=timing))

    async def report_progress(self, _: JobClaim, percent: int, _stage: str, *, state: str) -> None:
        self.announced.append((percent, state))

    async def index_session(self, _: int) -> None:
        return None

    # ---- the rest

    @asynccontextmanager
    async def limit(self) -> Any:
        yield

    @contextmanager
    def span(self, *_: Any) -> Any:
        yield SimpleNamespace(set_attributes=lambda **_: None)


DONE = JobDone(outcome={"compaction": 3})
NOT_NOW = JobDone(outcome={"nothing": "done_already"})
LATER = JobDone(outcome={"deferred": "talking"}, state="due", retry_seconds=9.0)
THRASHES = JobDone(outcome={"nothing": "thrashing"}, state="dead", error="compaction does not help")
NO_ROOM = ModelUnavailable("the agent was changed meanwhile")


@pytest.mark.parametrize("error", [NO_ROOM, KeyError("no such model"), LeaseLost("job 7")])
async def test_committed_compaction_ends_as_done_although_its_successor_is_unknown(error: Exception) -> None:
    job = Job(DONE)
    job.plan_error = error
    await job.run()
    assert [(end["state"], end["outcome"], end["successor"]) for end in job.ends] == [
        ("done", {"compaction": 3}, None)
    ]
    assert job.announced == [(100, "done")]


async def test_job_is_due_again_when_storage_fails_while_its_successor_is_planned() -> None:
    job = Job(DONE)
    job.plan_error = StorageUnavailable("away")
    await job.run()
    assert [(end["state"], end["outcome"]) for end in job.ends] == [("due", {"deferred": "storage"})]
    assert job.announced == []


@pytest.mark.parametrize("error", [NO_ROOM, ValueError("unreadable")])
async def test_flush_ends_as_done_although_its_checkpoint_fails(error: Exception) -> None:
    job = Job(JobDone(outcome={"outcome": "nothing"}), kind="flush", trigger="half")
    job.checkpoint_error = error
    await job.run()
    assert [(end["state"], end["outcome"]) for end in job.ends] == [("done", {"outcome": "nothing"})]


@pytest.mark.parametrize(
    ("done", "announced"),
    [(NOT_NOW, [(100, "done")]), (THRASHES, [(100, "failed")]), (LATER, [])],
    ids=["nothing", "dead", "due"],
)
async def test_every_final_end_of_a_compaction_is_announced(
    done: JobDone, announced: list[tuple[int, str]]
) -> None:
    job = Job(done)
    job.plan_error = NO_ROOM
    await job.run()
    assert job.announced == announced


@pytest.mark.parametrize(("trigger", "announced"), [("manual", [(100, "failed")]), ("limit", [])])
async def test_failed_compaction_is_announced_as_failed_unless_it_is_tried_again(
    trigger: str, announced: list[tuple[int, str]]
) -> None:
    job = Job(ValueError("unexpected"), trigger=trigger)
    await job.run()
    assert [end["state"] for end in job.ends] == ["dead" if announced else "due"]
    assert job.announced == announced


async def test_compaction_that_crashed_processes_is_announced_as_failed() -> None:
    job = Job(DONE)
    await job.run(given_up={"job key"})
    assert [end["state"] for end in job.ends] == ["dead"]
    assert job.announced == [(100, "failed")]
