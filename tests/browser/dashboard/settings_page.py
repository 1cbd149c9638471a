"""The page of settings, and what it has stored."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.dashboard.house import House


async def settings_of(house: House, name: str, section: str = "caps", role: str = "admin") -> Page:
    page = await house.operator(name, role, f"/dashboard/settings?section={section}")
    await expect(page.locator(".setting-field").first).to_be_visible()
    return page


async def stored(house: House, name: str) -> str | None:
    found: str | None = await house.one("SELECT value FROM stored_settings WHERE name = $1", name)
    return found
