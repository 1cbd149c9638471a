"""A web process, or a browser of an operator at a seeded place, logged in once for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext

from shared.config.settings import load_settings
from tests.browser.dashboard.house import House, open_house
from tests.browser.dashboard.place import Place
from tests.browser.kept import EMPTY, GENUINE
from tests.browser.patience import WAIT_MS


@pytest.fixture
def house_options() -> dict[str, Any]:
    """Settings of `house`; a module overrides them."""
    return {}


@pytest.fixture
def house_browser(browser: Browser) -> Browser:
    return browser


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    """Parts of complaints on a console that a test causes."""
    return ()


@pytest.fixture
def sends_alerts() -> bool:
    return False


@pytest.fixture
async def house(
    database_url: str, redis_url: str, house_browser: Browser, tmp_path: Path,
    house_options: dict[str, Any], tolerated: tuple[str, ...], sends_alerts: bool,
) -> AsyncIterator[House]:  # fmt: skip
    """A web process with the built-in demo."""
    given = {"data_dir": tmp_path, **house_options}
    settings = load_settings(database_url=database_url, redis_url=redis_url, **given)
    async with open_house(settings, house_browser, alerts=sends_alerts) as opened:
        opened.tolerated = tolerated
        yield opened


@pytest.fixture(scope="module")
async def shared_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """One for all tests of a module, with an empty page that keeps their process alive."""
    opened = await browser.new_context(viewport={"width": 1360, "height": 900}, locale="en-GB")
    opened.set_default_timeout(WAIT_MS)
    empty = await opened.new_page()
    await empty.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
    await empty.goto(EMPTY)
    yield opened
    await opened.close()


@pytest.fixture
async def context(shared_context: BrowserContext, place: Place) -> AsyncIterator[BrowserContext]:
    """Empty but for the login. What a test changes, it changes on its pages: those are closed."""
    empty = shared_context.pages[0]
    assert empty.url == EMPTY
    if place.cookies:
        await shared_context.add_cookies(place.cookies)
    yield shared_context
    for page in shared_context.pages:
        if page is not empty:
            await page.close()
    await shared_context.clear_cookies()
    browser = await shared_context.new_cdp_session(empty)
    await browser.send("Storage.clearDataForOrigin", {"origin": place.url, "storageTypes": "all"})
    await browser.detach()
    assert await empty.evaluate(GENUINE), "who winds the clock needs a context of their own"
