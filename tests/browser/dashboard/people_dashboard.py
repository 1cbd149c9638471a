"""The dashboard over some people, and operators of every role who look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from playwright.async_api import Browser, BrowserContext, Page, expect

from shared.adapters.postgres.people.operator_auth import hash_secret
from tests.browser.patience import WAIT_MS
from tests.kit.dashboard.fixtures import Pool
from tests.kit.dashboard.people_seed import Crowded
from web.dashboard.access import COOKIE

Parts: TypeAlias = Callable[[Pool], dict[str, Any]]
"""Arguments of `served`, made when the database is open."""


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
