"""Numbers over time for operators: what may be asked, by whom, and what an empty house answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.adapters.postgres.db.hour_counts import PostgresHourCounts
from tests.kit.dashboard import money_seed, seed
from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.midday import MIDDAY

SENSELESS = (
    "range=7",
    "step=week",
    "from=yesterday",
    "from=2026-02-01&to=2026-01-01",
    "from=2020-01-01&to=2026-01-01",
    "from=0001-01-01",
    "range=90d&step=hour",
)


@pytest.mark.parametrize("query", SENSELESS)
async def test_a_senseless_range_is_refused(dashboard: Dashboard, query: str) -> None:
    assert await dashboard.status("GET", f"/api/v1/series?{query}") == 400


async def test_a_stranger_sees_no_numbers_and_a_viewer_does(stranger: Dashboard) -> None:
    assert await stranger.status("GET", "/api/v1/series") == 401
    await stranger.log_in()
    await stranger.pool.execute("UPDATE operators SET role = 'viewer'")
    assert await stranger.status("GET", "/api/v1/series") == 200


@pytest.mark.parametrize(
    ("query", "step", "count"),
    [("", "day", 7), ("range=24h", "hour", 24), ("range=90d", "day", 90), ("range=7d&step=hour", "hour", 168),
     ("from=2026-03-01&to=2026-03-02", "hour", 48), ("from=2026-03-01&to=2026-03-03", "day", 3)],
)  # fmt: skip
async def test_an_empty_house_has_a_step_for_each_hour_or_day(
    dashboard: Dashboard, query: str, step: str, count: int
) -> None:
    page = await dashboard.get(f"/series?{query}")
    assert (page["step"], len(page["steps"]), page["timezone"]) == (step, count, MIDDAY)
    assert (page["since"], page["counted_at"], page["before"]) == (None, None, None)
    assert page["total"]["messages"] == page["total"]["people"] == page["total"]["cost_micro"] == 0
    assert page["total"]["first_token_p95_ms"] is None
    if query == "range=24h":
        last = datetime.fromisoformat(page["steps"][-1]["at"])
        assert last <= datetime.now(UTC) < last + timedelta(hours=1)


async def test_a_month_of_the_ledger_is_what_the_costs_say(dashboard: Dashboard) -> None:
    async with dashboard.pool.acquire() as connection:
        first, _ = await seed.a_long_session(connection, turns=60)
        await money_seed.a_month(connection, first)
    store = PostgresHourCounts(dashboard.pool, timezone=MIDDAY)
    while await store.catch_up():
        pass
    page = await dashboard.get("/series?range=30d")
    costs = await dashboard.get("/costs?range=30d")
    sums = ("calls", "unknown_calls", *(f"{kind}_tokens" for kind in ("input", "cache_read", "output")))
    assert {name: page["total"][name] for name in sums} == {name: costs["total"][name] for name in sums}
    assert page["total"]["cost_micro"] == costs["total"]["cost_micro"]
    assert (page["from"], page["to"]) == (costs["from"], costs["to"])
    assert page["before"] is None
    week = await dashboard.get("/series?range=7d")
    former = await dashboard.get(f"/costs?from={day(week['from'], -7)}&to={day(week['from'], -1)}")
    assert week["before"]["cost_micro"] == former["total"]["cost_micro"] > 0
    assert week["before"]["calls"] == former["total"]["calls"]


def day(of: str, more: int) -> str:
    return str((datetime.fromisoformat(of) + timedelta(days=more)).date())
