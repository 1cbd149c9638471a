"""What a person does in the chat: asks, edits, chooses in the menu, gives commands."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


async def edit(page: Page, text: str) -> None:
    """Edit the last message."""
    await open_edit(page.locator("article.person").last, text)
    await page.get_by_role("button", name="Save and answer again").click()


async def open_edit(message: Locator, text: str) -> None:
    """Type another text for a message, without saving it."""
    await message.hover()
    await message.get_by_role("button", name="Edit", exact=True).click()
    box = message.get_by_role("textbox", name="Edit message")
    await expect(box).to_be_focused()
    await box.fill(text)


async def edit_older(message: Locator, text: str) -> None:
    """Edit a message that is not answered again."""
    await open_edit(message, text)
    await message.locator(".editing button[type=submit]").click()


async def delete(message: Locator) -> None:
    """Delete a message, and confirm it."""
    await message.hover()
    await message.get_by_role("button", name="Edit", exact=True).click()
    for _ in range(2):
        await message.get_by_role("button", name="Delete", exact=True).click()


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
