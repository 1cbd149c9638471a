"""Every client of the outside reads a body up to its bound, however long the server goes on sending."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiogram.exceptions import TelegramNetworkError
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from bot.telegram.client.session import MAX_RESPONSE_BYTES, BoundedFile, FileTooLarge, create_bot
from shared.adapters.bounded_bodies import MOST_BYTES, MOST_EVENT_BYTES
from shared.adapters.mcp.pipes import LineReader, LineTooLong
from shared.adapters.mcp.tools import KNOWN_FILE, McpTools
from shared.adapters.media.media_service import MediaService
from shared.adapters.models import ModelEntry, list_models
from shared.adapters.models.embeddings import HttpEncoder
from shared.adapters.models.model_lists import ModelListUnavailable
from shared.adapters.models.openai_provider import OpenAIProvider, ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.adapters.models.reranker import HttpReranker
from shared.adapters.oidc import _ask
from shared.adapters.telegram_probe import TelegramUnreachable, probe_bot
from shared.core.identity.oidc import ProviderAway
from shared.core.tools.mcp import McpServer
from shared.core.values.errors import ModelError
from shared.ports import ToolContext, ToolFailed
from tests.kit.model_makers import HandClock, Listener, WordCounter, asking, impatient

SLACK = 12 * 2**20
"""Bytes that sockets and libraries hold beside what was read."""
END = 160 * 2**20
"""Bytes after which the server gives up; a client without a bound would take them all."""
PIECE = b"x" * 262_144
TOKEN = "12345:" + "A" * 35


class EndlessServer:
    """Answers every request with a body without an end, and counts the bytes each client took."""

    def __init__(self, *, status: int, kind: str, beginning: bytes, packed: bool) -> None:
        self.status, self.kind, self.beginning, self.packed = status, kind, beginning, packed
        self.taken: list[int] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": self.kind} | ({"Content-Encoding": "gzip"} if self.packed else {})
        response = web.StreamResponse(status=self.status, headers=headers)
        await response.prepare(request)
        number = len(self.taken)
        self.taken.append(0)
        with suppress(ConnectionError, asyncio.CancelledError):
            await response.write(gzip.compress(b" " * (END // 4)) if self.packed else self.beginning)
            while not self.packed and self.taken[number] < END:
                await response.write(PIECE)
                self.taken[number] += len(PIECE)
        return response

    @property
    def most(self) -> int:
        return max(self.taken, default=0)


@asynccontextmanager
async def endless(
    *,
    status: int = 200,
    kind: str = "application/json",
    beginning: bytes = b'{"data": ["',
    packed: bool = False,
) -> AsyncIterator[EndlessServer]:
    server = EndlessServer(status=status, kind=kind, beginning=beginning, packed=packed)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(app) as running:
        server.url = str(running.make_url("/")).rstrip("/")
        yield server


async def _lists(server: EndlessServer) -> None:
    with pytest.raises(ModelListUnavailable, match="BodyTooLarge"):
        await list_models(server.url, "", seconds=60)


async def _windows(server: EndlessServer) -> None:
    provider = Provider(base_url=server.url, api_key="k", foreign=True, clock=HandClock())
    assert await provider._fetch("/v1/models/m") == (0, None)


async def _reranks(server: EndlessServer) -> None:
    reranker = HttpReranker(url=server.url, key="", model="m", seconds=60)
    with pytest.raises(ModelError, match="longer than 16 MiB"):
        await reranker.post({})
    await reranker.close()


async def _embeds(server: EndlessServer) -> None:
    encoder = HttpEncoder(url=server.url, key="", model="m")
    with pytest.raises(ModelError, match="longer than 16 MiB"):
        await encoder.ask(("b",))
    await encoder.close()


async def _probes(server: EndlessServer) -> None:
    with pytest.raises(TelegramUnreachable, match="BodyTooLarge"):
        await probe_bot(SecretStr(TOKEN), api_url=server.url, seconds=60)


async def _calls_telegram(server: EndlessServer) -> None:
    client = create_bot(TOKEN, api_url=server.url)
    with pytest.raises(TelegramNetworkError, match="FileTooLarge"):
        await client.get_me(request_timeout=60)
    await client.session.close()


async def _downloads(server: EndlessServer) -> None:
    client = create_bot(TOKEN, api_url=server.url)
    with pytest.raises(FileTooLarge):
        await client.download_file("a", BoundedFile(2**20), timeout=60)
    await client.session.close()


async def _signs_in(server: EndlessServer) -> None:
    with pytest.raises(ProviderAway):
        await _ask("GET", server.url)


async def _hears(server: EndlessServer) -> None:
    media = MediaService(url=server.url, path="/audio", key="", most_bytes=2**20, seconds=60)
    with pytest.raises(ModelError):
        await media._post({})


CLIENTS: dict[str, Callable[[EndlessServer], Awaitable[None]]] = {
    "model list": _lists, "window of a model": _windows, "reranker": _reranks, "embeddings": _embeds,
    "bot probe": _probes, "bot api": _calls_telegram, "bot file": _downloads, "identity provider": _signs_in,
    "speech and pictures": _hears,
}  # fmt: skip

BOUNDS = {"bot api": MAX_RESPONSE_BYTES}
"""Bytes of clients whose honest answers are longer: a hundred updates at once."""


@pytest.mark.control("S52")
@pytest.mark.parametrize("client", CLIENTS)
async def test_client_reads_an_endless_body_up_to_its_bound(client: str) -> None:
    async with endless() as server:
        await CLIENTS[client](server)
        assert 0 < server.most <= BOUNDS.get(client, MOST_BYTES) + SLACK


PROVIDERS: dict[str, Any] = {"openai": OpenAIProvider, "messages": Provider, "responses": ResponsesProvider}
BODIES: dict[str, dict[str, Any]] = {
    "refusal": {"status": 400},
    "whole answer": {},
    "one event": {"kind": "text/event-stream", "beginning": b"data: "},
    "packed answer": {"packed": True},
}


async def _reply(server: EndlessServer, wire: Any) -> None:
    provider = PROVIDERS[wire](base_url=server.url, api_key="k", foreign=True, clock=HandClock())
    model = RemoteModel(
        ModelEntry(name="m", wire=wire, window=100_000), provider, WordCounter(), patience=impatient()
    )
    try:
        with pytest.raises(ModelError) as raised:
            await model.reply(asking("When does it open?"), on_text=Listener())
        assert raised.value.advice
    finally:
        await model.close()


@pytest.mark.control("S52")
@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("body", BODIES)
async def test_provider_answer_is_read_up_to_its_bound(wire: str, body: str) -> None:
    async with endless(**BODIES[body]) as server:
        await _reply(server, wire)
        assert server.most <= MOST_BYTES + SLACK


@pytest.mark.control("S52")
@pytest.mark.parametrize(
    "answer", [{}, {"status": 400}, {"kind": "text/event-stream", "beginning": b"data: "}]
)
async def test_tool_server_answer_is_read_up_to_its_bound(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with endless(**answer) as server:
        tools = McpTools([McpServer(name="endless", url=f"{server.url}/mcp")], known=tmp_path / KNOWN_FILE)
        tools.start()
        assert await tools.check_ready(60) == {"endless": False}
        await tools.close()
        assert 0 < server.most <= MOST_BYTES + SLACK


ENDLESS_LINE = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        told = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "endless", "version": "1"}}
    elif asked.get("method") == "tools/list":
        told = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
    elif asked.get("method") == "tools/call":
        sent = open(sys.argv[1], "w")
        for number in range(640):
            os.write(1, b"x" * 262144)
            sent.seek(0)
            sent.write(str(number * 262144))
            sent.flush()
        break
    elif "id" in asked:
        told = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


@pytest.mark.control("S52")
async def test_line_of_a_tool_server_is_read_up_to_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    feed = LineReader.feed

    def counted(reader: LineReader, piece: bytes) -> Any:
        yield from feed(reader, piece)
        held.append(reader._size)

    monkeypatch.setattr(LineReader, "feed", counted)
    server = McpServer(
        name="endless", command=sys.executable, args=("-c", ENDLESS_LINE, str(tmp_path / "sent"))
    )
    tools = McpTools([server], known=tmp_path / KNOWN_FILE)
    tools.start()
    assert await tools.check_ready(60) == {"endless": True}
    context = ToolContext(session_id=1, contact_id=1, scope="default", turn=1, key="k")
    with pytest.raises(ToolFailed, match=r"ended while the tool ran \(the answer is longer than 16 MiB"):
        await tools.tools()[0].run({}, context=context)
    await tools.close()
    assert 8 * 2**20 < max(held) <= MOST_EVENT_BYTES


@pytest.mark.parametrize("sizes", [(1,), (3,), (7, 2), (100,)])
def test_lines_are_cut_at_their_ends_whatever_the_pieces(sizes: tuple[int, ...]) -> None:
    whole = b'{"a": 1}\n\n{"b": 2}\r\n{"c"'
    reader, at = LineReader(50), 0
    found: list[bytes] = []
    for size in itertools.cycle(sizes):
        if at >= len(whole):
            break
        found += reader.feed(whole[at : at + size])
        at += size
    assert found == [b'{"a": 1}', b"", b'{"b": 2}\r']
    with pytest.raises(LineTooLong):
        list(reader.feed(b"x" * 47))
