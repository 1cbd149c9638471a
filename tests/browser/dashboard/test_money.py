"""An operator's morning in a real browser: the overview, where the money went, and the list as a sheet."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.adapters.postgres.db.hour_counts import PostgresHourCounts
from shared.config.settings import load_settings
from tests.browser.axe import look_for_faults
from tests.browser.dashboard.place import Place, Stored, fits
from tests.kit.dashboard import money_seed, seed
from tests.kit.dashboard.fixtures import Pool
from tests.kit.midday import DAY_BEGAN, MIDDAY

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
async def seeded(place_pool: Pool) -> Stored:
    async with place_pool.acquire() as connection:
        session, links = await seed.a_long_session(connection, turns=300)
        await money_seed.a_month(connection, session)
    store = PostgresHourCounts(place_pool, timezone=MIDDAY)
    while await store.catch_up():
        pass
    return session, links


@pytest.fixture(scope="module")
def place_options() -> dict[str, Any]:
    return {"settings": load_settings(timezone=MIDDAY), "demo": True}


@pytest.fixture(autouse=True)
async def at_the_overview(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard")
    await expect(page.locator(".skeleton")).to_have_count(0)


async def photograph(page: Page, name: str) -> None:
    """For whoever wants to look: PICTURES_FOLDER names one."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def card(page: Page, name: str) -> Any:
    return page.locator(".kpi").filter(has_text=name).locator("b")


async def test_overview_says_that_demo_answers_and_how_to_change_it(page: Page) -> None:
    told = page.locator(".card").filter(has_text="Set up Evertalk")
    await expect(told.locator("li").first).to_contain_text("Until then the built-in demo answers.")
    model = told.get_by_role("link", name="Enter a model key")
    await expect(model).to_have_attribute("href", "/dashboard/settings?section=model")
    await expect(told.get_by_role("link", name="Try it")).to_have_attribute("href", "/chat")


async def test_the_overview_leads_to_what_needs_an_eye(page: Page, place: Place) -> None:
    await photograph(page, "overview-light")
    spent = await place.pool.fetchval(f"SELECT sum(cost_micro)::float8 FROM usage WHERE at >= {DAY_BEGAN}")
    await expect(card(page, "Spent today")).to_have_text(f"≥ ${spent / 1e6:.2f}")
    await expect(card(page, "Background jobs failed").first).to_have_text("1")
    await expect(card(page, "Model provider")).to_have_count(0)
    await page.get_by_text("Numbers", exact=True).click()
    await expect(card(page, "Model provider")).to_have_text("–")
    await page.locator(".kpi").filter(has_text="Context over 90 %").get_by_role("link").first.click()
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    assert "min_pct=90" in page.url
    await page.keyboard.type("go")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await page.keyboard.type("gc")
    await expect(page.get_by_role("heading", name="Costs", level=1)).to_be_visible()


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


async def test_numbers_over_time_follow_the_range_in_the_address(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard?numbers=1")
    await expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    cost = page.get_by_role("region", name="Cost", exact=True)
    micro = await place.pool.fetchval(
        f"SELECT sum(cost_micro)::float8 FROM usage WHERE at >= {DAY_BEGAN} - interval '6 days'"
    )
    await expect(cost.locator(".figure b")).to_have_text(f"≥ ${micro / 1e6:.2f}")
    await expect(cost.locator(".figure")).to_contain_text("before: ≥ $")
    await page.get_by_role("button", name="30 days").click()
    await page.wait_for_url("**/dashboard?numbers=1&range=30d")
    await expect(cost.get_by_role("slider")).to_have_attribute("aria-valuemax", "29")
    await page.reload()
    await expect(page.get_by_role("button", name="30 days")).to_have_attribute("aria-pressed", "true")
    day = await page.get_by_label("To", exact=True).input_value()
    await page.get_by_label("From", exact=True).fill(day)
    await page.wait_for_url(f"**/dashboard?numbers=1&from={day}&to={day}")
    await expect(cost.get_by_role("slider")).to_have_attribute("aria-valuemax", "23")
    await page.go_back()
    await page.get_by_role("button", name="24 hours").click()
    await expect(cost.get_by_role("slider")).to_have_attribute("aria-valuemax", "23")


async def test_chart_is_readable_by_keys_pointer_and_table(page: Page, place: Place) -> None:
    """One crosshair for all charts; what it is on is said, and stands in the table, too."""
    await page.goto(f"{place.url}/dashboard?range=7d")
    slider = page.get_by_role("slider", name="Messages")
    await expect(slider).to_have_attribute("aria-valuenow", "6")
    await slider.focus()
    await page.keyboard.press("Home")
    await expect(slider).to_have_attribute("aria-valuenow", "0")
    await page.keyboard.press("ArrowRight")
    await expect(slider).to_have_attribute("aria-valuenow", "1")
    assert await page.locator(".cross[visibility=visible]").count() == 9
    await expect(page.get_by_role("region", name="Messages", exact=True).locator(".tip")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator(".tip:visible")).to_have_count(0)
    tokens = page.get_by_role("region", name="Tokens", exact=True)
    await tokens.locator(".stage").hover()
    await expect(tokens.locator(".tip")).to_contain_text("Cache read")
    await photograph(page, "series-hover")
    bars = tokens.locator("rect.memory")
    heights = await bars.evaluate_all("all => all.map((one) => Number(one.getAttribute('height')))")
    await page.get_by_text("Show as table").click()
    table = page.get_by_role("table", name="Numbers over time")
    await expect(table.locator("tbody tr")).to_have_count(7)
    spoken = await page.get_by_role("slider", name="Cost").get_attribute("aria-valuetext")
    assert (await table.locator("tbody tr").nth(-1).locator("td").first.inner_text()) in (spoken or "")
    answers = await (await page.request.get(f"{place.url}/api/v1/series?range=7d")).json()
    read = [one["cache_read_tokens"] for one in answers["steps"] if one["cache_read_tokens"]]
    assert [high / max(heights) for high in heights] == pytest.approx([n / max(read) for n in read], abs=0.03)


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
    await expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    await expect(page.get_by_role("slider", name="Cost")).to_have_attribute("aria-valuemax", "6")
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


async def test_list_page_shows_its_row_range_and_total(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard/sessions?limit=2")
    await expect(page.locator(".place")).to_have_text("1 – 2 of 4")
    await page.get_by_role("button", name="Next page").click()
    await expect(page.locator(".place")).to_have_text("3 – 4 of 4")
    assert "at=2" in page.url
    await page.reload()
    await expect(page.locator(".place")).to_have_text("3 – 4 of 4")
    await page.get_by_role("button", name="First page").click()
    await expect(page.locator(".place")).to_have_text("1 – 2 of 4")
    await page.goto(f"{place.url}/dashboard/people")
    await expect(page.locator(".place")).to_have_text("1 – 4 of 4")
