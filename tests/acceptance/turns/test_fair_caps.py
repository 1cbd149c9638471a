"""Caps are used up before they refuse, and never overrun: over caps, sizes of prompts and people at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.bootstrap.from_settings import build_caps
from shared.core.session.turns import Stored
from shared.services.turns import spend_tracker
from tests.acceptance.long_talks import guests
from tests.kit.app_driver import Visit, visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.midday import TODAY

EXPIRED = 400.0
"""Seconds between two turns, for the provider."""
FILLER = "We talked about the long walk along the river and what we saw there. "
ANSWER = "That was a fine walk, and the herons stood in the shallow water all along. " * 30
USED = f"""SELECT coalesce(max(spent_micro), 0)::float8 / $2 FROM spend_days
            WHERE scope LIKE $1 || '%' AND day = {TODAY}"""
HELD = "SELECT coalesce(sum(reserved_micro), 0)::bigint FROM spend_days"
REFUSED = "SELECT count(*) FROM turns WHERE state = 'refused' AND error_code = 'cap_reached'"


async def many(app: Any, number: int) -> list[Visit]:
    return [await visit(app) for _ in range(number)]


async def until_answered(guest: Visit) -> str:
    """As every process looks each second for turns that are due again."""
    async with asyncio.timeout(60):
        while await guest.one(
            "SELECT answered_turn < next_turn - 1 FROM sessions WHERE id = $1", guest.session_id
        ):
            await guest.answered()
            await asyncio.sleep(0.05)
    return guest.last_words


async def talk_until_refused(guest: Visit, *, filler: int, apart: float, provider: RunningFake) -> int:
    """How many answers there were."""
    for number in range(400):
        await guest.say(f"Message {number}. {FILLER * filler}")
        await until_answered(guest)
        if apart:
            await provider.advance_clock(apart)
        if await guest.one(
            "SELECT state = 'refused' FROM turns WHERE session_id = $1 ORDER BY turn_no DESC LIMIT 1",
            guest.session_id,
        ):
            return number
    raise AssertionError("never refused")


@pytest.fixture(autouse=True)
def polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for in seconds with people takes less here."""
    monkeypatch.setattr(spend_tracker, "POLL_SECONDS", 0.02)


@pytest.mark.control("S28")
@pytest.mark.parametrize(
    ("cap", "scope", "filler", "people", "apart"),
    [
        (0.25, "session", 0, 1, 0.0),
        (0.30, "session", 20, 1, EXPIRED),
        (0.30, "session", 100, 1, 0.0),
        (0.30, "session", 100, 1, EXPIRED),
        (0.60, "contact", 100, 1, 0.0),
        (1.00, "total", 20, 20, 0.0),
        (0.50, "total", 100, 5, EXPIRED),
    ],
)
async def test_a_cap_is_used_up_and_never_overrun(
    database_url: str, redis_url: str, provider: RunningFake,
    cap: float, scope: str, filler: int, people: int, apart: float,
) -> None:  # fmt: skip
    """Whether the provider still has its cache or has lost it between two turns."""
    name = {
        "session": "cap_session_usd",
        "contact": "cap_person_per_day_usd",
        "total": "cap_total_per_day_usd",
    }
    caps = {"cap_total_per_day_usd": "100", name[scope]: str(cap)}
    async for guest in guests(
        database_url, redis_url, provider, context_window=60_000, max_output=8_192, **caps
    ):
        await provider.script([{"match": {"kind": "chat"}, "times": -1, "action": {"text": ANSWER}}])
        crowd = [guest, *await many(guest.app, people - 1)]
        answers = await asyncio.gather(
            *(talk_until_refused(one, filler=filler, apart=apart, provider=provider) for one in crowd)
        )
        used = await guest.one(USED, scope, cap * 1e6)
        assert 0.9 <= used <= 1.0
        assert min(answers) > 0
        assert await guest.one(HELD) == 0


async def slow_answers(provider: RunningFake) -> None:
    await provider.script([{"match": {"kind": "chat"}, "times": -1, "action": {"text": ANSWER}}])
    await provider.set_pace(20)


