"""Speech in a real browser, whose microphone beeps: recorded, heard, answered, played and corrected."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.patience import WAIT_MS
from tests.browser.real.conftest import serving
from tests.browser.real.hands import edit
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions

pytestmark = pytest.mark.browser

RECORD, SEND, DISCARD = "Record a voice message", "Send the recording", "Discard the recording"
HEARD = {"text": "My cat is called Miso."}


@pytest.fixture
def serving_options(transcriptions: RunningTranscriptions) -> dict[str, Any]:
    spoken = {name.removeprefix("EVERTALK_").lower(): text for name, text in transcriptions.settings.items()}
    return {**spoken, "transcribe_most_minutes": 0.05}


@pytest.fixture
async def telephone(url: str, whole_browser: Browser) -> AsyncIterator[BrowserContext]:
    """With a telephone, and a microphone that the page may use."""
    own = await whole_browser.new_context(
        locale="en-US", viewport={"width": 390, "height": 844}, permissions=["microphone"]
    )
    own.set_default_timeout(WAIT_MS)
    yield own
    await own.close()


async def open_chat(person: BrowserContext, url: str) -> Page:
    page = await person.new_page()
    await page.goto(f"{url}/chat")
    await expect(page.get_by_role("button", name=RECORD)).to_be_visible()
    return page


async def speak(page: Page) -> None:
    """For as long as it takes the meter to move."""
    await page.get_by_role("button", name=RECORD).click()
    await expect(page.get_by_role("group", name="Recording")).to_be_visible()
    moves = re.compile(r"--level: ?(1|0\.\d*[1-9])")
    await expect(page.locator(".level")).to_have_attribute("style", moves)


async def test_what_is_said_is_heard_answered_played_and_corrected(
    telephone: BrowserContext, url: str, transcriptions: RunningTranscriptions
) -> None:
    page = await open_chat(telephone, url)
    await transcriptions.next(HEARD)
    await speak(page)
    assert await look_for_faults(page) == []
    await expect(page.get_by_role("button", name=SEND)).to_be_focused()
    await page.keyboard.press("Enter")
    said = page.locator("article.person .body")
    await expect(said).to_have_text(["🎤 My cat is called Miso."])
    await expect(page.locator("article.assistant")).to_have_count(1)
    [asked] = await transcriptions.requests()
    assert asked["size"] > 500
    player = page.get_by_role("button", name="Play the recording: recording.webm")
    await player.click()
    stop = page.get_by_role("button", name="Stop playing: recording.webm")
    await expect(stop).to_be_visible()
    await expect(player).to_be_visible()
    assert await look_for_faults(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.reload()
    await expect(player).to_be_visible()
    await edit(page, "My dog is called Bertil.")
    await expect(said).to_have_text(["My dog is called Bertil."])
    await expect(page.locator("article.assistant").last).to_contain_text("Bertil")


async def test_a_failure_is_said_and_the_recording_waits_for_another_try(
    telephone: BrowserContext, url: str, transcriptions: RunningTranscriptions
) -> None:
    page = await open_chat(telephone, url)
    await transcriptions.next({"status": 500}, {"status": 500}, HEARD)
    await speak(page)
    await page.get_by_role("button", name=SEND).click()
    await expect(page.locator(".composer .file")).to_contain_text("could not be transcribed just now")
    await page.get_by_role("button", name="Retry: recording.webm").click()
    await expect(page.get_by_role("button", name="Remove recording.webm")).to_be_visible()
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator("article.person .body")).to_have_text(["🎤 My cat is called Miso."])


async def test_a_recording_can_be_discarded_and_ends_at_the_longest(
    telephone: BrowserContext, url: str, transcriptions: RunningTranscriptions
) -> None:
    """A draft stays where it is; three seconds are the most here."""
    page = await open_chat(telephone, url)
    box = page.get_by_role("textbox", name="Message")
    await box.fill("A draft")
    await speak(page)
    await expect(box).to_be_hidden()
    await page.keyboard.press("Escape")
    await expect(box).to_have_value("A draft")
    await expect(box).to_be_focused()
    await speak(page)
    await page.get_by_role("button", name=DISCARD).click()
    assert await transcriptions.requests() == []
    await box.fill("")
    await transcriptions.next(HEARD)
    await speak(page)
    await expect(page.locator(".recording time")).to_have_text("0:03")
    await page.get_by_role("button", name=SEND).click()
    await expect(page.locator("article.person .body")).to_have_text(["🎤 My cat is called Miso."])


async def test_microphone_is_requested_by_button_only_and_refusal_explained(
    whole_browser: Browser, url: str
) -> None:
    own = await whole_browser.new_context(locale="en-US")
    own.set_default_timeout(WAIT_MS)
    await own.add_init_script(
        "const ask = MediaDevices.prototype.getUserMedia; window.asked = 0;"
        "MediaDevices.prototype.getUserMedia = function (...told) { asked++; return ask.apply(this, told); }"
    )
    page = await open_chat(own, url)
    assert await page.evaluate("asked") == 0
    await page.get_by_role("button", name=RECORD).click()
    await expect(page.get_by_text("The microphone is not allowed on this page.").first).to_be_visible()
    assert await page.evaluate("asked") == 1
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert await look_for_faults(page) == []
    await own.close()


async def test_there_is_no_button_where_nothing_transcribes(
    database_url: str, redis_url: str, whole_browser: Browser
) -> None:
    own = await whole_browser.new_context(locale="en-US")
    own.set_default_timeout(WAIT_MS)
    async with serving(database_url, redis_url) as url:
        page = await own.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{url}/chat")
        await expect(page.get_by_role("button", name="Attach files")).to_be_visible()
        await expect(page.get_by_role("button", name=RECORD)).to_have_count(0)
        assert [one for one in asked if "voice" in one] == []
        await own.close()
