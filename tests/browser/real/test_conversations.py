"""Several conversations of one person in a real browser: begun, switched, named, and two open at once."""

from __future__ import annotations

import re

import asyncpg
import pytest
from playwright.async_api import BrowserContext, Page, ViewportSize, expect

from tests.browser.axe import look_for_faults
from tests.browser.real.hands import ask, choose, give
from tests.browser.real.photographs import photograph

pytestmark = pytest.mark.browser
MANY = 'UPDATE sites SET config = config || \'{"conversations": "many"}\''


@pytest.fixture
async def many_talks(database_url: str, url: str) -> str:
    """Before anybody asks how the site looks."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(MANY)
    await connection.close()
    return url


SMALL: ViewportSize = {"width": 899, "height": 700}
WIDE: ViewportSize = {"width": 900, "height": 700}


async def opened(context: BrowserContext, url: str) -> Page:
    page = await context.new_page()
    await page.goto(f"{url}/chat")
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    return page


async def test_a_person_begins_another_conversation_and_goes_back(
    many_talks: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, many_talks)
    await ask(page, "My cat is called Miso.")
    await choose(page, "New conversation")
    await expect(page.locator("article")).to_have_count(0)
    await ask(page, "Tell me of whales.")
    rows = page.get_by_role("navigation", name="Conversations").locator("li")
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
    many_talks: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, many_talks)
    await ask(page, "One thing.")
    tab = await opened(tabs, many_talks)
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
    await expect(page.get_by_role("navigation", name="Conversations").locator("li")).to_have_count(2)


async def test_list_of_conversations_is_a_sidebar_on_wide_screens(
    many_talks: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, many_talks)
    await page.set_viewport_size(WIDE)
    side = page.get_by_role("navigation", name="Conversations")
    await expect(side.get_by_role("button", name="New conversation")).to_be_visible()
    await ask(page, "My cat is called Miso.")
    await expect(side.locator("li").first).to_contain_text("My cat is called Miso.")
    await side.get_by_role("button", name="New conversation").click()
    await expect(page.locator("article")).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await ask(page, "Tell me of whales.")
    await expect(side.locator("li")).to_have_text([re.compile("^Tell me of whales"), re.compile("^My cat")])
    await expect(side.locator("[aria-current=true]")).to_contain_text("Tell me of whales.")
    boxes = [await one.bounding_box() for one in (side, page.get_by_role("main"))]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["width"] == boxes[1]["x"], "neither covers the other"
    await photograph(page, "conversations-side")
    assert await look_for_faults(page) == []
    await page.get_by_role("button", name="Menu").click()
    await expect(page.get_by_role("menuitem", name="Conversations", exact=True)).to_have_count(0)
    await page.keyboard.press("Escape")
    await side.get_by_role("button", name=re.compile("^My cat")).click()
    await expect(page.locator("article.person .body")).to_have_text("My cat is called Miso.")


async def test_list_of_conversations_is_a_panel_on_small_screens(
    many_talks: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, many_talks)
    await page.set_viewport_size(SMALL)
    await ask(page, "My cat is called Miso.")
    await expect(page.get_by_role("navigation", name="Conversations")).to_be_hidden()
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("menuitem", name="Conversations", exact=True).click()
    panel = page.get_by_role("dialog", name="Conversations")
    await expect(panel.locator("li")).to_have_count(1)
    await panel.get_by_role("button", name="New conversation").click()
    await expect(page.locator("article")).to_have_count(0)
    await expect(panel).to_be_hidden()


async def test_one_conversation_has_no_sidebar(url: str, tabs: BrowserContext) -> None:
    page = await opened(tabs, url)
    await ask(page, "My cat is called Miso.")
    await expect(page.get_by_role("navigation")).to_have_count(0)


async def test_fork_begins_a_copy_up_to_the_message_and_leads_back(
    many_talks: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, many_talks)
    await page.set_viewport_size(WIDE)
    await ask(page, "My cat is called Miso.")
    await ask(page, "My dog is called Rex.")
    first = page.locator("article.assistant").first
    await first.hover()
    await first.get_by_role("button", name="Fork from here").click()
    side = page.get_by_role("navigation", name="Conversations")
    await expect(side.locator("[aria-current=true]")).to_contain_text("My cat is called Miso. (fork)")
    await expect(page.locator("article.person .body")).to_have_text("My cat is called Miso.")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await photograph(page, "conversations-fork")
    assert await look_for_faults(page) == []
    await ask(page, "And my horse Bella.")
    await expect(page.locator("article.person .body")).to_have_text(
        ["My cat is called Miso.", "And my horse Bella."]
    )
    await page.get_by_role("button", name="Open the original").click()
    await expect(page.locator("article.person .body")).to_have_text(
        ["My cat is called Miso.", "My dog is called Rex."]
    )


async def test_fork_at_a_question_returns_it_to_be_written_again(
    many_talks: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, many_talks)
    await ask(page, "My cat is called Miso.")
    await ask(page, "My dog is called Rex.")
    question = page.locator("article.person").last
    await question.hover()
    await question.get_by_role("button", name="Fork from here").click()
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("My dog is called Rex.")
    await expect(page.locator("article.person .body")).to_have_text("My cat is called Miso.")
    await page.reload()
    await expect(page.locator("article.person .body")).to_have_text("My cat is called Miso.")
    await expect(page.get_by_text("This conversation goes on from a copy")).to_be_visible()


async def test_fork_is_not_offered_where_a_visitor_has_one_conversation(
    url: str, tabs: BrowserContext
) -> None:
    page = await opened(tabs, url)
    await ask(page, "My cat is called Miso.")
    await page.locator("article.assistant").hover()
    await expect(page.get_by_role("button", name="Copy").first).to_be_visible()
    await expect(page.get_by_role("button", name="Fork from here")).to_have_count(0)
