"""The end of an answer: it is taken when it comes, however pieces are paced and however the server closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from shared.adapters.models import ModelEntry, provider
from shared.adapters.models.catalog import Wire
from shared.adapters.models.openai_provider import OpenAIProvider, ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.core.values.messages import text_of
from tests.kit.model_makers import Listener, WordCounter, asking, impatient

PROVIDERS: dict[Wire, type[Provider]] = {
    "messages": Provider,
    "openai": OpenAIProvider,
    "responses": ResponsesProvider,
}
USAGE = {"input_tokens": 20, "output_tokens": 5}
NEVER = 3_600.0


def event(**fields: object) -> bytes:
    return f"event: {fields.get('type', 'message')}\ndata: {json.dumps(fields)}\n\n".encode()


def piece(text: str) -> bytes:
    return event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def chunk(**delta: str) -> bytes:
    return event(id="c", object="chat.completion.chunk", choices=[{"index": 0, "delta": delta}])


STREAMS: Mapping[Wire, tuple[bytes, bytes, bytes]] = {
    "messages": (
        event(
            type="message_start",
            message={
                "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": None, "usage": USAGE,
            },
        )
        + event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
        + piece("Good "),
        piece("morning."),
        event(type="content_block_stop", index=0)
        + event(type="message_delta", delta={"stop_reason": "end_turn"}, usage=USAGE)
        + event(type="message_stop"),
    ),
    "openai": (
        chunk(role="assistant", content="Good "),
        chunk(content="morning."),
        event(
            id="c", object="chat.completion.chunk",
            choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}],
            usage={"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
        )
        + b"data: [DONE]\n\n",
    ),
    "responses": (
        event(type="response.created", response={"id": "r"})
        + event(type="response.output_text.delta", output_index=0, delta="Good "),
        event(type="response.output_text.delta", output_index=0, delta="morning."),
        event(type="response.completed", response={"id": "r", "status": "completed", "usage": USAGE}),
    ),
}  # fmt: skip
"""Beginning, middle and end of an answer by wire."""


@dataclass(slots=True)
class Server:
    """Server that sends one piece, waits until it was shown, and sends the rest at once."""

    wire: Wire
    closes_at_once: bool
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[object] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.connections.add(request.transport)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        begun, middle, end = STREAMS[self.wire]
        await response.write(begun)
        await self.shown.wait()
        for part in (middle, end) if self.closes_at_once else (middle + end,):
            await response.write(part)
            await asyncio.sleep(0)
        if not self.closes_at_once:
            await self.closing.wait()
        return response

    async def hear(self, _attempt: int, _piece: str) -> None:
        self.shown.set()


@pytest.fixture(params=PROVIDERS)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@asynccontextmanager
async def asked(aiohttp_server: AiohttpServer, server: Server) -> AsyncIterator[tuple[RemoteModel, Provider]]:
    app = web.Application()
    app.router.add_post("/{path:.*}", server.answer)
    running = await aiohttp_server(app)
    account = PROVIDERS[server.wire](base_url=str(running.make_url("")), api_key="key")
    model = RemoteModel(
        ModelEntry(name="m", wire=server.wire, window=100_000), account, WordCounter(), patience=impatient()
    )
    try:
        yield model, account
    finally:
        server.closing.set()
        await model.close()


async def test_end_of_an_answer_interrupts_the_pause_between_pieces(
    aiohttp_server: AiohttpServer, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr(provider, "LOOK_SECONDS", NEVER)
    server = Server(wire=wire, closes_at_once=True)
    async with asked(aiohttp_server, server) as (model, _):
        reply = await model.reply(asking("Hello"), on_text=server.hear)
        assert text_of(reply.blocks) == "Good morning."


async def test_pieces_that_come_in_a_pause_are_shown_together(
    aiohttp_server: AiohttpServer, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr(provider, "LOOK_SECONDS", NEVER)
    server, heard = Server(wire=wire, closes_at_once=True), Listener()

    async def hear(attempt: int, text: str) -> None:
        await heard(attempt, text)
        server.shown.set()

    async with asked(aiohttp_server, server) as (model, _):
        await model.reply(asking("Hello"), on_text=hear)
    assert heard.pieces == {1: ["Good ", "morning."]}


async def test_answer_waits_for_no_server_that_keeps_its_stream_open(
    aiohttp_server: AiohttpServer, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr(provider, "CLOSE_SECONDS", NEVER)
    server = Server(wire=wire, closes_at_once=False)
    async with asked(aiohttp_server, server) as (model, account):
        for _ in range(3):
            server.closing.clear()
            reply = await model.reply(asking("Hello"), on_text=server.hear)
            assert text_of(reply.blocks) == "Good morning."
            assert not server.closing.is_set()
            server.closing.set()
            await account.wait_for_endings()
        assert len(server.connections) == 1, "each connection serves the next call"
