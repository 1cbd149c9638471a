"""Changes told to operators' pages: which topics, to whom, for how long; with Redis and without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.postgres.db.listing import PostgresSessionList
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.redis.announcer import RedisAnnouncer
from shared.config.settings import load_settings
from shared.ports import DASHBOARD
from tests.kit.dashboard import seed, seed_work
from tests.kit.dashboard.fixtures import (
    SAME_ORIGIN,
    Dashboard,
    NobodyListens,
    Pool,
    RunCommands,
    make_job_admin,
)
from tests.kit.dashboard.serve import served
from web.dashboard import live
from web.server import dashboard_streams

PATIENCE_SECONDS = 60


@dataclass(slots=True)
class Stream:
    response: aiohttp.ClientResponse

    async def next(self) -> tuple[str, Any]:
        """Name and data of the next event; a comment is called so."""
        name, data = "", None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := (await self.response.content.readline()).decode()) != "\n":
                if not line:
                    return "closed", None
                kind, _, value = line.rstrip("\n").partition(": ")
                name = value if kind == "event" else "comment" if kind == "" else name
                data = json.loads(value) if kind == "data" else data
        return name, data

    async def until(self, topic: str) -> None:
        while True:
            name, data = await self.next()
            assert name in ("changed", "comment"), name
            if name == "changed" and topic in data["topics"]:
                return


@asynccontextmanager
async def following(dashboard: Dashboard) -> AsyncIterator[Stream]:
    async with dashboard.http.get(f"{dashboard.url}/api/v1/live") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Content-Security-Policy"]
        stream = Stream(response)
        assert await stream.next() == ("hello", {"topics": list(dashboard_streams.TOPICS)})
        yield stream


async def settled(dashboard: Dashboard, stream: Stream, session_id: int) -> None:
    """Until a change is told: then the first mark is taken."""

    async def stir() -> None:
        while True:
            await dashboard.pool.execute(
                "UPDATE sessions SET last_active_at = clock_timestamp() WHERE id = $1", session_id
            )
            await PostgresSessionList(dashboard.pool).catch_up()
            await asyncio.sleep(dashboard_streams.LOOK_SECONDS / 2)

    stirring = asyncio.create_task(stir())
    try:
        await stream.until("sessions")
    finally:
        stirring.cancel()
        await asyncio.wait([stirring])


async def test_live_topic_is_announced_when_its_rows_change(dashboard: Dashboard) -> None:
    async with dashboard.pool.acquire() as connection:
        first = await seed.a_session(connection, person="Maria", channel="telegram")
    async with following(dashboard) as stream:
        await settled(dashboard, stream, first.session_id)
        for topic, statement in (
            ("jobs", "INSERT INTO jobs (kind, session_id, key) VALUES ('flush', $1, 'k')"),
            ("jobs", "UPDATE jobs SET state = 'dead', ended_at = now() WHERE session_id = $1"),
            ("sessions", "UPDATE sessions SET last_active_at = clock_timestamp() WHERE id = $1"),
            ("handovers", """INSERT INTO handovers (session_id, address_id, state, asked_by)
                             SELECT $1, id, 'waiting', 'person' FROM addresses LIMIT 1"""),
            ("costs", """INSERT INTO usage (session_id, contact_id, purpose, model, input_tokens,
                           output_tokens, cache_read_tokens, cache_write_tokens)
                         VALUES ($1, 1, 'chat', 'm', 1, 1, 0, 0)"""),
            ("deliveries", """INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state)
                              SELECT id, 1, 0, 'telegram', (SELECT id FROM addresses LIMIT 1), 'uncertain'
                                FROM sessions WHERE id = $1"""),
            ("notes", """INSERT INTO notes (contact_id, scope, kind, text, hash)
                         SELECT contact_id, 'default', 'fact', w, sha256(w::bytea)
                           FROM sessions, unnest(ARRAY['one', 'two']) w WHERE id = $1"""),
            ("notes", """UPDATE notes SET forgotten_at = now(), undo_until = now()
                           + CASE text WHEN 'one' THEN interval '1 day' ELSE interval '2 days' END
                          FROM sessions s WHERE s.id = $1"""),
            ("notes", """UPDATE notes SET forgotten_at = NULL, undo_until = NULL
                          FROM sessions s WHERE s.id = $1 AND notes.text = 'one'"""),
            ("alerts", "INSERT INTO alerts (kind, key) SELECT 'dead_job', 'k' FROM sessions WHERE id = $1"),
            ("alerts", "UPDATE alerts SET seen_at = now() FROM sessions s WHERE s.id = $1"),
            ("alerts", """INSERT INTO alert_sends (alert_id, target, phase)
                          SELECT a.id, 'webhook', 'opened' FROM alerts a, sessions s WHERE s.id = $1"""),
            ("alerts", """UPDATE alert_sends SET state = 'sent', ended_at = now()
                           FROM sessions s WHERE s.id = $1"""),
            ("alerts", "UPDATE alerts SET ended_at = now() FROM sessions s WHERE s.id = $1"),
        ):  # fmt: skip
            await dashboard.pool.execute(statement, first.session_id)
            await PostgresSessionList(dashboard.pool).catch_up()
            await stream.until(topic)


async def test_following_keeps_no_login_alive_and_ends_with_it(dashboard: Dashboard) -> None:
    await dashboard.pool.execute("UPDATE operator_sessions SET seen_at = now() - interval '20 min'")
    async with following(dashboard) as stream:
        seen = await dashboard.pool.fetchval(
            "SELECT now() - seen_at > interval '19 min' FROM operator_sessions"
        )
        assert seen
        assert await dashboard.status("POST", "/dashboard/logout", headers=SAME_ORIGIN) == 303
        while (event := await stream.next())[0] == "changed":
            pass
        assert event == ("end", {"reason": "login"})
        assert (await stream.next())[0] == "closed"
    assert await dashboard.status("GET", "/api/v1/live") == 401


async def test_a_login_that_lapsed_is_found_by_the_next_look(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(live, "COMMENT_SECONDS", 0.1)
    async with following(dashboard) as stream:
        assert (await stream.next())[0] == "comment"
        await dashboard.pool.execute("UPDATE operators SET disabled_at = now()")
        while (event := await stream.next())[0] == "comment":
            pass
        assert event == ("end", {"reason": "login"})


async def test_an_operator_has_so_many_streams_and_a_closed_one_gives_room(dashboard: Dashboard) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(dashboard_streams.STREAMS_AT_MOST - 1):
            await stack.enter_async_context(following(dashboard))
        async with following(dashboard):
            assert await dashboard.status("GET", "/api/v1/live") == 429
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await dashboard.status("GET", "/api/v1/live") == 429:
                await asyncio.sleep(0.05)


class Told(NobodyListens):
    """Says what the test puts in."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

    async def listen(self) -> AsyncIterator[tuple[int, Any]]:
        while True:
            yield await self.heard.get()


