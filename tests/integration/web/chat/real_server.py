"""The web process with its real services."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from shared.bootstrap.app import App, open_app
from shared.config.settings import load_settings
from web.app import make_parts, make_web_app, start_parts, stop_parts
from web.parts import ModelInfo
from web.server.http_server import Listener


@pytest.fixture
async def real(database_url: str, redis_url: str) -> AsyncIterator[tuple[str, App]]:
    services = await open_app(load_settings(database_url=database_url, redis_url=redis_url), role="web")
    parts = make_parts(services, model=ModelInfo(name=services.models.chat, offline=True))
    runner = web.AppRunner(make_web_app(services, parts), shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    port = await listener.start("127.0.0.1", 0)
    start_parts(parts)
    yield f"http://127.0.0.1:{port}", services
    await stop_parts(parts, drain_seconds=5)
    await listener.stop_listening()
    await runner.cleanup()
    await services.close()
