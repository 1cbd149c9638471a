"""Many messages at once, and an orderly end in mid-answer: each message has one turn, each turn one end."""

from __future__ import annotations

import asyncio
import signal
import time
from random import Random

import pytest

from tests.faults.provided import LONG, provided_by
from tests.kit.deployment.breakable_servers import Case, Recovery
from tests.kit.deployment.person import Person
from tests.kit.fakes.messages_api.harness import RunningFake

AT_ONCE = 20
GONE_SECONDS = 30.0
_BEHIND = """SELECT min(turn_no) FROM turn_entries JOIN entries USING (session_id, seq)
              WHERE author = 'person' AND seq > 1"""
MINUTE = " ".join(f"step{number}" for number in range(400))
"""Some 155 parts of a stream, in a minute when each of them takes 0.4 s."""


@pytest.mark.row("F25")
async def test_twenty_messages_in_a_second_join_the_next_turn(
    case: Case, fake: RunningFake, seed: int
) -> None:
    """From two screens, so that their order is that of arrival and nobody's plan."""
    await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": LONG, "pace_ms": 200}}])
    chance = Random(seed)
    async with case.web(**provided_by(fake)), Person(case.port, name="one") as one:
        await one.say("Please tell me something long.")
        await one.until(lambda: bool(one.deltas), "its first words")
        async with Person(case.port, token=one.token, name="two") as two:
            for number in range(AT_ONCE):
                await chance.choice((one, two)).say(f"Number {number} of what I say meanwhile.")
                await asyncio.sleep(chance.uniform(0.0, 0.1))
            await one.answered()
            await two.answered()
            assert [one.finals[0]["text"], len(one.said) + len(two.said)] == [LONG, AT_ONCE + 1]
            assert await case.value(_BEHIND) == 2
            await case.promises_hold(one, two)


@pytest.mark.row("F18")
async def test_an_orderly_end_in_an_answer_of_a_minute_hands_it_over(
    case: Case, fake: RunningFake, recovery: Recovery, seed: int
) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": MINUTE, "pace_ms": 400}}])
    async with case.web(**provided_by(fake)) as web, Person(case.port) as person:
        cid = await person.say("Walk with me for a minute.")
        await person.until(lambda: bool(person.deltas), "its first words")
        await asyncio.sleep(0.0 if seed == 1 else Random(seed).uniform(0.0, 20.0))
        since = time.monotonic()
        web.send(signal.SIGTERM)
        await web.crashed(within_seconds=GONE_SECONDS)
        recovery.note("web ended in an answer of a minute", since)
        assert web.exits == [0], web.words()
        await person.answered()
        assert (answer := person.answer_to(cid)) is not None
        assert "step" not in answer["text"], "begun again, not half of the old one"
        await case.promises_hold(person)
