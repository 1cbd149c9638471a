"""A model server that sends requests on to another server: the conversation does not go there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.adapters.mcp.tools import KNOWN_FILE, McpTools
from shared.adapters.media.media_service import MediaService
from shared.adapters.models import ModelEntry
from shared.adapters.models.embeddings import HttpEncoder
from shared.adapters.models.openai_provider import OpenAIProvider, ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.adapters.models.reranker import HttpReranker
from shared.adapters.redirects import is_same_origin
from shared.core.tools.mcp import McpServer
from shared.core.values.errors import ModelError, ModelRedirected
from tests.kit.model_makers import HandClock, Listener, WordCounter, asking, impatient

PROVIDERS: dict[str, Any] = {"openai": OpenAIProvider, "messages": Provider, "responses": ResponsesProvider}


class Redirecting:
    """Sends each request on to `target`, and counts those that come to `/moved`."""

    def __init__(self) -> None:
        self.url, self.target, self.status = "", "", 307
        self.seen: list[str] = []
        self.arrived: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/moved"):
            self.arrived.append(await request.text())
            return web.json_response({"error": {"message": "there is nothing here"}}, status=418)
        self.seen.append(request.path)
        return web.Response(status=self.status, headers={"Location": f"{self.target}/moved?secret=1"})


@asynccontextmanager
async def redirecting() -> AsyncIterator[Redirecting]:
    server = Redirecting()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(app) as running:
        server.url = server.target = str(running.make_url("/")).rstrip("/")
        yield server


async def _reply(server: Redirecting, wire: str) -> None:
    provider = PROVIDERS[wire](base_url=server.url, api_key="k", foreign=True, clock=HandClock())
    entry = ModelEntry(name="m", wire=wire, window=100_000)  # type: ignore[arg-type]
    model = RemoteModel(entry, provider, WordCounter(), patience=impatient())
    try:
        await model.reply(asking("When does it open?"), on_text=Listener())
    finally:
        await model.close()


async def _embed(server: Redirecting) -> None:
    encoder = HttpEncoder(url=server.url, key="", model="m")
    try:
        await encoder.ask(("b",))
    finally:
        await encoder.close()


async def _rerank(server: Redirecting) -> None:
    reranker = HttpReranker(url=server.url, key="", model="m", seconds=60)
    try:
        await reranker.ask("a?", ("b",))
    finally:
        await reranker.close()


async def _post_media(server: Redirecting) -> None:
    await MediaService(url=server.url, path="/audio", key="", most_bytes=2**20, seconds=60)._post({})


CLIENTS: dict[str, Callable[[Redirecting], Awaitable[None]]] = {
    **{wire: partial(_reply, wire=wire) for wire in PROVIDERS},
    "embeddings": _embed, "reranker": _rerank, "speech, pictures and recordings": _post_media,
}  # fmt: skip


@pytest.mark.control("S53")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("client", CLIENTS)
async def test_conversation_is_not_sent_to_another_server(client: str, status: int) -> None:
    async with redirecting() as first, redirecting() as other:
        first.target, first.status = other.url, status
        with pytest.raises(ModelRedirected) as raised:
            await CLIENTS[client](first)
        assert (len(first.seen), other.seen, other.arrived) == (1, [], [])
        assert other.url in str(raised.value)
        assert "secret" not in str(raised.value)
        assert raised.value.advice


@pytest.mark.parametrize("wire", PROVIDERS)
async def test_redirect_within_a_server_is_followed(wire: str) -> None:
    async with redirecting() as server:
        with pytest.raises(ModelError, match="there is nothing here"):
            await _reply(server, wire)
        assert "When does it open?" in server.arrived[0]


@pytest.mark.control("S53")
async def test_tool_call_is_not_sent_to_another_server(tmp_path: Path) -> None:
    async with redirecting() as first, redirecting() as other:
        first.target = other.url
        server = McpServer(name="moved", url=f"{first.url}/mcp", headers={"X-Key": "secret"})
        tools = McpTools([server], known=tmp_path / KNOWN_FILE)
        tools.start()
        assert await tools.check_ready(20) == {"moved": False}
        await tools.close()
        assert first.seen
        assert (other.seen, other.arrived) == ([], [])


async def test_reranker_that_redirects_leaves_the_usual_order() -> None:
    async with redirecting() as first, redirecting() as other:
        first.target = other.url
        reranker = HttpReranker(url=first.url, key="", model="m", seconds=60)
        assert await reranker.rank("a?", ("b", "c")) is None
        await reranker.close()
        assert other.seen == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example/v1", "https://a.example/v2", True),
        ("https://a.example", "https://a.example:443/x", True),
        ("http://a.example/v1", "https://a.example/v1", True),
        ("https://a.example/v1", "http://a.example/v1", False),
        ("http://127.0.0.1:1234", "http://127.0.0.1:1235", False),
        ("https://a.example", "https://a.example.evil.example", False),
        ("https://a.example", "https://a.example@evil.example/", False),
        ("https://a.example", "https://[bad", False),
    ],
)
def test_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert is_same_origin(one, other) is same