@dataclass(slots=True)
class Line:
    cut: bool = False

    def is_closing(self) -> bool:
        return self.cut


async def test_a_stream_whose_reader_left_ends_when_the_next_one_joins() -> None:
    async def pulse() -> dict[str, str]:
        return {}

    told = dashboard_streams.Live(pulse, look_seconds=60)
    first, second = dashboard_streams.Follower(line := Line(), 1), dashboard_streams.Follower(Line(), 1)
    assert told.join(first)
    line.cut = True
    assert told.join(second)
    assert (first.closed, second.closed, told.streams) == ("gone", "", 1)
    assert await first.wait_for_change(5)
    await told.leave(second)


async def test_live_updates_pass_only_followed_topics_and_stop_without_followers() -> None:
    looks = 0

    async def pulse() -> dict[str, str]:
        nonlocal looks
        looks += 1
        return {"jobs": "1"}

    news = Told()
    told = dashboard_streams.Live(pulse, news=news, look_seconds=60)
    await asyncio.sleep(0)
    assert looks == 0
    follower = dashboard_streams.Follower(Line(), 1)
    assert told.join(follower)
    news.heard.put_nowait((7, {"t": "changed", "topics": ["jobs"]}))
    news.heard.put_nowait((DASHBOARD, {"t": "changed", "topics": ["jobs", "secrets", {}]}))
    news.heard.put_nowait((DASHBOARD, {"t": "changed", "topics": "all"}))
    assert await follower.wait_for_change(5)
    assert follower.changed == {"jobs"}
    for told_of in ({"job": "7", "percent": 1, "stage": "x"}, {"job": 7, "percent": None, "stage": "x"}, {}):
        news.heard.put_nowait((DASHBOARD, {"t": "progress", **told_of}))
    news.heard.put_nowait(
        (DASHBOARD, {"t": "progress", "job": 7, "percent": 400, "stage": "y" * 900, "more": 1})
    )
    assert await follower.wait_for_change(5)
    session = "0f8fad5b-d9cb-469f-a165-70867728950e"
    for _ in range(2):
        news.heard.put_nowait((DASHBOARD, {"t": "typing", "session": session}))
    assert await follower.wait_for_change(5)
    assert follower.take_events() == [
        ("progress", {"job": 7, "percent": 100, "stage": "y" * dashboard_streams.MOST_STAGE_CHARS}),
        ("typing", {"session": session}),
        ("changed", {"topics": ["jobs"]}),
    ]
    assert follower.take_events() == []
    await told.leave(follower)
    before = looks
    await asyncio.sleep(0)
    assert (looks, told.streams) == (before, 0)


