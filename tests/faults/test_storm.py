"""The storm in its short form; `python -m tests.faults.storm` is the long one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.lengths import lasting
from tests.faults.storm import Plan, Storm
from tests.faults.weather import Forecast
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.telegram import Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake

SHORT = Forecast(kill_every=1.0, wipe_every=2.5, fell_every=5.0, failing=0.3)


@pytest.mark.row("F17", "F38")
@pytest.mark.timeout(900)
async def test_nothing_is_lost_doubled_or_out_of_order_in_a_storm(
    case: Case, plant: Plant, hatchery: Hatchery, fake: RunningFake
) -> None:
    """Every process is killed, Redis wiped, Postgres felled and the provider fails while people talk."""
    plan = Plan(seconds=lasting(8.0, 600.0), people=5, callers=2)
    plan = replace(plan, forecast=Forecast() if plan.seconds > 60 else SHORT)
    async with running_bot_api() as api:
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        report = await Storm(plan=plan, plant=plant, case=case, provider=fake, telegram=telegram).run()
    assert report["broken"] == [], report
    assert report["never_recovered"] == 0, report
    messages = report["messages"]
    assert messages["said"] == messages["acknowledged"] == messages["answered"] > 0
    kills = sum(times for fault, times in report["faults"].items() if fault.startswith("SIGKILL"))
    assert kills >= plan.seconds / 3
    assert report["faults"]["Redis wiped"] >= 1
