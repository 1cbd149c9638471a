"""Browsers ask to be notified while no page is open: by the visitor's token or the operator's login alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from shared.adapters.postgres.handover.push import PostgresPush
from shared.bootstrap.build_admin import build_push_sender
from shared.bootstrap.foundation import SystemClock
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard, RunCommands
from tests.kit.fakes.push.browser import Browser
from tests.kit.fakes.push.harness import RunningPush
from tests.kit.web.fixtures import Frame, Server, Starter

AWAY = "http://127.0.0.1:9/push"


@pytest.fixture
async def push_server(starter: Starter, push: RunningPush) -> Server:
    return await starter.start(push_services=push.origin, handover="on")


@pytest.fixture
async def pushed_operator(push_server: Server, database_url: str) -> AsyncIterator[Dashboard]:
    """An operator's browser on the same server."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=20)) as http:
        dashboard = Dashboard(
            url=push_server.url, database_url=database_url, pool=push_server.services.pool, http=http,
            commands=RunCommands(),
        )  # fmt: skip
        await dashboard.log_in()
        yield dashboard


async def tell(
    at: Dashboard | Server, method: str, path: str, body: Any = None, *, mine: Frame | None = None
) -> tuple[int, Any]:
    headers = {"Accept-Language": "de-AT, en", **SAME_ORIGIN}
    if mine is not None:
        headers["Authorization"] = f"Bearer {mine['token']}"
    client = at.http if isinstance(at, Dashboard) else at.client
    async with client.request(method, f"{at.url}/api/v1/{path}", json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def rows(server: Server) -> list[tuple[str, str, bool]]:
    """Names of browsers, languages, and whether they are an operator's."""
    found = await server.services.pool.fetch("SELECT * FROM push_subscriptions ORDER BY id")
    return [
        (row["endpoint"].rpartition("/")[2], row["language"], row["operator_id"] is not None) for row in found
    ]


async def key_of(server: Server) -> str:
    status, told = await tell(server, "GET", "push-key")
    assert (status, list(told)) == (200, ["key"])
    return str(told["key"])


async def test_visitor_and_operator_begin_and_end_it_each_for_themselves(
    push_server: Server, pushed_operator: Dashboard, push: RunningPush
) -> None:
    key = await key_of(push_server)
    phone, dashboard = await push.subscribe("phone", key), await push.subscribe("desk", key)
    _, mine = await push_server.greet()
    _, other = await push_server.greet()
    for _ in range(2):
        assert (await tell(push_server, "PUT", "push", phone, mine=mine))[0] == 200
        assert (await tell(pushed_operator, "PUT", "me/push", dashboard))[0] == 200
    assert await rows(push_server) == [("phone", "de-AT", False), ("desk", "de", True)]
    assert (await tell(push_server, "POST", "push/end", {"endpoint": phone["endpoint"]}, mine=other))[
        0
    ] == 200
    assert len(await rows(push_server)) == 2, "it is somebody else's"
    assert (await tell(push_server, "POST", "push/end", {"endpoint": phone["endpoint"]}, mine=mine))[0] == 200
    assert await rows(push_server) == [("desk", "de", True)]
    audit = "SELECT action FROM audit WHERE action LIKE 'push.%'"
    assert [row["action"] for row in await pushed_operator.pool.fetch(audit)] == ["push.on"], (
        "a renewal is no change"
    )
    assert (await tell(pushed_operator, "POST", "me/push/end", {"endpoint": dashboard["endpoint"]}))[0] == 200
    assert await rows(push_server) == []


async def test_push_subscription_needs_a_token_or_login(push_server: Server, push: RunningPush) -> None:
    given = await push.subscribe("phone", await key_of(push_server))
    assert (await tell(push_server, "PUT", "push", given))[0] == 401
    assert (await tell(push_server, "PUT", "me/push", given))[0] == 401
    assert (await tell(push_server, "POST", "me/push/test", {"endpoint": given["endpoint"]}))[0] == 401
    assert await rows(push_server) == []


@pytest.mark.parametrize("endpoint", [AWAY, "https://10.0.0.7/a", "https://router.lan/a", "ftp://a.example/"])
async def test_an_address_inside_is_refused_with_advice(
    push_server: Server, pushed_operator: Dashboard, endpoint: str
) -> None:
    _, mine = await push_server.greet()
    given = Browser().subscription(endpoint)
    for status, told in (
        await tell(push_server, "PUT", "push", given, mine=mine),
        await tell(pushed_operator, "PUT", "me/push", given),
    ):  # fmt: skip
        assert (status, told["code"]) == (400, "bad_subscription")
        assert told["message"] == "This browser's push service cannot be used from here."
    assert await rows(push_server) == []


async def test_a_test_reaches_ones_own_browser_or_says_why_not(
    push_server: Server, pushed_operator: Dashboard, push: RunningPush
) -> None:
    given = await push.subscribe("desk", await key_of(push_server))
    body = {"endpoint": given["endpoint"]}
    assert (await tell(pushed_operator, "POST", "me/push/test", body))[0] == 404
    await tell(pushed_operator, "PUT", "me/push", given)
    assert await tell(pushed_operator, "POST", "me/push/test", body) == (
        200,
        {"sent": True, "code": "", "ended": False},
    )
    (taken,) = await push.requests()
    assert taken["message"] == {
        "title": "Evertalk", "body": "Benachrichtigungen erreichen diesen Browser.", "tag": "test",
        "url": "dashboard/account",
    }  # fmt: skip
    await push.next({"status": 410})
    gone = {"sent": False, "code": "http_410", "ended": True}
    assert await tell(pushed_operator, "POST", "me/push/test", body) == (200, gone)
    assert await rows(push_server) == []


async def test_closed_page_gets_a_push_and_open_one_none(push_server: Server, push: RunningPush) -> None:
    store = PostgresPush(push_server.services.pool, patience_seconds=0)
    sender = build_push_sender(store, push_server.services.settings, clock=SystemClock())
    screen, mine = await push_server.greet()
    given = await push.subscribe("phone", await key_of(push_server))
    await tell(push_server, "PUT", "push", given, mine=mine)
    assert len(push_server.process.list_present().addresses) == 1
    for number, seen in enumerate((True, False)):
        if not seen:
            await screen.say("And again?", cid="c2")
            await screen.until("ack")
            await screen.socket.close()
        else:
            await screen.say("Hello?")
            await screen.until("msg", role="assistant")
        await _answered(push_server, number + 1)
        await sender.look(push_server.process.list_present())
        await sender.settle()
        told = [one["message"]["body"] for one in await push.requests()]
        assert told == ([] if seen else ["Eine neue Antwort ist da."])


async def _answered(server: Server, number: int) -> None:
    query = "SELECT count(*) >= $1 FROM entries WHERE author = 'assistant'"
    async with asyncio.timeout(30):
        while not await server.services.pool.fetchval(query, number):
            await asyncio.sleep(0.02)


async def test_a_followed_dashboard_is_an_open_page(push_server: Server, pushed_operator: Dashboard) -> None:
    operator_id = await pushed_operator.pool.fetchval("SELECT id FROM operators")
    assert push_server.process.list_present().operators == ()
    async with pushed_operator.http.get(f"{pushed_operator.url}/api/v1/live") as stream:
        await stream.content.readline()
        assert push_server.process.list_present().operators == (operator_id,)


async def test_the_worker_of_the_pages_is_served_at_the_root(push_server: Server) -> None:
    async with push_server.client.get(f"{push_server.url}/push.js") as answer:
        assert (answer.status, answer.content_type) == (200, "text/javascript")
        assert answer.headers["Cache-Control"] == "no-cache"
        assert "worker-src 'self'" in answer.headers["Content-Security-Policy"]
