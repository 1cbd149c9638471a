"""The first minute with the built-in demo: what it is, and starters that each do the real thing."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.patience import WAIT_MS
from tests.browser.real.photographs import photograph

pytestmark = pytest.mark.browser
REMEMBER = "Remember that my dog Bertil is allergic to chicken."


async def test_starters_of_the_demo_go_after_the_first_use(chat: Page) -> None:
    guide, answers = chat.get_by_role("region", name="Try it"), chat.locator("article.assistant")
    await expect(guide).to_contain_text("one conversation that never ends; until a model key is set")
    await expect(guide.get_by_role("button")).to_have_text(
        ["Show me a year of conversation", "What can you do?", REMEMBER]
    )
    await photograph(chat, "guide-begin")
    assert await look_for_faults(chat) == []
    await guide.get_by_role("button", name=REMEMBER).click()
    await expect(answers.and_(chat.locator("[data-status=sent]")).last).to_contain_text("I saved a note")
    await expect(guide).to_be_hidden()
    await expect(chat.get_by_role("textbox", name="Message")).to_be_focused()
    await photograph(chat, "guide-gone")
    await chat.reload()
    await expect(answers).to_have_count(1)
    await expect(guide).to_be_hidden()


async def test_starters_of_the_demo_go_after_a_typed_message(chat: Page) -> None:
    guide, box = chat.get_by_role("region", name="Try it"), chat.get_by_role("textbox", name="Message")
    await expect(guide).to_be_visible()
    await box.fill("Hello")
    await box.press("Enter")
    await expect(chat.locator("article.assistant[data-status=sent]")).to_have_count(1)
    await expect(guide).to_be_hidden()


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
