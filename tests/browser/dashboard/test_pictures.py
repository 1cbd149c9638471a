"""Each page of the dashboard with data fits both widths, shows no text cut off, and can be photographed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.config.settings import load_settings
from shared.runtime import ignore_crash_point
from shared.services.tools.handover import HandoverService
from tests.browser.dashboard.full_house import fill_house
from tests.browser.dashboard.people_dashboard import PeopleDashboard
from tests.browser.dashboard.pictures import WIDTHS, photograph
from tests.browser.dashboard.place import TABS, fits
from tests.kit.dashboard.fixtures import NobodyListens, RunCommands, make_job_admin
from tests.kit.dashboard.people_seed import people
from tests.kit.dashboard.serve import served
from tests.kit.midday import MIDDAY
from tests.kit.operator_driver import Unheard
from tests.kit.web.inspector import inspecting_over

pytestmark = pytest.mark.browser

SECTIONS = ("model", "telegram", "voice", "context", "caps", "people", "all")
"""Sections of the settings; each opens its tab."""
CUT = """() => [...document.querySelectorAll("h1, h2, th, button, nav a, label > span, .flush-card")]
  .filter((one) => one.checkVisibility() && !one.closest(".unseen, .unseen *") && one.clientWidth > 1
    && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).textOverflow !== "ellipsis")
  .map((one) => one.outerHTML.slice(0, 120))"""
"""Names of things that are wider than the place that they have."""


@pytest.fixture
async def dashboard(browser: Browser, database_url: str) -> AsyncIterator[PeopleDashboard]:
    pool = await open_pool(database_url, size=4)
    async with pool.acquire() as connection:
        crowd = await people(connection)
    handovers = HandoverService(
        PostgresHandovers(pool), Unheard(), VocabularyCounter(), crash_point=ignore_crash_point
    )
    async with served(
        web.Application(), pool=pool, settings=load_settings(timezone=MIDDAY, handover="on"),
        commands=RunCommands(), news=NobodyListens(), inspecting=inspecting_over(pool),
        job_admin=make_job_admin(pool, []), handovers=handovers,
    ) as url:  # fmt: skip
        dashboard = PeopleDashboard(url=url, pool=pool, crowd=crowd, browser=browser)
        yield dashboard
        for context in dashboard.contexts:
            await context.close()
    await pool.close()
    dashboard.complaints = [line for line in dashboard.complaints if "404" not in line and "503" not in line]
    assert dashboard.complaints == []


async def show(page: Page, address: str) -> None:
    await page.goto(address)
    await expect(page.locator("h1")).not_to_have_count(0)
    await expect(page.locator(".skeleton:visible")).to_have_count(0)


async def test_each_page_fits_both_widths_without_cut_names(dashboard: PeopleDashboard) -> None:
    paths = await fill_house(dashboard)
    session = paths.pop("session").partition("#")[0]
    paths |= {f"session-{tab}": f"{session}?tab={tab}" for tab in TABS}
    paths |= {f"settings-{section}": f"/settings?section={section}" for section in SECTIONS}
    page = await dashboard.operator("admin")
    found = {}
    for name, path in paths.items():
        await show(page, f"{dashboard.url}/dashboard{path}")
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 860})
            await fits(page)
            cut = await page.evaluate(CUT)
            if cut:
                found[f"{name} at {width}"] = cut
        await photograph(page, name.translate(str.maketrans(" ?=&#", "-----")) or "overview")
    assert found == {}


async def test_login_page_fits_both_widths(dashboard: PeopleDashboard) -> None:
    page = await dashboard.operator()
    await page.context.clear_cookies()
    await page.goto(f"{dashboard.url}/dashboard")
    await expect(page.get_by_role("button", name="Log in")).to_be_visible()
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 860})
        await fits(page)
    await photograph(page, "login")
