"""Reminders in Postgres: kept once, begun once whoever looks, ended when they are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.adapters.postgres.memory.reminders import PostgresReminders
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.core.identity.people import LinkedContacts
from shared.core.tools.reminders import PENDING_AT_MOST, PER_HOUR, REPEATING_AT_MOST, NewReminder
from shared.core.values.messages import Text
from tests.kit.app_driver import Visit, visit

WORDS = (Text(text="[Reminder: call Anna]"),)


@pytest.fixture
def reminders(guest: Visit) -> PostgresReminders:
    return PostgresReminders(guest.app.pool)


async def new(guest: Visit, key: str = "k1", *, hours: float = 1.0, text: str = "call Anna") -> NewReminder:
    contact = await guest.one("SELECT contact_id FROM sessions WHERE id = $1", guest.session_id)
    return NewReminder(
        key=key, contact_id=contact, session_id=guest.session_id, address_id=guest.address_id, text=text,
        due_at=datetime.now(UTC) + timedelta(hours=hours),
    )  # fmt: skip


async def due_now(guest: Visit) -> None:
    await guest.app.pool.execute("UPDATE reminders SET tell_at = now() WHERE state = 'pending'")


async def state(guest: Visit) -> Any:
    return await guest.one("SELECT string_agg(state, ' ' ORDER BY id) FROM reminders")


async def test_the_same_call_again_is_the_same_reminder(guest: Visit, reminders: PostgresReminders) -> None:
    wish = await new(guest)
    assert await asyncio.gather(*(reminders.add(wish) for _ in range(5))) == [None] * 5
    assert [one.text for one in await reminders.list_for_session(guest.session_id)] == ["call Anna"]


async def test_rivals_cannot_keep_more_than_is_allowed(guest: Visit, reminders: PostgresReminders) -> None:
    wishes = [await new(guest, f"k{number}", hours=2 * number + 1) for number in range(PENDING_AT_MOST + 5)]
    found = await asyncio.gather(*map(reminders.add, wishes))
    assert sorted(map(str, found)) == ["None"] * PENDING_AT_MOST + ["too_many"] * 5


async def test_no_hour_holds_more_than_its_share(guest: Visit, reminders: PostgresReminders) -> None:
    for number in range(PER_HOUR):
        assert await reminders.add(await new(guest, f"k{number}", hours=5 + number / 20)) is None
    assert await reminders.add(await new(guest, "more", hours=5.5)) == "crowded"
    assert await reminders.add(await new(guest, "later", hours=7)) is None


async def test_repeated_reminder_waits_for_next_time_after_its_turn_began(
    guest: Visit, reminders: PostgresReminders
) -> None:
    at = datetime.now(UTC) + timedelta(days=1)
    assert await reminders.add(replace(await new(guest), repeat="day/1//09:00")) is None
    for times in range(1, 3):
        await due_now(guest)
        (found,) = await reminders.list_due("web")
        assert found.repeat == "day/1//09:00"
        at += timedelta(days=times)
        begun = await asyncio.gather(
            *(reminders.start_turn(found.id, blocks=WORDS, tokens=5, again_at=at) for _ in range(4))
        )
        assert [one for one in begun if one is not None] == [guest.session_id]
        assert await state(guest) == " ".join([*["claimed"] * times, "pending"])
    waiting = [one for one in await reminders.list_for_session(guest.session_id) if one.state == "pending"]
    assert [(one.text, one.due_at, one.repeat) for one in waiting] == [("call Anna", at, "day/1//09:00")]


async def test_what_is_paused_is_not_due_until_it_goes_on(guest: Visit, reminders: PostgresReminders) -> None:
    await reminders.add(await new(guest))
    await reminders.add(replace(await new(guest, "k2"), repeat="day/1//09:00"))
    once, daily = await reminders.list_for_session(guest.session_id)
    assert not await reminders.pause(guest.session_id, once.id)
    assert await reminders.pause(guest.session_id, daily.id)
    await due_now(guest)
    assert [one.id for one in await reminders.list_due("web")] == [once.id]
    assert await reminders.start_turn(daily.id, blocks=WORDS, tokens=5) is None
    assert await reminders.resume(guest.session_id, daily.id, datetime.now(UTC) - timedelta(seconds=1))
    assert {one.id for one in await reminders.list_due("web")} == {once.id, daily.id}
    await reminders.pause(guest.session_id, daily.id)
    assert await reminders.cancel(guest.session_id, daily.id)
    assert await state(guest) == "pending cancelled"


async def test_few_repeat(guest: Visit, reminders: PostgresReminders) -> None:
    for number in range(REPEATING_AT_MOST):
        wish = await new(guest, f"k{number}", hours=2 * number + 1)
        assert await reminders.add(replace(wish, repeat="day/1//09:00")) is None
    more = await new(guest, "more", hours=50)
    assert await reminders.add(replace(more, repeat="day/1//09:00")) == "too_many_repeat"
    assert await reminders.add(more) is None


async def test_a_public_chat_has_none(guest: Visit, reminders: PostgresReminders) -> None:
    await guest.app.pool.execute("UPDATE sites SET audience = 'public'")
    assert await reminders.add(await new(guest)) == "public"


async def test_of_many_who_look_one_begins_the_turn(guest: Visit, reminders: PostgresReminders) -> None:
    await reminders.add(await new(guest))
    assert await reminders.list_due("web") == ()
    await due_now(guest)
    (found,) = await reminders.list_due("web")
    assert (found.text, found.reachable, found.timezone) == ("call Anna", True, None)
    begun = await asyncio.gather(*(reminders.start_turn(found.id, blocks=WORDS, tokens=7) for _ in range(6)))
    assert sorted(map(str, begun)) == sorted([str(guest.session_id), *["None"] * 5])
    assert await guest.one("SELECT count(*) FROM turns") == 1
    assert await guest.one("SELECT author || ' ' || role FROM entries") == "program user"
    assert await reminders.load_text(guest.session_id, 1) == "call Anna"
    assert await reminders.load_text(guest.session_id, 2) is None


async def test_only_who_serves_the_channel_and_the_account_finds_it(
    guest: Visit, reminders: PostgresReminders
) -> None:
    await reminders.add(await new(guest))
    await due_now(guest)
    assert await reminders.list_due("telegram") == ()
    assert await reminders.list_due("web", accounts=["another site"]) == ()
    assert len(await reminders.list_due("web", accounts=["default"])) == 1


async def test_it_is_done_when_its_turn_is_over_and_delivered(
    guest: Visit, reminders: PostgresReminders
) -> None:
    await reminders.add(await new(guest))
    await due_now(guest)
    (found,) = await reminders.list_due("web")
    await reminders.start_turn(found.id, blocks=WORDS, tokens=7)
    assert await reminders.list_due("web") == ()
    assert await state(guest) == "claimed"
    assert "call Anna" in await guest.answered()
    assert await reminders.list_due("web") == ()
    assert await state(guest) == "done"


async def test_messages_that_wait_are_answered_first_and_later_ones_after(
    guest: Visit, reminders: PostgresReminders
) -> None:
    await reminders.add(await new(guest))
    await guest.say("First.")
    await due_now(guest)
    (found,) = await reminders.list_due("web")
    await reminders.start_turn(found.id, blocks=WORDS, tokens=7)
    await guest.say("Third.")
    await guest.say("Also third.")
    await guest.answered()
    turns = "SELECT string_agg(te.turn_no || ' ' || author, ', ' ORDER BY te.seq) FROM turn_entries te"
    assert await guest.one(f"{turns} JOIN entries USING (session_id, seq) WHERE role = 'user'") == (
        "1 person, 2 program, 3 person, 3 person"
    )


async def test_only_its_own_people_can_cancel_it_and_only_before_its_time(
    guest: Visit, reminders: PostgresReminders
) -> None:
    other = await visit(guest.app)
    await reminders.add(await new(guest))
    (kept,) = await reminders.list_for_session(guest.session_id)
    assert await reminders.list_for_session(other.session_id) == ()
    assert not await reminders.cancel(other.session_id, kept.id)
    assert await reminders.cancel(guest.session_id, kept.id)
    assert not await reminders.cancel(guest.session_id, kept.id)
    await due_now(guest)
    assert await reminders.list_due("web") == ()
    assert await reminders.start_turn(kept.id, blocks=WORDS, tokens=7) is None


async def test_postponed_reminder_differs_from_one_that_no_process_serves(
    guest: Visit, reminders: PostgresReminders
) -> None:
    await reminders.add(await new(guest))
    await guest.app.pool.execute("UPDATE reminders SET tell_at = now() - interval '11 minutes'")
    assert (await reminders.count_overdue(10), await reminders.count_overdue(12)) == (1, 0)
    (found,) = await reminders.list_due("web")
    await reminders.postpone_until(found.id, found.now + timedelta(hours=1))
    assert await reminders.list_due("web") == ()
    assert await reminders.count_overdue(10) == 0
    assert await reminders.start_turn(found.id, blocks=WORDS, tokens=7) is None


async def test_a_chat_that_is_closed_is_shown_as_the_reason(
    guest: Visit, reminders: PostgresReminders
) -> None:
    await reminders.add(await new(guest))
    await due_now(guest)
    await guest.app.pool.execute("UPDATE addresses SET unreachable_since = now()")
    (found,) = await reminders.list_due("web")
    assert not found.reachable
    await reminders.fail(found.id, "unreachable")
    (shown,) = await reminders.list_for_session(guest.session_id)
    assert (shown.state, shown.reason) == ("failed", "unreachable")


async def test_reminder_follows_its_address_to_the_linked_session(
    guest: Visit, reminders: PostgresReminders
) -> None:
    """As after `/link`: the other conversation goes on, and this place leads there."""
    other = await visit(guest.app)
    await reminders.add(await new(guest))
    people = PostgresAccountLinks(guest.app.pool)
    code = await people.issue_code(guest.session_id, guest.address_id)
    assert isinstance(code, str)
    assert isinstance(await people.link_account(other.session_id, other.address_id, code), LinkedContacts)
    assert len(await reminders.list_for_session(other.session_id)) == 1
    await due_now(guest)
    (found,) = await reminders.list_due("web")
    assert await reminders.start_turn(found.id, blocks=WORDS, tokens=7) == other.session_id
    assert "call Anna" in await other.answered()
