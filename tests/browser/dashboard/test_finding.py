"""An operator in a real browser goes anywhere by a few letters, and back through all summaries."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.dashboard.place import Place, Stored, fits
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import Pool

pytestmark = pytest.mark.browser
SUMMARIES = 130
EACH = 3


@pytest.fixture(scope="module")
async def seeded(place_pool: Pool) -> Stored:
    async with place_pool.acquire() as connection:
        seeded = await seed.a_session(
            connection, person="Maria Silva", turns=SUMMARIES * EACH + 2, limit=100_000
        )
        for person in ("Mark <b>Twain</b>", "Noah"):
            await seed.a_session(connection, person=person, turns=4, minutes_ago=30)
        await connection.execute(
            """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq,
                                  trigger, summary_text, tokens, tokens_before, tokens_after, model,
                                  cost_micro, duration_ms)
               SELECT $1, 'summary', n * $2 - $2 + 1, n * $2, 2 * (n * $2 - $2) + 1, 2 * n * $2, 'auto',
                      'Summary number ' || n, 400, 90000, 9000, 'claude-haiku', 900, 7000
                 FROM generate_series(1, $3::bigint) n ORDER BY n""",
            seeded.session_id, EACH, SUMMARIES,
        )  # fmt: skip
    return seeded, []


async def photograph(page: Page, name: str) -> None:
    """For whoever wants to look: PICTURES_FOLDER names one."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        for scheme, width in (("light", 1360), ("dark", 1360), ("light", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 860})
            await page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png")
        await page.set_viewport_size({"width": 1280, "height": 720})


async def opened(page: Page) -> Locator:
    await expect(page.locator("button.find")).to_be_attached()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    return page.get_by_role("dialog", name="Go to")


