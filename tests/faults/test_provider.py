"""The model's provider cuts, refuses, is busy or wants money: each message is still answered once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.services.turns.session_service import WAKE_SECONDS
from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import MONEY_POINTS, PUT_BACK, TOKEN_POINT
from tests.faults.lengths import lasting
from tests.faults.provided import LONG, provided_by
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import CRASHED, Process, logged
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port

ANY_CHAT = {"kind": "chat"}
KNOWN = "claude-sonnet-5-5"
"""Model of the fake; at a foreign address its price is unknown."""


class Provided:
    """A web process whose answers come from the fake provider."""

    def __init__(self, case: Case, web: Process, provider: RunningFake) -> None:
        self.case = case
        self.web = web
        self.provider = provider

    def person(self, name: str) -> Person:
        return Person(self.case.port, name=name)

    async def misbehaves(self, action: dict[str, Any], *, times: int = 1) -> None:
        await self.provider.script([{"match": ANY_CHAT, "times": times, "action": action}])

    async def hurry(self) -> None:
        """Nobody wants to sit out half a minute in a test: turns that were put back are due now."""
        await self.case.value("UPDATE sessions SET retry_at = now() WHERE retry_at > now()")


@pytest.fixture(scope="module")
async def served(plant: Plant, module_provider: RunningFake) -> AsyncIterator[Provided]:
    case = await plant.case(TEMPLATE)
    async with case.web(**provided_by(module_provider)) as web:
        yield Provided(case, web, module_provider)
        assert web.exits == [], web.words()
    await plant.drop(case.database)


@pytest.fixture
async def provided(served: Provided, fake: RunningFake) -> Provided:
    assert fake is served.provider
    return served


async def greeted(person: Person) -> None:
    """A few good answers: the breaker counts failures by their share."""
    for number in range(2):
        await person.ask(f"Good day, number {number}.")


@pytest.mark.parametrize(
    ("fault", "action"),
    [
        pytest.param("cut in mid-stream", {"cut": 3, "text": LONG}, marks=pytest.mark.row("F42")),
        pytest.param(
            "overloaded in mid-stream", {"stream_error": 3, "text": LONG}, marks=pytest.mark.row("F41")
        ),
        pytest.param("without an end", {"cut": 4, "text": LONG}, marks=pytest.mark.row("F44")),
        pytest.param("unreadable", {"malformed": 2, "text": LONG}, marks=pytest.mark.row("F44")),
        pytest.param("busy for a second", {"status": 429, "retry_after": 1}, marks=pytest.mark.row("F40")),
    ],
)
async def test_a_failing_provider_is_asked_again(
    provided: Provided, recovery: Recovery, fault: str, action: dict[str, Any]
) -> None:
    async with provided.person(fault.replace(" ", "-")) as person:
        await greeted(person)
        await provided.misbehaves(action)
        since = time.monotonic()
        answer = await person.ask("Hello, are you well?")
        recovery.note(f"provider {fault}", since)
        assert answer["role"] == "assistant"
        assert answer["text"] != LONG
        await provided.case.promises_hold(person)
    outcomes = [request["outcome"] for request in await provided.provider.requests()]
    assert len(outcomes) == 4, "two good answers, the failing one, and one more"


@pytest.mark.row("F40")
async def test_a_busy_provider_makes_the_turn_wait_and_says_so_once(provided: Provided) -> None:
    async with provided.person("busy") as person:
        await greeted(person)
        await provided.misbehaves({"status": 429, "retry_after": 600}, times=2)
        await person.say("Hello?")
        await _told_to_wait(person)
        async with _hurrying(provided):
            await person.answered()
        assert len(_waits(person)) == 1
        refused = [request for request in await provided.provider.requests() if request["status"] == 429]
        assert len(refused) == 2, "put back twice, and told once"
        await provided.case.promises_hold(person)


@pytest.mark.row("F40")
async def test_provider_that_recovers_early_is_used_before_its_retry_after(
    provided: Provided, recovery: Recovery
) -> None:
    """Nobody hurries anything here: the next answer to anybody ends the wait, /stop ends it without one."""
    async with (
        provided.person("frozen") as frozen,
        provided.person("stops") as stops,
        provided.person("well") as well,
    ):
        await asyncio.gather(greeted(frozen), greeted(stops), greeted(well))
        # What was answered before is no news of the provider any more.
        await asyncio.sleep(2 * WAKE_SECONDS)
        await provided.misbehaves({"status": 429, "retry_after": 3_600}, times=2)
        await asyncio.gather(frozen.say("Hello?"), stops.say("Hello?"))
        await asyncio.gather(_told_to_wait(frozen), _told_to_wait(stops))
        assert await provided.case.value("SELECT max(retry_at) <= now() + interval '1 min' FROM sessions")
        stopping = await stops.command("stop")
        await stops.until(lambda: stopping in stops.commands, "the command's result")
        await stops.answered(within_seconds=5)
        assert stops.finals[-1]["text"] == "Stopped."
        since = time.monotonic()
        await well.ask("Good day.")
        await frozen.answered(within_seconds=3 * WAKE_SECONDS)
        recovery.note("provider well again", since)
        assert len(_waits(frozen)) == 1
        await provided.case.promises_hold(frozen, well)


@pytest.mark.row("F40")
async def test_process_that_dies_after_releasing_a_turn_leaves_it_due(
    plant: Plant, fake: RunningFake
) -> None:
    case = await plant.case(TEMPLATE)
    await fake.script([{"match": ANY_CHAT, "times": 1, "action": {"status": 429, "retry_after": 3_600}}])
    async with case.web(crash_point=PUT_BACK, **provided_by(fake)) as web, Person(case.port) as person:
        await person.say("Hello?")
        await web.crashed()
        await person.answered()
        assert web.exits == [CRASHED], web.words()
        await case.promises_hold(person)
    await plant.drop(case.database)


@pytest.mark.row("F19")
async def test_a_stopped_process_that_wakes_up_does_not_answer_again(
    provided: Provided, recovery: Recovery
) -> None:
    port = free_port()
    more = {**provided_by(provided.provider), "EVERTALK_HTTP_PORT": str(port)}
    async with provided.case.web(**more) as second, provided.person("stopped") as person:
        await greeted(person)
        await provided.misbehaves({"text": LONG, "pace_ms": 500})
        cid = await person.say("Please tell me something long.")
        await person.until(lambda: bool(person.deltas) and person.deltas[-1]["turn"] == 3, "its first words")
        since = time.monotonic()
        provided.web.send(signal.SIGSTOP)
        try:
            async with Person(port, token=person.token, name="elsewhere") as elsewhere:
                await elsewhere.until(lambda: len(elsewhere.finals) == 3, "the answer of the other process")
                recovery.note("web stopped, another one took over", since)
                await asyncio.sleep(max(0.0, lasting(5.5, 30.0) - (time.monotonic() - since)))
                provided.web.send(signal.SIGCONT)
                await person.answered()
                await _fenced(provided.web)
                await person.ask("Are you awake again?")
                await elsewhere.until(lambda: len(elsewhere.finals) == 4, "what was said since")
                assert [f["mid"] for f in elsewhere.finals] == [f["mid"] for f in person.finals]
        finally:
            provided.web.send(signal.SIGCONT)
        answer = person.answer_to(cid)
        assert answer is not None
        assert answer["text"] != LONG
        assert second.exits == []
        assert await _cents_disagree(provided.case) > 0, (
            "what a call cost that nobody heard the end of is unknown"
        )
        await provided.case.promises_hold(person)


async def _fenced(web: Process) -> None:
    """The late answer is thrown away by whoever wrote it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not logged([web], "turn_lease_lost"):
        assert time.monotonic() < end, web.words()
        await asyncio.sleep(0.05)


