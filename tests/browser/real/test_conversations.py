"""Several conversations of one person in a real browser: begun, switched, named, and two open at once."""

from __future__ import annotations

import asyncpg
import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.browser.real.hands import ask, choose, give

pytestmark = pytest.mark.browser
MANY = 'UPDATE sites SET config = config || \'{"conversations": "many"}\''


@pytest.fixture
async def many(database_url: str, url: str) -> str:
    """Before anybody asks how the site looks."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(MANY)
    await connection.close()
    return url


async def opened(context: BrowserContext, url: str) -> Page:
    page = await context.new_page()
    await page.goto(f"{url}/chat")
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    return page


async def test_a_person_begins_another_conversation_and_goes_back(many: str, context: BrowserContext) -> None:
    page = await opened(context, many)
    await ask(page, "My cat is called Miso.")
    await choose(page, "New conversation")
    await expect(page.locator("article")).to_have_count(0)
    await ask(page, "Tell me of whales.")
    await choose(page, "Conversations")
    rows = page.locator(".talks li")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("Tell me of whales.")
    await expect(rows.first).to_contain_text("open now")
    await rows.last.get_by_role("button", name="Rename").click()
    await page.get_by_role("textbox", name="Rename").fill("The cat")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="The cat").first.click()
    await expect(page.locator("article.person .body")).to_have_text("My cat is called Miso.")
    await ask(page, "What is my cat called?")
    await page.reload()
    await expect(page.locator("article.person .body")).to_have_text(
        ["My cat is called Miso.", "What is my cat called?"]
    )
    await give(page, "/new")
    await expect(page.locator("article")).to_have_count(0)


async def test_two_tabs_have_two_conversations_and_list_marks_unread(
    many: str, context: BrowserContext
) -> None:
    page = await opened(context, many)
    await ask(page, "One thing.")
    tab = await opened(context, many)
    await expect(tab.locator("article")).to_have_count(2)
    await choose(tab, "New conversation")
    await expect(tab.locator("article")).to_have_count(0)
    await ask(tab, "Another thing.")
    await ask(page, "More of the first.")
    await expect(tab.locator("article.person .body")).to_have_text("Another thing.")
    await expect(page.locator("article.person .body")).to_have_text(["One thing.", "More of the first."])
    for one, words in ((tab, "Another thing."), (page, "More of the first.")):
        await one.reload()
        await expect(one.locator("article.person .body").last).to_have_text(words)
    await choose(page, "Conversations")
    await expect(page.locator(".talks li")).to_have_count(2)