async def test_a_few_letters_lead_to_a_page(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard/sessions")
    await page.get_by_role("searchbox").focus()
    finder = await opened(page)
    await expect(finder.get_by_role("option")).to_have_count(15)
    await photograph(page, "finder-all")
    await page.keyboard.type("cos")
    await expect(finder.get_by_role("option").first).to_have_text("Costsg c")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Costs", level=1)).to_be_visible()
    await expect(finder).to_be_hidden()


async def test_a_name_leads_to_a_conversation_and_words_to_a_search(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard")
    finder = await opened(page)
    await page.keyboard.type("mar")
    options = finder.get_by_role("option")
    await expect(options.filter(has_text="Mark <b>Twain</b>")).to_be_visible()
    await expect(options).to_have_text(
        ["Maria Silvaweb · default · 392 turns", "Mark <b>Twain</b>web · default · 4 turns",
         "Search messages for “mar”", "Search sessions for “mar”", "Search people for “mar”",
         "Search memory for “mar”", "Search settings for “mar”"]
    )  # fmt: skip
    await page.keyboard.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    assert await look_for_faults(page) == []
    await photograph(page, "finder-name")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Maria Silva", level=1)).to_be_visible()
    finder = await opened(page)
    await page.keyboard.type("noah")
    await expect(options).to_have_count(6)
    await options.filter(has_text="Search people").click()
    await expect(page).to_have_url(f"{place.url}/dashboard/people?q=noah")


async def test_finder_leads_to_a_setting_and_its_field(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard")
    finder = await opened(page)
    await page.keyboard.type("quiet hou")
    await expect(finder.get_by_role("option").first).to_have_text("Quiet hoursPeople")
    await photograph(page, "finder-setting")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("tab", name="Operations")).to_have_attribute("aria-selected", "true")
    await expect(page.get_by_label("Quiet hours")).to_be_focused()


async def test_finder_knows_every_setting_of_a_form(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard")
    finder = await opened(page)
    labels = await page.evaluate(
        """async () => {
            const base = document.querySelector("script[src*='dashboard/main']").src;
            const { FORMS } = await import(new URL("/static/dashboard/settings_fields.js", base));
            return [...FORMS.values()].map((one) => [one.label, one.section]);
        }"""
    )
    assert len(labels) > 70
    for label, section in labels[::6]:
        await page.get_by_role("combobox", name="Go to").fill(f"{label} {section}")
        await expect(finder.get_by_role("option").filter(has_text=label).first).to_be_visible()


@pytest.mark.parametrize(
    ("words", "path"), [("new agent", "agents"), ("invite", "operators"), ("add a note", "memory")]
)
async def test_finder_leads_to_an_action(page: Page, place: Place, words: str, path: str) -> None:
    await page.goto(f"{place.url}/dashboard")
    finder = await opened(page)
    await page.keyboard.type(words)
    await finder.get_by_role("option").first.click()
    await expect(page).to_have_url(re.compile(f"/dashboard/{path}#"))
    await expect(page.locator("main input:focus, main textarea:focus")).to_have_count(1)


async def test_the_finder_goes_away_and_is_in_the_menu_of_a_telephone(page: Page, place: Place) -> None:
    await page.goto(f"{place.url}/dashboard")
    finder = await opened(page)
    await page.keyboard.press("Control+k")
    await expect(finder).to_be_hidden()
    await opened(page)
    await page.keyboard.press("Escape")
    await expect(finder).to_be_hidden()
    await page.keyboard.press("?")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await expect(finder).to_be_hidden()
    await page.keyboard.press("Escape")
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("button", name="Go to").click()
    await expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    assert await look_for_faults(page) == []


async def test_older_summaries_come_page_after_page_until_the_first(page: Page, place: Place) -> None:
    await page.goto(place.tab("summaries"))
    folds = page.locator(".fold-item")
    await expect(folds).to_have_count(50)
    older = page.get_by_role("button", name="Older summaries")
    await older.scroll_into_view_if_needed()
    await photograph(page, "older-summaries")
    await older.press("Enter")
    await expect(folds).to_have_count(100)
    await expect(folds.nth(50).locator("summary").first).to_be_focused()
    await older.click()
    await expect(folds).to_have_count(SUMMARIES)
    await expect(older).to_have_count(0)
    last = folds.last
    await last.locator("summary").first.click()
    await expect(last.get_by_text("Summary number 1", exact=True)).to_be_visible()
    await expect(last.get_by_text("Turns 1 – 3")).to_be_visible()
    assert await look_for_faults(page) == []


async def test_light_or_dark_is_chosen_once_for_this_browser(page: Page, place: Place) -> None:
    background = "getComputedStyle(document.documentElement).backgroundColor"
    await page.emulate_media(color_scheme="dark")
    await page.goto(f"{place.url}/dashboard")
    theme = page.get_by_role("button", name="Theme")
    await expect(theme).to_have_text("Theme System")
    dark = await page.evaluate(background)
    await theme.click()
    await expect(theme).to_have_text("Theme light")
    light = await page.evaluate(background)
    assert light != dark
    await page.goto(f"{place.url}/dashboard/sessions")
    await expect(theme).to_have_text("Theme light")
    assert await page.evaluate(background) == light
    await page.emulate_media(color_scheme="light")
    await theme.click()
    await expect(theme).to_have_text("Theme dark")
    assert await page.evaluate(background) == dark
    assert await look_for_faults(page) == []
    await photograph(page, "theme")
    await theme.click()
    await expect(theme).to_have_text("Theme System")
    assert await page.evaluate(background) == light


async def test_a_view_is_saved_opened_and_removed_in_this_browser(page: Page, place: Place) -> None:
    """By whoever is logged in: what they search for is nobody else's business, nor the server's."""
    bar = page.get_by_role("group", name="Saved views")
    await page.goto(f"{place.url}/dashboard/sessions")
    await expect(page.locator("a.row-link")).to_have_count(3)
    await expect(bar).to_be_hidden()
    await page.get_by_role("searchbox").fill("maria")
    await expect(page.locator("a.row-link")).to_have_count(1)
    await page.get_by_role("button", name="Turns").click()
    await bar.get_by_role("button", name="Save this view").click()
    await bar.get_by_role("textbox").fill("  ")
    await page.keyboard.press("Enter")
    await bar.get_by_role("textbox").fill("<b>Ours</b>")
    await page.keyboard.press("Enter")
    view = bar.get_by_role("link", name="<b>Ours</b>")
    await expect(view).to_have_attribute("aria-current", "true")
    await expect(view).to_be_focused()
    await expect(bar.get_by_role("button", name="Save this view")).to_have_count(0)
    await page.goto(f"{place.url}/dashboard/sessions?state=idle&cursor=")
    await expect(view).not_to_have_attribute("aria-current", "true")
    await bar.get_by_role("button", name="Save this view").click()
    await page.keyboard.press("Escape")
    await expect(bar.get_by_role("button", name="Save this view")).to_be_focused()
    for scheme, width in (("light", 1360), ("dark", 1360), ("light", 390)):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": 900})
        await fits(page)
        assert await look_for_faults(page) == []
        if folder := os.environ.get("PICTURES_FOLDER"):
            await page.screenshot(path=Path(folder) / f"views-{scheme}-{width}.png")
    await view.click()
    await page.wait_for_url("**/dashboard/sessions?q=maria&sort=-turns")
    await expect(page.locator("a.row-link")).to_have_text(["Maria Silva"])
    await expect(page.get_by_role("searchbox")).to_have_value("maria")
    kept = await page.evaluate("JSON.stringify(localStorage)")
    assert "sessions:admin" in kept
    await bar.get_by_role("button", name="Remove the view <b>Ours</b>").click()
    await expect(view).to_have_count(0)
    assert "Ours" not in await page.evaluate("JSON.stringify(localStorage)")


@pytest.mark.parametrize(
    "kept", ["{", "7", "null", '[7, null, {"name": 1}, {"name": " ", "query": ""}, {"name": "x"}]']
)
async def test_views_that_cannot_be_read_are_none(page: Page, place: Place, kept: str) -> None:
    await page.goto(f"{place.url}/dashboard")
    await page.evaluate("(kept) => localStorage.setItem('evertalk:dash:views:sessions:admin', kept)", kept)
    await page.goto(f"{place.url}/dashboard/sessions?q=maria")
    await expect(page.locator("a.row-link")).to_have_count(1)
    bar = page.get_by_role("group", name="Saved views")
    await expect(bar.get_by_role("link")).to_have_count(0)
    await expect(bar.get_by_role("button", name="Save this view")).to_be_visible()


async def test_words_lead_to_the_turn_in_which_they_were_said(page: Page, place: Place) -> None:
    async with place.pool.acquire() as connection:
        seeded = await seed.a_session(connection, person="Zoe", turns=392, minutes_ago=60)
        await seed.talk(connection, seeded, turns=392)
    await page.goto(f"{place.url}/dashboard/sessions")
    await page.get_by_role("link", name="Search messages").click()
    field = page.get_by_role("searchbox")
    await expect(field).to_be_focused()
    await field.fill("person says turn 200")
    await page.keyboard.press("Enter")
    hit = page.locator(".hit")
    await expect(hit).to_have_count(1)
    await expect(hit).to_contain_text("person says something in turn 200")
    assert await look_for_faults(page) == []
    await photograph(page, "search-messages")
    await hit.click()
    message = page.locator(".message[aria-current]")
    await expect(message).to_be_in_viewport()
    await expect(message).to_contain_text("person says something in turn 200")
    await expect(page.locator(".messages")).not_to_contain_text("turn 390")
    await page.get_by_role("button", name="Show the newest messages").click()
    await expect(page.locator(".messages")).to_contain_text("turn 390")
    await page.go_back()
    await expect(page.get_by_role("searchbox")).to_have_value("person says turn 200")
    await expect(page.locator(".hit")).to_have_count(1)
