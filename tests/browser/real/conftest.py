"""The real server before a real browser: Postgres, Valkey and a model that is offline or a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.app import open_app
from shared.config.settings import load_settings
from tests.browser.patience import WAIT_MS
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.free_ports import free_port
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener

WITHIN_MS = 30_000
_DOUBLED = """
  window.doubled = [];
  new MutationObserver(() => {
    const all = [...document.querySelectorAll("article:not(.assistant)")];
    const shown = all.map(one => one.textContent.trim());
    doubled.push(...shown.filter((words, at) => words && shown.indexOf(words) !== at));
  }).observe(document, {childList: true, subtree: true, characterData: true});
"""
"""What stood there twice, if only for a moment; nobody says the same thing twice."""


@pytest.fixture
def serving_options() -> dict[str, Any]:
    """Settings of the server at `url`; a module overrides them."""
    return {}


@pytest.fixture
async def url(database_url: str, redis_url: str, serving_options: dict[str, Any]) -> AsyncIterator[str]:
    async with serving(database_url, redis_url, **serving_options) as url:
        yield url


@asynccontextmanager
async def serving(database_url: str, redis_url: str, **more: Any) -> AsyncIterator[str]:
    settings = load_settings(database_url=database_url, redis_url=redis_url, **more)
    services = await open_app(settings, role="web")
    process = build_web_process(services, model=ModelInfo(name=services.models.chat, offline=True))
    runner = web.AppRunner(process.app, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    port = await listener.start("127.0.0.1", 0)
    process.start()
    yield f"http://127.0.0.1:{port}"
    await process.stop(drain_seconds=5)
    await listener.stop_listening()
    await runner.cleanup()
    await services.close()
    connection = await asyncpg.connect(database_url)
    assert await check_invariants(connection) == []
    await connection.close()


@pytest.fixture
async def chat(url: str, browser: Browser) -> AsyncIterator[Page]:
    complaints: list[str] = []
    own = await browser.new_context(locale="en-US")
    opened = await own.new_page()
    opened.set_default_timeout(WAIT_MS)
    opened.on(
        "console", lambda one: complaints.append(one.text) if one.type in {"error", "warning"} else None
    )
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    await opened.goto(f"{url}/chat")
    yield opened
    await own.close()
    assert complaints == []


@pytest.fixture
async def web_case(servers: EmbeddedServers, database_url: str, redis_url: str, run_folder: Any) -> Case:
    plant = Plant(servers=servers, folder=run_folder)
    name = database_url.partition("?")[0].rpartition("/")[2]
    return Case(plant=plant, database=name, redis_url=redis_url, port=free_port())


@pytest.fixture
async def tabs(browser: Browser) -> AsyncIterator[BrowserContext]:
    """One person's browser, with as many tabs as they like."""
    context = await browser.new_context(locale="en-US")
    context.set_default_timeout(WITHIN_MS)
    await context.add_init_script(_DOUBLED)
    yield context
    await context.close()
