"""Clicks that tasks of operators take, as `docs/clicks.md` has them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.adapters.postgres.people.visitors import generate_token
from shared.core.identity.handover import NewHandover
from shared.core.session.turns import Inbound
from tests.browser.dashboard.house import House
from tests.browser.dashboard.people_dashboard import PeopleDashboard
from tests.kit.dashboard import seed
from tests.kit.fakes.bot_api import TOKEN

pytestmark = pytest.mark.browser
DOCUMENT = Path(__file__).parents[3] / "docs" / "clicks.md"
COUNT = """addEventListener("click", (event) => {
  if (event.isTrusted && event.detail) window.counted?.();
}, true)"""
"""A click of the mouse has a number; what a key does to a button has none."""
FOCUSED = "input:focus, textarea:focus"
"""The field that gets what is typed, which a page focuses a moment after the click that shows it."""
_ROW = re.compile(r"^\| (?P<task>[^|]+?) \| (?P<clicks>\d+) \|", re.MULTILINE)


def documented(task: str) -> int:
    """Return the clicks that the document names for a task of operators."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("## Operators")[2].partition("\n## ")[0]
    return {one["task"]: int(one["clicks"]) for one in _ROW.finditer(text)}[task]


@dataclass(slots=True)
class Counted:
    """An operator's page whose clicks of the mouse are counted."""

    page: Page
    url: str
    clicks: int = 0

    async def begin(self, path: str) -> Page:
        """Open the page that the task begins on, and count from there."""
        await self.page.goto(f"{self.url}{path}")
        await expect(self.page.locator("main h1")).to_be_visible()
        await expect(self.page.locator(".skeleton:visible")).to_have_count(0)
        self.clicks = 0
        return self.page

    def end(self, task: str) -> None:
        assert (task, self.clicks) == (task, documented(task))


@pytest.fixture
def house_options() -> dict[str, Any]:
    return {
        "handover": "on", "handover_minutes": 600, "secret_key": "k" * 40, "anthropic_api_key": "sk-first",
    }  # fmt: skip


@pytest.fixture
async def operator(house: House) -> Counted:
    page = await house.operator("Anna", "admin", viewport={"width": 1360, "height": 900})
    return await count_clicks(page, house.url)


async def count_clicks(page: Page, url: str) -> Counted:
    counted = Counted(page=page, url=url)

    def count() -> None:
        counted.clicks += 1

    await page.expose_function("counted", count)
    await page.add_init_script(COUNT)
    return counted


@pytest.fixture
async def counted(people_dashboard: PeopleDashboard) -> Counted:
    """An operator's page over Berta's long conversation with five summaries."""
    async with people_dashboard.pool.acquire() as connection:
        await seed.a_long_session(connection, turns=412, person="Berta")
        await connection.execute("UPDATE turn_context_audit SET hard_limit = 500000")
        await connection.execute("UPDATE addresses SET account = '777' WHERE channel = 'telegram'")
    return await count_clicks(await people_dashboard.operator("admin"), people_dashboard.url)


async def waiting(house: House, name: str, text: str) -> str:
    """Store a visitor who asked for a human and wrote; return the conversation's id."""
    stores = house.app.stores
    row = await stores.visitors.create(generate_token(), site="default")
    assert row is not None
    await stores.handovers.request_handover(
        NewHandover(session_id=row.session_id, address_id=row.address_id, asked_by="person")
    )
    await house.app.sessions.accept(
        Inbound(
            session_id=row.session_id, address_id=row.address_id, text=text, dedupe_key=f"web:{name}",
        )
    )  # fmt: skip
    await house.app.pool.execute(
        "UPDATE contacts SET display_name = $2 WHERE id = (SELECT contact_id FROM sessions WHERE id = $1)",
        row.session_id,
        name,
    )
    return str(row.session_public_id)


async def pick(page: Page, name: str, text: str) -> None:
    """Choose by typing in a dialog."""
    box = page.get_by_role("combobox", name=name)
    await expect(box).to_be_focused()
    await page.keyboard.type(text)
    await page.keyboard.press("Enter")
    await expect(box).to_have_count(0)


async def test_change_of_the_model_key(operator: Counted) -> None:
    page = await operator.begin("/dashboard")
    await page.get_by_role("link", name="Settings", exact=True).click()
    await page.get_by_label("Anthropic: key", exact=True).click()
    await page.keyboard.type("sk-second")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Saved", exact=False).first).to_be_visible()
    operator.end("Change the model key")


