"""The page of alerts in a real browser: what is open, a test that arrives, and what was seen."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.dashboard.house import House
from tests.browser.dashboard.place import fits
from tests.browser.dashboard.seeded_alerts import SEED
from tests.kit.fakes.webhook_receiver import Receiver, receiving

pytestmark = pytest.mark.browser
SECRET = "s" * 32
PATH = "/dashboard/alerts"


@pytest.fixture
async def webhook() -> AsyncIterator[Receiver]:
    async with receiving(SECRET) as running:
        yield running


@pytest.fixture(autouse=True)
async def seeded_alerts(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(SEED)
    await connection.close()


@pytest.fixture
def house_options(webhook: Receiver) -> dict[str, Any]:
    return {
        "handover": "on", "alert_webhook_url": webhook.url, "alert_webhook_secret": SECRET,
        "alert_telegram_chats": "-1001234567890",
    }  # fmt: skip


@pytest.fixture
def sends_alerts() -> bool:
    """Post to the receiver; nobody brings Telegram's and the mail's."""
    return True


async def look(page: Page, name: str) -> None:
    """A picture where somebody wants to see it."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        await page.screenshot(path=Path(folder) / f"alerts-{name}.png", full_page=True)


async def test_what_is_open_stands_first_and_is_counted_until_it_is_seen(house: House) -> None:
    page = await house.operator("anna", "admin", PATH)
    menu = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Operations")
    await expect(menu).to_contain_text("2")
    waits = page.get_by_role("listitem").filter(has_text="A person is still waiting for a human")
    await expect(waits).to_contain_text("for more than 5 minutes")
    await expect(waits.get_by_role("link", name="Open the conversation")).to_have_attribute(
        "href", "/dashboard/sessions/11111111-2222-3333-4444-555555555555"
    )
    await page.get_by_role("button", name="Seen: 80 % of today's budget is used").click()
    await expect(page.get_by_text("seen by anna", exact=False)).to_be_visible()
    await expect(menu).to_contain_text("1")
    await expect(page.get_by_role("button", name="Seen: 80 % of")).to_have_count(0)
    await expect(page.get_by_role("row").filter(has_text="The disk is nearly full")).to_contain_text(
        "its end"
    )


async def test_a_test_arrives_and_the_page_says_so(house: House, webhook: Receiver) -> None:
    page = await house.operator("anna", "admin", PATH)
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.get_by_text("A test is on its way", exact=False)).to_be_visible()
    row = page.get_by_role("row").filter(has_text="A test of the alerts")
    await expect(row).to_contain_text("webhook: sent")
    await expect(row).to_contain_text("Telegram: to be sent")
    assert [one["alert"]["kind"] for one in webhook.taken] == ["test"]
    assert webhook.faults == []


async def test_a_viewer_only_looks(house: House) -> None:
    page = await house.operator("vera", "viewer", PATH)
    await expect(page.get_by_role("heading", name="Open", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Send a test")).to_have_count(0)
    await expect(page.get_by_role("button", name="Seen")).to_have_count(0)


async def test_the_keys_g_and_l_lead_there(house: House) -> None:
    page = await house.operator("anna", "operator", "/dashboard")
    await page.keyboard.type("gl")
    await expect(page.get_by_role("heading", name="Alerts", level=1)).to_be_visible()
    assert page.url.endswith(PATH)


@pytest.mark.parametrize(
    ("name", "scheme", "width"), [("light", "light", 1360), ("dark", "dark", 1360), ("narrow", "light", 390)]
)
async def test_nothing_stands_in_anybodys_way(house: House, name: str, scheme: str, width: int) -> None:
    page = await house.operator(
        "anna", "admin", PATH, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    await expect(page.get_by_role("heading", name="Recipients")).to_be_visible()
    await look(page, name)
    assert await look_for_faults(page) == []
    await fits(page)
