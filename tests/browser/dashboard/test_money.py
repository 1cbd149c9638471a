"""An operator's morning in a real browser: the overview, where the money went, and the list as a sheet."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import BrowserContext, Page, expect

from shared.adapters.postgres.db.pool import open_pool
from shared.config.settings import load_settings
from tests.browser.axe import look_for_faults
from tests.browser.dashboard.place import Place, fits, log_in
from tests.kit.dashboard import money_seed, seed
from tests.kit.dashboard.fixtures import RunCommands
from tests.kit.dashboard.serve import served
from tests.kit.midday import DAY_BEGAN, MIDDAY

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
async def place(module_database_url: str) -> AsyncIterator[Place]:
    pool = await open_pool(module_database_url, size=4)
    async with pool.acquire() as connection:
        seeded, links = await seed.a_long_session(connection, turns=300)
        await money_seed.a_month(connection, seeded)
    settings, commands = load_settings(timezone=MIDDAY), RunCommands()
    app = web.Application()
    async with served(app, pool=pool, settings=settings, commands=commands, demo=True) as url:
        yield Place(
            url=url,
            database_url=module_database_url,
            pool=pool,
            seeded=seeded,
            links=links,
            commands=commands,
        )
    await pool.close()


@pytest.fixture
async def page(context: BrowserContext, place: Place) -> AsyncIterator[Page]:
    """At the overview; fails when a page complained."""
    page, complaints = await context.new_page(), list[str]()
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    if place.cookies:
        await page.goto(f"{place.url}/dashboard")
    else:
        await log_in(page, place)
        place.cookies = [dict(cookie) for cookie in await context.cookies()]
    await expect(page.locator(".skeleton")).to_have_count(0)
    yield page
    assert complaints == []


async def photograph(page: Page, name: str) -> None:
    """For whoever wants to look: PICTURES_FOLDER names one."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def card(page: Page, name: str) -> Any:
    return page.locator(".kpi").filter(has_text=name).locator("b")


async def test_the_overview_says_that_the_demo_answers_and_how_to_set_a_model(page: Page) -> None:
    told = page.locator(".card").filter(has_text="Set up Evertalk")
    await expect(told.locator("li").first).to_contain_text("Until then the built-in demo answers.")
    model = told.get_by_role("link", name="Enter a model key")
    await expect(model).to_have_attribute("href", "/dashboard/settings?section=model")
    await expect(told.get_by_role("link", name="Try it")).to_have_attribute("href", "/chat")


async def test_the_overview_leads_to_what_needs_an_eye(page: Page, place: Place) -> None:
    await photograph(page, "overview-light")
    spent = await place.pool.fetchval(f"SELECT sum(cost_micro)::float8 FROM usage WHERE at >= {DAY_BEGAN}")
    await expect(card(page, "Spent today")).to_have_text(f"≥ ${spent / 1e6:.2f}")
    await expect(card(page, "Failed jobs")).to_have_text("1")
    await expect(card(page, "Model provider")).to_have_text("–")
    await page.get_by_role("link", name="90 % and more, last day").click()
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    assert "min_pct=90" in page.url
    await page.keyboard.type("go")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await page.keyboard.type("gc")
    await expect(page.get_by_role("heading", name="Costs")).to_be_visible()


async def test_a_provider_that_is_out_for_one_process_is_on_the_overview(page: Page, place: Place) -> None:
    told = """{{"providers": [{{"provider": "api.example.org", "open": {out}, "refused": false, "calls": 6,
                                "failures": {failures}, "open_seconds": {seconds},
                                "reason": "{reason}"}}]}}"""
    for role, out, failures, seconds, reason in (
        ("web", "false", 0, 0, ""),
        ("worker", "true", 5, 42, "529 overloaded_error"),
        ("bot", "true", 5, 40, "ConnectError"),
    ):
        await place.pool.execute(
            """INSERT INTO workers (role, pid, beat, health) VALUES ($1, 1, now() + interval '1 h', $2)""",
            role, json.loads(told.format(out=out, failures=failures, seconds=seconds, reason=reason)),
        )  # fmt: skip
    try:
        await page.goto(f"{place.url}/dashboard")
        await expect(card(page, "Model provider")).to_have_text("Failing")
        await expect(page.get_by_text("api.example.org: 2 of 3 processes")).to_be_visible()
        row = page.get_by_role("table", name="Providers, as all processes see them").locator("tbody tr")
        await expect(row).to_contain_text("2 of 3 out (bot, worker)")
        await expect(row.locator(".reasons li")).to_have_text(
            ["bot ConnectError", "worker 529 overloaded_error"]
        )
        await expect(row).to_contain_text("42 s")
        assert await look_for_faults(page) == []
        for scheme, width in (("light", 1360), ("dark", 1360), ("light", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 900})
            await photograph(page, f"providers-{scheme}-{width}")
        await fits(page)
    finally:
        await place.pool.execute("DELETE FROM workers WHERE health ? 'providers'")


