"""Answers that are read aloud in a real browser: on a press, made and paid once, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.patience import WAIT_MS
from tests.browser.real.conftest import serving
from tests.kit.fakes.speech.harness import RunningSpeech

pytestmark = pytest.mark.browser

LISTEN, STOP = "Listen", "Stop playing"
SOUND_MS = 60_000
"""Maximum wait in milliseconds for an answer and for the end of its sound, on a busy machine."""


@pytest.fixture
def serving_options(speech: RunningSpeech) -> dict[str, Any]:
    return {name.removeprefix("EVERTALK_").lower(): text for name, text in speech.settings.items()}


@pytest.fixture
async def talking(url: str, browser: Browser) -> AsyncIterator[Page]:
    own = await browser.new_context(locale="en-US", viewport={"width": 390, "height": 844})
    own.set_default_timeout(SOUND_MS)
    page = await own.new_page()
    await page.goto(f"{url}/chat")
    await page.get_by_role("textbox").fill("My cat is called Miso.")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name=LISTEN, exact=True)).to_have_count(1, timeout=SOUND_MS)
    yield page
    await own.close()


async def test_an_answer_is_played_on_a_press_and_paid_once(
    talking: Page, speech: RunningSpeech, database_url: str
) -> None:
    listen, stop = (talking.get_by_role("button", name=name, exact=True) for name in (LISTEN, STOP))
    assert await speech.requests() == []
    await listen.focus()
    await talking.keyboard.press("Enter")
    await expect(stop).to_be_focused()
    assert await look_for_faults(talking) == []
    assert await talking.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await expect(listen).to_be_visible(timeout=SOUND_MS)
    [asked] = await speech.requests()
    assert (asked["response_format"], "Miso" in asked["input"]) == ("mp3", True)
    await talking.reload()
    await listen.click()
    await expect(stop).to_be_visible()
    await stop.click()
    await expect(listen).to_be_visible()
    assert await speech.requests() == []
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT count(*) FROM usage WHERE purpose = 'speech'") == 1
    assert await connection.fetchval("SELECT sum(reserved_micro) FROM spend_days") == 0
    await connection.close()


async def test_a_failure_is_said_and_the_next_press_tries_again(talking: Page, speech: RunningSpeech) -> None:
    listen = talking.get_by_role("button", name=LISTEN, exact=True)
    await speech.next({"status": 400, "message": "no"})
    await listen.click()
    await expect(talking.get_by_role("alert")).to_have_text("This cannot be read aloud just now.")
    await listen.click()
    await expect(talking.get_by_role("button", name=STOP, exact=True)).to_be_visible()
    # The button is one to stop before the server has been asked.
    asked = len(await speech.requests())
    async with asyncio.timeout(WAIT_MS / 1_000):
        while asked < 2:
            asked += len(await speech.requests())
    assert asked == 2


async def test_where_nothing_speaks_there_is_no_button(
    database_url: str, redis_url: str, browser: Browser
) -> None:
    async with serving(database_url, redis_url) as url:
        page = await browser.new_page(locale="en-US")
        await page.goto(f"{url}/chat")
        await page.get_by_role("textbox").fill("My cat is called Miso.")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Good answer")).to_be_visible(timeout=WAIT_MS)
        await expect(page.get_by_role("button", name=LISTEN, exact=True)).to_have_count(0)
        await page.close()
