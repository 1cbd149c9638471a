"""Duties run apart from each other: one that fails, hangs or breaks leaves the others running."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from arq.worker import Worker

from shared.bootstrap.app import App
from shared.core.ops.duties import DUTY_NAMES, SCHEDULES, DutyName, DutySchedule
from shared.core.values.errors import StorageUnavailable
from tests.kit.app_driver import running_app, settings_for
from worker import duties
from worker.duties import DUTIES, DutyRunner, Run, build_cron_times, run_duty
from worker.jobs import run_arq


class Schedule:
    """A schedule in memory by which every duty is due whenever it is not being performed."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    async def list_overdue(self, names: list[str], *, patience_seconds: float) -> list[str]:
        return names

    async def claim(self, name: str, *, seconds: int, worker_id: int) -> int | None:
        return 1

    async def end(
        self, name: str, *, epoch: int, duration_ms: int, error: str = "", more: bool = False
    ) -> None:
        self.errors[name] = error


def app_of(schedule: Any) -> App:
    return cast("App", SimpleNamespace(stores=SimpleNamespace(duties=schedule), worker_id=1))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the runs of each duty, which do nothing and are due again at once."""
    seen: Counter[str] = Counter()

    def counted(name: DutyName) -> Run:
        async def run(_: App) -> None:
            seen[name] += 1

        return run

    monkeypatch.setattr(duties, "DUTIES", {name: counted(name) for name in DUTIES})
    soon = {name: DutySchedule(seconds=1, timeout_seconds=0.05) for name in DUTY_NAMES}
    monkeypatch.setattr(duties, "SCHEDULES", soon)
    monkeypatch.setattr(duties, "LOOK_SECONDS", 0.0)
    return seen


async def fail(_: App) -> None:
    raise StorageUnavailable("canceling statement due to statement timeout")


async def break_down(_: App) -> None:
    raise KeyError("a column that is not there")


async def hang(_: App) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("trouble", [fail, break_down, hang])
@pytest.mark.parametrize("name", DUTY_NAMES)
async def test_duties_continue_when_one_is_in_trouble(
    runs: Counter[str], monkeypatch: pytest.MonkeyPatch, name: DutyName, trouble: Run
) -> None:
    monkeypatch.setitem(duties.DUTIES, name, trouble)
    schedule, others = Schedule(), [other for other in DUTY_NAMES if other != name]
    working = asyncio.create_task(DutyRunner(app_of(schedule)).run_overdue())
    try:
        async with asyncio.timeout(30):
            while name not in schedule.errors or any(runs[other] < 3 for other in others):
                await asyncio.sleep(0)
    finally:
        working.cancel()
        await asyncio.wait([working])
    assert runs[name] == 0
    assert schedule.errors.pop(name)
    assert not any(schedule.errors.values())
    assert working.cancelled(), "the worker itself continues"


async def test_duty_ends_when_its_timeout_passes(runs: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(duties.DUTIES, "partitions", hang)
    async with asyncio.timeout(30):
        more, error = await run_duty(app_of(None), "partitions")
    assert not more
    assert "longer than" in error


async def test_worker_looks_again_when_the_schedule_cannot_be_read(runs: Counter[str]) -> None:
    class Away(Schedule):
        looks = 0

        async def list_overdue(self, names: list[str], *, patience_seconds: float) -> list[str]:
            self.looks += 1
            if self.looks < 3:
                raise StorageUnavailable("away")
            return names

        async def claim(self, name: str, *, seconds: int, worker_id: int) -> int | None:
            if self.looks < 5:
                raise StorageUnavailable("away")
            return 1

    working = asyncio.create_task(DutyRunner(app_of(Away())).run_overdue())
    async with asyncio.timeout(30):
        while not runs["partitions"]:
            await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])


def test_every_duty_has_a_schedule_with_a_bound() -> None:
    assert tuple(DUTIES) == DUTY_NAMES == tuple(SCHEDULES)
    assert all(0 < one.timeout_seconds <= 1800 for one in SCHEDULES.values())


def test_cron_times_are_the_whole_periods_of_the_schedule() -> None:
    """Each period divides a minute or an hour, or the cron job and the schedule would drift apart."""
    for one in SCHEDULES.values():
        times = build_cron_times(one.seconds)
        rings = len(times["second"]) * 60 if one.seconds < 60 else len(times["minute"])
        assert rings * one.seconds == 3600


async def test_cron_jobs_perform_duties_that_are_due(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers hear arq's bell, and one of them performs the duty of that period."""
    runs: list[int] = []

    async def run(app: App) -> None:
        runs.append(app.worker_id)

    monkeypatch.setattr(duties, "DUTIES", {"reservations": run})
    monkeypatch.setattr(duties, "SCHEDULES", {"reservations": DutySchedule(seconds=1, timeout_seconds=5)})
    settings = settings_for(database_url, redis_url)
    async with running_app(settings) as one, running_app(settings) as other:
        tasks = [asyncio.create_task(run_arq(app, DutyRunner(app).list_cron_jobs())) for app in (one, other)]
        async with asyncio.timeout(60):
            while len(runs) < 3:
                await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await one.pool.fetchval("SELECT runs FROM duties") in (len(runs), len(runs) - 1)


async def test_duties_run_while_redis_is_away(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cron job rings; the worker's own look finds the duties in PostgreSQL."""

    async def no_queue(_: Worker) -> None:
        raise ConnectionError

    monkeypatch.setattr(Worker, "async_run", no_queue)
    async with running_app(settings_for(database_url, redis_url)) as app:
        runner = DutyRunner(app)
        work = (run_arq(app, runner.list_cron_jobs()), runner.run_overdue())
        tasks = [asyncio.create_task(one) for one in work]
        async with asyncio.timeout(60):
            while await app.pool.fetchval("SELECT count(*) FROM duties WHERE runs > 0") < len(DUTY_NAMES):
                await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await app.pool.fetchval("SELECT array_agg(last_error) FROM duties WHERE failures > 0") is None
