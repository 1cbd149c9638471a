"""A person searches their conversation, and each result leads to its message, however old it is."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.real.hands import ask, choose
from tests.browser.real.long_talks import talk_on

pytestmark = pytest.mark.browser


async def test_a_result_leads_to_its_message_wherever_it_is(page: Page, database_url: str) -> None:
    await ask(page, "My parcel has the number PX-4471, and the café is at the corner.")
    await talk_on(database_url, turns=60)
    await page.reload()
    await expect(page.locator("article").last).to_contain_text("Answer 60")
    await expect(page.get_by_text("PX-4471")).to_have_count(0)
    await choose(page, "Search…")
    field = page.get_by_role("searchbox", name="Search")
    await expect(field).to_be_focused()
    await field.fill("parcels px")
    results = page.locator(".found button")
    await expect(results).to_have_count(2)  # the offline model says it again
    await expect(results.last.locator("mark")).to_have_text(["parcel", "PX"])
    assert await look_for_faults(page) == []
    await results.last.click()
    message = page.locator("article.person").filter(has_text="PX-4471")
    await expect(message).to_be_in_viewport()
    await expect(message).to_be_focused()
    await expect(page.locator(".sheet")).to_be_hidden()


async def test_the_command_opens_the_panel_and_older_results_follow(page: Page, database_url: str) -> None:
    await ask(page, "Good morning.")
    await talk_on(database_url, turns=45)
    await page.reload()
    await expect(page.locator("article").last).to_contain_text("Answer 45")
    box = page.get_by_role("textbox", name="Message")
    await box.fill("/search question")
    await box.press("Enter")
    results = page.locator(".found button")
    await expect(results).to_have_count(20)
    await expect(page.locator(".view:visible .state")).to_have_text("The newest 20 messages")
    for count in (40, 44):
        await page.get_by_role("button", name="Older results").click()
        await expect(results).to_have_count(count)
    await expect(results.last).to_contain_text("Question 2")
    await expect(page.get_by_role("button", name="Older results")).to_be_hidden()
    await page.get_by_role("searchbox", name="Search").fill("zeppelin")
    await expect(page.get_by_text("Nothing was found for “zeppelin”.")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(box).to_be_visible()
    await expect(page.locator(".result")).to_have_count(0)
