"""Pictures of the README, made from a running `./evertalk up` with the demo in an empty data folder.

`python -m tests.kit.readme_pictures LOGIN_LINK` plays the sample conversation in the chat, opens its summary,
and writes `docs/pictures/chat.png` and `docs/pictures/session.png`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Browser, async_playwright

from tests.kit.needed_programs import chromium

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PLAYED_MS = 120_000
"""Most milliseconds until the sample is played and summarised; an idle machine takes ten seconds."""


async def draw_pictures(login_link: str, folder: Path) -> None:
    """Write both pictures to `folder`."""
    parts = urlsplit(login_link)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        await _draw_chat(browser, f"{parts.scheme}://{parts.netloc}", folder / "chat.png")
        await _draw_session(browser, login_link, folder / "session.png")
        await browser.close()


async def _draw_chat(browser: Browser, url: str, file: Path) -> None:
    page = await browser.new_page(viewport={"width": 860, "height": 760}, locale="en-GB")
    await page.goto(f"{url}/chat")
    await page.get_by_role("textbox", name="Message").fill("/sample")
    await page.keyboard.press("Enter")
    await page.get_by_text("The sample ends here").wait_for(timeout=PLAYED_MS)
    card = page.locator(".divider button, .card button").first
    await card.scroll_into_view_if_needed()
    await card.click()
    await page.get_by_role("tab", name="Original").wait_for()
    await page.screenshot(path=file)


async def _draw_session(browser: Browser, login_link: str, file: Path) -> None:
    page = await browser.new_page(viewport={"width": 1200, "height": 1120}, locale="en-GB")
    await page.goto(login_link)
    await page.get_by_role("button", name="Log in").click()
    await page.locator("a.row-link").first.click()
    await page.get_by_role("tab", name="Context").click()
    await page.locator(".stage").first.wait_for()
    await page.screenshot(path=file)


if __name__ == "__main__":
    asyncio.run(draw_pictures(sys.argv[1], PICTURES))