async def test_what_the_provider_counted_is_in_the_ledger(provided: Provided) -> None:
    before = await _ledger(provided.case)
    async with provided.person("ledger") as person:
        await person.ask("Please remember that my cat is called Miso.")
        await person.ask("What is my cat called?")
        await provided.case.promises_hold(person)
    counted = await provided.provider.usage()
    after = await _ledger(provided.case)
    assert [new - old for new, old in zip(after, before, strict=True)] == [
        counted[name]
        for name in (
            "requests", "input_tokens", "output_tokens", "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )
    ]  # fmt: skip


async def test_what_a_failing_provider_counted_is_in_the_ledger_too(provided: Provided) -> None:
    """Both tries of the first attempt break off and the turn is put back: they were paid for all the same."""
    cents = await _cents_disagree(provided.case)
    async with provided.person("aborted") as person:
        await greeted(person)
        await greeted(person)
        before = await _ledger(provided.case)
        await provided.misbehaves({"cut": 3, "text": LONG}, times=2)
        await person.say("Hello, are you well?")
        await _told_to_wait(person)
        async with _hurrying(provided):
            await person.answered()
        await provided.case.promises_hold(person)
    after = await _ledger(provided.case)
    assert after[0] - before[0] == 3
    assert await _cents_disagree(provided.case) == cents


@pytest.mark.control("S30")
async def test_what_failed_in_the_background_is_in_the_ledger_too(provided: Provided) -> None:
    """A flush whose call breaks off twice fails and costs; the summary after it is made all the same."""
    cents = await _cents_disagree(provided.case)
    async with (
        provided.case.worker(**provided_by(provided.provider)),
        provided.person("background") as person,
    ):
        for number in range(7):
            await person.ask(f"Number {number}: I have walked along the river and met a heron there.")
        counted, written = await provided.provider.usage(), await _ledger(provided.case)
        await provided.provider.script(
            [{"match": {"kind": "flush"}, "times": 2, "action": {"cut": 2, "text": LONG}}]
        )
        asked = await person.command("compact", "--force")
        await person.until(lambda: asked in person.commands, "the summary")
        assert person.commands[asked]["success"], person.commands[asked]
        await provided.case.promises_hold(person)
    after = await provided.provider.usage()
    assert after["aborted"] - counted["aborted"] == 2
    assert (await _ledger(provided.case))[0] - written[0] == after["requests"] - counted["requests"] >= 3
    assert await _cents_disagree(provided.case) == cents


async def _cents_disagree(case: Case) -> int:
    """Between the day's spending, by which the caps are kept, and the ledger of calls; micro-dollars.

    What is spent of slices that are still open counts: the day's row learns of it when they close.
    Only a lost attempt makes them differ: its price is unknown, and the caps count all that it had set aside.
    """
    return int(
        await case.value(
            """SELECT (SELECT coalesce(sum(spent_micro + spent_of_open_slices(day)), 0)
                      FROM spend_days WHERE scope = 'total')
                    - (SELECT coalesce(sum(cost_micro), 0) FROM usage)"""
        )
    )


async def _ledger(case: Case) -> list[int]:
    connection = await case.connect()
    try:
        row = await connection.fetchrow(
            """SELECT count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
                      coalesce(sum(cache_read_tokens), 0), coalesce(sum(cache_write_tokens), 0) FROM usage""",
            timeout=PATIENCE_SECONDS,
        )
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)
    assert row is not None
    return [int(value) for value in row.values()]


