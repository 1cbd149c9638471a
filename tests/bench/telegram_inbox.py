"""What it costs to take updates in: beside bare inserts of the same rows, and beside a bare aiohttp route."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import asyncpg
from aiohttp import ClientSession, web

from bot.telegram.inbound.webhook import PATH, SECRET_HEADER, make_webhook_handler
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox

BOT_ID = 700_001
SECRET = "b" * 40
BATCH = 100
"""As many as Telegram gives to one poll at most."""
WORDS = "What was the name of the restaurant near the river that we liked so much last summer?"
TABLE = """
CREATE TABLE bare_updates (bot_id bigint, update_id bigint, body jsonb NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (bot_id, update_id))
"""
_BARE = """
INSERT INTO bare_updates (bot_id, update_id, body)
SELECT $1, (u->>'update_id')::bigint, u FROM jsonb_array_elements($2::jsonb) AS u
"""
_numbers = count(1)


def update() -> dict[str, Any]:
    number = next(_numbers)
    person = {"id": 42, "is_bot": False, "first_name": "Ada", "language_code": "en"}
    chat = {"id": 42, "type": "private", "first_name": "Ada"}
    message = {"message_id": number, "date": 1_700_000_000, "from": person, "chat": chat, "text": WORDS}
    return {"update_id": number, "message": message}


async def measure(database_url: str, *, rounds: int, blocks: int) -> dict[str, Any]:
    pool = await open_pool(database_url, size=2)
    try:
        await pool.execute(TABLE)
        await pool.execute(
            """INSERT INTO telegram_bots (bot_id, username, agent_id)
               SELECT $1, 'bench', id FROM agents WHERE name = 'default' ON CONFLICT DO NOTHING""",
            BOT_ID,
        )
        inbox = PostgresTelegramInbox(pool)
        return {
            **await _batches(pool, inbox, rounds, blocks),
            **await _posts(pool, inbox, rounds, blocks),
        }
    finally:
        await pool.close()


async def _batches(
    pool: asyncpg.Pool[asyncpg.Record], inbox: PostgresTelegramInbox, rounds: int, blocks: int
) -> dict[str, Any]:
    async def bare() -> None:
        await pool.execute(_BARE, BOT_ID, [update() for _ in range(BATCH)])

    async def ours() -> None:
        await inbox.store(BOT_ID, [update() for _ in range(BATCH)])

    pairs = await _interleaved(bare, ours, rounds, blocks)
    return {
        "inbox_ratio": _ratio(pairs),
        "inbox_updates_per_second": round(BATCH / statistics.median(ours for _, ours in pairs)),
        "floor_updates_per_second": round(BATCH / statistics.median(bare for bare, _ in pairs)),
    }


async def _posts(
    pool: asyncpg.Pool[asyncpg.Record], inbox: PostgresTelegramInbox, rounds: int, blocks: int
) -> dict[str, Any]:
    """From the post to its 200, over loopback, one after the other."""

    async def echo(request: web.Request) -> web.Response:
        await pool.execute(_BARE, BOT_ID, [json.loads(await request.read())])
        return web.Response()

    app = web.Application()
    app.router.add_post("/echo", echo)
    handler = make_webhook_handler(inbox, find_secret=lambda _: SECRET, on_stored=lambda _: None)
    app.router.add_post(PATH, handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with ClientSession(f"http://{host}:{port}") as http:
            bare = _poster(http, "/echo")
            ours = _poster(http, PATH.format(bot_id=BOT_ID))
            pairs = await _interleaved(bare, ours, rounds, blocks)
    finally:
        await runner.cleanup()
    return {
        "acknowledge_ratio": _ratio(pairs),
        "acknowledge_ms": round(statistics.median(ours for _, ours in pairs) * 1000, 2),
        "floor_acknowledge_ms": round(statistics.median(bare for bare, _ in pairs) * 1000, 2),
    }


def _poster(http: ClientSession, path: str) -> Callable[[], Awaitable[None]]:
    async def post() -> None:
        async with http.post(path, json=update(), headers={SECRET_HEADER: SECRET}) as answer:
            assert answer.status == 200

    return post


async def _interleaved(
    bare: Callable[[], Awaitable[None]], ours: Callable[[], Awaitable[None]], rounds: int, blocks: int
) -> list[tuple[float, float]]:
    """Seconds for one, in blocks that lie side by side."""
    for warm in (bare, ours):
        await _block(warm, max(3, rounds // 5))
    return [(await _block(bare, rounds), await _block(ours, rounds)) for _ in range(blocks)]


async def _block(act: Callable[[], Awaitable[None]], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        await act()
    return (time.perf_counter() - began) / rounds


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return round(statistics.median(ours / bare for bare, ours in pairs), 2)
