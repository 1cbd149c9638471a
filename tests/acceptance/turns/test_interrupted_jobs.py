"""A job that is interrupted, or that cannot say how it ended, never stays behind as running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.session.session_state import JobClaim, JobDone
from shared.core.session.turns import JobOrder
from shared.core.values.errors import StorageUnavailable
from tests.kit.app_driver import Visit
from tests.kit.storage_health import broken_line

ORDER = JobOrder(kind="compact", key="asked by a test", trigger="limit", payload={})
STATE = "SELECT state FROM jobs WHERE key = 'asked by a test'"


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


async def test_a_cancelled_job_is_due_again_at_once(guest: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """arq cancels its jobs when Redis goes away, and after its own timeout."""
    await guest.ask("Hello")
    began = asyncio.Event()

    async def never_ends(_job: JobClaim) -> JobDone:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    monkeypatch.setattr(guest.app.job_runner._compactor, "compact", never_ends)
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, ORDER)
    assert job_id is not None
    running = asyncio.ensure_future(guest.app.job_runner.run(job_id))
    await asyncio.wait_for(began.wait(), 60)
    assert await guest.one(STATE) == "running"
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert await guest.one(STATE) == "due"
    assert job_id in [waiting.id for waiting in await guest.app.stores.jobs.due_jobs()]


async def test_job_reports_its_end_when_storage_returns(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.ask("Hello")
    upkeep, tries = guest.app.stores.jobs, 0
    tells = upkeep.end_job

    async def away_at_first(*args: Any, **kwargs: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StorageUnavailable("away")
        return await tells(*args, **kwargs)

    monkeypatch.setattr(guest.app.job_runner, "_store", _With(upkeep, away_at_first))
    job_id = await upkeep.request_job(guest.session_id, ORDER)
    assert job_id is not None
    await guest.app.job_runner.run(job_id)
    assert tries == 3
    assert await guest.one(STATE) in ("due", "done")


class _With:
    """The store, with another way to end a job."""

    def __init__(self, store: Any, end_job: Any) -> None:
        self._store = store
        self.end_job = end_job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("error", [StorageUnavailable("away"), broken_line(), KeyError("of a cut-off reply")])
async def test_a_job_whose_storage_failed_is_put_back_without_a_fault(
    guest: Visit, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await guest.ask("Hello")
    app = guest.app

    async def fails(_: object) -> None:
        raise error

    monkeypatch.setattr(app.pool, "can_write", _no_answer)
    monkeypatch.setattr(app.job_runner._compactor, "compact", fails)
    job_id = await app.stores.jobs.request_job(guest.session_id, ORDER)
    for _ in range(4):
        await app.pool.execute("UPDATE jobs SET due_at = now() WHERE id = $1", job_id)
        await app.job_runner.run(job_id or 0)
        rows = await app.pool.fetch("SELECT state, faults, last_error FROM jobs WHERE id = $1", job_id)
        assert [tuple(row) for row in rows] == [("due", 0, "")]
    monkeypatch.undo()
    monkeypatch.setattr(app.job_runner._compactor, "compact", fails)
    await app.pool.execute("UPDATE jobs SET due_at = now() WHERE id = $1", job_id)
    await app.job_runner.run(job_id or 0)
    faults = await guest.one("SELECT faults FROM jobs WHERE id = $1", job_id)
    assert faults == (0 if isinstance(error, StorageUnavailable) else 1)
    await app.pool.execute(
        "UPDATE jobs SET state = 'done', leased_by = NULL, ended_at = now() WHERE id = $1", job_id
    )


@pytest.mark.parametrize("error", [broken_line(), KeyError("of a cut-off reply")])
async def test_a_turn_whose_storage_failed_waits_without_a_fault(
    guest: Visit, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """However often that happens; three faults of our own would end it with a notice."""
    app = guest.app

    async def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(app.pool, "can_write", _no_answer)
        meanwhile.setattr(app.sessions._agent_loop, "answer", fails)
        await guest.say("Hello")
        for _ in range(4):
            await app.pool.execute("UPDATE sessions SET retry_at = NULL")
            await guest.answered()
        assert await guest.one("SELECT faults FROM turns") == 0
    await app.pool.execute("UPDATE sessions SET retry_at = NULL")
    await guest.answered()
    assert await guest.one("SELECT state FROM turns") == "answered"


async def _no_answer() -> bool:
    return False
