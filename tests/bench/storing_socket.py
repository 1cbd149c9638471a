"""A second floor: a WebSocket server that stores what it hears, asks the model, and stores what it says.

`python -m tests.bench.storing_socket`: aiohttp, two commits of one bare row each, and one streamed call by
the provider's SDK with the whole history, whose pieces it passes on; one process, nothing else.
"""

from __future__ import annotations

import asyncio
import os
from itertools import count

import asyncpg
from aiohttp import WSMsgType, web
from anthropic import AsyncAnthropic, DefaultAioHttpClient
from anthropic.types import MessageParam

TABLE = """
CREATE TABLE IF NOT EXISTS bare_socket_turns (
  id bigint PRIMARY KEY, question text NOT NULL, answer text)
"""
STORED = "INSERT INTO bare_socket_turns (id, question) VALUES ($1, $2)"
ANSWERED = "UPDATE bare_socket_turns SET answer = $2 WHERE id = $1"


class StoringSocket:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], model: AsyncAnthropic) -> None:
        self._pool = pool
        self._model = model
        self._ids = count(1)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        history: list[MessageParam] = []
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            frame = message.json()
            if frame["t"] == "hello":
                await socket.send_json({"t": "welcome"})
            elif frame["t"] == "msg":
                await self._turn(socket, frame, history)
        return socket

    async def _turn(
        self, socket: web.WebSocketResponse, frame: dict[str, str], history: list[MessageParam]
    ) -> None:
        id_ = next(self._ids)
        await self._pool.execute(STORED, id_, frame["text"])
        await socket.send_json({"t": "ack", "cid": frame["cid"], "seq": id_})
        history.append({"role": "user", "content": frame["text"]})
        pieces = []
        stream = await self._model.messages.create(
            model="claude-sonnet-5-5", max_tokens=1_000, stream=True, messages=history
        )
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                pieces.append(event.delta.text)
                await socket.send_json({"t": "delta", "text": event.delta.text})
        answer = "".join(pieces)
        history.append({"role": "assistant", "content": answer})
        await self._pool.execute(ANSWERED, id_, answer)
        await socket.send_json({"t": "msg", "role": "assistant", "text": answer})


async def main() -> None:
    pool = await asyncpg.create_pool(os.environ["STORING_DATABASE_URL"], min_size=1, max_size=10)
    await pool.execute(TABLE)
    model = AsyncAnthropic(
        api_key="sk-ant-bench", base_url=os.environ["STORING_MODEL_URL"], http_client=DefaultAioHttpClient()
    )
    app = web.Application()
    app.router.add_get("/ws", StoringSocket(pool, model).serve)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(os.environ["STORING_PORT"])).start()
    print('{"event": "storing_serves"}', flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
        await model.close()
        await pool.close()


if __name__ == "__main__":
    asyncio.run(main())
