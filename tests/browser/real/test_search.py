"""A person searches their conversation, and each result leads to its message, however old it is."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.real.hands import ask, choose
from tests.browser.real.long_talks import talk_on

pytestmark = pytest.mark.browser


async def test_a_result_leads_to_its_message_wherever_it_is(chat: Page, database_url: str) -> None:
    await ask(chat, "My parcel has the number PX-4471, and the café is at the corner.")
    await talk_on(database_url, turns=60)
    await chat.reload()
    await expect(chat.locator("article").last).to_contain_text("Answer 60")
    await expect(chat.get_by_text("PX-4471")).to_have_count(0)
    await choose(chat, "Search…")
    field = chat.get_by_role("searchbox", name="Search")
    await expect(field).to_be_focused()
    await field.fill("parcels px")
    results = chat.locator(".found button")
    await expect(results).to_have_count(2)  # the offline model says it again
    await expect(results.last.locator("mark")).to_have_text(["parcel", "PX"])
    assert await look_for_faults(chat) == []
    await results.last.click()
    message = chat.locator("article.person").filter(has_text="PX-4471")
    await expect(message).to_be_in_viewport()
    await expect(message).to_be_focused()
    await expect(chat.locator(".sheet")).to_be_hidden()


async def test_the_command_opens_the_panel_and_older_results_follow(chat: Page, database_url: str) -> None:
    await ask(chat, "Good morning.")
    await talk_on(database_url, turns=45)
    await chat.reload()
    await expect(chat.locator("article").last).to_contain_text("Answer 45")
    box = chat.get_by_role("textbox", name="Message")
    await box.fill("/search question")
    await box.press("Enter")
    results = chat.locator(".found button")
    await expect(results).to_have_count(20)
    await expect(chat.locator(".view:visible .state")).to_have_text("The newest 20 messages")
    for count in (40, 44):
        await chat.get_by_role("button", name="Older results").click()
        await expect(results).to_have_count(count)
    await expect(results.last).to_contain_text("Question 2")
    await expect(chat.get_by_role("button", name="Older results")).to_be_hidden()
    await chat.get_by_role("searchbox", name="Search").fill("zeppelin")
    await expect(chat.get_by_text("Nothing was found for “zeppelin”.")).to_be_visible()
    await chat.keyboard.press("Escape")
    await expect(box).to_be_visible()
    await expect(chat.locator(".result")).to_have_count(0)
