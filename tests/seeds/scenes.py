"""What the scenes are made of: an app under a preset, a tool with long results, commands, requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import ClientSession, web

from shared.ports import Tool, ToolContext, ToolSpec
from shared.services.commands.command_service import CommandResult
from tests.kit.app_driver import Visit, running_app, settings_for, visit, working
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.web.callers import bearer, make_visitor
from tests.kit.web.fixtures import Frame, Screen, hello
from tests.kit.web.http_client import browsing
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener

FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 18
FACTS = (
    "Please remember that my sister Ingrid lives in Tromsø and works as a glaciologist.",
    "The invoice number of the piano is PX-4471.",
    "We decided to paint the kitchen in ochre on 14 March.",
)


class House(Protocol):
    """`async with house(preset="arawn") as guest`: an app with these settings, and one visitor."""

    def __call__(self, *tools: Tool, **settings: Any) -> AbstractAsyncContextManager[Visit]: ...


def house_on(database_url: str, redis_url: str, provider: RunningFake) -> House:
    @asynccontextmanager
    async def opened(*tools: Tool, **settings: Any) -> AsyncIterator[Visit]:
        usual = {"anthropic_api_key": "test-key", "anthropic_base_url": provider.base_url}
        given = settings_for(database_url, redis_url, **{**usual, "cap_total_per_day_usd": "100", **settings})
        async with running_app(given, tools=tools) as app:
            yield await visit(app)

    return opened


class Shelf:
    """A tool whose results are as long as a test says."""

    spec = ToolSpec(
        name="read_shelf",
        description="Reads a shelf.",
        input_schema={"type": "object", "properties": {"shelf": {"type": "string"}}, "required": ["shelf"]},
    )
    idempotent = True
    timeout_seconds = 5.0

    def __init__(self, chars: int = 6_000) -> None:
        self.chars = chars

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        line = f"Shelf {arguments['shelf']} holds a book. "
        return (line * (self.chars // len(line) + 1))[: self.chars]


async def read_shelf(guest: Visit, provider: RunningFake, shelf: str) -> str:
    """The assistant's answer after it has called the tool."""
    call = {"name": Shelf.spec.name, "input": {"shelf": shelf}}
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [call]}}])
    return await guest.ask(f"Please read shelf {shelf}.")


async def command(guest: Visit, name: str, args: str = "", *, works: bool = True) -> CommandResult:
    """As a person types it, with a worker beside it."""

    async def run() -> CommandResult:
        return await guest.app.commands.run(
            session_id=guest.session_id, address_id=guest.address_id, name=name, args=args
        )

    if not works:
        return await run()
    async with working(guest):
        return await run()


async def requests(provider: RunningFake, kind: str = "chat") -> list[Any]:
    return [record for record in await provider.requests() if record["kind"] == kind]


async def newest(provider: RunningFake, kind: str = "chat") -> Any:
    return (await requests(provider, kind))[-1]


def first_words(record: Any) -> str:
    return words_of(record["body"]["messages"][0])


def newest_words(record: Any) -> str:
    return words_of(record["body"]["messages"][-1])


def said(record: Any) -> str:
    return json.dumps(record["body"]["messages"], ensure_ascii=False)


def words_of(message: Any) -> str:
    """The texts of a message of a request, without the day on which it was written."""
    content = message["content"]
    if isinstance(content, str):
        return content
    texts = [block.get("text", "") for block in content]
    return "\n".join(text for text in texts if not text.startswith("<written_on>"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The web server in front of an app, and the visitor's own way in.

    The server answers what is said, so that nothing is said to `guest` beside it.
    """

    url: str
    guest: Visit
    http: ClientSession
    token: str
    session: str
    """As the outside knows it."""

    async def call(self, method: str, path: str, **sent: Any) -> tuple[int, Any]:
        headers = {**bearer(self.token), **sent.pop("headers", {})}
        async with self.http.request(method, f"{self.url}/api/v1{path}", headers=headers, **sent) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()

    async def ask(self, text: str) -> Any:
        """What the server tells when the message was answered."""
        path = f"/sessions/{self.session}/messages?wait=60"
        status, told = await self.call("POST", path, json={"text": text})
        assert status in (200, 422), told
        return told

    async def screen(self) -> Screen:
        """A WebSocket that is greeted."""
        socket = await self.http.ws_connect(f"{self.url}/ws", headers={"Origin": self.url})
        screen = Screen(socket=socket)
        await screen.send(hello(token=self.token))
        await screen.until("welcome")
        return screen

    async def send(self, screen: Screen, name: str, args: Any = "", *, cid: str = "k1") -> Frame:
        """A command over the socket, to its result."""
        await screen.send({"t": "command", "cid": cid, "command": name, "args": args})
        return await screen.until("command.result", cid=cid)


@asynccontextmanager
async def in_front_of(guest: Visit) -> AsyncIterator[Front]:
    app = guest.app
    process = build_web_process(app, model=ModelInfo(name=app.models.chat, offline=False))
    runner = web.AppRunner(process.app, shutdown_timeout=1)
    await runner.setup()
    listener = Listener(runner)
    url = f"http://127.0.0.1:{await listener.start('127.0.0.1', 0)}"
    process.start()
    row, token = await make_visitor(app.pool)
    own = Visit(app=app, session_id=row.session_id, address_id=row.address_id)
    try:
        async with browsing() as http:
            session = str(row.session_public_id)
            yield Front(url=url, guest=own, http=http, token=token, session=session)
    finally:
        await process.stop(drain_seconds=5)
        await listener.stop_listening()
        await runner.cleanup()
