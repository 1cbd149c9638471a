"""The first minute with the built-in demo: what it is, and steps that each do the real thing."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.patience import WAIT_MS
from tests.browser.real.photographs import photograph

pytestmark = pytest.mark.browser
REMEMBER = "Remember that my dog Bertil is allergic to chicken."
ASK = "What is my dog allergic to?"


async def test_five_clicks_lead_through_what_the_demo_can_do(page: Page) -> None:
    guide, answers = page.get_by_role("region", name="Try it"), page.locator("article.assistant")
    await expect(guide).to_contain_text("one conversation that never ends; until a model key is set")
    await expect(guide.get_by_role("button")).to_have_count(3)
    await photograph(page, "guide-begin")
    assert await look_for_faults(page) == []
    for step, told in (
        ("What can you do?", "I can show how Evertalk keeps a conversation."),
        (REMEMBER, "I saved a note"),
        (ASK, "allergic to chicken"),
    ):
        await guide.get_by_role("button", name=step).click()
        await expect(answers.and_(page.locator("[data-status=sent]")).last).to_contain_text(told)
        await expect(guide.get_by_role("button", name=step)).to_have_count(0)
    await expect(guide).not_to_contain_text("never ends")
    await photograph(page, "guide-middle")
    await guide.get_by_role("button", name="/memory").click()
    await expect(page.locator(".result, .sheet").last).to_contain_text("Bertil")
    await page.reload()
    await expect(guide.get_by_role("button", name=ASK)).to_have_count(0)
    await expect(answers).to_have_count(3)


async def test_typed_setup_step_counts_and_sample_year_stays_offered(page: Page) -> None:
    guide, box = page.get_by_role("region", name="Try it"), page.get_by_role("textbox", name="Message")
    await expect(guide).to_be_visible()
    for number, step in enumerate(("What can you do?", REMEMBER, ASK), start=1):
        await box.fill(step)
        await box.press("Enter")
        await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(number)
    for step in ("/context", "/memory"):
        await guide.get_by_role("button", name=step).click()
    await expect(guide.get_by_role("button")).to_have_text(["Show me a year of conversation"])


async def test_the_guide_speaks_the_readers_language_and_what_it_sends_is_english(
    url: str, browser: Browser
) -> None:
    context = await browser.new_context(locale="ar", viewport={"width": 390, "height": 780})
    page = await context.new_page()
    page.set_default_timeout(WAIT_MS)
    await page.goto(f"{url}/chat")
    guide = page.get_by_role("region", name="جرّب")
    await expect(guide).to_contain_text("بالإنجليزية فقط")
    await expect(guide.get_by_role("button", name="What can you do?")).to_have_attribute("dir", "ltr")
    await photograph(page, "guide-arabic")
    await context.close()
