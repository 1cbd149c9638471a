"""A reminder on Telegram is a new message that can be heard, in the chat where it was asked for."""

from __future__ import annotations

from tests.kit.fakes.bot_api import USERNAME, Person
from tests.kit.telegram.bot_process import TelegramHouse


async def remind(house: TelegramHouse, chat: int, text: str, *, minutes: int, repeat: str = "") -> None:
    """As the tool keeps it."""
    await house.one(
        """INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at, repeat)
           SELECT $2, contact_id, session_id, id, $2, now() + make_interval(mins => $3),
                  now() + make_interval(mins => $3), $4
             FROM addresses WHERE chat = $1 RETURNING id""",
        str(chat), text, minutes, repeat,
    )  # fmt: skip


async def talks(house: TelegramHouse, number: int) -> Person:
    person = await house.person(number, first_name="Ada")
    await person.say("Good morning, assistant.")
    await person.sees("Good morning")
    return person


async def ended(house: TelegramHouse, text: str, state: str) -> None:
    await house.until("SELECT EXISTS (SELECT FROM reminders WHERE text = $1 AND state = $2)", text, state)


async def test_it_comes_as_a_message_of_its_own_with_sound(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    before = await ada.screen()
    await remind(demo, ada.id, "call Anna about the boat", minutes=0)
    screen = await ada.sees("call Anna about the boat")
    assert len(screen.answers) == len(before.answers) + 1
    assert screen.notifications == before.notifications + 1
    await ended(demo, "call Anna about the boat", "done")
    await ada.say("Whom was I to call?")
    await ada.sees(lambda screen: len(screen.answers) == len(before.answers) + 2)


async def test_the_list_is_a_command_and_one_of_it_can_be_cancelled(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    await remind(demo, ada.id, "water the plants", minutes=90)
    await ada.command("reminders")
    await ada.sees("water the plants")
    await ada.command("reminders", "cancel 1")
    await ada.sees("Cancelled")
    await ended(demo, "water the plants", "cancelled")


async def test_a_group_is_reminded_as_a_group(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number, first_name="Ada")
    family = await demo.api.group("Family", ada)
    await family.sees(lambda screen: len(screen.answers) == 1)
    await demo.let_in(family.id)
    await family.sees("Mention me")
    await ada.say(f"@{USERNAME} hello everybody", chat=family.id)
    await family.sees("hello everybody")
    await remind(demo, family.id, "book the cabin", minutes=0)
    screen = await family.sees("book the cabin")
    assert len(screen.answers) == 4, "its code when it was added, its welcome, the answer, the reminder"
    await ended(demo, "book the cabin", "done")


async def test_closed_chat_learns_of_missed_reminder_when_open_again(
    demo: TelegramHouse, number: int
) -> None:
    ada = await talks(demo, number)
    await ada.block()
    await remind(demo, ada.id, "feed the cat", minutes=0)
    await ended(demo, "feed the cat", "failed")
    await ada.unblock()
    await ada.command("reminders")
    await ada.sees("Could not be sent")
    await ada.sees("feed the cat")


async def test_what_repeats_comes_again_and_is_paused_and_cancelled_by_buttons(
    demo: TelegramHouse, number: int
) -> None:
    ada = await talks(demo, number)
    await remind(demo, ada.id, "water the fern", minutes=0, repeat="week/1/mon,thu/09:00")
    await ada.sees("water the fern")
    await demo.until(
        """SELECT count(*) = 1 FROM reminders
            WHERE text = 'water the fern' AND state = 'pending' AND due_at > now()"""
    )
    await remind(demo, ada.id, "call the bank", minutes=5)
    await ada.command("reminders")
    screen = await ada.sees("every Monday, Thursday: “water the fern”")
    listed = screen.answers[-1]
    assert listed.buttons == ["🗑 1", "⏸ 2", "🗑 2"]
    await ada.tap("⏸ 2", message_id=listed.message_id)
    screen = await ada.sees("Paused: “water the fern”")
    assert screen.answers[-1].message_id == listed.message_id
    assert "⏸ paused" in screen.answers[-1].text
    await ada.tap("▶ 2", message_id=listed.message_id)
    await ada.sees("On again:")
    await ada.tap("🗑 2", message_id=listed.message_id)
    screen = await ada.sees("Cancelled: “water the fern”")
    assert screen.answers[-1].buttons == ["🗑 1"]
    await ended(demo, "water the fern", "cancelled")
    assert await demo.one("SELECT count(*) FROM reminders WHERE text = 'call the bank' AND state = 'pending'")
