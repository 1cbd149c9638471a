"""Ledger of summaries: a paid call is booked once, whatever becomes of the job that made it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.postgres.compaction.job_backoff import PostgresJobBackoff
from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.core.session.turns import JobOrder
from shared.core.values.errors import LeaseLost, StorageUnavailable
from tests.acceptance.long_talks import WINDOW, everything_is_due, talk
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

BOOKED = "SELECT count(*) FROM usage WHERE purpose = 'compact'"
PROSE = [{"match": {"kind": "summary"}, "times": -1, "action": {"prose": True}}]


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


async def compact_once(guest: Visit) -> None:
    order = JobOrder(kind="compact", key="by hand", trigger="manual", payload={"force": True})
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    await guest.app.job_runner.run(job_id)


async def count_summary_calls(provider: RunningFake) -> int:
    return len([record for record in await provider.requests() if record["kind"] == "summary"])


@pytest.mark.parametrize(
    ("error", "is_committed"),
    [
        (LeaseLost("the job"), False),
        (StorageUnavailable("away"), False),
        (RuntimeError("unexpected"), False),
        (StorageUnavailable("the reply was lost"), True),
    ],
    ids=["lease", "storage", "unexpected", "lost reply"],
)
async def test_summary_whose_commit_fails_is_booked_once(
    guest: Visit,
    provider: RunningFake,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    is_committed: bool,
) -> None:
    await talk(guest, 8)
    record = PostgresJobs.record_compaction

    async def fail(*args: Any, **more: Any) -> Any:
        if is_committed:
            await record(*args, **more)
        raise error

    monkeypatch.setattr(PostgresJobs, "record_compaction", fail)
    await compact_once(guest)
    calls = await count_summary_calls(provider)
    assert calls >= 1
    assert await guest.one(BOOKED) == calls
    assert await guest.one("SELECT count(*) FROM compactions") == int(is_committed)


async def test_summary_that_cannot_replace_its_digest_is_booked(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(guest, 8)
    await provider.script(PROSE)
    await compact_once(guest)
    await provider.reset()
    before = await guest.one(BOOKED)

    async def fail(*_: Any, **__: Any) -> Any:
        raise LeaseLost("the job")

    monkeypatch.setattr(PostgresJobBackoff, "replace_digest", fail)
    await everything_is_due(guest)
    await guest.run_due_jobs()
    calls = await count_summary_calls(provider)
    assert calls >= 1
    assert await guest.one(BOOKED) == before + calls
