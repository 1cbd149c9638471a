"""Logging in by an identity provider, from the first click to the page, and how it must not work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.config.settings import BadSettings, load_settings
from tests.kit.dashboard.fixtures import RunCommands
from tests.kit.dashboard.serve import served
from tests.kit.fakes.oidc.harness import RunningProvider
from tests.kit.fakes.oidc.server import ADA, CLIENT_ID, CLIENT_SECRET


@dataclass(slots=True)
class Browser:
    url: str
    http: aiohttp.ClientSession
    provider: RunningProvider
    pool: asyncpg.Pool[asyncpg.Record]

    async def logs_in(self, following: str = "") -> tuple[int, str, str]:
        """Status, where it ends, and what is read there."""
        address = f"{self.url}/dashboard/oidc{f'?next={following}' if following else ''}"
        async with self.http.get(address) as answer:
            return answer.status, answer.url.path_qs, await answer.text()

    async def comes_back(self) -> str:
        """Goes to the provider and stops before it comes back: the address with the answer."""
        async with self.http.get(f"{self.url}/dashboard/oidc", allow_redirects=False) as answer:
            there = answer.headers["Location"]
        async with self.http.get(there, allow_redirects=False) as answer:
            return answer.headers["Location"]

    async def me(self) -> dict[str, object] | None:
        async with self.http.get(f"{self.url}/api/v1/me") as answer:
            found: dict[str, object] = await answer.json()
            return found if answer.status == 200 else None


@pytest.fixture
async def oidc_browser(
    oidc_process: RunningProvider, pool: asyncpg.Pool[asyncpg.Record]
) -> AsyncIterator[Browser]:
    await oidc_process.tell(lie="", person=ADA, rotate="RS256")
    settings = load_settings(
        oidc_issuer=oidc_process.issuer, oidc_client_id=CLIENT_ID, oidc_client_secret=CLIENT_SECRET,
        oidc_groups="ops=operator,admins=admin",
    )  # fmt: skip
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=RunCommands()) as url,
        aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=20)
        ) as http,
    ):
        yield Browser(url=url, http=http, provider=oidc_process, pool=pool)


async def test_an_operator_comes_in_by_the_provider(oidc_browser: Browser) -> None:
    async with oidc_browser.http.get(f"{oidc_browser.url}/dashboard/login") as answer:
        assert "/dashboard/oidc?next=" in await answer.text()
    status, path, _ = await oidc_browser.logs_in("/dashboard/jobs")
    assert (status, path) == (200, "/dashboard/jobs")
    me = await oidc_browser.me()
    assert me is not None
    assert (me["name"], me["role"], me["by_provider"]) == ("Ada", "operator", True)
    row = await oidc_browser.pool.fetchrow("SELECT * FROM operators")
    assert row is not None
    assert (row["issuer"], row["subject"], row["password_hash"]) == (
        oidc_browser.provider.issuer,
        "ada-1",
        None,
    )
    assert await oidc_browser.pool.fetchval("SELECT how FROM operator_sessions") == "provider"


async def test_the_role_follows_the_groups_at_each_login(oidc_browser: Browser) -> None:
    await oidc_browser.logs_in()
    await oidc_browser.provider.tell(person={**ADA, "groups": ["admins"]})
    await oidc_browser.logs_in()
    me = await oidc_browser.me()
    assert me is not None
    assert me["role"] == "admin"
    assert await oidc_browser.pool.fetchval("SELECT count(*) FROM operators") == 1


async def test_who_is_in_no_group_does_not_get_in(oidc_browser: Browser) -> None:
    await oidc_browser.provider.tell(person={**ADA, "groups": ["staff"]})
    status, _, words = await oidc_browser.logs_in()
    assert (status, "in no group" in words) == (403, True)
    assert await oidc_browser.me() is None
    assert await oidc_browser.pool.fetchval("SELECT count(*) FROM operators") == 0
    assert await oidc_browser.pool.fetchval("SELECT detail ->> 'why' FROM audit") == "no_entry"


@pytest.mark.control("S09")
@pytest.mark.parametrize(
    "lie", ["none", "forged", "expired", "audience", "nonce", "state", "issuer", "denied"]
)
async def test_a_lie_ends_at_the_login_page(oidc_browser: Browser, lie: str) -> None:
    await oidc_browser.provider.tell(lie=lie)
    status, _, words = await oidc_browser.logs_in()
    assert (status, "Please start again" in words) == (400, True)
    assert await oidc_browser.me() is None
    assert await oidc_browser.pool.fetchval("SELECT count(*) FROM operator_sessions") == 0


@pytest.mark.control("S11")
async def test_a_locked_operator_of_the_provider_stays_out(oidc_browser: Browser) -> None:
    await oidc_browser.logs_in()
    await oidc_browser.pool.execute("UPDATE operators SET disabled_at = now()")
    status, _, words = await oidc_browser.logs_in()
    assert (status, "locked" in words) == (403, True)
    assert await oidc_browser.me() is None


async def test_an_answer_in_another_browser_is_worth_nothing(oidc_browser: Browser) -> None:
    back = await oidc_browser.comes_back()
    async with aiohttp.ClientSession() as other, other.get(back) as answer:
        assert answer.status == 400
    assert await oidc_browser.pool.fetchval("SELECT count(*) FROM operators") == 0


async def test_an_answer_is_good_once(oidc_browser: Browser) -> None:
    back = await oidc_browser.comes_back()
    async with oidc_browser.http.get(back) as answer:
        assert answer.url.path == "/dashboard"
    async with oidc_browser.http.get(back) as answer:
        assert answer.status == 400


async def test_it_leads_only_into_the_dashboard(oidc_browser: Browser) -> None:
    for following in ("https://evil.example", "//evil.example", "/api/v1/me", "%2Fdashboard%0d%0aX:y"):
        assert (await oidc_browser.logs_in(following))[1] == "/dashboard"


@pytest.mark.control("S10")
async def test_answers_cannot_be_tried_without_end(oidc_browser: Browser) -> None:
    await oidc_browser.provider.tell(lie="forged")
    statuses = [(await oidc_browser.logs_in())[0] for _ in range(21)]
    assert statuses == [400] * 20 + [429]
    await oidc_browser.pool.execute("DELETE FROM login_tries")


async def test_without_a_provider_there_is_no_such_page(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    async with (
        served(web.Application(), pool=pool, settings=load_settings(), commands=RunCommands()) as url,
        aiohttp.ClientSession() as http,
    ):
        for path in ("/dashboard/oidc", "/dashboard/oidc/back?code=x&state=y"):
            async with http.get(url + path) as answer:
                assert answer.status == 404
        async with http.get(f"{url}/dashboard/login") as answer:
            assert "oidc" not in await answer.text()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"oidc_issuer": "http://id.example"}, "https://"),
        ({"oidc_issuer": "https://id.example"}, "EVERTALK_OIDC_CLIENT_ID"),
        ({"oidc_issuer": "https://id.example", "oidc_client_id": "x"}, "EVERTALK_OIDC_GROUPS"),
        ({"oidc_groups": "ops=root"}, "ops=operator"),
    ],
)
def test_half_a_provider_is_refused_at_the_start(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadSettings, match=told):
        load_settings(**given)
