"""Canaries through every way in of Telegram, and afterwards in no table, no key of Redis and no log."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from PIL import Image

from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.canaries import keys_of, tables_of
from tests.kit.fakes.bot_api import Person, running_bot_api
from tests.kit.telegram.bot_process import TelegramHouse, telegram_house

WAYS = ("name", "message", "caption", "filename", "textfile", "before-edit", "after-edit", "focus", "running")


@pytest.fixture
async def chatty_house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[TelegramHouse]:
    async with (
        running_bot_api() as api,
        telegram_house(
            api, database_url, redis_url, tmp_path, worker=True, EVERTALK_LOG_LEVEL="debug"
        ) as chatty_house,
    ):
        yield chatty_house


def bird(whose: str, way: str) -> str:
    return f"{whose}-bird-{way}-end"


async def tells(chatty_house: TelegramHouse, person: Person, whose: str) -> None:
    await person.say(f"Please remember that my dog is called {bird(whose, 'message')}.")
    await person.sees(bird(whose, "message"))
    await person.send_photo(_picture(), caption=f"This is {bird(whose, 'caption')}")
    await person.sees(bird(whose, "caption"))
    await person.send_file(
        f"{bird(whose, 'filename')}.txt",
        f"It says {bird(whose, 'textfile')}.".encode(),
        media_type="text/plain",
    )
    await said(chatty_house, bird(whose, "textfile"))
    sent = await person.say(f"It was {bird(whose, 'before-edit')}")
    await said(chatty_house, bird(whose, "before-edit"))
    await person.edit(sent.message_id, f"It was {bird(whose, 'after-edit')}")
    for number in range(6):  # so that there is something to compact
        await person.say(f"{whose} says word number {number}")
        await person.sees(f"word number {number}")
    await person.command("compact", f"{bird(whose, 'focus')} --force")
    await said(chatty_house, bird(whose, "after-edit"))
    await chatty_house.until(
        "SELECT count(*) > 0 FROM jobs WHERE payload::text LIKE '%' || $1 || '%'", bird(whose, "focus")
    )


async def said(chatty_house: TelegramHouse, words: str) -> None:
    """It is stored as something that a person has said."""
    await chatty_house.until(
        "SELECT count(*) > 0 FROM entries WHERE blocks::text LIKE '%' || $1 || '%'", words
    )


RESTS = (
    "SELECT count(*) = 0 FROM turns WHERE ended_at IS NULL",
    "SELECT count(*) = 0 FROM deliveries WHERE state IN ('queued', 'sending', 'sent')",
    "SELECT count(*) = 0 FROM jobs WHERE state = 'running' OR state = 'due' AND due_at <= now()",
)
"""In the order in which things happen."""


def _picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(buffer, "JPEG")
    return buffer.getvalue()


async def stored(chatty_house: TelegramHouse) -> str:
    return f"{await tables_of(chatty_house.database_url)}\n{await keys_of(chatty_house.redis_url)}"


@pytest.mark.control("S36", "S40")
async def test_canary_is_erased_from_tables_redis_and_logs_on_telegram(
    chatty_house: TelegramHouse, tmp_path: Path
) -> None:
    ada = await chatty_house.person(101, first_name=bird("ada", "name"))
    bob = await chatty_house.person(102, first_name=bird("bob", "name"))
    await asyncio.gather(tells(chatty_house, ada, "ada"), tells(chatty_house, bob, "bob"))
    await chatty_house.handled()
    for sql in RESTS:
        await chatty_house.until(sql)
    before = await stored(chatty_house)
    for way in WAYS[:-1]:
        assert bird("ada", way) in before, way
    await ada.command("forget", "everything")
    await ada.sees("This would be erased permanently")
    await ada.say(f"Tell me a very long story of {bird('ada', 'running')}")
    await ada.command("forget", "everything yes")
    await ada.sees("Forgotten")
    await chatty_house.until("SELECT count(*) = 0 FROM erasures WHERE state = 'running'")
    await chatty_house.handled()
    after = await stored(chatty_house)
    # Her own name comes back with the next update that she sends, and with nothing before.
    left = [way for way in WAYS if way != "name" and bird("ada", way) in after]
    assert left == [], [after[max(0, after.index(bird("ada", way)) - 200) :][:300] for way in left]
    for way in WAYS[:-1]:
        assert before.count(bird("bob", way)) <= after.count(bird("bob", way)), way
    assert chatty_house.worker is not None
    logs = "\n".join([*chatty_house.bot.lines, *chatty_house.worker.lines])
    logs += "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert "-bird-" not in logs
    connection = await asyncpg.connect(chatty_house.database_url)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close()
    await ada.say("Good morning, do we know each other?")
    await ada.sees("I find nothing about that in our conversation")