@asynccontextmanager
async def another(dashboard: Dashboard, redis_url: str) -> AsyncIterator[tuple[str, Pool, RedisAnnouncer]]:
    """One more web process over the same database and Redis."""
    pool, news = await open_pool(dashboard.database_url, size=4), RedisAnnouncer(redis_url)
    admin = make_job_admin(pool, [], announcer=news)
    try:
        async with served(
            web.Application(),
            pool=pool,
            settings=load_settings(),
            commands=RunCommands(),
            job_admin=admin,
            news=news,
        ) as url:
            yield url, pool, news
    finally:
        await news.close()
        await pool.close()


async def test_two_web_processes_tell_each_other(dashboard: Dashboard, redis_url: str) -> None:
    await seed_work.jobs(dashboard.pool)
    async with another(dashboard, redis_url) as (one, _, news), another(dashboard, redis_url) as (two, _, _):
        here = Dashboard(
            url=one, database_url=dashboard.database_url, pool=dashboard.pool, http=dashboard.http,
            commands=dashboard.commands, bell=[],
        )  # fmt: skip
        async with following(here) as stream:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not news.connected:
                    await asyncio.sleep(0.02)
            number = await dashboard.pool.fetchval("SELECT id FROM jobs WHERE key = 'dead:1'")
            async with dashboard.http.post(
                f"{two}/api/v1/jobs/retry", json={"ids": [number]}, headers=SAME_ORIGIN
            ) as response:
                assert response.status == 200
            await stream.until("jobs")
            await news.announce(DASHBOARD, {"t": "progress", "job": 7, "percent": 40, "stage": "summarising"})
            while (event := await stream.next())[0] == "changed":
                pass
            assert event == ("progress", {"job": 7, "percent": 40, "stage": "summarising"})
            async with dashboard.http.post(
                f"{two}/dashboard/logout", headers=SAME_ORIGIN, allow_redirects=False
            ) as response:
                assert response.status == 303
            while (event := await stream.next())[0] == "changed":
                pass
            assert event == ("end", {"reason": "login"})


async def test_a_process_that_ends_says_so(dashboard: Dashboard, redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with another(dashboard, redis_url) as (url, _, _):
            here = Dashboard(
                url=url, database_url=dashboard.database_url, pool=dashboard.pool, http=dashboard.http,
                commands=dashboard.commands, bell=[],
            )  # fmt: skip
            stream = await stack.enter_async_context(following(here))
        assert await stream.next() == ("end", {"reason": "restart"})
