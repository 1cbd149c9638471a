"""People see what an answer was based on, correct it there, and restore a former text of a note."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.axe import look_for_faults
from tests.browser.real.hands import ask, choose
from tests.browser.real.long_talks import talk_on

pytestmark = pytest.mark.browser


async def command(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")
    await expect(page.locator(".result[data-pending=false]").last).to_be_visible()


async def ask_why(page: Page) -> None:
    answer = page.locator("article.assistant[data-status=sent]").last
    await answer.hover()
    await answer.get_by_role("button", name="Why do you know that?").click()
    await expect(page.get_by_role("dialog", name="Why do you know that?")).to_be_visible()


async def test_notes_of_an_answer_are_corrected_and_restored(chat: Page, database_url: str) -> None:
    await ask(chat, "Good morning.")
    await expect(chat.get_by_role("button", name="Why do you know that?")).to_have_count(0)
    await command(chat, "/remember My piano stands in Bergen.")
    await ask(chat, "Where is it?")
    await ask_why(chat)
    note = chat.locator(".view:visible .note")
    await expect(note).to_contain_text("My piano stands in Bergen.")
    assert await look_for_faults(chat) == []
    await note.get_by_role("button", name="Edit", exact=False).click()
    area = note.get_by_role("textbox")
    await area.fill("My piano stands in Oslo.")
    await note.get_by_role("button", name="Save").click()
    await expect(note).to_contain_text("out of date")
    await chat.keyboard.press("Escape")
    await choose(chat, "Memory")
    kept = chat.locator(".view:visible .note")
    await expect(kept).to_contain_text("My piano stands in Oslo.")
    await kept.get_by_role("button", name="Earlier texts").click()
    versions = kept.locator(".former li")
    await expect(versions).to_have_count(2)
    await expect(versions.first).to_contain_text("My piano stands in Bergen. → My piano stands in Oslo.")
    assert await look_for_faults(chat) == []
    await versions.last.get_by_role("button", name="Restore").click()
    await expect(kept.locator(".note-text")).to_have_text("My piano stands in Bergen.")
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        live = "SELECT text FROM notes WHERE superseded_by IS NULL"
        assert await pool.fetchval(live) == "My piano stands in Bergen."
        assert await pool.fetchval("SELECT count(*) FROM note_changes WHERE cause = 'person'") == 2
    await kept.get_by_role("button", name="Delete").click()
    await chat.keyboard.press("Escape")
    await ask_why(chat)
    await expect(chat.locator(".view:visible .tag")).to_have_text("deleted")


async def test_recalled_message_is_shown_however_old_and_deleted(chat: Page, database_url: str) -> None:
    await ask(chat, "My parcel has the number PX-4471.")
    await talk_on(database_url, turns=60)
    await command(chat, "/remember My parcel is late.")
    await ask(chat, "Which number?")
    recalled = {
        "mid": "m1", "role": "person", "at": "2026-11-01T10:00:00Z",
        "text": "My parcel has the number PX-4471.", "here": True, "forgettable": True,
    }  # fmt: skip

    may_answer = asyncio.Event()
    may_answer.set()

    async def with_message(route: Route) -> None:
        await may_answer.wait()
        answer = await route.fetch()
        body = {**(await answer.json()), "messages": [recalled]}
        await route.fulfill(response=answer, body=json.dumps(body))

    await chat.route("**/messages/*/memory*", with_message)
    await chat.reload()
    await expect(chat.get_by_text("PX-4471")).to_have_count(0)
    await ask_why(chat)
    row = chat.locator(".view:visible .note[data-mid=m1]")
    await row.get_by_role("button", name="Show").click()
    message = chat.locator("article.person").filter(has_text="PX-4471")
    await expect(message).to_be_in_viewport()
    await expect(message).to_be_focused()
    await chat.keyboard.press("End")
    await ask_why(chat)
    await row.get_by_role("button", name="Edit").click()
    await expect(message.get_by_role("textbox", name="Edit message")).to_be_focused()
    await chat.keyboard.press("Escape")
    await chat.locator(".log").press("End")
    may_answer.clear()
    await ask_why(chat)
    await expect(row).to_have_count(0)
    may_answer.set()
    await row.get_by_role("button", name="Delete").click()
    await expect(row.get_by_role("alert")).to_contain_text("for good")
    await row.get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(0)
    await expect(chat.locator("article.person[data-mid=m1]")).not_to_contain_text("PX-4471")
