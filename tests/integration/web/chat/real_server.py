"""The web process with its real services."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from shared.bootstrap.app import App, open_app
from shared.config.settings import load_settings
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener


@pytest.fixture
async def real(database_url: str, redis_url: str) -> AsyncIterator[tuple[str, App]]:
    services = await open_app(load_settings(database_url=database_url, redis_url=redis_url), role="web")
    process = build_web_process(services, model=ModelInfo(name=services.models.chat, offline=True))
    runner = web.AppRunner(process.app, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    port = await listener.start("127.0.0.1", 0)
    process.start()
    yield f"http://127.0.0.1:{port}", services
    await process.stop(drain_seconds=5)
    await listener.stop_listening()
    await runner.cleanup()
    await services.close()
