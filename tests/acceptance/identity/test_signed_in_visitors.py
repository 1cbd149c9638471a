"""People whom a site has signed in, on real services: one conversation on every browser, no one else."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from aiohttp import ClientSession, web
from pydantic import SecretStr

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.app import App, open_app
from shared.cli.editor_session import Terminal
from shared.cli.site import read_site_arguments, run_site
from shared.config.settings import load_settings
from tests.kit.web.fixtures import Frame, Screen, hello
from tests.kit.web.http_client import browsing
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener

KEY = "k" * 40
SHOP = "https://shop.example"


class Shop:
    """A server with sites, made at the terminal as its operator would."""

    def __init__(self, url: str, app: App, folder: Path, client: ClientSession) -> None:
        self.url = url
        self.app = app
        self.folder = folder
        self.client = client

    async def site(self, *words: str) -> list[str]:
        said: list[str] = []
        assert self.app.settings.database_url is not None
        code = await run_site(
            read_site_arguments(words), database_url=self.app.settings.database_url.get_secret_value(),
            drafts=self.folder, terminal=Terminal(say=said.append),
            secret_key=lambda: KEY.encode(),
        )  # fmt: skip
        assert code == 0, said
        return said

    async def browser(self, site: str, **values: Any) -> tuple[Screen, Frame]:
        screen = Screen(socket=await self.client.ws_connect(f"{self.url}/ws", headers={"Origin": SHOP}))
        await screen.send(hello(site=site, **values))
        first = await screen.next()
        assert first is not None
        return screen, first


@pytest.fixture
async def shop(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    settings = load_settings(database_url=database_url, redis_url=redis_url, secret_key=SecretStr(KEY))
    app = await open_app(settings, role="web")
    process = build_web_process(app, model=ModelInfo(name=app.models.chat, offline=True))
    runner = web.AppRunner(process.app, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    port = await listener.start("127.0.0.1", 0)
    process.start()
    async with browsing() as client:
        yield Shop(f"http://127.0.0.1:{port}", app, tmp_path, client)
    await process.stop(drain_seconds=5)
    await listener.stop_listening()
    await runner.cleanup()
    await app.close()


def signed(secret: str, site: str, subject: str) -> str:
    moment = int(time.time())
    claims = {"sub": subject, "aud": site, "iat": moment, "exp": moment + 300, "name": "Ada"}
    return jwt.encode(claims, secret, algorithm="HS256")


async def said(screen: Screen, text: str, cid: str) -> str:
    await screen.say(text, cid=cid)
    answer = await screen.until("msg", role="assistant")
    await screen.until("run", state="done")
    return str(answer["text"])


def words(welcome: Frame) -> list[str]:
    return [event["text"] for event in welcome["events"] if event.get("role") == "person"]


@pytest.mark.control("S08")
async def test_browsers_of_one_person_share_conversation_closed_to_other_sites(
    shop: Shop,
) -> None:
    secrets = {}
    for name in ("north", "south"):
        await shop.site("add", name, "--audience", "public", "--origin", SHOP, "--verified", "optional")
        secrets[name] = (await shop.site("secret", name, "add"))[0]

    # Begun as a stranger, gone on as Ada, and found again on her phone.
    laptop, before = await shop.browser("north")
    await said(laptop, "Where is my parcel?", "a1")
    await laptop.send({"t": "identify", "identity": signed(secrets["north"], "north", "ada")})
    mine = await laptop.until("welcome")
    assert mine["session"] == before["session"]
    phone, there = await shop.browser("north", identity=signed(secrets["north"], "north", "ada"))
    assert words(there) == ["Where is my parcel?"]
    await said(phone, "It came, thank you", "a2")
    assert (await laptop.until("msg", role="person"))["text"] == "It came, thank you"

    # A stranger's talk on a third browser is kept beside it.
    third, other = await shop.browser("north")
    await said(third, "A quick question", "a3")
    _, joined = await shop.browser(
        "north", token=other["token"], identity=signed(secrets["north"], "north", "ada")
    )
    assert words(joined) == ["Where is my parcel?", "It came, thank you"]

    # The other site signs what it likes: it reaches its own people only.
    for forged in (
        signed(secrets["south"], "north", "ada"),
        signed(secrets["south"], "south", "ada"),
        signed(secrets["north"], "south", "ada"),
    ):
        _, refusal = await shop.browser("north", identity=forged)
        assert (refusal["t"], refusal["code"]) == ("error", "identity_invalid")
    _, hers = await shop.browser("south", identity=signed(secrets["south"], "south", "ada"))
    assert hers["session"] != mine["session"]
    assert words(hers) == []
    _, refusal = await shop.browser("south", token=mine["token"])
    assert refusal["code"] == "unknown_token"

    async with shop.app.pool.acquire() as connection:
        assert await check_invariants(cast("Any", connection)) == []
