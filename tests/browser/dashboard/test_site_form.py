"""Each control of a site's form changes what is sent: none of them is dead."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from playwright.async_api import BrowserContext, Locator, Page, Route, expect

from shared.adapters.postgres.db.pool import open_pool
from shared.config.settings import load_settings
from tests.browser.dashboard.place import Place, log_in
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import RunCommands
from tests.kit.dashboard.serve import served

pytestmark = pytest.mark.browser
TYPED = {
    "origins": "https://shop.example", "accent": "#123456", "privacy_url": "https://shop.example/p",
    "texts": '{"de": {"title": "Laden"}}', "starters": "What is new?",
}  # fmt: skip
NAMED = "one => [...one.elements].filter((each) => each.name).map((each) => [each.name, each.type])"
"""Name and type of each control of a form."""


@pytest.fixture
async def place(database_url: str) -> AsyncIterator[Place]:
    pool = await open_pool(database_url, size=4)
    async with pool.acquire() as connection:
        await seed.an_agent(connection)
        await connection.execute("INSERT INTO agents (name) VALUES ('other')")
    nobody = seed.Seeded(session_id=0, public_id=UUID(int=0), party_id=0, address_id=0)
    async with served(web.Application(), pool=pool, settings=load_settings(), commands=RunCommands()) as url:
        yield Place(
            url=url, database_url=database_url, pool=pool, seeded=nobody, links=[], commands=RunCommands()
        )
    await pool.close()


async def sent_after(page: Page, change: Any) -> dict[str, Any]:
    """Return the settings that the form sends after a change; nothing is stored."""
    sent: list[dict[str, Any]] = []

    async def refuse(route: Route) -> None:
        if route.request.method != "PUT":
            await route.continue_()
            return
        sent.append(json.loads(route.request.post_data or "{}"))
        await route.fulfill(status=422, json={"code": "bad_site", "message": "Not now.", "request_id": "r"})

    await page.route("**/api/v1/sites/default/settings", refuse)
    await page.reload()
    await expect(page.locator("form.site-form")).to_be_visible()
    await change()
    await page.get_by_role("button", name="Save").first.click()
    await expect(page.get_by_text("Not now.").first).to_be_visible()
    await page.unroute("**/api/v1/sites/default/settings")
    found: dict[str, Any] = sent[-1]["settings"]
    return found


async def alter(control: Locator, name: str, kind: str) -> None:
    if kind == "checkbox":
        await control.set_checked(not await control.is_checked())
    elif kind == "select-one":
        values = await control.evaluate("one => [...one.options].map((each) => each.value)")
        now = await control.input_value()
        await control.select_option(next(one for one in values[::-1] if one != now))
    else:
        await control.fill(TYPED.get(name, f"Other {name}"))


async def test_each_control_of_a_site_changes_what_is_sent(context: BrowserContext, place: Place) -> None:
    page = await context.new_page()
    await log_in(page, place)
    await page.goto(f"{place.url}/dashboard/sites/default")
    form = page.locator("form.site-form")
    await expect(form).to_be_visible()

    async def nothing() -> None:
        pass

    before = await sent_after(page, nothing)
    controls = await form.evaluate(
        "one => [...one.elements].filter((each) => each.name).map((each) => [each.name, each.type])"
    )
    dead = []
    for name, kind in controls:

        async def change(name: str = name, kind: str = kind) -> None:
            await alter(form.locator(f"[name={name}]"), name, kind)

        after = await sent_after(page, change)
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        if changed != {name}:
            dead.append((name, sorted(changed)))
    assert dead == []
    assert {name for name, _ in controls} >= {"conversations", "uploads", "verified", "position"}
