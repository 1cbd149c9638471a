"""The page of alerts over its routes: every number compared with SQL, tests by admins, seen by operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.config.settings import load_settings
from shared.core.ops.alerts import KINDS, NotSent, Sent
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard, RunCommands
from tests.kit.dashboard.serve import served

TARGETS = ("telegram:-100200", "webhook", "email")
SECRET = "s" * 32


@asynccontextmanager
async def serving(
    pool: asyncpg.Pool[asyncpg.Record], database_url: str, **settings: Any
) -> AsyncIterator[Dashboard]:
    http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
    commands = RunCommands()
    async with (
        served(web.Application(), pool=pool, settings=load_settings(**settings), commands=commands) as url,
        http,
    ):
        yield Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=commands)


@pytest.fixture
async def told(pool: asyncpg.Pool[asyncpg.Record], database_url: str) -> AsyncIterator[Dashboard]:
    """With a chat, a webhook and mail."""
    async with serving(
        pool, database_url, alert_telegram_chats="-100200",
        alert_webhook_url="https://hooks.example.org/in/secret-path", alert_webhook_secret=SECRET,
        alert_smtp_url="smtp://me:hidden@mail.example.org", alert_email_from="bot@example.org",
        alert_email_to="anna@example.org bert@example.org",
    ) as dashboard:  # fmt: skip
        await dashboard.log_in()
        yield dashboard


async def seed(pool: asyncpg.Pool[asyncpg.Record], *, past: int) -> None:
    await pool.execute(
        """INSERT INTO alerts (kind, key, detail, opened_at, ended_at)
           SELECT 'breaker_open', 'h' || n, '{"provider": "api.example.org"}',
                  now() - make_interval(mins => 10 * n), now() - make_interval(mins => 10 * n - 5)
             FROM generate_series(1, $1) AS n""",
        past,
    )
    await pool.execute(
        """INSERT INTO alerts (kind, key, detail, seen_at, seen_by) VALUES
           ('spend_80', 'total', '{"used_micro": 4100000, "cap_micro": 5000000}', NULL, ''),
           ('dead_job', 'compact', '{"job": "compact", "count": 3}', now(), 'anna')"""
    )


async def post(dashboard: Dashboard, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    url = f"{dashboard.url}/api/v1/alerts/{path}"
    async with dashboard.http.post(url, headers={**SAME_ORIGIN, **headers}) as response:
        return response.status, await response.json()


async def test_every_alert_is_shown_once_and_every_number_is_the_databases(told: Dashboard) -> None:
    await seed(told.pool, past=7)
    page = await told.get("/alerts?limit=3")
    assert page["unseen"] == 1
    assert [(one["kind"], one["facts"], one["seen_by"]) for one in page["open"]] == [
        ("dead_job", "3 × compact", "anna"), ("spend_80", "$4.10 of $5.00", ""),
    ]  # fmt: skip
    assert all((one["title"], one["advice"]) == KINDS[one["kind"]] for one in page["open"])
    shown, cursor = [one["id"] for one in page["past"]], page["next"]
    while cursor:
        page = await told.get(f"/alerts?limit=3&cursor={cursor}")
        shown += [one["id"] for one in page["past"]]
        cursor = page["next"]
    rows = await told.pool.fetch(
        "SELECT public_id FROM alerts WHERE ended_at IS NOT NULL ORDER BY opened_at DESC"
    )
    assert shown == [str(row["public_id"]) for row in rows]


async def test_alert_targets_are_listed_with_their_last_result(told: Dashboard) -> None:
    store = PostgresAlerts(told.pool)
    worker = await PostgresWorkers(told.pool).register("web")
    status, made = await post(told, "test")
    assert (status, made["targets"]) == (200, list(TARGETS))
    for target, outcome in (("webhook", Sent()), ("email", NotSent(code="no_connection"))):
        sending = await store.claim([target], worker_id=worker)
        assert sending is not None
        await store.record_outcome(sending, outcome, worker_id=worker)
    page = await told.get("/alerts")
    chat, hook, mail = page["targets"]
    assert (chat["name"], chat["state"], chat["sent_at"]) == ("Telegram chat -100200", "due", None)
    assert (hook["name"], hook["state"], bool(hook["sent_at"])) == (
        "Webhook at hooks.example.org",
        "sent",
        True,
    )
    assert mail["name"] == "Mail to anna@example.org, bert@example.org"
    assert (mail["state"], mail["error"]) == ("due", "no_connection")
    assert mail["advice"].startswith("No server answers at that address.")
    assert (page["past"][0]["kind"], page["open"], page["unseen"]) == ("test", [], 0)
    text = str(page)
    assert not [word for word in ("secret-path", "hidden", SECRET) if word in text]
    assert await told.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'alert.test'") == 1


async def test_seen_alert_is_not_counted_and_audited_once(told: Dashboard) -> None:
    await seed(told.pool, past=0)
    found = next(one["id"] for one in (await told.get("/alerts"))["open"] if not one["seen_at"])
    for _ in range(2):
        assert await post(told, f"{found}/seen") == (200, {"success": True})
    page = await told.get("/alerts")
    assert page["unseen"] == 0
    assert await told.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'alert.seen'") == 1


async def test_only_admins_test_and_only_operators_see(told: Dashboard) -> None:
    await seed(told.pool, past=0)
    found = (await told.get("/alerts"))["open"][0]["id"]
    await told.pool.execute("UPDATE operators SET role = 'operator'")
    assert (await post(told, "test"))[0] == 403
    assert (await post(told, f"{found}/seen"))[0] == 200
    await told.pool.execute("UPDATE operators SET role = 'viewer'")
    assert (await post(told, f"{found}/seen"))[0] == 403
    page = await told.get("/alerts")
    assert (page["can_test"], page["can_see"]) == (False, False)
    assert await told.pool.fetchval("SELECT count(*) FROM alerts WHERE kind = 'test'") == 0


async def test_test_alert_without_targets_names_the_setting(dashboard: Dashboard) -> None:
    status, refused = await post(dashboard, "test")
    assert (status, refused["code"]) == (409, "no_targets")
    assert "EVERTALK_ALERT_TELEGRAM_CHATS" in refused["message"]


@pytest.mark.parametrize("path", ["nonsense/seen", "11111111-2222-3333-4444-555555555555/seen"])
async def test_an_alert_that_is_not_there_is_not_found(told: Dashboard, path: str) -> None:
    assert (await post(told, path))[1]["code"] == "not_found"


@pytest.mark.parametrize(
    "query",
    ["cursor=x", "cursor=WyJhbGVydHMiLCAieCIsIDFd", "cursor=WyJqb2JzIiwgIngiLCAxXQ", "limit=0", "limit=x",
     "limit=201", "cursor=%00"],
)  # fmt: skip
async def test_a_question_that_makes_no_sense_is_refused(told: Dashboard, query: str) -> None:
    assert await told.status("GET", f"/api/v1/alerts?{query}") == 400


async def test_a_request_from_another_page_changes_nothing(told: Dashboard) -> None:
    status, refused = await post(told, "test", **{"Sec-Fetch-Site": "cross-site"})
    assert (status, refused["code"]) == (403, "foreign_origin")
    assert await told.pool.fetchval("SELECT count(*) FROM alerts") == 0


async def test_the_overview_names_what_is_open_and_nothing_that_is_over(dashboard: Dashboard) -> None:
    await dashboard.pool.execute(
        """INSERT INTO alerts (kind, key, detail, opened_at, ended_at) VALUES
           ('disk_low', 'here', '{"free_bytes": 1000, "total_bytes": 100000}', now(), NULL),
           ('breaker_open', 'https://models.example', '{}', now() - interval '1 hour', now())"""
    )
    shown = (await dashboard.get("/overview"))["alerts"]
    assert [one["text"] for one in shown] == ["The disk is nearly full"]
