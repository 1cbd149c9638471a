"""Model server that answers exactly the bytes that a test gives, and records the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]
GOOD = "The shop opens at nine."
"""Text of a normal answer."""
STREAM, JSON, HTML = "text/event-stream", "application/json", "text/html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Response of the server; `pause_seconds` are waited before each chunk."""

    body: str | bytes = ""
    status: int = 200
    content_type: str = STREAM
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Sequence[str | bytes] = ()
    pause_seconds: float = 0.0


def completion(text: str = GOOD) -> Answer:
    """Return a normal streamed answer of Chat Completions."""
    return Answer(
        body=events(
            {
                "choices": [
                    {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
                ]
            },
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
        )
    )


def messages_answer(text: str = GOOD) -> Answer:
    """Return a normal streamed answer of the Messages API."""
    start: Json = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": {"input_tokens": 10},
    }
    told: list[Json] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return Answer(body="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told))


def response_answer(text: str = GOOD) -> Answer:
    """Return a normal streamed answer of the Responses API."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    told: list[Json] = [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": text},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usage}},
    ]
    return Answer(body="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told))


def events(*chunks: Mapping[str, Any], done: bool = True) -> str:
    """Return the chunks as server-sent events."""
    told = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return f"{told}data: [DONE]\n\n" if done else told


def refusal(status: int, body: Any) -> Answer:
    """Return an error response; a text as `body` is sent as HTML, anything else as JSON."""
    if isinstance(body, str):
        return Answer(status=status, body=body, content_type=HTML)
    return Answer(status=status, body=json.dumps(body), content_type=JSON)


Reply = Callable[[Json], Answer]


@dataclass(slots=True, kw_only=True)
class DialectServer:
    """Server that answers each POST by `reply`, a function from the request's body to the answer."""

    reply: Reply
    url: str = ""
    requests: list[Json] = field(default_factory=list)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Path with query, and headers, of each request, including requests for the list of models."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path_qs, request.headers))
        if request.method != "POST":
            return web.json_response({"error": {"message": "no list of models"}}, status=404)
        body = await request.json()
        self.requests.append(body)
        return await _send(request, self.reply(body))


async def _send(request: web.Request, answer: Answer) -> web.StreamResponse:
    headers = {**({"Content-Type": answer.content_type} if answer.content_type else {}), **answer.headers}
    if not answer.chunks:
        body = answer.body if isinstance(answer.body, bytes) else answer.body.encode()
        return web.Response(status=answer.status, body=body, headers=headers)
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    for chunk in answer.chunks:
        await asyncio.sleep(answer.pause_seconds)
        await response.write(chunk if isinstance(chunk, bytes) else chunk.encode())
    return response


@asynccontextmanager
async def dialect_server(reply: Reply) -> AsyncIterator[DialectServer]:
    """Yield a server on a free local port."""
    server = DialectServer(reply=reply)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
