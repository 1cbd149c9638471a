"""A browser at a real web process, whose model is a fake that a test writes the script for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote

import asyncpg
import pytest
from aiohttp import ClientSession, web

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.app import App, open_app
from tests.kit.app_driver import settings_for
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.web.fixtures import Frame, Screen, hello
from tests.kit.web.http_client import browsing
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener


@dataclass(kw_only=True)
class Visitor:
    """A browser at a real web process."""

    url: str
    app: App
    client: ClientSession
    screen: Screen
    token: str

    async def upload(self, name: str, content: bytes) -> Frame:
        headers = {**self.bearer, "X-File-Name": quote(name)}
        async with self.client.post(f"{self.url}/api/v1/uploads", data=content, headers=headers) as response:
            told: Frame = await response.json()
            assert response.status == 200, told
            return told

    async def ask(self, text: str, *files: Frame, cid: str) -> None:
        ids = [one["id"] for one in files]
        await self.screen.send({"t": "msg", "cid": cid, "text": text, "attachments": ids})
        await self.screen.until("run", state="done")

    async def command(self, name: str, args: str) -> Frame:
        await self.screen.send({"t": "command", "cid": f"k{len(args)}", "command": name, "args": args})
        return await self.screen.until("command.result", command=name)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def status_of(self, file: Frame) -> int:
        async with self.client.get(f"{self.url}{file['url']}", headers=self.bearer) as response:
            return response.status


@pytest.fixture
async def web_guest(database_url: str, redis_url: str, fake: RunningFake) -> AsyncIterator[Visitor]:
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=fake.base_url
    )
    app = await open_app(settings, role="web")
    process = build_web_process(app, model=ModelInfo(name=app.models.chat, offline=False))
    runner = web.AppRunner(process.app, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    url = f"http://127.0.0.1:{await listener.start('127.0.0.1', 0)}"
    process.start()
    async with browsing() as client:
        screen = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
        await screen.send(hello())
        token = (await screen.until("welcome"))["token"]
        yield Visitor(url=url, app=app, client=client, screen=screen, token=token)
    await process.stop(drain_seconds=5)
    await listener.stop_listening()
    await runner.cleanup()
    await app.close()


async def promises_hold(app: App) -> None:
    async with app.pool.acquire() as connection:
        broken = list(await check_invariants(cast("asyncpg.Connection[asyncpg.Record]", connection)))
    assert broken == [], "\n".join(map(str, broken))
