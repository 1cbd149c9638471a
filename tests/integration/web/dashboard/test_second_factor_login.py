"""A second factor over HTTP: a page of its own after the password, and nothing half-way."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.config.settings import load_settings
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard, Pool, RunCommands
from tests.kit.dashboard.serve import served
from tests.kit.one_time_codes import one_time_code

PASSWORD = "three yellow cups"


@pytest.fixture
async def enrolled(database_url: str, pool: Pool, tmp_path: Path) -> AsyncIterator[Dashboard]:
    """The first operator, logged in by a link, with a password."""
    settings = load_settings(data_dir=tmp_path, secret_key="k" * 40)
    jar, timeout = aiohttp.CookieJar(unsafe=True), aiohttp.ClientTimeout(total=20)
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=RunCommands()) as url,
        aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as http,
    ):
        made = Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=RunCommands())
        await made.log_in()
        assert (await post(made, "/me/password", password=PASSWORD))[0] == 200
        yield made


async def post(who: Dashboard, path: str, **body: str) -> tuple[int, Any]:
    async with who.http.post(f"{who.url}/api/v1{path}", json=body, headers=SAME_ORIGIN) as response:
        return response.status, await response.json()


async def form(who: Dashboard, path: str, **fields: str) -> tuple[int, str, str]:
    """Status, page, and where it leads."""
    async with who.http.post(
        f"{who.url}/dashboard{path}", data=fields, headers=SAME_ORIGIN, allow_redirects=False
    ) as response:
        return response.status, await response.text(), response.headers.get("Location", "")


async def code(who: Dashboard, key: str, *, later: int = 0) -> str:
    return await one_time_code(who.pool, key, later=later)


async def switched_on(who: Dashboard) -> tuple[str, list[str]]:
    begun = (await post(who, "/me/second-factor"))[1]
    status, made = await post(who, "/me/second-factor/confirm", code=await code(who, begun["key"], later=-1))
    assert status == 200
    return begun["key"], made["codes"]


def step_in(page: str) -> str:
    found = re.search(r'name="step" value="([\w-]{43})"', page)
    assert found is not None
    return found[1]


@pytest.mark.control("S09")
async def test_after_the_password_a_page_asks_for_the_code_and_leads_on(enrolled: Dashboard) -> None:
    key, codes = await switched_on(enrolled)
    assert await enrolled.get("/me/second-factor") == {
        "on": True, "since": (await enrolled.get("/me/second-factor"))["since"], "codes_left": 10
    }  # fmt: skip
    await form(enrolled, "/logout")
    status, page, _ = await form(enrolled, "/login", name="admin", password=PASSWORD, next="/dashboard/jobs")
    assert (status, 'autocomplete="one-time-code"' in page, "password" in page.lower()) == (200, True, False)
    assert await enrolled.status("GET", "/api/v1/me") == 401
    step = step_in(page)
    status, page, _ = await form(enrolled, "/login/code", step=step, code="000000", next="/dashboard/jobs")
    assert (status, step_in(page)) == (401, step)
    status, _, leads = await form(
        enrolled, "/login/code", step=step, code=await code(enrolled, key), next="/dashboard/jobs"
    )
    assert (status, leads) == (303, "/dashboard/jobs")
    assert (await enrolled.get("/me"))["name"] == "admin"
    assert (await enrolled.get("/me/logins"))["logins"][0]["how"] == "password"
    status, page, _ = await form(enrolled, "/login/code", step=step, code=codes[0])
    assert (status, "start again" in page) == (401, True)


@pytest.mark.control("S09")
async def test_login_link_needs_the_code_and_a_recovery_code_works(enrolled: Dashboard) -> None:
    _, codes = await switched_on(enrolled)
    await form(enrolled, "/logout")
    status, page, _ = await form(enrolled, "/login", token=await create_login_link(enrolled.database_url))
    assert status == 200
    assert (await form(enrolled, "/login/code", step=step_in(page), code=codes[0]))[0] == 303
    assert (await enrolled.get("/me/second-factor"))["codes_left"] == 9
    status, told = await post(enrolled, "/me/second-factor/remove", code="000000")
    assert (status, told["code"]) == (409, "wrong_code")
    assert (await post(enrolled, "/me/second-factor/remove", code=codes[1]))[0] == 200
    assert (await enrolled.get("/me/second-factor")) == {"on": False, "since": None, "codes_left": 0}


@pytest.mark.control("S09", "S12")
async def test_code_page_ignores_codes_of_other_pages_and_echoes_nothing(
    enrolled: Dashboard,
) -> None:
    await switched_on(enrolled)
    await form(enrolled, "/logout")
    _, page, _ = await form(enrolled, "/login", name="admin", password=PASSWORD)
    fields = {"step": step_in(page), "code": "000000"}
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        assert await enrolled.status("POST", "/dashboard/login/code", data=fields, headers=headers) == 403
    hostile = '"><script>x</script>'
    status, page, _ = await form(enrolled, "/login/code", step=hostile, code=hostile, next=hostile)
    assert (status, "<script>x" in page) == (401, False)


@pytest.mark.control("S10")
async def test_too_many_wrong_codes_wait_as_wrong_passwords_do(enrolled: Dashboard) -> None:
    await switched_on(enrolled)
    for _ in range(5):
        assert (await post(enrolled, "/me/second-factor/remove", code="000000"))[0] == 409
    status, told = await post(enrolled, "/me/second-factor/remove", code="000000")
    assert (status, told["code"]) == (429, "too_many_tries")
    assert (await form(enrolled, "/login", name="admin", password=PASSWORD))[0] == 429


async def test_second_factor_key_has_a_picture_unless_name_is_long(enrolled: Dashboard) -> None:
    begun = (await post(enrolled, "/me/second-factor"))[1]
    assert begun["picture"]["size"] >= 37
    assert re.fullmatch(r"(M\d+ \d+h\d+v1h-\d+z)+", begun["picture"]["path"])
    await enrolled.pool.execute("UPDATE operators SET name = repeat('ü', 200)")
    begun = (await post(enrolled, "/me/second-factor"))[1]
    assert begun["picture"] is None
    assert len(begun["key"].replace(" ", "")) == 32


async def test_what_is_no_code_is_refused_and_nothing_can_be_confirmed_unbegun(enrolled: Dashboard) -> None:
    assert (await post(enrolled, "/me/second-factor/confirm"))[0] == 400
    assert (await post(enrolled, "/me/second-factor/confirm", code="000000"))[1]["code"] == "no_second_factor"
    await switched_on(enrolled)
    assert (await post(enrolled, "/me/second-factor"))[1]["code"] == "has_second_factor"
    assert (await post(enrolled, "/me/second-factor/remove", code="x" * 5000))[0] in (400, 413)
