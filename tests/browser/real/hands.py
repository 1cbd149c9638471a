"""What a person does in the chat: asks, edits, chooses in the menu, gives commands."""

from __future__ import annotations

from playwright.async_api import Page, expect


async def edit(page: Page, text: str) -> None:
    await page.get_by_role("button", name="Edit", exact=True).click()
    box = page.get_by_role("textbox", name="Edit message")
    await expect(box).to_be_focused()
    await box.fill(text)
    await page.get_by_role("button", name="Save and answer again").click()


async def ask(page: Page, text: str) -> None:
    before = await page.locator("article.assistant[data-status=sent]").count()
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")
    answers = page.locator("article.assistant[data-status=sent]")
    await expect(answers).to_have_count(before + 1)


async def choose(page: Page, item: str) -> None:
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("menuitem", name=item).click()


async def give(page: Page, command: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(command)
    await box.press("Escape")
    await box.press("Enter")
