"""A model that answers, but writes no summary: it costs little, and everybody is told the truth."""

from __future__ import annotations

import asyncio

import pytest

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts, Rules
from shared.bootstrap.app import App
from shared.config.settings import load_settings
from shared.diagnostics.row_checks import check_models
from shared.services.commands.command_service import CommandResult
from tests.acceptance.long_talks import everything_is_due
from tests.kit.app_driver import Visit, visit, working
from tests.kit.deployment.person import WALK
from tests.kit.fakes.messages_api.harness import RunningFake

PROSE = [{"match": {"kind": "summary"}, "times": -1, "action": {"prose": True}}]
AWAY = [{"match": {"kind": "summary"}, "times": -1, "action": {"status": 500}}]
CALLS_OF_A_DIGEST = 4
"""Two models, an answer and a repaired one."""


async def compacted(guest: Visit, *, language: str = "", talk: int = 6) -> CommandResult:
    for number in range(talk):
        await guest.ask(f"Number {number}: {WALK}")
    command = guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="compact", args="--force",
        language=language,
    )  # fmt: skip
    async with working(guest):
        return await asyncio.wait_for(command, 60)


async def asked(provider: RunningFake) -> list[str]:
    return [request["model"] for request in await provider.requests() if request["kind"] == "summary"]


async def rested(app: App) -> None:
    """A quarter of an hour later."""
    await app.pool.execute("UPDATE compactions SET created_at = created_at - interval '901 s'")


async def test_models_rest_after_three_unusable_summaries(app: App, provider: RunningFake) -> None:
    await provider.script(PROSE)
    counts = []
    for _ in range(5):
        await compacted(await visit(app))
        counts.append(len(await asked(provider)))
    assert counts == [4, 8, 12, 12, 12]
    await rested(app)
    await provider.script([])
    guest = await visit(app)
    assert "Summarised" in (await compacted(guest)).result
    assert await guest.one("SELECT model FROM compactions ORDER BY id DESC LIMIT 1") == app.models.summary
    assert (await asked(provider))[12:] == [app.models.summary]


async def test_a_model_that_is_away_is_asked_again_by_the_next_one(app: App, provider: RunningFake) -> None:
    await provider.script(AWAY)
    for _ in range(3):
        await compacted(await visit(app))
    await provider.script([])
    assert "Summarised" in (await compacted(await visit(app))).result


async def test_the_upgrades_of_a_digest_end_and_cost_little(app: App, provider: RunningFake) -> None:
    await provider.script(PROSE)
    guest = await visit(app)
    await compacted(guest)
    assert len(await asked(provider)) == CALLS_OF_A_DIGEST
    waits = "SELECT extract(epoch FROM due_at - now())::int FROM jobs WHERE trigger = 'upgrade'"
    assert 600 < await guest.one(waits) <= 900, "what could not be used is not asked for again in ten minutes"
    for _ in range(12):
        await everything_is_due(guest)
        await guest.run_due_jobs()
    assert len(await asked(provider)) == CALLS_OF_A_DIGEST + 4 * 2
    assert await guest.one("SELECT state FROM jobs WHERE trigger = 'upgrade'") == "dead"


async def test_an_upgrade_waits_while_the_models_rest(app: App, provider: RunningFake) -> None:
    await provider.script(PROSE)
    for _ in range(2):
        await compacted(await visit(app))
    guest = await visit(app)
    await compacted(guest)
    before = len(await asked(provider))
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert len(await asked(provider)) == before
    row = await app.pool.fetchrow("SELECT state, faults, outcome FROM jobs WHERE trigger = 'upgrade' LIMIT 1")
    assert row is not None
    assert (row["state"], row["faults"]) == ("due", 0)


async def test_three_unusable_summaries_raise_alert_that_one_good_summary_ends(
    app: App, provider: RunningFake, database_url: str
) -> None:
    alerts, rules = PostgresAlerts(app.pool), Rules(over_seconds=0.0)
    open_ones = "SELECT count(*) FROM alerts WHERE kind = 'no_summaries' AND ended_at IS NULL"
    await provider.script(PROSE)
    for number in range(1, 4):
        await compacted(await visit(app))
        await alerts.sweep(rules, worker_id=app.worker_id, targets=["webhook"])
        assert await app.pool.fetchval(open_ones) == (number == 3)
        assert len(await check_models(load_settings(), database_url)) == (number == 3)
    sending = await alerts.claim(["webhook"], worker_id=app.worker_id)
    assert sending is not None
    public_ids = await app.pool.fetch(
        "SELECT public_id::text AS id FROM sessions s ORDER BY s.id DESC LIMIT 3"
    )
    assert set(str(sending.alert.detail["sessions"]).split(", ")) == {row["id"] for row in public_ids}
    await provider.script([])
    await rested(app)
    await compacted(await visit(app))
    await alerts.sweep(rules, worker_id=app.worker_id, targets=["webhook"])
    assert await app.pool.fetchval(open_ones) == 0
    assert await check_models(load_settings(), database_url) == []


@pytest.mark.parametrize(
    ("language", "words"), [("en", "mechanical excerpt of"), ("de", "mechanischer Auszug aus")]
)
async def test_compact_says_that_it_is_an_excerpt_for_now(
    app: App, provider: RunningFake, language: str, words: str
) -> None:
    await provider.script(PROSE)
    result = await compacted(await visit(app), language=language)
    assert result.success
    assert words in result.result
    assert "Summarised" not in result.result
    assert "/undo" in result.result
