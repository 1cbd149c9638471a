"""Numbers of overview, costs and sheets are what SQL says of the seeded rows; bad questions are refused."""

from __future__ import annotations

import base64
import csv
import io
import json
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.postgres.dashboard.read_models_sql import SORTS
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.telemetry.health import Health
from shared.config.settings import load_settings
from shared.core.verdicts.breaker import Breaker
from tests.kit.dashboard import money_seed, seed
from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.dashboard.serve import served
from tests.kit.midday import DAY_BEGAN, MIDDAY, TODAY
from tests.kit.web.callers import make_operator

KINDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
KEYS = {
    "model": "u.model",
    "day": f"(u.at AT TIME ZONE '{MIDDAY}')::date::text",
    "purpose": "u.purpose",
    "agent": "a.name",
    "person": "p.public_id::text",
}
_TODAY = datetime.now(UTC).date()
YEAR = (_TODAY - timedelta(days=200), _TODAY + timedelta(days=1))
SENSELESS = (
    "/costs?group=secret",
    "/costs?from=yesterday",
    "/costs?from=2026-02-01&to=2026-01-01",
    "/costs?from=2020-01-01&to=2026-01-01",
    "/costs?from=0001-01-01",
    "/export/costs.csv?group=secret",
    "/export/sessions.csv?sort=secret",
    "/export/sessions.csv?state=odd",
    "/export/sessions.csv?min_pct=nan",
)


async def a_month(dashboard: Dashboard) -> list[seed.Seeded]:
    async with dashboard.pool.acquire() as connection:
        first, _ = await seed.a_long_session(connection, turns=300)
        return await money_seed.a_month(connection, first)


async def sheet(dashboard: Dashboard, path: str) -> list[dict[str, str]]:
    async with dashboard.http.get(f"{dashboard.url}/api/v1{path}") as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/csv"
        text = (await response.read()).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("group", KEYS)
async def test_costs_by_each_group_are_what_the_ledger_says(dashboard: Dashboard, group: str) -> None:
    await a_month(dashboard)
    page = await dashboard.get(f"/costs?group={group}&from={YEAR[0]}&to={YEAR[1]}")
    facts = await dashboard.pool.fetch(
        f"""SELECT {KEYS[group]} AS key, count(*) AS calls, sum(cost_micro)::bigint AS cost_micro,
                   count(*) FILTER (WHERE cost_micro IS NULL) AS unknown_calls,
                   {", ".join(f"sum({kind})::bigint AS {kind}" for kind in KINDS)}
              FROM usage u JOIN sessions s ON s.id = u.session_id JOIN agents a ON a.id = s.agent_id
              JOIN contacts p ON p.id = u.contact_id GROUP BY 1"""
    )
    names = ("key", "calls", "cost_micro", "unknown_calls", *KINDS)
    told = {row["key"]: {name: row[name] for name in names} for row in page["rows"]}
    assert told == {fact["key"]: dict(fact) for fact in facts}
    assert page["groups"] == len(facts)
    if group == "person":
        assert all(row["kind"] == "person" and row["anonymous"] in (True, False) for row in page["rows"])
    assert page["total"]["calls"] == sum(fact["calls"] for fact in facts)
    assert page["total"]["cost_micro"] == sum(fact["cost_micro"] or 0 for fact in facts)
    assert [row["key"] for row in await sheet(dashboard, f"/export/costs.csv?group={group}&from={YEAR[0]}")]


async def test_a_period_holds_both_of_its_days_and_nothing_else(dashboard: Dashboard) -> None:
    await a_month(dashboard)
    day = await dashboard.pool.fetchval(f"SELECT {TODAY} - 4")
    page = await dashboard.get(f"/costs?from={day}&to={day}")
    calls = await dashboard.pool.fetchval(
        f"SELECT count(*) FROM usage WHERE (at AT TIME ZONE '{MIDDAY}')::date = $1", day
    )
    assert page["total"]["calls"] == calls > 0


