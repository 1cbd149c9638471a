"""People import an export in the chat: upload in pieces, a look, the import, and its undoing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from shared.bootstrap.app import open_app
from shared.config.settings import load_settings
from shared.core.memory.past import PIECE_BYTES
from tests.browser.axe import look_for_faults
from tests.browser.real.hands import ask, choose

pytestmark = pytest.mark.browser


@pytest.fixture
async def working(database_url: str, redis_url: str) -> AsyncIterator[None]:
    """Let a worker import what is uploaded."""
    app = await open_app(load_settings(database_url=database_url, redis_url=redis_url), role="worker")
    task = asyncio.ensure_future(app.import_runner.run())
    yield
    task.cancel()
    await asyncio.wait([task])
    await app.close()


@pytest.fixture
def export(tmp_path: Path) -> Path:
    rows = [
        {
            "id": at, "type": "message", "date_unixtime": str(1614852000 + 60 * at), "from_id": "user17",
            "text": f"Line {at} about the bicycle of Zanzibarine. " + "x" * 200,
        }
        for at in range(4_000)
    ]  # fmt: skip
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"name": "Ben", "type": "personal_chat", "id": 42, "messages": rows}))
    assert path.stat().st_size > 2 * PIECE_BYTES
    return path


@pytest.mark.usefixtures("working")
async def test_export_is_imported_found_and_undone(chat: Page, export: Path) -> None:
    await ask(chat, "Good morning.")
    await choose(chat, "Import conversations")
    panel = chat.get_by_role("dialog", name="Import conversations")
    assert await look_for_faults(chat) == []
    await panel.locator("input[type=file]").set_input_files(export)
    await expect(panel.get_by_role("status")).to_contain_text("4,000 messages in 1 chats. Import them?")
    await expect(panel.get_by_role("status")).to_contain_text("Mar 4, 2021")
    await panel.get_by_role("button", name="Import", exact=True).click()
    made = panel.get_by_role("listitem")
    await expect(made).to_contain_text("4,000 messages of Telegram")
    await expect(panel.get_by_role("button", name="Choose a file")).to_be_visible()
    await expect(made).to_contain_text("Being summarised: 0 %")
    await made.get_by_role("button", name="Stop the summaries").click()
    await expect(made).to_contain_text("Summaries stopped at 0 %. Everything can still be found.")
    assert await look_for_faults(chat) == []
    await made.get_by_role("button", name="Summarise", exact=True).click()
    await expect(made).to_contain_text("Being summarised: 0 %")
    await made.get_by_role("button", name="Undo").click()
    await expect(made.get_by_role("alert")).to_contain_text("Press again")
    await made.get_by_role("button", name="Undo").click()
    await expect(panel.get_by_role("status")).to_have_text("The import is undone.")
    await expect(made).to_have_count(0)


@pytest.mark.usefixtures("working")
async def test_interrupted_upload_resumes_with_the_same_file(chat: Page, export: Path) -> None:
    starts: list[str] = []
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        starts.append(route.request.url.partition("start=")[2].partition("&")[0])
        if len(starts) == 2:
            held.set()
        else:
            await route.continue_()

    await ask(chat, "Good morning.")
    await chat.route("**/api/v1/imports/*?start=*", hold)
    await choose(chat, "Import conversations")
    panel = chat.get_by_role("dialog", name="Import conversations")
    await panel.locator("input[type=file]").set_input_files(export)
    await held.wait()
    await chat.reload()
    await choose(chat, "Import conversations")
    await expect(panel.get_by_role("status")).to_contain_text("Choose the same file to resume it.")
    await panel.locator("input[type=file]").set_input_files(export)
    await expect(panel.get_by_role("button", name="Import", exact=True)).to_be_visible()
    assert starts.count("0") == 1
    await panel.get_by_role("button", name="Cancel").click()
    await expect(panel.get_by_role("button", name="Choose a file")).to_be_visible()


@pytest.mark.usefixtures("working")
async def test_wrong_file_is_refused_in_plain_words(chat: Page, tmp_path: Path) -> None:
    wrong = tmp_path / "photo.zip"
    wrong.write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    await ask(chat, "Good morning.")
    await choose(chat, "Import conversations")
    panel = chat.get_by_role("dialog", name="Import conversations")
    await panel.locator("input[type=file]").set_input_files(wrong)
    await expect(panel.get_by_role("status")).to_have_text(
        "This is no export of Telegram, ChatGPT, Claude or WhatsApp."
    )
    await expect(panel.get_by_role("button", name="Choose a file")).to_be_visible()
