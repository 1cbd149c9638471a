"""Each list says how many there are when it is asked: by the same filters, and no further than 10,000."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.postgres.db import page_read
from tests.kit.dashboard import seed, seed_work
from tests.kit.dashboard.fixtures import Dashboard

LISTS = {
    "/sessions": "sessions", "/sessions?channel=telegram": "sessions", "/sessions?q=maria": "sessions",
    "/sessions?state=idle&min_pct=1": "sessions", "/people": "people", "/people?kind=group": "people",
    "/people?q=ma": "people", "/people?channel=web": "people", "/notes": "notes",
    "/notes?state=kept": "notes", "/notes?q=tea": "notes", "/audit": "entries",
    "/audit?action=read": "entries", "/jobs": "jobs", "/jobs?state=dead&kind=compact": "jobs",
    "/deliveries": "deliveries", "/deliveries?state=dead": "deliveries", "/alerts": "past",
}  # fmt: skip


async def a_full_house(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    await seed_work.doubts(dashboard.pool)
    async with dashboard.pool.acquire() as connection:
        for number in range(7):
            await seed.a_session(
                connection, person=f"Maria {number}", channel=("web", "telegram")[number % 2],
                turns=2, context=number * 1000, limit=10_000,
            )  # fmt: skip
        await connection.execute(
            """INSERT INTO notes (contact_id, scope, kind, text, hash)
               SELECT p.id, 'default', 'fact', 'Likes tea ' || p.id, '' FROM contacts p"""
        )
        await connection.execute(
            """INSERT INTO alerts (kind, key, opened_at, ended_at)
               SELECT 'dead_job', n::text, now() - interval '2 h', now() FROM generate_series(1, 3) n"""
        )


@pytest.mark.parametrize("path", LISTS)
async def test_a_total_is_the_number_of_rows_that_all_pages_have(dashboard: Dashboard, path: str) -> None:
    await a_full_house(dashboard)
    mark = "&" if "?" in path else "?"
    whole = await dashboard.get(f"{path}{mark}limit=200&total=true")
    assert whole["total"] == {"count": len(whole[LISTS[path]]), "more": False}
    first = await dashboard.get(f"{path}{mark}limit=1&total=true")
    assert first["total"]["count"] >= len(first[LISTS[path]])
    assert "total" not in await dashboard.get(path)


async def test_more_than_is_counted_is_said_to_be_more(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_read, "COUNTED_TO", 5)
    await a_full_house(dashboard)
    assert (await dashboard.get("/sessions?total=true"))["total"] == {"count": 5, "more": True}


async def test_a_count_that_takes_long_is_not_waited_for(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_read, "COUNT_SECONDS", 0.05)
    assert await page_read.count_rows(dashboard.pool, "SELECT FROM pg_sleep(5)") is None
    found: Any = await dashboard.get("/sessions?total=true")
    assert found["sessions"] == []


async def test_a_senseless_wish_for_a_total_is_refused(dashboard: Dashboard) -> None:
    assert await dashboard.status("GET", "/api/v1/sessions?total=perhaps") == 400
