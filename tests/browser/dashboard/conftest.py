"""A browser of an operator at a seeded place; logged in once for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, BrowserContext

from tests.browser.dashboard.place import WAIT_MS, Place


@pytest.fixture
async def context(browser: Browser, place: Place) -> AsyncIterator[BrowserContext]:
    opened = await browser.new_context(viewport={"width": 1360, "height": 900}, locale="en-GB")
    opened.set_default_timeout(WAIT_MS)
    if place.cookies:
        await opened.add_cookies(place.cookies)
    yield opened
    await opened.close()
