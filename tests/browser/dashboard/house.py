"""The web process with the offline model, for browsers of visitors and of operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, expect

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.bootstrap.app import App, open_app
from shared.bootstrap.from_settings import resolve_server_urls
from shared.config.settings import Settings
from tests.browser.patience import WAIT_MS
from web.app import WebProcess, build_web_process
from web.dashboard.access import COOKIE
from web.ports import ModelInfo
from web.server.http_server import Listener


@dataclass(slots=True)
class House:
    """The web process with the offline model, and the browsers of those who come."""

    url: str
    app: App
    process: WebProcess
    browser: Browser
    contexts: list[BrowserContext] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    tolerated: tuple[str, ...] = ()

    async def _page(self, **options: Any) -> Page:
        context = await self.browser.new_context(locale="en-GB", **options)
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        page = await context.new_page()
        page.on("console", lambda one: self.complaints.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        return page

    async def visitor(self) -> Page:
        page = await self._page()
        await page.goto(f"{self.url}/chat")
        await page.get_by_role("textbox", name="Message").wait_for()
        return page

    async def operator(self, name: str, role: str = "operator", path: str = "/dashboard", **how: Any) -> Page:
        """Somebody who is logged in."""
        token = f"login-of-{name}"
        await self.app.pool.execute(
            """WITH one AS (INSERT INTO operators (name, role) VALUES ($1, $2) RETURNING id)
               INSERT INTO operator_sessions (token_hash, operator_id, expires_at)
               SELECT $3, id, now() + interval '1 hour' FROM one""",
            name,
            role,
            hash_secret(token),
        )
        page = await self._page(**{"viewport": {"width": 1360, "height": 900}, **how})
        await page.context.add_cookies([{"name": COOKIE, "value": token, "url": self.url}])
        await page.goto(self.url + path)
        await expect(page.locator("main h1")).to_be_visible()
        return page

    async def one(self, statement: str, *arguments: Any) -> Any:
        return await self.app.pool.fetchval(statement, *arguments)

    async def session_path(self) -> str:
        return (
            f"/dashboard/sessions/{await self.one('SELECT public_id FROM sessions ORDER BY id DESC LIMIT 1')}"
        )


@asynccontextmanager
async def open_house(settings: Settings, browser: Browser, *, alerts: bool = False) -> AsyncIterator[House]:
    """Afterwards nothing may have gone wrong: neither on a page nor in the database."""
    app = await open_app(settings, role="web")
    process = build_web_process(app, model=ModelInfo(name=app.models.chat, offline=True))
    runner = web.AppRunner(process.app, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    port = await listener.start("127.0.0.1", 0)
    process.start()
    if alerts:
        process.tasks.run_forever(app.alert_monitor.run_sends)
    house = House(url=f"http://127.0.0.1:{port}", app=app, process=process, browser=browser)
    yield house
    for context in house.contexts:
        await context.close()
    await process.stop(drain_seconds=5)
    await listener.stop_listening()
    await runner.cleanup()
    await app.close()
    connection = await asyncpg.connect(resolve_server_urls(settings)[0])
    assert await check_invariants(connection) == []
    await connection.close()
    assert [one for one in house.complaints if not any(known in one for known in house.tolerated)] == []
