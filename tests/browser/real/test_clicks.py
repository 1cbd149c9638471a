"""Tasks of visitors with their clicks in a real browser; docs/widget.md has the same numbers beside peers.

A click of the mouse counts, and so does each key that is no text, such as Enter. Typing and pointing do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.browser.real.hands import ask

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parents[3] / "docs/widget.md"
ROW = re.compile(r"^\| (?P<task>[a-z][^|]+) \| (?P<ours>\d+) \| (?P<fewest>\d+|–) \|", re.MULTILINE)
MANY = 'UPDATE sites SET config = config || \'{"conversations": "many"}\''


@dataclass(kw_only=True)
class Person:
    """A visitor whose clicks are counted."""

    page: Page
    clicks: int = 0

    @property
    def box(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    async def click(self, what: Locator) -> None:
        self.clicks += 1
        await what.click()

    async def enter(self, text: str) -> None:
        """Type into the composer and press Enter."""
        await self.box.fill(text)
        if text.startswith("/"):
            await self.box.press("Escape")  # The list of commands closes by itself when a command is whole.
        self.clicks += 1
        await self.box.press("Enter")

    async def menu(self, item: str) -> None:
        await self.click(self.page.get_by_role("button", name="Menu"))
        await self.click(self.page.get_by_role("menuitem", name=item, exact=True))

    async def act(self, message: Locator, name: str) -> None:
        """Point at a message and press one of its buttons."""
        await message.hover()
        await self.click(message.get_by_role("button", name=name, exact=True))

    def done(self) -> int:
        """Return the clicks of a task; the next one begins."""
        clicks, self.clicks = self.clicks, 0
        return clicks


@pytest.fixture
async def clicker(database_url: str, url: str, tabs: BrowserContext) -> Person:
    connection = await asyncpg.connect(database_url)
    await connection.execute(MANY)
    await connection.close()
    page = await tabs.new_page()
    await page.set_viewport_size({"width": 1280, "height": 780})
    await page.goto(f"{url}/chat")
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    return Person(page=page)


async def do_tasks(person: Person) -> dict[str, int]:
    """Do each task; return its clicks."""
    page, told = person.page, dict[str, int]()
    answers, questions = page.locator("article.assistant[data-status=sent]"), page.locator("article.person")

    await person.enter("My cat is called Miso.")
    await expect(answers).to_have_count(1)
    told["open the chat page and ask"] = person.done()

    async with page.expect_file_chooser() as choosing:
        await person.click(page.get_by_role("button", name="Attach files"))
    await (await choosing.value).set_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"Miso"})
    await expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
    await person.enter("What is in this file?")
    await expect(answers).to_have_count(2)
    told["attach a file and send it"] = person.done()

    await person.enter("And who are you?")
    await expect(answers).to_have_count(3)
    person.done()
    await questions.last.hover()
    await person.click(questions.last.get_by_role("button", name="Edit", exact=True))
    field = questions.last.get_by_role("textbox", name="Edit message")
    await field.fill("And who is Miso?")
    person.clicks += 1
    await field.press("Enter")
    await expect(questions.last.locator(".body")).to_have_text("And who is Miso?")
    await expect(page.get_by_role("button", name="Answer again")).to_be_visible()
    told["edit the question and ask again"] = person.done()

    await person.act(answers.last, "Copy")
    await expect(answers.last.get_by_role("button", name="Copied")).to_be_visible()
    told["copy an answer"] = person.done()

    await person.act(answers.last, "Good answer")
    await expect(answers.last.get_by_role("button", name="Good answer")).to_have_attribute(
        "aria-pressed", "true"
    )
    told["rate an answer"] = person.done()

    await person.act(answers.last, "Pin")
    await expect(answers.last.get_by_role("button", name="Unpin")).to_be_visible()
    told["pin a message"] = person.done()

    await person.enter("/search Miso")
    await person.click(page.get_by_role("dialog", name="Search").locator(".found button").last)
    await expect(page.locator("article:focus")).to_have_count(1)
    told["find an old message"] = person.done()

    await person.menu("Go to a date…")
    await page.locator("input[type=date]").fill("2026-01-01")
    person.clicks += 1
    await page.locator("input[type=date]").press("Enter")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    told["go to a date"] = person.done()

    await person.act(answers.first, "Fork from here")
    await expect(questions).to_have_count(1)
    told["fork at a message"] = person.done()

    side = page.get_by_role("navigation", name="Conversations")
    await person.click(side.locator("li").last.get_by_role("button").first)
    await expect(questions).to_have_count(3)
    told["switch to another conversation"] = person.done()

    await ask(page, "Please remember that I like boats.")
    await person.menu("Memory")
    await person.click(page.get_by_role("dialog", name="Memory").get_by_role("button", name="Delete").first)
    await expect(page.get_by_role("dialog", name="Memory").get_by_role("button", name="Undo")).to_be_visible()
    told["see what is remembered and delete a note"] = person.done()
    await page.keyboard.press("Escape")

    async with page.expect_download() as saving:
        await person.menu("Download (Markdown)")
    assert (await saving.value).suggested_filename.endswith(".md")
    told["export the conversation"] = person.done()

    await person.enter("/human")
    await expect(page.locator("article.result").last).to_be_visible()
    told["ask for a person"] = person.done()

    await person.click(side.get_by_role("button", name="New conversation"))
    await expect(questions).to_have_count(0)
    told["begin a new conversation"] = person.done()
    return told


def read_table() -> dict[str, tuple[int, int | None]]:
    """Return by task of docs/widget.md: our clicks, and those of the peer that needs fewest."""
    return {
        found["task"]: (int(found["ours"]), int(found["fewest"]) if found["fewest"] != "–" else None)
        for found in ROW.finditer(DOCS.read_text())
    }


async def test_tasks_of_visitors_take_the_documented_clicks(clicker: Person) -> None:
    documented = {task: ours for task, (ours, _) in read_table().items() if task != "stop an answer"}
    assert await do_tasks(clicker) == documented


def test_no_task_takes_more_clicks_than_in_the_best_peer() -> None:
    table = read_table()
    assert len(table) >= 12
    assert {task: row for task, row in table.items() if row[1] is not None and row[0] > row[1]} == {}
