"""Each page of the dashboard with data fits both widths, shows no text cut off, and can be photographed."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.config.settings import load_settings
from shared.runtime import ignore_crash_point
from shared.services.tools.handover import HandoverService
from tests.browser.dashboard.full_house import fill_house
from tests.browser.dashboard.people_dashboard import Parts, PeopleDashboard
from tests.browser.dashboard.pictures import WIDTHS, photograph
from tests.browser.dashboard.place import TABS, fits
from tests.kit.dashboard.fixtures import make_job_admin
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
def people_parts() -> Parts:
    """All that a page may offer: looking into requests, acting on jobs, handing over."""
    return lambda pool: {
        "settings": load_settings(timezone=MIDDAY, handover="on"), "inspecting": inspecting_over(pool),
        "job_admin": make_job_admin(pool, []),
        "handovers": HandoverService(
            PostgresHandovers(pool), Unheard(), VocabularyCounter(), crash_point=ignore_crash_point
        ),
    }  # fmt: skip


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return ("404", "503")


async def show(page: Page, address: str) -> None:
    await page.goto(address)
    await expect(page.locator("h1")).not_to_have_count(0)
    await expect(page.locator(".skeleton:visible")).to_have_count(0)


async def test_each_page_fits_both_widths_without_cut_names(people_dashboard: PeopleDashboard) -> None:
    paths = await fill_house(people_dashboard)
    session = paths.pop("session").partition("#")[0]
    paths |= {f"session-{tab}": f"{session}?tab={tab}" for tab in TABS}
    paths |= {f"settings-{section}": f"/settings?section={section}" for section in SECTIONS}
    page = await people_dashboard.operator("admin")
    found = {}
    for name, path in paths.items():
        await show(page, f"{people_dashboard.url}/dashboard{path}")
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 860})
            await fits(page)
            cut = await page.evaluate(CUT)
            if cut:
                found[f"{name} at {width}"] = cut
        await photograph(page, name.translate(str.maketrans(" ?=&#", "-----")) or "overview")
    assert found == {}


async def test_login_page_fits_both_widths(people_dashboard: PeopleDashboard) -> None:
    page = await people_dashboard.operator()
    await page.context.clear_cookies()
    await page.goto(f"{people_dashboard.url}/dashboard")
    await expect(page.get_by_role("button", name="Log in")).to_be_visible()
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 860})
        await fits(page)
    await photograph(page, "login")
