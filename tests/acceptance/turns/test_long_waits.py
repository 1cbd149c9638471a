"""Turns that wait for a provider: ten minutes for one that answers, longer for one that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.core.values.errors import ModelGaveUp
from tests.kit.dialects.guest import guest_of
from tests.kit.dialects.server import GOOD, Answer, completion, refusal

AGO = "UPDATE turns SET waits_since = waits_since - make_interval(secs => $1) WHERE ended_at IS NULL"
DUE = "UPDATE sessions SET retry_at = now()"
BUSY = refusal(429, {"error": {"message": "Rate limit reached. Please try again in 40s."}})
FAILS = refusal(503, {"error": {"message": "The model is overloaded. Please try again later."}})


@pytest.mark.parametrize("answer", [BUSY, FAILS], ids=["busy", "failing"])
async def test_turn_ends_when_its_provider_was_busy_for_ten_minutes(
    database_url: str, redis_url: str, tmp_path: Path, answer: Answer
) -> None:
    async with guest_of(database_url, redis_url, tmp_path, lambda _: answer) as (guest, _):
        await guest.ask("When does it open?")
        assert await guest.one("SELECT waits_since IS NOT NULL AND ended_at IS NULL FROM turns")
        for seconds, state in ((590, None), (20, "failed model_gave_up")):
            await guest.one(AGO, seconds)
            await guest.one(DUE)
            await guest.answered()
            told = "SELECT state || ' ' || error_code FROM turns WHERE ended_at IS NOT NULL"
            assert await guest.one(told) == state
        assert guest.last_words == ModelGaveUp.advice


async def test_next_message_is_answered_after_a_turn_that_gave_up(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    well: list[bool] = []
    async with guest_of(database_url, redis_url, tmp_path, lambda _: completion(GOOD) if well else BUSY) as (
        guest,
        _,
    ):
        await guest.ask("When does it open?")
        await guest.one(AGO, 700)
        await guest.one(DUE)
        await guest.answered()
        well.append(True)
        assert await guest.ask("And now?") == GOOD


async def test_provider_that_is_away_is_waited_for_longer(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    dead = Answer(body="", status=200)
    async with guest_of(database_url, redis_url, tmp_path, lambda _: dead) as (guest, _):
        await guest.ask("When does it open?")
        await guest.one(AGO, 3_600)
        await guest.one(DUE)
        await guest.answered()
        assert await guest.one("SELECT ended_at IS NULL FROM turns")