async def test_a_days_bar_is_as_high_as_its_money(page: Page, place: Place) -> None:
    """Sheets of other pages are there, too: none of theirs may mean it."""
    await page.goto(f"{place.url}/dashboard")
    bars = page.locator(".bars-by-day rect")
    await expect(bars.first).to_be_visible()
    sizes = await bars.evaluate_all(
        "all => all.map((one) => [one.getBoundingClientRect().height, one.getAttribute('height') * 0.96])"
    )
    assert max(drawn for drawn, _ in sizes) > 90
    assert all(abs(drawn - meant) <= 1.5 for drawn, meant in sizes), sizes


async def test_the_costs_are_grouped_by_the_address(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard/costs")
    await expect(page.get_by_label("By model").locator("tbody tr").first).to_contain_text("claude-opus-5-5")
    await photograph(page, "costs-light")
    await page.get_by_role("button", name="Purpose").click()
    await expect(page.get_by_label("By purpose").get_by_text("Saving memory")).to_be_visible()
    assert page.url.endswith("/dashboard/costs?group=purpose")
    await page.get_by_role("button", name="7 days").click()
    await page.reload()
    await expect(page.get_by_role("button", name="Purpose")).to_have_attribute("aria-pressed", "true")
    await expect(page.locator(".bars-by-day rect")).to_have_count(7)
    await page.get_by_text("Show as table").click()
    await expect(page.get_by_role("table", name="Cost by day").locator("tbody tr")).to_have_count(7)
    await expect(page.get_by_role("table", name="Prices")).to_contain_text("unknown")


async def test_the_filtered_list_is_taken_along_as_a_sheet(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard/sessions?q=maria&sort=-cost")
    await expect(page.locator("a.row-link")).to_have_count(1)
    async with page.expect_download() as waiting:
        await page.get_by_role("link", name="CSV").click()
    download = await waiting.value
    assert download.suggested_filename == "evertalk-sessions.csv"
    text = Path(await download.path()).read_text(encoding="utf-8-sig")
    assert [row["person"] for row in csv.DictReader(io.StringIO(text))] == ["Maria"]


async def test_an_old_address_of_the_list_leads_to_it(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard?q=maria&sort=-turns")
    await expect(page.locator("a.row-link")).to_have_text("Maria")
    assert page.url == f"{place.url}/dashboard/sessions?q=maria&sort=-turns"


async def test_more_filters_stand_in_the_address(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard/sessions")
    await page.get_by_text("More filters").click()
    await page.get_by_label("Agent", exact=True).fill("nobody")
    await page.keyboard.press("Enter")
    await page.get_by_label("Agent", exact=True).blur()
    await expect(page.get_by_text("No session matches.")).to_be_visible()
    assert "agent=nobody" in page.url


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1360), ("light", 390)])
async def test_axe_finds_nothing_and_nothing_scrolls_sideways(
    page: Page, place: Place, scheme: Any, width: int
) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": width, "height": 900})
    for path in ("", "/costs", "/costs?group=person", "/sessions?limit=100"):
        await page.goto(f"{place.url}/dashboard{path}")
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        await photograph(page, f"{path.strip('/?').split('?')[0] or 'overview'}-{scheme}-{width}")
        assert await look_for_faults(page) == [], path
        await fits(page)