async def test_unknown_price_is_null_and_empty_day_is_zero(
    dashboard: Dashboard,
) -> None:
    await a_month(dashboard)
    rows = {row["key"]: row for row in (await dashboard.get("/costs"))["rows"]}
    assert rows["local"]["cost_micro"] is None
    empty = await dashboard.get("/costs?from=2025-03-01&to=2025-03-02")
    assert empty["total"]["cost_micro"] == 0
    assert empty["rows"] == []
    prices = {row["model"]: row for row in (await dashboard.get("/costs"))["prices"]}
    assert prices["local"]["input"] is None
    assert (prices["claude-opus-5-5"]["input"], prices["claude-opus-5-5"]["dated"]) == (4.0, "2026-11")


async def test_the_overview_is_what_sql_says(dashboard: Dashboard) -> None:
    await a_month(dashboard)
    page, one = await dashboard.get("/overview"), dashboard.pool.fetchval
    today = f"at >= {DAY_BEGAN}"
    assert page["spend_micro"] == await one(f"SELECT sum(cost_micro)::bigint FROM usage WHERE {today}")
    assert page["calls"] == await one(f"SELECT count(*) FROM usage WHERE {today}")
    assert page["charged_micro"] == 700_000
    assert page["near_caps"] == 1
    assert page["active"] == await one(
        "SELECT count(*) FROM sessions WHERE last_active_at > now() - interval '1 hour'"
    )
    assert page["near_limit"] == await one(
        """SELECT count(*) FROM sessions WHERE context_limit > 0 AND context_tokens * 10 >= context_limit * 9
              AND last_active_at > now() - interval '1 day'"""
    )
    assert page["jobs_dead"] == await one("SELECT count(*) FROM jobs WHERE state = 'dead'")
    assert page["handovers_waiting"] == 1
    assert page["first_token_p95_ms"] == pytest.approx(
        await one(
            """SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY first_token_ms)
                 FROM turns WHERE opened_at > now() - interval '1 day'"""
        )
    )
    assert page["overhead_p95_ms"] == pytest.approx(
        await one(
            """SELECT percentile_cont(0.95) WITHIN GROUP (
                        ORDER BY greatest(0, extract(epoch FROM ended_at - claimed_at) * 1000 - model_ms))
                 FROM turns t JOIN turn_context_audit c
                        ON c.session_id = t.session_id AND c.turn_id = t.turn_no
                WHERE opened_at > now() - interval '1 day'"""
        )
    )
    assert page["providers"] == []
    assert page["alerts"] == []


async def test_provider_state_is_that_of_all_living_processes(dashboard: Dashboard) -> None:
    def of(provider: str, **more: Any) -> dict[str, Any]:
        usual = {"open": False, "refused": False, "calls": 4, "failures": 0, "open_seconds": 0}
        return {"provider": provider, **usual, **more}

    out = {"open": True, "failures": 3, "open_seconds": 40}
    for role, told in (
        ("web", [of("one.example"), of("two.example")]),
        ("web", [of("one.example", calls=1, **(out | {"open_seconds": 70}))]),
        (
            "worker",
            [
                of("one.example", **out, reason="529"),
                of("three.example", refused=True, **out, reason="401 x"),
            ],
        ),
        ("worker", [of("one.example", **out, reason="529"), of("three.example", reason="of before")]),
        ("bot", [{"provider": "two.example", "open": True, "refused": False}]),
    ):
        workers = PostgresWorkers(dashboard.pool, health=partial(dict, providers=told))
        assert await workers.beat(await workers.register(role))
    gone = PostgresWorkers(dashboard.pool, health=lambda: {"providers": [of("gone.example", **out)]})
    worker_id = await gone.register("web")
    assert await gone.beat(worker_id)
    await gone.stop(worker_id)
    await dashboard.pool.execute("UPDATE workers SET beat = now() + interval '1 min'")
    page = await dashboard.get("/overview")
    told_of = {
        one["host"]: [
            one[name] for name in ("state", "calls", "failures", "open_seconds", "processes", "out_in")
        ]
        for one in page["providers"]
    }
    assert told_of == {
        "one.example": ["open", 13, 9, 70, 4, ["web", "worker"]],
        "three.example": ["refused", 8, 3, 40, 2, ["worker"]],
        "two.example": ["open", 4, 0, 0, 2, ["bot"]],
    }
    assert {one["host"]: one["reasons"] for one in page["providers"]} == {
        "one.example": [{"role": "worker", "reason": "529"}],
        "three.example": [{"role": "worker", "reason": "401 x"}],
        "two.example": [],
    }


