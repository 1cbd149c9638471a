"""The last message, edited in a real browser: it is answered anew, and the former one is a click away."""

from __future__ import annotations

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.browser.real.hands import ask, choose, delete, edit, edit_older

pytestmark = pytest.mark.browser


async def test_the_last_message_is_edited_and_the_former_version_can_be_seen(chat: Page) -> None:
    await ask(chat, "My cat is called Miso.")
    await ask(chat, "What is my dog called?")
    await expect(chat.get_by_role("button", name="Edit", exact=True)).to_have_count(2)
    former = await chat.locator("article.assistant").last.locator(".body").inner_text()
    await edit(chat, "What is my cat called?")
    await expect(chat.locator("article.assistant").last).to_contain_text("Miso")
    await expect(chat.locator("article.person .body")).to_have_text(
        ["My cat is called Miso.", "What is my cat called?"]
    )
    await expect(chat.get_by_role("textbox", name="Message")).to_be_focused()
    for _ in range(2):
        await expect(chat.locator("article")).to_have_count(4)
        await chat.get_by_role("button", name="Edited").click()
        version = chat.locator(".version")
        await expect(version).to_contain_text("What is my dog called?")
        await expect(version).to_contain_text(former.splitlines()[0])
        await chat.reload()
    await edit(chat, "And who is Miso?")
    await expect(chat.locator("article.person .body").last).to_have_text("And who is Miso?")
    await chat.get_by_role("button", name="Edited").click()
    await expect(chat.locator(".version")).to_have_count(2)
    await choose(chat, "New conversation")
    await chat.get_by_role("button", name="Start a new conversation").click()
    message = chat.locator("article.person").last
    await edit_older(message, "And who was Miso?")
    await expect(message.locator(".body")).to_have_text("And who was Miso?")
    await expect(chat.locator("article.assistant")).to_have_count(2)


async def test_cancelled_edit_changes_nothing_and_saved_edit_reaches_both_tabs(
    tabs: BrowserContext, url: str
) -> None:
    page = await tabs.new_page()
    await page.goto(f"{url}/chat")
    await ask(page, "One thing.")
    await page.get_by_role("button", name="Edit", exact=True).click()
    box = page.get_by_role("textbox", name="Edit message")
    await box.fill("Nothing")
    await box.press("Escape")
    await expect(box).to_have_count(0)
    await expect(page.locator("article.person .body")).to_have_text("One thing.")
    tab = await tabs.new_page()
    await tab.goto(f"{url}/chat")
    await expect(tab.locator("article.assistant")).to_have_count(1)
    await page.get_by_role("button", name="Edit", exact=True).click()
    await box.fill("Two things.")
    await edit(tab, "Three things.")
    await expect(tab.locator("article.assistant[data-status=sent]")).to_have_count(1)
    for one in (page, tab):
        await expect(one.locator("article.person .body")).to_have_text("Three things.")
        await expect(one.locator("article.assistant[data-status=sent]")).to_have_count(1)


async def test_older_message_is_edited_and_deleted_in_each_open_tab(tabs: BrowserContext, url: str) -> None:
    page = await tabs.new_page()
    await page.goto(f"{url}/chat")
    await ask(page, "My cat is called Miso.")
    await ask(page, "Good morning.")
    tab = await tabs.new_page()
    await tab.goto(f"{url}/chat")
    await expect(tab.locator("article.assistant")).to_have_count(2)
    for text in ("My cat is called Mimi.", "My cat is called Momo."):
        await edit_older(page.locator("article.person").first, text)
        for one in (page, tab):
            await expect(one.locator("article.person .body").first).to_have_text(text)
    await expect(page.locator("article.person .editing")).to_have_count(0)
    for _ in range(2):
        await tab.locator("article.person").first.get_by_role("button", name="Edited").click()
        await expect(tab.locator(".version")).to_have_count(2)
        await expect(tab.locator(".version").first).to_contain_text("Miso")
        await tab.reload()
    await delete(tab.locator("article.person").first)
    for one in (page, tab):
        await expect(one.locator("article.person .body").first).not_to_contain_text("Momo")
        await expect(one.locator("article.person").first.get_by_role("button")).to_have_count(0)
    await ask(page, "What is my cat called?")
    await expect(page.locator("article.assistant").last).not_to_contain_text("Momo")
    await expect(page.locator("article.assistant").last).not_to_contain_text("Miso")
