"""Three weeks of talk in one conversation: the model knows on which day each thing was said."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake

BERLIN = ZoneInfo("Europe/Berlin")
BEGAN = datetime(2026, 10, 12, 23, 30, tzinfo=BERLIN)
"""An hour later it is another day by the person's clock, and the same one by UTC."""
DAYS = 21
"""Clocks are turned back on 25 October."""
TURNED_BACK = 13
"""That evening: half past midnight is the 26th by the person's clock, and still the 25th by UTC."""
DOG = "Bertil the terrier limps since breakfast."


async def sent(provider: RunningFake, kind: str) -> list[dict[str, Any]]:
    return [record["body"] for record in await provider.requests() if record["kind"] == kind]


def told(body: dict[str, Any]) -> list[str]:
    return re.findall(r"<written_on>(.*?)</written_on>", str(body["messages"]))


def words(body: dict[str, Any]) -> list[str]:
    """Of each message, whatever is marked for the cache."""
    return [" ".join(block["text"] for block in message["content"]) for message in body["messages"]]


def saves_of_a_flush(text: str) -> dict[str, Any]:
    call = {"name": "save_memory", "input": {"text": text, "kind": "fact"}}
    return {"match": {"kind": "flush"}, "times": 1, "action": {"tool_use": [call]}}


async def three_weeks(guest: Visit) -> None:
    """A message every evening, and on Sundays one after midnight, each at its time."""
    for day in range(DAYS):
        for hours in (0, 1) if day % 7 == 6 else (0,):
            said = f" {DOG}" if (day, hours) == (TURNED_BACK, 1) else ""
            await guest.ask(f"Evening {day}, part {hours}: my exam is tomorrow.{said}")
            turn = await guest.one("SELECT max(turn_no) FROM turns")
            at = BEGAN + timedelta(days=day, hours=hours)
            async with guest.app.pool.acquire() as connection, connection.transaction():
                # The log is only ever added to: its trigger stands aside for what stands for time gone by.
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(
                    """UPDATE entry_rows e SET at = $1 FROM turn_entries te
                        WHERE te.session_id = e.session_id AND te.seq = e.seq AND te.turn_no = $2""",
                    at, turn,
                )  # fmt: skip


async def test_dates_of_three_weeks_appear_in_request_and_summary(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url
    )
    async with running_app(settings) as app:
        guest = await visit(app)
        await app.pool.execute("UPDATE contacts SET timezone = 'Europe/Berlin'")
        await three_weeks(guest)
    async with running_app(settings) as app:
        later = Visit(app=app, session_id=guest.session_id, address_id=guest.address_id)
        await later.ask("When is my exam?")
        first = (await sent(provider, "chat"))[-1]
        days = [f"{BEGAN + timedelta(days=n):%A, %Y-%m-%d}" for n in range(DAYS + 1)]
        assert told(first)[:-1] == days
        assert "in Europe/Berlin" in str(first["messages"][-1])
        await later.ask("And after that?")
        second = (await sent(provider, "chat"))[-1]
        assert told(second) == told(first)
        assert words(second)[: len(words(first)) - 1] == words(first)[:-1]
        await provider.script([saves_of_a_flush(DOG)])
        seq = await later.one("SELECT min(seq) FROM entries WHERE blocks::text LIKE '%terrier%'")
        await app.commands.run(session_id=guest.session_id, address_id=None, name="pin", args=f"m{seq}")
        asked_for = asyncio.create_task(
            app.commands.run(session_id=guest.session_id, address_id=None, name="compact", args="--force")
        )
        while not asked_for.done():
            await later.run_due_jobs()
            await asyncio.sleep(0.1)
        assert asked_for.result().success
        flushed = (await sent(provider, "flush"))[0]
        assert "The last message was written on " in str(flushed["messages"][-1])
        assert told(flushed)[: DAYS + 1] == days
        asked = (await sent(provider, "summary"))[-1]
        said = str(asked["messages"])
        assert '"tomorrow"' in str(asked)
        assert [f"{BEGAN:%Y-%m-%d}" in said, f"{BEGAN + timedelta(days=9):%Y-%m-%d}" in said] == [True, True]
        await later.ask("How is the dog?")
        body = (await sent(provider, "chat"))[-1]
        assert f"- {DOG} (said 2026-10-26)" in str(body["system"])
        assert f"[#{seq}] person (2026-10-26): Evening 13" in str(body["messages"][0])
        assert "### 2026-1" in await later.one(
            "SELECT summary_text FROM compactions ORDER BY id DESC LIMIT 1"
        )
