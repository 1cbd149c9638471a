"""Turns of two channels in one session: each is answered by its own, and the next is announced at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.redis.announcer import RedisAnnouncer
from shared.core.identity.people import LinkedContacts
from shared.core.session.turns import Accepted, Inbound, RunStarted
from shared.ports import ALL_PROCESSES, TURN_DUE
from tests.kit.app_driver import Visit

BOT = 7_000


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
async def phone(guest: Visit) -> int:
    """The address of a chat that is joined with the guest's page."""
    places, people = PostgresTelegramChats(guest.app.pool), PostgresAccountLinks(guest.app.pool)
    await places.enrol(
        BOT, username="bot", agent="default", audience="personal", access="pairing", mode="polling"
    )
    place = await places.open(BOT, chat_id=42, thread_id=0, kind="person", title="Ada")
    code = await people.issue_code(place.session_id, place.address_id)
    assert isinstance(await people.link_account(guest.session_id, guest.address_id, code), LinkedContacts)
    return place.address_id


async def say_on_the_phone(guest: Visit, phone: int, words: str, *, number: int = 1) -> Accepted:
    inbound = Inbound(session_id=guest.session_id, address_id=phone, text=words, dedupe_key=f"tg:{number}")
    return await guest.app.stores.turns.accept(inbound, channel="telegram", tokens=5)


async def test_who_finishes_announces_the_turn_of_the_other_channel(
    guest: Visit, phone: int, redis_url: str
) -> None:
    listener = RedisAnnouncer(redis_url)
    heard: asyncio.Queue[tuple[int, object]] = asyncio.Queue()

    async def listen() -> None:
        async for announced in listener.listen():
            await heard.put(announced)

    listening = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(20):
            while not listener.connected:
                await asyncio.sleep(0.01)
            await guest.say("From the page")
            await say_on_the_phone(guest, phone, "From the phone")
            await guest.answered()
            while await heard.get() != (ALL_PROCESSES, TURN_DUE):
                pass
    finally:
        listening.cancel()
        await asyncio.wait([listening])
        await listener.close()
    started = [event for event in guest.heard if isinstance(event, RunStarted)]
    assert [(event.turn, event.address_id) for event in started] == [(1, guest.address_id)]
    assert await guest.app.stores.turns.list_unanswered("telegram", accounts=[str(BOT)]) == [guest.session_id]
    assert await guest.app.stores.turns.list_unanswered("web") == []


async def test_a_page_that_talks_alone_announces_nothing_to_everybody(guest: Visit) -> None:
    told: list[int] = []
    announce = guest.app.announcer.announce

    async def spy(session_id: int, message: dict[str, object]) -> None:
        told.append(session_id)
        await announce(session_id, message)

    guest.app.announcer.announce = spy  # type: ignore[method-assign, assignment]
    await guest.say("One")
    await guest.say("Two")
    await guest.answered()
    await guest.ask("Three")
    assert ALL_PROCESSES not in told


async def test_page_message_after_phone_message_waits_for_its_turn(guest: Visit, phone: int) -> None:
    assert (await say_on_the_phone(guest, phone, "From the phone")).turn == 1
    assert (await guest.say("From the page")).turn == 2
    await guest.answered()
    assert not guest.heard
    assert await guest.app.stores.turns.list_unanswered("telegram") == [guest.session_id]
