"""A reminder comes by itself: once, at its time, not at night, and also when no model can put it nicely."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.adapters.postgres.memory.reminders import PostgresReminders
from shared.bootstrap.app import open_app
from shared.bootstrap.foundation import SystemClock
from shared.ports import Tool
from shared.services.tools.reminders import ReminderTool
from shared.services.turns.turn_dispatcher import TurnDispatcher
from tests.acceptance.long_talks import WINDOW, guests
from tests.acceptance.tools.due_reminders import ASKS, SET, TELLS, comes_due, looked
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

BROKEN = {"match": {"kind": "chat"}, "times": -1, "action": {"status": 529}}
TIMES = "SELECT state FROM reminders"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


class Screen:
    def __init__(self, guest: Visit) -> None:
        self._guest = guest

    async def __call__(self, event: Any) -> None:
        await self._guest.hear(event)

    async def mark_idle(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def asked(guest: Visit, provider: RunningFake, *more: dict[str, Any]) -> None:
    await provider.script([ASKS, SET, *more])
    await guest.ask("Remind me to call Anna in two hours.")


async def test_a_reminder_is_set_and_comes_when_its_time_has_come(
    guest: Visit, provider: RunningFake
) -> None:
    await asked(guest, provider, TELLS)
    due_at = await guest.one("SELECT due_at FROM reminders")
    assert timedelta(minutes=119) < due_at - datetime.now(UTC) <= timedelta(hours=2)
    assert await looked(guest) == "I will remind you."
    await comes_due(guest)
    assert await looked(guest) == "It is time to call Anna."
    request = (await provider.requests())[-1]["body"]
    newest = str(request["messages"][-1]["content"])
    assert "[Reminder, a message from the program" in newest
    assert "call Anna about the boat" in newest
    assert "<runtime_facts>" in newest
    await looked(guest)
    assert await guest.one(TIMES) == "done"
    assert await guest.one("SELECT count(*) FROM turns") == 2
    await guest.ask("Thank you!")


async def test_reminder_loop_delivers_a_due_reminder_once(guest: Visit, provider: RunningFake) -> None:
    await asked(guest, provider, TELLS)

    async def open_screen(_session_id: int) -> Any:
        return lambda: Screen(guest)

    loops = [TurnDispatcher(guest.app.sessions, channel="web", orphan=open_screen) for _ in range(2)]
    for loop in loops:
        loop.start()
    await comes_due(guest)
    async with asyncio.timeout(30):
        while await guest.one(TIMES) != "done":
            await asyncio.sleep(0.05)
    for loop in loops:
        await loop.close(drain_seconds=5)
    assert guest.last_words == "It is time to call Anna."
    assert await guest.one("SELECT count(*) FROM turns") == 2


async def test_in_quiet_hours_it_waits_for_their_end(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    now = datetime.now(UTC)
    quiet = f"{now.hour}-{(now.hour + 3) % 24}"
    async for guest in guests(database_url, redis_url, provider, quiet_hours=quiet, timezone="UTC"):
        await asked(guest, provider, TELLS)
        await comes_due(guest)
        assert await looked(guest) == "I will remind you."
        assert await guest.one(TIMES) == "pending"
        tell_at = await guest.one("SELECT tell_at FROM reminders")
        assert timedelta(hours=1) < tell_at - now <= timedelta(hours=3)
        assert tell_at.minute == 0
        await guest.app.pool.execute("UPDATE contacts SET timezone = 'Asia/Kathmandu'")
        await comes_due(guest)
        assert await looked(guest) == "It is time to call Anna."


async def test_reminder_text_is_delivered_when_no_budget_is_left(guest: Visit, provider: RunningFake) -> None:
    await asked(guest, provider)
    await guest.app.pool.execute("UPDATE spend_days SET spent_micro = spent_micro + 100000000")
    await guest.app.pool.execute(
        """INSERT INTO reservations (session_id, contact_id, day, amount_micro, scopes, state, settled_micro,
                                     ended_at)
           SELECT s.id, s.contact_id, d.day, 0, array_agg(d.scope), 'settled', 100000000, now()
             FROM sessions s, spend_days d GROUP BY 1, 2, 3"""
    )
    await comes_due(guest)
    assert await looked(guest) == "⏰ call Anna about the boat"
    ended = "SELECT concat_ws(' ', state, error_code, refused_scope) FROM turns ORDER BY turn_no DESC LIMIT 1"
    assert await guest.one(ended) == "answered cap_reached total"
    await looked(guest)
    assert await guest.one(TIMES) == "done"


async def test_where_the_model_is_away_its_words_come_in_time_and_once(
    guest: Visit, provider: RunningFake
) -> None:
    await asked(guest, provider, BROKEN)
    await comes_due(guest)
    assert await looked(guest) == "⏰ call Anna about the boat"
    await provider.reset()
    await looked(guest)
    assert await guest.one("SELECT count(*) FROM turns WHERE ended_at IS NOT NULL") == 2
    assert await guest.one("SELECT count(*) FROM events WHERE kind = 'msg'") == 3
    assert "Anna" in await guest.ask("Whom was I to call about the boat?")


async def test_reminder_is_delivered_after_redis_was_emptied(guest: Visit, provider: RunningFake) -> None:
    from redis.asyncio import Redis

    await asked(guest, provider, TELLS)
    url = guest.app.settings.redis_url
    assert url is not None
    client = Redis.from_url(url.get_secret_value())
    await client.flushdb()
    await client.aclose()
    await comes_due(guest)
    assert await looked(guest) == "It is time to call Anna."


async def test_the_list_shows_what_waits_and_one_of_it_can_be_cancelled(
    guest: Visit, provider: RunningFake
) -> None:
    await asked(guest, provider)

    async def said(args: str = "", language: str = "") -> str:
        done = await guest.app.commands.run(
            session_id=guest.session_id, address_id=guest.address_id, name="reminders", args=args,
            language=language,
        )  # fmt: skip
        return done.result

    shown = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="reminders")
    number = await guest.app.pool.fetchval("SELECT id FROM reminders")
    assert [(one.label, one.args) for one in shown.choices] == [("Cancel 1", f"cancel #{number}")]
    await guest.app.pool.execute("UPDATE reminders SET repeat = 'week/1/mon/09:00'")
    shown = await guest.app.commands.run(
        session_id=guest.session_id, address_id=None, name="reminders", args="pause 1", language="de"
    )
    assert [one.label for one in shown.choices] == ["1 fortsetzen", "1 absagen"]
    await guest.app.pool.execute("UPDATE reminders SET repeat = '', paused_at = NULL")
    assert "1. 2" in await said()
    assert "“call Anna about the boat”" in await said()
    assert "Ich erinnere Sie" in await said(language="de")
    assert "no such reminder" in await said("cancel 2")
    assert "/reminders cancel 2" in await said("please")
    nothing = "No reminders wait. Ask me in your own words to remind you of something."
    assert "no such reminder" in await said(f"cancel #{number + 1}")
    assert await said(f"cancel #{number}") == f"Cancelled: “call Anna about the boat”\n\n{nothing}"
    assert await said() == nothing
    await comes_due(guest)
    assert await looked(guest) == "I will remind you."
    await guest.app.pool.execute(
        "UPDATE reminders SET state = 'failed', reason = 'unreachable', ended_at = now()"
    )
    assert "Could not be sent" in await said()


async def test_a_wish_that_cannot_be_kept_is_explained_to_the_model(
    guest: Visit, provider: RunningFake
) -> None:
    wish = {"name": "remind_me", "input": {"when": "yesterday", "text": "call Anna"}}
    await provider.script([{**ASKS, "action": {"tool_use": [wish]}}, SET])
    await guest.ask("Remind me to call Anna yesterday.")
    told = str((await provider.requests())[-1]["body"]["messages"][-1]["content"])
    assert "which cannot be read" in told
    assert await guest.one("SELECT count(*) FROM reminders") == 0


async def test_a_test_may_be_in_a_greater_hurry_than_people(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    """The least time ahead is the tool's own, so that a whole reminder fits into a moment."""
    async for guest in guests(database_url, redis_url, provider):
        soon: Tool = ReminderTool(PostgresReminders(guest.app.pool), SystemClock(), least=timedelta(0))
        app = await open_app(guest.app.settings, role="web", tools=[soon])
        try:
            hurried = Visit(app=app, session_id=guest.session_id, address_id=guest.address_id)
            now = {"name": "remind_me", "input": {"when": "in 0 minutes", "text": "call Anna"}}
            await provider.script([{**ASKS, "action": {"tool_use": [now]}}, SET, TELLS])
            await hurried.ask("Remind me at once.")
            assert await looked(hurried) == "It is time to call Anna."
        finally:
            await app.close()