async def test_test_of_a_provider(operator: Counted) -> None:
    page = await operator.begin("/dashboard")
    await page.get_by_role("link", name="Settings", exact=True).click()
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_text("Testing…").or_(page.locator(".trouble, .done")).first).to_be_visible()
    operator.end("Test a provider")


async def test_conversation_found_by_its_text(operator: Counted, house: House) -> None:
    await waiting(house, "Ada", "My parcel is a green one")
    page = await operator.begin("/dashboard")
    await page.get_by_role("button", name="Go to").click()
    await expect(page.locator(FOCUSED)).to_have_count(1)
    await page.keyboard.type("parcel")
    await expect(page.get_by_role("option", name="Search messages for “parcel”")).to_be_visible()
    await page.keyboard.press("Enter")
    await page.locator(".found .hit").first.click()
    await expect(page.get_by_role("heading", name="Ada", level=1)).to_be_visible()
    operator.end("Find a conversation by its text")


async def test_conversation_taken_over_and_answered(operator: Counted, house: House) -> None:
    await waiting(house, "Ada", "Where is my parcel?")
    page = await operator.begin("/dashboard/inbox")
    await page.get_by_role("link", name="Ada").click()
    await expect(page.get_by_text("Sending takes the conversation.")).to_be_visible()
    await page.get_by_role("textbox", name="Your reply").click()
    await page.keyboard.type("It arrives today.")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.operator")).to_contain_text("It arrives today.")
    assert await house.one("SELECT operator_name FROM handovers WHERE ended_at IS NULL") == "Anna"
    operator.end("Take over and answer")


async def test_conversation_assigned(operator: Counted, house: House) -> None:
    await waiting(house, "Ada", "Where is my parcel?")
    await (await house.operator("Bert")).close()
    page = await operator.begin("/dashboard/inbox")
    await page.get_by_role("link", name="Ada").click()
    await page.get_by_role("button", name="Assign", exact=True).click()
    await pick(page, "Assign", "bert")
    await expect(page.locator(".inbox-list li")).to_contain_text("with Bert")
    operator.end("Assign a conversation")


async def test_conversation_resolved(operator: Counted, house: House) -> None:
    await waiting(house, "Ada", "Thank you!")
    page = await operator.begin("/dashboard/inbox")
    await page.get_by_role("link", name="Ada").click()
    await page.get_by_role("button", name="Resolve", exact=True).click()
    await expect(page.get_by_text("Nobody is waiting for a human.")).to_be_visible()
    operator.end("Resolve a conversation")


async def test_canned_reply_sent(operator: Counted, house: House) -> None:
    await waiting(house, "Ada", "Where is my parcel?")
    await house.app.stores.inbox.save_canned("hello", "Hello {{name}}!", version=0, by="Anna")
    page = await operator.begin("/dashboard/inbox")
    await page.get_by_role("link", name="Ada").click()
    await page.get_by_role("textbox", name="Your reply").click()
    await page.keyboard.type("/he")
    await expect(page.get_by_role("option")).to_have_count(1)
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.operator")).to_contain_text("Hello Ada!")
    operator.end("Send a canned reply")


async def test_three_conversations_resolved_together(operator: Counted, house: House) -> None:
    for name in ("Ada", "Ben", "Cleo"):
        await waiting(house, name, "Thank you!")
    page = await operator.begin("/dashboard/inbox")
    for name in ("Ada", "Ben", "Cleo"):
        await page.get_by_role("checkbox", name=f"Select {name}").click()
    await (
        page.get_by_role("group", name="Selected conversations").get_by_role("button", name="Resolve").click()
    )
    await expect(page.get_by_text("Nobody is waiting for a human.")).to_be_visible()
    operator.end("Resolve three conversations together")


async def test_macro_run(operator: Counted, house: House) -> None:
    await waiting(house, "Ada", "Where is my parcel?")
    await house.app.stores.inbox.save_macro(
        "refund", labels=["Refund"], assignee="", reply="", resolve=True, version=0, by="Anna"
    )
    page = await operator.begin("/dashboard/inbox")
    await page.get_by_role("link", name="Ada").click()
    await page.get_by_role("button", name="Macros").click()
    await pick(page, "Macros", "refund")
    await expect(page.get_by_text("Nobody is waiting for a human.")).to_be_visible()
    operator.end("Run a macro")