@pytest.fixture
async def narrow(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    async for visitor in guests(
        database_url, redis_url, provider, max_output=8_192, cap_total_per_day_usd="0.20"
    ):
        yield visitor


@pytest.mark.control("S28")
async def test_simultaneous_people_wait_for_reservations_and_none_is_refused(
    narrow: Visit, provider: RunningFake
) -> None:
    await slow_answers(provider)
    crowd = [narrow, *await many(narrow.app, 5)]
    await asyncio.gather(*(one.ask("Hello") for one in crowd))
    await asyncio.gather(*(until_answered(one) for one in crowd))
    assert await narrow.one("SELECT count(*) FROM turns WHERE state = 'answered'") == len(crowd)
    assert await narrow.one(REFUSED) == 0


@pytest.mark.control("S28")
async def test_a_turn_whose_money_stays_held_is_put_back_and_answered_later(
    narrow: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spend_tracker, "WAIT_SECONDS", 0.2)
    turns, caps = narrow.app.stores.turns, build_caps(narrow.app.settings)
    other = await visit(narrow.app)
    held = await turns.reserve(other.session_id, 199_000, caps=caps)
    assert held is not None
    words = await narrow.ask("Hello")
    assert "will be answered shortly" in words
    assert await narrow.one(REFUSED) == 0
    await turns.release_reservation(held)
    await narrow.app.pool.execute("UPDATE sessions SET retry_at = now()")
    await until_answered(narrow)
    assert await narrow.one("SELECT state FROM turns") == "answered"
    notices = [one.payload for one in narrow.heard if isinstance(one, Stored) and one.payload.get("waiting")]
    assert len([one for one in notices if one["error"] == "cap_held"]) == 1


@pytest.mark.control("S28")
async def test_a_stop_ends_the_wait_for_money(narrow: Visit, provider: RunningFake) -> None:
    other = await visit(narrow.app)
    held = await narrow.app.stores.turns.reserve(
        other.session_id, 199_000, caps=build_caps(narrow.app.settings)
    )
    assert held is not None
    asked = asyncio.ensure_future(narrow.ask("Hello"))
    async with asyncio.timeout(60):
        while not await narrow.app.sessions.stop(narrow.session_id):
            await asyncio.sleep(0.05)
        await asked
    assert await narrow.one("SELECT state FROM turns") == "stopped"
    await narrow.app.stores.turns.release_reservation(held)


CLAIMED = """SELECT coalesce(sum(amount_micro), 0)::bigint FROM reservations
             WHERE state = 'held' AND turn_no IS NOT NULL"""
DAYS = "SELECT coalesce(sum(spent_micro), 0)::bigint FROM spend_days WHERE scope LIKE $1"


@pytest.mark.control("S28")
async def test_turn_that_waits_for_money_holds_none_and_its_death_costs_none(narrow: Visit) -> None:
    turns, caps = narrow.app.stores.turns, build_caps(narrow.app.settings)
    other = await visit(narrow.app)
    held = await turns.reserve(other.session_id, 199_000, caps=caps)
    assert held is not None
    asked = asyncio.ensure_future(narrow.ask("Hello"))
    async with asyncio.timeout(60):
        while not await narrow.one("SELECT count(*) FROM turns WHERE state = 'claimed'"):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        while await narrow.one(CLAIMED):
            await asyncio.sleep(0.02)
    assert not asked.done()
    await narrow.app.pool.execute("UPDATE sessions SET leased_by = NULL")
    claim = await turns.claim(
        narrow.session_id, channel="web", worker_id=narrow.app.worker_id, caps=caps,
        micro_per_input_token=0.1, micro_output=0.0,
    )  # fmt: skip
    assert claim is not None
    assert await turns.record_lost(claim, model="a-model", input_tokens=1) == 0
    assert await narrow.one(DAYS, "contact:%") == await narrow.one(DAYS, "total") == 0
    await narrow.app.sessions.stop(narrow.session_id)
    asked.cancel()
    await asyncio.wait([asked])
    await turns.release_reservation(held)


async def test_the_refusal_tells_what_is_used_and_the_warning_came_before_it(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    async for guest in guests(database_url, redis_url, provider, max_output=8_192, cap_session_usd="0.25"):
        await provider.script([{"match": {"kind": "chat"}, "times": -1, "action": {"text": ANSWER}}])
        await talk_until_refused(guest, filler=0, apart=0, provider=provider)
        spent = await guest.one("SELECT spent_micro FROM spend_days WHERE scope LIKE 'session:%'")
        assert f"${spent / 1e6:.2f} of $0.25 used; not enough left for an answer" in guest.last_words
        told = [one.payload.get("error") for one in guest.heard if isinstance(one, Stored)]
        assert told.count("budget_warning") == 1
        assert told.index("budget_warning") < told.index("cap_reached")
