"""The dashboard over some people, and operators of every role who look at it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, expect

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.config.settings import load_settings
from tests.browser.patience import WAIT_MS
from tests.kit.dashboard.fixtures import NobodyListens, Pool, RunCommands
from tests.kit.dashboard.people_seed import Crowded, people
from tests.kit.dashboard.serve import served
from web.dashboard.access import COOKIE


@dataclass(slots=True)
class PeopleDashboard:
    """The dashboard over some people, and those who look at it."""

    url: str
    pool: Pool
    crowd: Crowded
    browser: Browser
    contexts: list[BrowserContext] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def operator(self, role: str = "operator") -> Page:
        token = f"login-{role}-{len(self.contexts)}"
        await self.pool.execute(
            """WITH one AS (INSERT INTO operators (name, role) VALUES ($1, $2) RETURNING id)
               INSERT INTO operator_sessions (token_hash, operator_id, expires_at)
               SELECT $3, id, now() + interval '1 hour' FROM one""",
            token, role, hash_secret(token),
        )  # fmt: skip
        context = await self.browser.new_context(viewport={"width": 1360, "height": 900}, locale="en-GB")
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        await context.add_cookies([{"name": COOKIE, "value": token, "url": self.url}])
        page = await context.new_page()
        page.on("console", lambda one: self.complaints.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    async def open(self, page: Page, *, query: str = "?tab=memory") -> None:
        await page.goto(f"{self.url}/dashboard/sessions/{self.crowd.maria.public_id}{query}")
        await expect(page.get_by_role("heading", name="Maria", level=1)).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)


@pytest.fixture
async def dashboard(browser: Browser, database_url: str) -> AsyncIterator[PeopleDashboard]:
    pool = await open_pool(database_url, size=4)
    async with pool.acquire() as connection:
        crowd = await people(connection)
    async with served(
        web.Application(), pool=pool, settings=load_settings(), commands=RunCommands(), news=NobodyListens()
    ) as url:
        dashboard = PeopleDashboard(url=url, pool=pool, crowd=crowd, browser=browser)
        yield dashboard
        for context in dashboard.contexts:
            await context.close()
    await pool.close()
    assert dashboard.complaints == []
