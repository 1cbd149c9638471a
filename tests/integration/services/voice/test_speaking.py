"""Spoken answers on real Postgres: made and paid once, held by caps, gone with their words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.values.errors import CapReached, EvertalkError
from shared.locales import catalogue
from shared.services.voice.speaking import NothingToSpeak, NotSpoken
from tests.kit.app_driver import Visit
from tests.kit.fakes.speech.harness import RunningSpeech


@pytest.fixture
def app_options(speech: RunningSpeech) -> dict[str, Any]:
    wanted = {name.removeprefix("EVERTALK_").lower(): text for name, text in speech.settings.items()}
    return {"cap_session_usd": "0.02", **wanted}


@pytest.fixture(autouse=True)
async def spoken_turn(guest: Visit) -> None:
    await guest.ask("My cat is called Miso.")


async def speak(guest: Visit, turn: int = 1) -> bytes:
    assert guest.app.speaking is not None
    return await guest.app.speaking.speak(
        guest.session_id, turn, form="mp3", texts=catalogue("commands", "en")
    )


async def paid(guest: Visit) -> list[tuple[object, ...]]:
    rows = await guest.app.pool.fetch(
        "SELECT status, turn_no, known, cost_micro FROM usage WHERE purpose = 'speech' ORDER BY id"
    )
    return [tuple(row) for row in rows]


async def test_what_is_asked_for_twice_at_once_is_made_and_paid_once(
    guest: Visit, speech: RunningSpeech
) -> None:
    await speech.next({"latency": 0.5})
    first, second = await asyncio.gather(speak(guest), speak(guest))
    assert first == second == await speak(guest)
    [asked] = await speech.requests()
    assert await paid(guest) == [("done", 1, True, 10 * len(asked["input"]))]
    held = await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'")
    assert held == 0


@pytest.mark.parametrize(("action", "cost"), [({"status": 400}, 0), ({"cut": True}, 1)])
async def test_a_failure_costs_what_it_may_have_cost(
    action: dict[str, object], cost: int, guest: Visit, speech: RunningSpeech
) -> None:
    await speech.next(action)
    with pytest.raises(NotSpoken):
        await speak(guest)
    assert [status for status, *_ in await paid(guest)] == ["aborted"] * cost
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    assert await speak(guest)


async def test_a_cap_holds_before_anybody_is_asked(guest: Visit, speech: RunningSpeech) -> None:
    for _ in range(40):
        await guest.app.stores.turns.reserve(guest.session_id, 500, caps=guest.app.caps)
    with pytest.raises(EvertalkError) as raised:
        await speak(guest)
    assert isinstance(raised.value, CapReached) or raised.value.code.startswith("cap")
    assert await speech.requests() == []


async def test_stored_speech_is_erased_with_its_text(guest: Visit, speech: RunningSpeech) -> None:
    await speech.next({"latency": 1})
    speaking = asyncio.create_task(speak(guest))
    async with asyncio.timeout(20):
        while not await guest.one("SELECT count(*) FROM spoken_answers"):
            await asyncio.sleep(0.01)
    stored = guest.app.stores.speech
    answered = [await stored.find_answered_turn(guest.session_id, seq) for seq in (1, 2, 3)]
    assert answered == [None, 1, None]
    await guest.app.erasure.erase_messages(guest.session_id, [1, 2], "person")
    assert await speaking
    assert await guest.one("SELECT count(*) FROM spoken_answers") == 0
    assert await stored.find_answered_turn(guest.session_id, 2) is None
    with pytest.raises(NothingToSpeak):
        await speak(guest, turn=9)