async def test_macro_run_on_three_conversations(operator: Counted, house: House) -> None:
    for name in ("Ada", "Ben", "Cleo"):
        await waiting(house, name, "Thank you!")
    await house.app.stores.inbox.save_macro(
        "bye", labels=[], assignee="", reply="Bye, {{name}}.", resolve=True, version=0, by="Anna"
    )
    page = await operator.begin("/dashboard/inbox")
    for name in ("Ada", "Ben", "Cleo"):
        await page.get_by_role("checkbox", name=f"Select {name}").click()
    await (
        page.get_by_role("group", name="Selected conversations").get_by_role("button", name="Macros").click()
    )
    await pick(page, "Macros", "bye")
    await expect(page.get_by_text("bye ran on 3 conversations.").first).to_be_visible()
    operator.end("Run a macro on three conversations")


async def test_reason_of_a_summary_read(counted: Counted) -> None:
    page = await counted.begin("/dashboard")
    await page.get_by_role("link", name="Berta", exact=True).click()
    await page.get_by_role("button", name="Summaries: 5").click()
    await expect(page.locator(".fold-item").first).to_contain_text("automatic")
    counted.end("Read why a conversation was summarised")


async def test_cost_of_a_person_seen(counted: Counted) -> None:
    page = await counted.begin("/dashboard")
    await page.get_by_role("link", name="Costs", exact=True).click()
    await page.locator(".costs-people").scroll_into_view_if_needed()
    people = page.get_by_role("table", name="By person")
    await expect(people.get_by_role("row", name=re.compile("Berta"))).to_contain_text("$")
    counted.end("See what a person costs")


async def test_operator_invited(operator: Counted) -> None:
    page = await operator.begin("/dashboard")
    await page.get_by_role("link", name="Operators", exact=True).click()
    await page.get_by_label("Name").click()
    await page.keyboard.type("ben")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="Login link for ben")).to_be_visible()
    operator.end("Invite an operator")


async def test_bot_added(operator: Counted, house: House) -> None:
    page = await operator.begin("/dashboard")
    await page.get_by_role("link", name="Connect a Telegram bot").click()
    await page.get_by_role("textbox", name="Token of the bot").click()
    await page.keyboard.type(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Saved", exact=False).first).to_be_visible()
    assert await house.one("SELECT count(*) FROM stored_settings WHERE name = 'TELEGRAM_BOT_TOKEN'") == 1
    operator.end("Add a Telegram bot")


async def test_site_added(operator: Counted, house: House) -> None:
    page = await operator.begin("/dashboard")
    await page.get_by_role("link", name="Channels", exact=True).click()
    await page.get_by_text("New site").click()
    await expect(page.locator(FOCUSED)).to_have_count(1)
    await page.keyboard.type("shop")
    await page.keyboard.press("Enter")
    await page.get_by_label("Allowed origins, one per line").click()
    await page.keyboard.type("https://shop.example")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved", exact=False).first).to_be_visible()
    assert await house.one("SELECT allowed_origins FROM sites WHERE name = 'shop'") == [
        "https://shop.example"
    ]
    operator.end("Add a site")


async def test_person_erased(counted: Counted) -> None:
    page = await counted.begin("/dashboard")
    await page.get_by_role("link", name="Conversations", exact=True).click()
    await page.get_by_role("link", name="People", exact=True).click()
    await page.get_by_role("link", name="Berta", exact=True).click()
    await page.get_by_role("button", name="Erase this person …").click()
    await expect(page.locator("input[name=confirm]")).to_be_focused()
    await page.keyboard.type("Berta")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("is in the log, without content")).to_be_visible()
    counted.end("Erase a person")


async def test_summary_undone(counted: Counted) -> None:
    page = await counted.begin("/dashboard")
    await page.get_by_role("link", name="Berta", exact=True).click()
    await page.get_by_role("button", name="Summaries: 5").click()
    newest = page.locator(".fold-item").first
    await newest.locator("summary").first.click()
    await newest.get_by_role("button", name="Undo").click()
    await expect(page.locator("#say")).to_have_text("The summary is undone.")
    counted.end("Undo a summary")


async def test_limit_changed(operator: Counted, house: House) -> None:
    page = await operator.begin("/dashboard")
    await page.get_by_role("link", name="Settings", exact=True).click()
    await page.get_by_role("tab", name="Spending").click()
    await page.get_by_label("Per day", exact=True).click()
    await page.keyboard.type("9")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Saved", exact=False).first).to_be_visible()
    assert (
        await house.one("SELECT value FROM stored_settings WHERE name = 'EVERTALK_CAP_TOTAL_PER_DAY_USD'")
        == "9"
    )
    operator.end("Change a spending limit")