async def test_the_answering_process_tells_its_own_reason_in_the_providers_words(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    breaker = Breaker(clock=time.monotonic)
    breaker.record_refusal("401: invalid x-api-key (authentication_error)")
    states = {"https://api.example.org/v1": breaker.get_state()}
    for role in ("web", "worker"):
        workers = PostgresWorkers(pool, health=Health(lambda: states, Path("/")))
        assert await workers.beat(await workers.register(role))
    headers = await make_operator(pool, "viewer")
    serving = served(
        web.Application(), pool=pool, settings=load_settings(), commands=None, breakers=lambda: states
    )
    async with (
        serving as url,
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{url}/api/v1/overview") as response,
    ):
        (provider,) = (await response.json())["providers"]
    assert provider["reasons"] == [
        {"role": "web", "reason": "401: invalid x-api-key (authentication_error)"},
        {"role": "worker", "reason": "401 authentication_error, about the key"},
    ]
    assert "invalid x-api-key" not in str(await pool.fetch("SELECT health FROM workers"))


async def test_unmeasured_overhead_is_null(dashboard: Dashboard) -> None:
    page = await dashboard.get("/overview")
    assert (page["overhead_p95_ms"], page["first_token_p95_ms"], page["spend_micro"]) == (None, None, 0)


async def test_savings_are_what_sql_and_the_price_list_say(dashboard: Dashboard) -> None:
    await a_month(dashboard)
    await dashboard.pool.execute("UPDATE usage SET cost_micro = 7, at = now() WHERE purpose = 'compact'")
    page, one = await dashboard.get("/savings"), dashboard.pool.fetchval
    month = f"at >= {DAY_BEGAN.replace('day', 'month')}"
    plain = 0
    for model, into, out in (("claude-opus-5-5", 4, 20), ("claude-sonnet-5-5", 2, 10)):
        plain += await one(
            f"""SELECT sum((input_tokens + cache_read_tokens + cache_write_tokens) * $2::int
                           + output_tokens * $3::int - cost_micro)::bigint
                  FROM usage WHERE model = $1 AND {month}""",
            model,
            into,
            out,
        )
    assert page["caching"]["micro"] == plain
    assert page["caching"]["tokens"] == await one(
        f"SELECT sum(cache_read_tokens)::bigint FROM usage WHERE cost_micro IS NOT NULL AND {month}"
    )
    taken = await one(
        """SELECT sum(l.tokens_before - l.tokens_after)::bigint
             FROM turn_context_audit c JOIN compactions l ON l.id = c.head WHERE c.created_at >= $1""",
        datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0),
    )
    paid = await one(f"SELECT sum(cost_micro)::bigint FROM usage WHERE purpose = 'compact' AND {month}")
    assert page["summaries"]["tokens"] == taken > 0
    assert page["summaries"]["micro"] == int(taken * 0.10 + 1e-6) - paid
    assert page["summaries_paid_micro"] == paid


async def test_the_sheet_is_the_filtered_list_in_its_order(dashboard: Dashboard) -> None:
    await a_month(dashboard)
    rows = await sheet(dashboard, "/export/sessions.csv?sort=-cost&channel=telegram&limit=1")
    listed = (await dashboard.get("/sessions?sort=-cost&channel=telegram"))["sessions"]
    assert [row["id"] for row in rows] == [one["id"] for one in listed]
    assert len(rows) == 2
    assert [row["cost_usd"] for row in rows] == [
        "" if one["cost_micro"] is None else str(one["cost_micro"] / 1e6) for one in listed
    ]


