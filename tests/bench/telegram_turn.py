"""Statements and commits of one Telegram turn: the whole bot in this process, its idle ticking taken off."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import asyncpg

from bot.telegram.inbound.inbox import INBOX_POLL_SECONDS
from bot.telegram.runtime.service import TelegramService
from shared.adapters.postgres.db.pool import _read_json
from shared.adapters.postgres.db.urls import build_driver_url
from shared.bootstrap.app import open_app
from shared.config.bots import load_bots
from shared.config.settings import load_settings
from tests.bench.whole import InstantModel
from tests.kit.fakes.bot_api import TOKEN, LocalBotApi, Person, local_bot_api

ANSWER = "You liked the Blue Heron, because of the grilled sardines and the view over the bridge at night."
QUESTION = "What was the name of the restaurant near the river that we liked so much last summer?"
FIRST_PERSON = 2_000
REST_SECONDS = INBOX_POLL_SECONDS + 1.0
"""Long enough to hear the slowest of what is asked without any turn."""
SETTLE_SECONDS = 0.15
TURN_SECONDS = 20.0
PACE_SECONDS = 4.5
"""In a private chat the bot sends three messages in a little less."""
_WRITES = ("UPDATE", "INSERT")
_DELIVERED = """
SELECT count(*) FROM deliveries d JOIN addresses a ON a.id = d.address_id
 WHERE a.chat = $1 AND d.state = 'delivered'
"""


class Meter:
    """Statements as the driver sends them, and commits as transaction numbers that Postgres gave away.

    What the bot also asks at rest (heartbeat, lease, looks for work that is left) is not a turn's, nor is
    what a quarter of the turns do without: some comes by the clock, more seldom than anybody listens at rest.
    """

    def __init__(self, onlooker: asyncpg.Connection[asyncpg.Record]) -> None:
        self._onlooker = onlooker
        self._sent: list[list[str]] = []
        """The statements of each transaction that has ended."""
        self._at_rest: frozenset[str] = frozenset()
        self._began = 0

    async def listen(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Called for each connection of the pool when it is opened."""
        await _read_json(connection)
        connection.add_query_logger(partial(self._log, []))

    async def rest(self, seconds: float) -> float:
        """Learns what is asked without any turn; statements per second."""
        self._sent.clear()
        await asyncio.sleep(seconds)
        asked = list(chain.from_iterable(self._sent))
        self._at_rest = frozenset(asked)
        return len(asked) / seconds

    async def begin(self) -> None:
        self._sent.clear()
        self._began = await self._transactions()

    async def end(self, turns: int) -> tuple[int, int]:
        """Statements and commits of so many turns since `begin`."""
        commits = await self._transactions() - self._began
        asked = Counter(chain.from_iterable(self._sent))
        seldom = {text for text, times in asked.items() if 4 * times <= 3 * turns}
        ticks = [one for one in self._sent if all(text in self._at_rest or text in seldom for text in one)]
        writes = sum(any(self._may_write(text) for text in one) for one in ticks)
        statements = sum(times for text, times in asked.items() if text not in self._at_rest | seldom)
        return statements, commits - writes

    def _may_write(self, text: str) -> bool:
        """Whether it is given a transaction number: most of what looks for work at rest finds none."""
        if text in self._at_rest:
            return text.lstrip().startswith(_WRITES)
        return any(word in text for word in _WRITES)

    async def _transactions(self) -> int:
        sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        return int(await self._onlooker.fetchval(sql))

    def _log(self, begun: list[str], query: asyncpg.connection.LoggedQuery) -> None:
        """`begun` holds what this connection's transaction has sent so far."""
        begun.append(query.query)
        if begun[0] != "BEGIN;" or query.query in ("COMMIT;", "ROLLBACK;"):
            self._sent.append([text for text in begun if text not in ("BEGIN;", "COMMIT;", "ROLLBACK;")])
            begun.clear()


async def measure(database_url: str, redis_url: str, folder: Path, *, turns: int) -> dict[str, Any]:
    """Second turns, each in a chat of its own, so that none waits for the limits of its chat."""
    onlooker = await asyncpg.connect(build_driver_url(database_url))
    meter = Meter(onlooker)
    try:
        async with local_bot_api() as api, _bot(api, meter, database_url, redis_url, folder):
            people = [await api.person(FIRST_PERSON + number) for number in range(turns)]
            for person in people:
                await _turn(onlooker, person, 1)
            await asyncio.sleep(PACE_SECONDS)
            at_rest = await meter.rest(REST_SECONDS)
            await api.forget_calls()
            await meter.begin()
            for person in people:
                await _turn(onlooker, person, 2)
            await asyncio.sleep(PACE_SECONDS)  # the buttons under the answers before go when the limits allow
            statements, commits = await meter.end(turns)
            calls = await api.counts()
    finally:
        await onlooker.close()
    return {
        "statements": round(statements / turns, 1),
        "commits": round(commits / turns, 1),
        "statements_per_second_at_rest": round(at_rest, 1),
        "calls_per_turn": {
            name: round(number / turns, 1) for name, number in sorted(calls.items()) if name != "getUpdates"
        },
    }


@asynccontextmanager
async def _bot(
    api: LocalBotApi, meter: Meter, database_url: str, redis_url: str, folder: Path
) -> AsyncIterator[None]:
    settings = load_settings(
        database_url=database_url,
        redis_url=redis_url,
        data_dir=folder,
        telegram_bot_token=TOKEN,
        telegram_api_url=api.base_url,
        telegram_access="open",
        cap_total_per_day_usd=1_000,
        cap_visitor_per_day_usd=1_000,
    )
    # For as long as it works: the heart opens a connection of its own, sooner or later.
    with (
        mock.patch(
            "shared.bootstrap.configured_parts.open_configured_models", return_value=InstantModel(ANSWER)
        ),
        mock.patch("shared.adapters.postgres.db.pool._read_json", meter.listen),
    ):
        app = await open_app(settings, role="bot")
        service = TelegramService(app, load_bots(settings), settings=settings)
        service.start()
        try:
            yield
        finally:
            await service.close()
            await app.close()


async def _turn(onlooker: asyncpg.Connection[asyncpg.Record], person: Person, number: int) -> None:
    """From the message until nothing more is done for it."""
    await person.say(QUESTION)
    async with asyncio.timeout(TURN_SECONDS):
        while await onlooker.fetchval(_DELIVERED, str(person.id)) < number:
            await asyncio.sleep(0.01)
    await asyncio.sleep(SETTLE_SECONDS)
