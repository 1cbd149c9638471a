"""A stranger wants in: the owner is asked in their chat, decides with a press, and the guest is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from bot.telegram.handlers.access_requests import MAX_PENDING_NOTICES
from shared.adapters.postgres.people.audit_chain import check_chain
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from tests.kit.fakes.bot_api import Line, Person, Screen, running_bot_api
from tests.kit.telegram.bot_process import BOT_ID, TelegramHouse, telegram_house

_numbers = count(500)
ASKED = "would like to talk with me"
ALLOWED = "You can talk with me now"
AUDITED = "SELECT array_agg(actor || ' ' || action ORDER BY id) FROM audit WHERE object = $1"


@pytest.fixture
async def fresh_house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[TelegramHouse]:
    async with (
        running_bot_api() as api,
        telegram_house(api, database_url, redis_url, tmp_path) as fresh_house,
    ):
        yield fresh_house


async def owner(fresh_house: TelegramHouse, name: str = "Ada") -> Person:
    person = await fresh_house.person(next(_numbers), allowed=False, first_name=name)
    await fresh_house.let_in(person.id, owner=True)
    await person.command("start")
    await person.sees(name)
    return person


async def stranger(fresh_house: TelegramHouse, name: str, **told: str) -> Person:
    person = await fresh_house.person(next(_numbers), allowed=False, first_name=name, **told)
    await person.say("Hello?")
    await person.sees("Code" if told.get("language_code") == "de" else "good for one hour")
    return person


def asked(screen: Screen, name: str) -> list[Line]:
    return [line for line in screen.answers if f"{name} {ASKED}" in line.text]


async def test_an_owner_lets_a_guest_in_with_one_press(fresh_house: TelegramHouse) -> None:
    ada = await owner(fresh_house)
    eve = await stranger(fresh_house, "Eve", language_code="de")
    (question,) = asked(await ada.sees(f"Eve {ASKED}"), "Eve")
    assert question.buttons == ["Allow", "Deny"]
    await eve.say("And now?")
    await fresh_house.handled()
    assert len(asked(await ada.screen(), "Eve")) == 1, "once for each guest"
    await ada.tap("Allow")
    (decided,) = [line for line in (await ada.sees("Eve can talk")).answers if "Eve" in line.text]
    assert (decided.message_id, decided.buttons) == (question.message_id, [])
    await eve.sees("Sie können jetzt mit mir reden")
    await eve.say("Good day to you.")
    await eve.sees("Good day to you")
    about = f"telegram:{BOT_ID}:{eve.id}"
    assert await fresh_house.one(AUDITED, about) == [f"telegram:{ada.id} pairing.approve"]
    async with asyncpg.create_pool(fresh_house.database_url, min_size=1, max_size=1) as pool:
        assert (await check_chain(pool))["state"] == "intact"


async def test_refused_guest_is_notified_once_and_other_owner_sees_it(
    fresh_house: TelegramHouse,
) -> None:
    ada, bob = await owner(fresh_house), await owner(fresh_house, "Bob")
    eve = await stranger(fresh_house, "Eve")
    await ada.sees(ASKED)
    await bob.sees(ASKED)
    await ada.tap("Deny")
    await eve.sees("I may not talk with you here")
    await bob.tap("Allow")
    await bob.sees("Eve was refused")
    assert [toast["text"] for toast in (await bob.screen()).toasts] == ["That was decided already."]
    await eve.say("Please!")
    await fresh_house.handled()
    assert len((await eve.screen()).answers) == 2
    assert await fresh_house.one("SELECT state FROM telegram_access WHERE chat_id = $1", eve.id) == "refused"


async def test_a_guest_cannot_press_what_only_an_owner_is_asked(fresh_house: TelegramHouse) -> None:
    await owner(fresh_house)
    eve = await stranger(fresh_house, "Eve")
    friend = await fresh_house.person(next(_numbers), first_name="Guest")
    await friend.say("Hello.")
    for person in (eve, friend):
        shown = (await person.sees(lambda screen: bool(screen.answers))).answers[-1]
        await person.forge_tap(shown.message_id, f"v1:letin:0:{eve.id}")
        await fresh_house.handled()
        assert [toast["text"] for toast in (await person.screen()).toasts] == [
            "This button is for another person."
        ]
    assert await fresh_house.one("SELECT state FROM telegram_access WHERE chat_id = $1", eve.id) == "pending"


async def test_guest_allowed_from_shell_is_notified_unlike_a_blocked_one(
    fresh_house: TelegramHouse,
) -> None:
    eve = await stranger(fresh_house, "Eve")
    code = await fresh_house.one("SELECT code FROM telegram_access WHERE chat_id = $1", eve.id)
    async with asyncpg.create_pool(fresh_house.database_url, min_size=1, max_size=1) as pool:
        access = PostgresTelegramAccess(pool)
        await access.decide_by_code(code, allowed=True, by="shell", actor="command line")
        await eve.sees(ALLOWED)
        await fresh_house.until("SELECT told_at > decided_at FROM telegram_access WHERE chat_id = $1", eve.id)
        await access.decide(BOT_ID, eve.id, allowed=False, by="shell", actor="command line")
        assert await access.list_unsent_decisions([BOT_ID]) == []
    about = f"telegram:{BOT_ID}:{eve.id}"
    assert await fresh_house.one(AUDITED, about) == [
        "command line pairing.approve",
        "command line pairing.block",
    ]


async def test_strangers_cannot_fill_the_owners_chat(fresh_house: TelegramHouse) -> None:
    ada = await owner(fresh_house)
    for number in range(MAX_PENDING_NOTICES + 3):
        await stranger(fresh_house, f"Guest{number}")
    await ada.sees(lambda screen: len(asked(screen, "")) == MAX_PENDING_NOTICES)
    await fresh_house.handled()
    assert len(asked(await ada.screen(), "")) == MAX_PENDING_NOTICES


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_group_is_welcomed_or_left(fresh_house: TelegramHouse, *, allowed: bool) -> None:
    ada = await owner(fresh_house)
    eve = await fresh_house.person(next(_numbers), allowed=False, first_name="Eve")
    group = await fresh_house.api.group("Club", eve)
    await group.sees("good for one hour")
    (question,) = asked(await ada.sees(f"Club {ASKED}"), "Club")
    await ada.tap("Allow" if allowed else "Deny", message_id=question.message_id)
    await group.sees("reply to me" if allowed else "so I leave")
    await fresh_house.until("SELECT told_at > decided_at FROM telegram_access WHERE chat_id < 0")
    assert ("leaveChat" in await fresh_house.api.counts()) is not allowed
