"""Places of the menu, their pages as tabs, and what a first look at the overview costs."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.house import House
from tests.browser.dashboard.place import fits

pytestmark = pytest.mark.browser

MOST_PLACES = 9
MOST_WORDS = 120
MOST_REQUESTS = 10
MOST_SHIFT = 0.05
"""Cumulative layout shift that Web Vitals still call good is 0.1."""
SHIFT = """() => new Promise((done) => {
  let sum = 0;
  const count = (one) => { if (!one.hadRecentInput) sum += one.value; };
  const watch = new PerformanceObserver((list) => list.getEntries().forEach(count));
  watch.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""


async def test_menu_has_nine_places_and_shows_pages_of_one_as_tabs(house: House) -> None:
    page = await house.operator("anna", "admin")
    menu = page.get_by_role("navigation", name="Pages")
    assert await menu.get_by_role("link").count() == MOST_PLACES
    await menu.get_by_role("link", name="Operations").click()
    tabs = page.get_by_role("navigation", name="Operations")
    names = ["Jobs", "Delivery problems", "Alerts", "Audit"]
    await expect(tabs.get_by_role("link")).to_have_text(names, use_inner_text=True)
    await tabs.get_by_role("link", name="Audit").click()
    await expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()
    await expect(tabs.get_by_role("link", name="Audit")).to_have_attribute("aria-current", "page")
    await expect(menu.get_by_role("link", name="Operations")).to_have_attribute("aria-current", "page")
    await page.get_by_role("link", name="Account: anna · admin").click()
    await expect(page.get_by_role("heading", name="Account", level=1)).to_be_visible()
    await expect(tabs).to_be_hidden()
    await expect(menu.locator("[aria-current]")).to_have_count(0)


async def test_menu_hides_places_of_which_a_role_may_see_no_page(house: House) -> None:
    page = await house.operator("vera", "viewer")
    menu = page.get_by_role("navigation", name="Pages")
    await expect(menu.get_by_role("link", name="Operators")).to_have_count(0)
    await expect(menu.get_by_role("link", name="Settings")).to_have_count(0)
    await menu.get_by_role("link", name="Operations").click()
    tabs = page.get_by_role("navigation", name="Operations")
    names = ["Jobs", "Delivery problems", "Alerts"]
    await expect(tabs.get_by_role("link")).to_have_text(names, use_inner_text=True)


async def test_a_place_counts_what_needs_an_eye_on_its_pages(house: House) -> None:
    await house.app.pool.execute("INSERT INTO alerts (kind, key, detail) VALUES ('no_backup', 'data', '{}')")
    page = await house.operator("anna", "admin", "/dashboard/agents")
    place = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Operations")
    await expect(place.locator(".count")).to_have_text("1")
    await place.click()
    alerts = page.get_by_role("navigation", name="Operations").get_by_role("link", name="Alerts")
    await expect(alerts.locator(".count")).to_contain_text("1")


async def test_first_overview_is_short_and_asks_for_numbers_when_opened(house: House) -> None:
    page = await house.operator("anna", "admin")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(house.url)))
    await page.reload()
    await expect(page.get_by_text("No conversation yet.")).to_be_visible()
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    assert len(asked) <= MOST_REQUESTS, asked
    words = (await page.locator("main").inner_text()).split()
    assert len(words) <= MOST_WORDS
    assert await page.evaluate(SHIFT) <= MOST_SHIFT
    assert not [path for path in asked if "/series" in path or "/savings" in path]
    await page.get_by_text("Numbers", exact=True).click()
    await expect(page.get_by_role("group", name="Period")).to_be_visible()
    assert page.url.endswith("?numbers=1")
    await fits(page)


async def test_overview_stays_when_its_sums_cannot_be_loaded(house: House) -> None:
    house.tolerated = ("Failed to load resource",)
    page = await house.operator("anna", "admin")
    refusal = {"code": "storage_unavailable", "message": "The database does not answer just now. Try again."}
    await page.route("**/api/v1/savings", lambda route: route.fulfill(status=503, json=refusal))
    await page.goto(f"{house.url}/dashboard?numbers=1")
    trouble = page.locator("main details.numbers").get_by_role("alert")
    await expect(trouble).to_contain_text("The database does not answer just now.")
    await expect(page.get_by_text("No conversation yet.")).to_be_visible()
    await page.unroute("**/api/v1/savings")
    await trouble.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("How savings are computed")).to_be_visible()
    await expect(trouble).to_have_count(0)


@pytest.mark.parametrize("path", ["sessions", "inbox", "costs", "agents", "jobs", "settings"])
async def test_a_page_takes_few_requests(house: House, path: str) -> None:
    page = await house.operator("anna", "admin", f"/dashboard/{path}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(house.url)))
    await page.reload()
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator(".skeleton")).to_have_count(0)
    assert len(asked) <= MOST_REQUESTS, asked
