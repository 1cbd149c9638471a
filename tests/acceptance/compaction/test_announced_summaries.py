"""The gauge announces each automatic summary before it is made, and says why one is withheld."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bootstrap.app import App
from shared.core.session.turns import ContextMeasured
from tests.kit.app_driver import Visit, running_app, settings_for, visit, working
from tests.kit.deployment.person import WALK
from tests.kit.fakes.messages_api.harness import RunningFake

pytestmark = pytest.mark.timeout(300)
TURNS = 60
SUMMARY_JOBS = "SELECT count(*) FROM jobs WHERE kind = 'compact' AND trigger IN ('limit', 'overflow')"


def newest_gauge(guest: Visit) -> ContextMeasured:
    return [event for event in guest.heard if isinstance(event, ContextMeasured)][-1]


async def command(guest: Visit, name: str, args: str = "") -> str:
    found = guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, language=""
    )
    async with working(guest):
        return (await asyncio.wait_for(found, 60)).result


@pytest.mark.parametrize("preset", ["steady", "spec008", "arawn", "claude-code"])
async def test_gauge_announces_a_summary_before_it_is_due(
    database_url: str, redis_url: str, provider: RunningFake, preset: str
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        preset=preset, context_window=12_000, max_output=1_000, cap_total_per_day_usd="1000",
    )  # fmt: skip
    async with running_app(settings) as app:
        guest = await visit(app)
        soon: list[bool] = []
        for number in range(TURNS):
            await guest.ask(f"Number {number}: {WALK}")
            if await guest.one(SUMMARY_JOBS):
                break
            soon.append(newest_gauge(guest).summary_soon)
        else:
            raise AssertionError("no summary was due")
        assert soon[0] is False
        assert soon[-1] is True, "the answer before the summary announces it"
        assert soon.index(True) >= len(soon) - 4, "it is announced shortly before"
        await guest.run_due_jobs()
        await guest.ask(f"And then: {WALK}")
        assert newest_gauge(guest).summary_soon is False


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 12_000, "max_output": 1_000}


async def test_gauge_says_why_no_summary_will_be_made(app: App) -> None:
    guest = await visit(app)
    for number in range(6):
        await guest.ask(f"Number {number}: {WALK}")
    assert newest_gauge(guest).summary_withheld == ""
    assert newest_gauge(guest).summary_turns > 2

    await command(guest, "compact", "off")
    await guest.ask("Is it off?")
    assert newest_gauge(guest).summary_withheld == "off"
    await command(guest, "compact", "on")
    await command(guest, "compact", "--force")
    await command(guest, "undo")
    await guest.ask("Is it held?")
    assert newest_gauge(guest).summary_withheld == "held"
    measured = await app.sessions.measure_context(guest.session_id)
    assert measured is not None
    assert measured.summary_withheld == "held"