async def test_an_empty_account_makes_turns_wait_and_says_so_once(
    provided: Provided, recovery: Recovery
) -> None:
    async with provided.person("credit") as person:
        await greeted(person)
        await provided.misbehaves({"status": 400, "reason": "credit"}, times=-1)
        first = await person.say("Hello?")
        await _told_to_wait(person)
        await person.say("Is anybody there?")
        await person.acknowledged()
        await provided.hurry()
        asked = await person.command("help")
        await person.until(lambda: asked in person.commands, "a command's result")
        assert person.answer_to(first) is None
        await provided.provider.script([])
        since = time.monotonic()
        async with _hurrying(provided):
            await person.answered()
        recovery.note("account filled again", since)
        assert len(_waits(person)) == 1, "told once, however often it is tried"
        await provided.case.promises_hold(person)


@asynccontextmanager
async def _hurrying(provided: Provided) -> AsyncIterator[None]:
    """However often a turn is put back meanwhile."""
    again = asyncio.create_task(_hurry_again_and_again(provided))
    try:
        yield
    finally:
        again.cancel()
        await asyncio.wait([again])


async def _hurry_again_and_again(provided: Provided) -> None:
    while True:
        await provided.hurry()
        await asyncio.sleep(0.5)


async def _told_to_wait(person: Person) -> None:
    await person.until(lambda: bool(_waits(person)), "a word that it will take a while")


def _waits(person: Person) -> list[dict[str, Any]]:
    return [frame for frame in person.messages if frame.get("waiting")]


async def test_a_slice_of_the_days_money_outlives_its_process_and_comes_back(
    plant: Plant, fake: RunningFake
) -> None:
    case = await plant.case(TEMPLATE)
    try:
        provided = {**provided_by(fake), "EVERTALK_CAP_TOTAL_PER_DAY_USD": "500"}
        async with case.web(crash_point=MONEY_POINTS[0], **provided) as web, Person(case.port) as person:
            await person.ask("Good day.")
            await web.crashed()
            assert web.exits == [CRASHED], web.words()
            await person.ask("And now?")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await case.value("SELECT closed_at IS NULL FROM spend_slices ORDER BY id LIMIT 1"):
                    await asyncio.sleep(0.2)
            await case.promises_hold(person)
        spent = await case.value("SELECT sum(spent_micro)::bigint FROM spend_days WHERE scope = 'total'")
        assert spent == await case.value("SELECT sum(cost_micro)::bigint FROM usage")
    finally:
        await plant.drop(case.database)


async def test_tokens_of_a_killed_call_count_in_full_after_the_sweep(
    plant: Plant, fake: RunningFake, tmp_path: Path
) -> None:
    case = await plant.case(TEMPLATE)
    models = tmp_path / "models.json"
    entry = {"name": KNOWN, "wire": "messages", "base_url": fake.base_url, "window": 100_000}
    models.write_text(json.dumps([{**entry, "max_output": 1_000, "key_env": "ANTHROPIC_API_KEY"}]))
    named = {"EVERTALK_MODELS_FILE": str(models), "EVERTALK_MODEL": KNOWN}
    provided = {"ANTHROPIC_API_KEY": provided_by(fake)["ANTHROPIC_API_KEY"], **named}
    held = "SELECT count(*) FROM reservations WHERE scopes = '{tokens}' AND state = 'held'"
    try:
        async with case.web(crash_point=TOKEN_POINT, **provided) as web, Person(case.port) as person:
            await person.say("Good day.")
            await web.crashed()
            assert web.exits == [CRASHED], web.words()
            await person.answered()
            assert await case.value(held) == 1, "the tokens of the call that was never sent"
            await case.value(
                "UPDATE reservations SET created_at = now() - interval '12 min' WHERE state = 'held'"
            )
            async with case.worker(**provided):
                await case.until(f"SELECT ({held}) = 0")
            row = "SELECT amount_micro, settled_micro FROM reservations WHERE state = 'released'"
            [swept] = await case.rows(f"{row} AND scopes = '{{tokens}}'")
            assert swept["settled_micro"] == swept["amount_micro"] > 0
            await case.promises_hold(person)
    finally:
        await plant.drop(case.database)
