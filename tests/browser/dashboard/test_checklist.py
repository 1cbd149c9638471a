"""The checklist of the first days on the overview: what is done, put away, and back when something breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.axe import look_for_faults
from tests.browser.dashboard.house import House
from tests.browser.dashboard.place import fits

pytestmark = pytest.mark.browser


async def test_the_first_login_shows_what_is_to_be_done_and_where(house: House) -> None:
    page = await house.operator("anna", "admin")
    steps = page.locator(".checklist li")
    await expect(steps).to_have_count(6)
    await expect(page.get_by_text("0 of 6 done")).to_be_visible()
    visitor = await house.visitor()
    await visitor.get_by_role("textbox", name="Message").fill("Hello")
    await visitor.keyboard.press("Enter")
    async with asyncio.timeout(60):
        while not await house.one("SELECT EXISTS (SELECT FROM turns WHERE ended_at IS NOT NULL)"):
            await asyncio.sleep(0.05)
    await house.app.pool.execute(
        "UPDATE operators SET password_hash = 'x' WHERE name = 'anna';"
        "INSERT INTO operator_factors (operator_id, sealed, key_id, last_step, confirmed_at)"
        " SELECT id, 'x', 'k', 1, now() FROM operators WHERE name = 'anna';"
        "UPDATE sites SET allowed_origins = '{https://shop.example}'"
    )
    await page.reload()
    await expect(page.get_by_text("2 of 6 done")).to_be_visible()
    await expect(steps.nth(4)).to_contain_text("done")
    await steps.nth(0).get_by_role("link").click()
    await expect(page.get_by_role("tab", name="Model")).to_have_attribute("aria-selected", "true")


async def test_dismissed_checklist_returns_when_something_breaks(house: House) -> None:
    page = await house.operator("anna", "admin")
    await page.get_by_role("button", name="Hide").click()
    await expect(page.locator(".checklist")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_role("heading", name="The built-in demo answers")).to_be_visible()
    await expect(page.locator(".checklist")).to_have_count(0)
    other = await house.operator("ben", "admin")
    await expect(other.locator(".checklist li")).to_have_count(6)
    await house.app.pool.execute("INSERT INTO alerts (kind, key, detail) VALUES ('no_backup', 'data', '{}')")
    await page.reload()
    await expect(page.locator(".checklist .broken")).to_contain_text("needs attention")
    await expect(page.get_by_role("button", name="Hide")).to_have_count(0)
    await house.app.pool.execute("UPDATE alerts SET ended_at = now()")
    await page.reload()
    await expect(page.get_by_role("heading", name="The built-in demo answers")).to_be_visible()
    await expect(page.locator(".checklist")).to_have_count(0)
    await page.get_by_role("link", name="Settings", exact=True).click()
    await page.get_by_role("button", name="Show the checklist").click()
    await expect(page.locator(".checklist li")).to_have_count(6)


async def test_who_cannot_set_anything_up_sees_no_checklist(house: House) -> None:
    page = await house.operator("olga", "operator")
    await expect(page.get_by_role("heading", name="The built-in demo answers")).to_be_visible()
    await expect(page.locator(".checklist")).to_have_count(0)


@pytest.mark.parametrize("how", ["wide", "narrow", "dark"])
async def test_everybody_can_read_it_at_every_width(house: House, how: str) -> None:
    more: dict[str, Any] = {
        "narrow": {"viewport": {"width": 390, "height": 844}},
        "dark": {"color_scheme": "dark"},
    }
    page = await house.operator("anna", "admin", **more.get(how, {}))
    await expect(page.locator(".checklist li")).to_have_count(6)
    await fits(page)
    assert await look_for_faults(page) == []