@pytest.mark.control("S49")
async def test_no_cell_of_a_sheet_is_a_formula(dashboard: Dashboard) -> None:
    await a_month(dashboard)
    for start in ("+1", "-1", "@sum", "\tx", "\rx", "=1"):
        await dashboard.pool.execute("INSERT INTO contacts (display_name) VALUES ($1)", start)
    await dashboard.pool.execute(
        """WITH s AS (INSERT INTO sessions (contact_id, agent_id)
             SELECT p.id, (SELECT min(id) FROM agents) FROM contacts p
              WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.contact_id = p.id) RETURNING id)
           INSERT INTO session_totals (session_id) SELECT id FROM s"""
    )
    names = [row["person"] for row in await sheet(dashboard, "/export/sessions.csv")]
    assert f"'{money_seed.FORMULA}" in names
    assert seed.HOSTILE in names
    assert not [name for name in names if name.startswith(("=", "+", "-", "@", "\t", "\r"))]
    people = await sheet(dashboard, "/export/costs.csv?group=person")
    assert f"'{money_seed.FORMULA}" in [row["name"] for row in people]


async def test_csv_export_is_audited_without_its_search_text(
    dashboard: Dashboard,
) -> None:
    await a_month(dashboard)
    async with dashboard.http.get(f"{dashboard.url}/api/v1/export/sessions.csv?q=maria&state=idle") as answer:
        assert answer.headers["Content-Disposition"] == 'attachment; filename="evertalk-sessions.csv"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        await answer.read()
    rows = await dashboard.pool.fetch("SELECT action, detail::text AS detail FROM audit ORDER BY id")
    assert rows[-1]["action"] == "export.sessions"
    assert json.loads(rows[-1]["detail"]) == {"state": "idle", "searched": True}


async def test_what_cannot_be_asked_is_refused_in_words(dashboard: Dashboard) -> None:
    for path in SENSELESS:
        async with dashboard.http.get(f"{dashboard.url}/api/v1{path}") as response:
            assert response.status == 400, path
            assert (await response.json())["code"] == "bad_query"
    assert await dashboard.pool.fetchval("SELECT count(*) FROM audit WHERE action LIKE 'export.%'") == 0


def changed_cursors() -> list[Any]:
    good = {"timestamptz": "2026-11-21 10:00:00+00", "bigint": "7", "float8": "7.5", "text": "a"}
    bad: list[tuple[str, Any, Any]] = [
           ("-active", "soon", 1), ("-active", "2026-11-21", 1), ("cost", "9" * 30, 1), ("cost", "x", 1),
           ("context", "nan", 1), ("context", "1e999", 1), ("person", "a\x00", 1), ("person", "\ud800", 1),
           ("state", "odd", 1)]  # fmt: skip
    for column, order in SORTS.items():
        key = good[order.kind]
        bad += [(column, key, -1), (column, key, 2**63), (column, key, True), (column, key, "1")]
        bad += [(column, None, 1), (column, [], 1), (column, 7, 1)]
    return [base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in bad]


async def test_a_cursor_that_was_changed_is_refused(dashboard: Dashboard) -> None:
    await a_month(dashboard)
    deep = base64.urlsafe_b64encode(b"[" * 5000).decode()
    for cursor in (*changed_cursors(), "x", "%ff", deep, "[]", "bnVsbA"):
        raw = base64.urlsafe_b64decode(cursor + "==") if len(cursor) > 8 and cursor != deep else b"[]"
        sort = (json.loads(raw) or ["-active"])[0]
        async with dashboard.http.get(
            f"{dashboard.url}/api/v1/sessions", params={"cursor": cursor, "sort": sort}
        ) as response:
            assert response.status == 400, (cursor, raw)
            assert (await response.json())["code"] == "bad_query"


async def test_the_old_address_of_the_list_leads_to_it(dashboard: Dashboard) -> None:
    async with dashboard.http.get(
        f"{dashboard.url}/dashboard?q=a%0D%0Ab&sort=-cost", allow_redirects=False
    ) as response:
        assert response.status == 303
        assert response.headers["Location"] == "/dashboard/sessions?q=a%0D%0Ab&sort=-cost"
    assert await dashboard.status("GET", "/dashboard") == 200
    assert await dashboard.status("GET", "/dashboard/sessions") == 200
