"""A web process, or a browser of an operator at a seeded place, logged in once for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page

from shared.adapters.postgres.db.pool import open_pool
from shared.config.settings import load_settings
from tests.browser.dashboard.house import House, open_house
from tests.browser.dashboard.people_dashboard import Parts, PeopleDashboard
from tests.browser.dashboard.place import Place, Seen, Stored, log_in
from tests.browser.kept import EMPTY, GENUINE
from tests.browser.patience import WAIT_MS
from tests.kit.dashboard.fixtures import NobodyListens, Pool, RunCommands
from tests.kit.dashboard.people_seed import people
from tests.kit.dashboard.serve import served


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


@pytest.fixture
def people_parts() -> Parts:
    """Parts of `people_dashboard` beside the usual ones; a module overrides them."""
    return lambda pool: {}


@pytest.fixture
async def people_dashboard(
    browser: Browser, database_url: str, people_parts: Parts, tolerated: tuple[str, ...]
) -> AsyncIterator[PeopleDashboard]:
    """The dashboard over some people."""
    pool = await open_pool(database_url, size=4)
    async with pool.acquire() as connection:
        crowd = await people(connection)
    usual = {"settings": load_settings(), "commands": RunCommands(), "news": NobodyListens()}
    async with served(web.Application(), pool=pool, **usual | people_parts(pool)) as url:
        opened = PeopleDashboard(url=url, pool=pool, crowd=crowd, browser=browser)
        yield opened
        for context in opened.contexts:
            await context.close()
    await pool.close()
    assert [line for line in opened.complaints if not any(part in line for part in tolerated)] == []


@pytest.fixture(scope="module")
async def place_pool(module_database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(module_database_url, size=4)
    yield pool
    await pool.close()


@pytest.fixture(scope="module")
def place_options() -> dict[str, Any]:
    """Arguments of `served` for `place`; a module overrides them."""
    return {}


@pytest.fixture(scope="module")
async def place(
    module_database_url: str, place_pool: Pool, seeded: Stored, place_options: dict[str, Any]
) -> AsyncIterator[Place]:
    """The dashboard over what the module's own `seeded` has stored."""
    commands = RunCommands()
    given = {"settings": load_settings(), "commands": commands, **place_options}
    async with served(web.Application(), pool=place_pool, **given) as url:
        yield Place(
            url=url, database_url=module_database_url, pool=place_pool, seeded=seeded[0], links=seeded[1],
            commands=commands,
        )  # fmt: skip


@pytest.fixture
async def seen(context: BrowserContext, place: Place, tolerated: tuple[str, ...]) -> AsyncIterator[Seen]:
    """Logged in; fails when the page complained, broke its own policy or asked another host."""
    seen = Seen(page=await context.new_page())
    seen.page.on("console", lambda line: seen.complaints.append(line.text) if line.type == "error" else None)
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("dialog", lambda dialog: seen.complaints.append(dialog.message))
    seen.page.on(
        "request",
        lambda request: (
            None if request.url.startswith((place.url, "data:")) else seen.foreign.append(request.url)
        ),
    )
    if not place.cookies:
        await log_in(seen.page, place)
        place.cookies = [dict(cookie) for cookie in await context.cookies()]
    yield seen
    assert [line for line in seen.complaints if not any(part in line for part in tolerated)] == []
    assert seen.foreign == []


@pytest.fixture
async def page(seen: Seen) -> Page:
    return seen.page


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
