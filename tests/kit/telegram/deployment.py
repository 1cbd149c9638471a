"""A bot process with a fake Telegram and a fake model, and helpers of the acceptance tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.fakes.bot_api import TOKEN, Person, Screen, running_bot_api
from tests.kit.fakes.messages_api import running_fake
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import TelegramHouse, telegram_house

_numbers = count(1_000)
Answers = Mapping[str, Mapping[str, Any]]
"""Actions of the fake model, by words that a request contains."""
MINE = "JOIN addresses a ON a.session_id = t.session_id WHERE a.chat = $1"
"""SQL that limits rows `t` to the sessions of one chat."""


class Deployment:
    """A bot process with its fake Telegram and its fake model."""

    def __init__(self, house: TelegramHouse, provider: RunningFake) -> None:
        self.house = house
        self.provider = provider
        self.api = house.api

    async def person(self, **told: Any) -> Person:
        return await self.house.person(next(_numbers), **told)

    async def prompts(self, *, holding: str) -> list[dict[str, Any]]:
        """Return the requests for answers whose newest message contains these words, oldest first."""
        found = [one for one in await self.provider.requests() if one["kind"] == "chat"]
        return [one["body"] for one in found if holding in json.dumps(one["body"]["messages"][-1])]

    async def wants(self, person: Person, label: str, *, on: bool = True) -> None:
        """Set an option in the settings menu of the person's chat, and wait until it shows."""
        before, after = ("off", "on") if on else ("on", "off")
        await person.command("settings")
        await person.sees(has_button(f"{label}: {before}"))
        await person.tap(f"{label}: {before}")
        await person.sees(has_button(f"{label}: {after}"))

    async def answered(self, chat: int, turns: int) -> None:
        sql = f"SELECT count(*) = $2 FROM turns t {MINE} AND t.ended_at IS NOT NULL"
        await self.house.until(sql, str(chat), turns)


@asynccontextmanager
async def deployment(
    answers: Answers,
    database_url: str,
    redis_url: str,
    folder: Path,
    *,
    worker: bool = False,
    settings: Mapping[str, str] | None = None,
    bots: Mapping[str, str] | None = None,
) -> AsyncIterator[Deployment]:
    """Yield a deployment; `bots` are further bots, names by token.

    On leaving, fail if a log holds a token or a stack trace.
    """
    async with running_bot_api() as api, running_fake() as provider:
        for token, username in (bots or {}).items():
            await api.add_bot(token, username=username)
        await provider.script(
            [
                {"match": {"kind": "chat", "contains": words}, "times": -1, "action": dict(action)}
                for words, action in answers.items()
            ]
        )
        model = {"ANTHROPIC_BASE_URL": provider.base_url, "ANTHROPIC_API_KEY": "a-key-for-the-fake"}
        more: dict[str, Any] = {**model, **(settings or {})}
        async with telegram_house(api, database_url, redis_url, folder, worker=worker, **more) as house:
            yield Deployment(house, provider)
            connection = await asyncpg.connect(database_url)
            try:
                broken = await check_invariants(connection)
            finally:
                await connection.close()
            assert broken == [], "\n".join(map(str, broken))
        unwanted = [token.partition(":")[2] for token in (TOKEN, *(bots or {}))] + ["Traceback"]
        assert not [line for line in house.bot.lines if any(words in line for words in unwanted)], (
            house.bot.words()
        )


def posted_to() -> dict[str, str]:
    """Return the settings of webhook mode, with a free port."""
    port = str(free_port())
    return {
        "EVERTALK_TELEGRAM_MODE": "webhook",
        "EVERTALK_TELEGRAM_WEBHOOK_SECRET": "w" * 40,
        "EVERTALK_TELEGRAM_PORT": port,
        "EVERTALK_PUBLIC_URL": f"http://127.0.0.1:{port}",
    }


def has_button(label: str) -> Callable[[Screen], bool]:
    return lambda screen: any(label in line.buttons for line in screen.answers)
