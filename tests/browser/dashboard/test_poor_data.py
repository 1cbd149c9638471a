"""Pages of the dashboard show records that lack names, titles, models and dates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import BrowserContext, Page, Route, expect

from shared.config.settings import load_settings
from tests.browser.dashboard.place import Place, Stored, fits, log_in
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import Pool

pytestmark = pytest.mark.browser
PAGES = (
    "", "/sessions", "/people", "/memory", "/jobs", "/deliveries", "/alerts", "/costs", "/agents",
    "/agents/default", "/sites", "/sites/default", "/pairing", "/operators", "/audit", "/account",
    "/settings", "/settings?section=all",
)  # fmt: skip
NOBODY = UUID(int=0)
LONG_NAME = "Wolfeschlegelsteinhausenbergerdorff " * 4


@pytest.fixture(scope="module", params=["none", "one", "many"])
async def seeded(request: pytest.FixtureRequest, place_pool: Pool) -> Stored:
    """No data, one nameless visitor, or many people and a long name."""
    names = {"none": [], "one": [""], "many": [LONG_NAME, *[""] * 30]}[request.param]
    seeded = seed.Seeded(session_id=0, public_id=NOBODY, contact_id=0, address_id=0)
    async with place_pool.acquire() as connection:
        await connection.execute("TRUNCATE sessions, contacts CASCADE")
        for minutes, name in enumerate(names):
            seeded = await seed.a_session(connection, person=name, turns=2, minutes_ago=minutes)
            await seed.talk(connection, seeded, turns=2)
    return seeded, []


@pytest.fixture(scope="module")
def place_options() -> dict[str, Any]:
    return {"settings": load_settings(model="unpriced-model", openai_api_key="sk-of-nobody")}


async def photograph(page: Page, name: str) -> None:
    """Take pictures at both widths in both colour schemes, if PICTURES_FOLDER names a folder."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 860})
            await page.screenshot(path=Path(folder) / f"{name}-{width}-{scheme}.png")
        await page.set_viewport_size({"width": 1280, "height": 720})


async def expect_no_trouble(page: Page) -> None:
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main .skeleton")).to_have_count(0)
    await expect(page.locator("main .trouble[role=alert]")).to_have_count(0)
    assert "undefined" not in await page.locator("main").inner_text()


async def test_pages_show_poor_records_without_errors(
    page: Page, place: Place, request: pytest.FixtureRequest
) -> None:
    amount = request.node.callspec.params["seeded"]
    for path in PAGES:
        await page.goto(f"{place.url}/dashboard{path}")
        await expect_no_trouble(page)
        if "section=all" not in path:
            assert "EVERTALK_" not in (await page.locator("main").text_content() or ""), path
        await fits(page)
        await photograph(page, f"{amount}{path.replace('/', '-').replace('?', '-') or '-overview'}")


async def test_message_search_shows_visitors_without_a_name(page: Page, place: Place) -> None:
    if place.seeded.public_id == NOBODY:
        pytest.skip("nothing to find")
    await page.goto(f"{place.url}/dashboard/search#something")
    await expect_no_trouble(page)
    found = page.locator("main .found h2").filter(has_text="Visitor")
    await expect(found.first).to_be_visible()
    await page.goto(f"{place.url}/dashboard/search?session={place.seeded.public_id}#something")
    await expect(page.locator("main .found .hit").first).to_be_visible()
    await expect_no_trouble(page)


async def test_session_and_person_without_a_name_have_pages(page: Page, place: Place) -> None:
    if place.seeded.public_id == NOBODY:
        pytest.skip("nobody is there")
    await page.goto(place.session_url)
    await expect_no_trouble(page)
    await page.goto(f"{place.url}/dashboard/people")
    await page.locator("a.row-link").last.click()
    await expect_no_trouble(page)


async def test_exception_text_of_a_page_is_never_shown(context: BrowserContext, place: Place) -> None:
    """Answers without lists make the scripts fail; people read a sentence and can retry."""
    page = await context.new_page()
    await log_in(page, place)

    async def answer_nothing(route: Route) -> None:
        await route.fulfill(status=200, json={})

    for path in ("/people", "/sessions", "/search#something", "/jobs"):
        api = path[1:].partition("#")[0]
        await page.route(f"**/api/v1/{api}?**", answer_nothing)
        await page.goto(f"{place.url}/dashboard{path}")
        trouble = page.locator("main .trouble[role=alert]")
        await expect(trouble).to_contain_text("cannot be shown just now")
        await expect(trouble.get_by_role("button", name="Try again")).to_be_visible()
        assert "undefined" not in await page.locator("main").inner_text()
        await page.unroute(f"**/api/v1/{api}?**")
        await trouble.get_by_role("button", name="Try again").click()
        await expect(trouble).to_have_count(0)
