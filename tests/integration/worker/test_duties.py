"""Duties run apart from each other: one that fails, hangs or breaks leaves the others running."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest

from shared.bootstrap.app import App
from shared.core.ops.duties import DUTY_NAMES, SCHEDULES, DutyName, DutySchedule
from shared.core.values.errors import StorageUnavailable
from worker import duties
from worker.duties import DUTIES, Run, perform_duty, run_duties

APP = cast("App", object())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the runs of each duty, which do nothing and are due again at once."""
    seen: Counter[str] = Counter()

    def counted(name: DutyName) -> Run:
        async def run(_: App) -> None:
            seen[name] += 1

        return run

    monkeypatch.setattr(duties, "DUTIES", {name: counted(name) for name in DUTIES})
    soon = {name: DutySchedule(seconds=0, timeout_seconds=0.05) for name in DUTY_NAMES}
    monkeypatch.setattr(duties, "SCHEDULES", soon)
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
    working = asyncio.create_task(run_duties(APP))
    try:
        async with asyncio.timeout(30):
            while any(runs[other] < 3 for other in DUTY_NAMES if other != name):
                await asyncio.sleep(0)
    finally:
        working.cancel()
        await asyncio.wait([working])
    assert runs[name] == 0
    assert working.cancelled(), "the worker itself goes on"


async def test_duty_ends_when_its_timeout_passes(runs: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(duties.DUTIES, "partitions", hang)
    async with asyncio.timeout(30):
        assert not await perform_duty(APP, "partitions")


def test_every_duty_has_a_schedule_with_a_bound() -> None:
    assert tuple(DUTIES) == DUTY_NAMES == tuple(SCHEDULES)
    assert all(one.seconds > 0 and 0 < one.timeout_seconds <= 1800 for one in SCHEDULES.values())
