"""A model of another provider answers while the agent's own cannot, and leaves no trace in its meter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.core.session.turns import ContextMeasured, Delta
from tests.acceptance.long_talks import WINDOW, talk_with_upkeep
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api import RunningFake, running_fake

ROOM = 40_000
SPARE, SPARES_NAME, SPARE_WINDOW = "spare", "claude-haiku-4-5", 12_000
AWAY = [{"times": -1, "action": {"status": 529}}]
REFUSED = [{"times": -1, "action": {"status": 401}}]


@pytest.fixture(scope="module")
def other() -> Iterator[RunningFake]:
    fake = running_fake(wire="openai")
    fake.start()
    yield fake
    fake.close()


@pytest.fixture(params=[ROOM])
async def app_options(other: RunningFake, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    await other.reset()
    await other.set_window(SPARES_NAME, SPARE_WINDOW)
    models = tmp_path / "models.json"
    entry = {
        "name": SPARE, "model": SPARES_NAME, "wire": "openai", "base_url": other.base_url,
        "window": SPARE_WINDOW, "prices": {"input": 7, "output": 9, "cache_read": 7, "cache_write": 7},
    }  # fmt: skip
    models.write_text(json.dumps([entry]))
    return {
        "models_file": models, "fallback_models": "spare", "max_output": 1_000,
        "context_window": request.param,
    }  # fmt: skip


async def meter(guest: Visit) -> dict[str, Any]:
    row = await guest.app.pool.fetchrow(
        "SELECT context_tokens, context_limit, token_ratio, measured_by FROM sessions WHERE id = $1",
        guest.session_id,
    )
    assert row is not None
    return dict(row)


async def test_who_cannot_pay_one_provider_is_answered_by_the_next(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    await guest.ask("Good morning.")
    before = await meter(guest)
    await provider.script(REFUSED)
    await other.script([{"times": 1, "action": {"text": "The spare speaks."}}])
    assert await guest.ask("Are you there?") == "The spare speaks."
    after = await meter(guest)
    assert after["context_tokens"] > before["context_tokens"]
    assert (after["token_ratio"], after["measured_by"]) == (before["token_ratio"], before["measured_by"])
    assert after["context_limit"] > SPARE_WINDOW
    row = await guest.app.pool.fetchrow("SELECT * FROM usage WHERE model = $1 AND status = 'done'", SPARE)
    assert row is not None
    assert row["cost_micro"] == 7 * row["input_tokens"] + 9 * row["output_tokens"]
    measured = [event for event in guest.heard if isinstance(event, ContextMeasured)][-1]
    assert measured.estimated
    assert measured.limit == after["context_limit"]


@pytest.mark.parametrize("refusals", [0, 1])
async def test_a_screen_replaces_what_the_first_model_had_begun(
    guest: Visit, provider: RunningFake, other: RunningFake, refusals: int
) -> None:
    """A request that was refused as too long before counts no more for the model that answers."""
    if refusals:
        await guest.ask("Some words about the harbour. " * 20)
    heard = len(guest.heard)
    long = {"status": 400, "message": "prompt is too long: 50000 tokens > 40000 maximum"}
    breaks = {"times": -1, "action": {"stream_error": 2, "text": "x " * 99}}
    await provider.script([*([{"times": refusals, "action": long}] if refusals else []), breaks])
    await other.script([{"times": 1, "action": {"text": "The spare speaks."}}])
    assert await guest.ask("Are you there?") == "The spare speaks."
    pieces = [event for event in guest.heard[heard:] if isinstance(event, Delta)]
    attempts = [event.attempt for event in pieces]
    assert attempts == sorted(attempts)
    assert len(set(attempts)) >= 2
    last = [event for event in pieces if event.attempt == attempts[-1]]
    assert "".join(event.text for event in last) == "The spare speaks."
    assert last[0].offset == 0
    assert await guest.one("SELECT count(*) FROM usage WHERE model <> $1 AND status = 'aborted'", SPARE) >= 1
    spent = await guest.one("SELECT spent_micro FROM spend_days WHERE scope = 'total'")
    assert spent == await guest.one("SELECT sum(cost_micro)::bigint FROM usage")
    assert await guest.one("SELECT count(*) FROM reservations") == await guest.one(
        "SELECT count(*) FROM turns"
    )


async def test_broken_off_answer_of_a_fallback_rests_for_its_change(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    """Stored calls that failed are no tool round, after which the turn would continue at once."""
    await provider.script([{"times": -1, "action": {"stream_error": 2, "text": "x " * 99}}])
    await other.script([{"times": 1, "action": {"text": "Too early. " * 100, "pace_ms": 400}}])
    await guest.say("Here is the first half,")
    answering = asyncio.create_task(guest.answered())
    async with asyncio.timeout(60):
        while not any(isinstance(event, Delta) and "early" in event.text for event in guest.heard):
            await asyncio.sleep(0.02)
    await guest.app.sessions.break_off(guest.session_id, turn=1)
    await answering
    assert await guest.one("SELECT retry_at > now() + interval '10 s' FROM sessions")


async def test_smaller_fallback_window_is_filled_by_importance_without_hiding(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    for number in range(6):
        await guest.ask(f"Part {number}: " + "the harbour lies in fog today. " * 300)
    whole = (await meter(guest))["context_tokens"]
    assert whole > SPARE_WINDOW
    await provider.script(AWAY)
    answered = await guest.ask("And what lies in fog?")
    assert answered
    (asked,) = await other.requests()
    assert asked["outcome"] == "answered", asked["error"]
    assert asked["input_tokens"] < SPARE_WINDOW
    assert "And what lies in fog?" in json.dumps(asked["body"])
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'") == 0
    await provider.script([])
    await guest.ask("Good, you are back.")
    newest = (await provider.requests())[-1]
    assert newest["input_tokens"] > whole
    assert answered in json.dumps(newest["body"])
    assert "Part 0: " in json.dumps(newest["body"])


async def test_a_turn_goes_on_elsewhere_between_two_of_its_calls(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    note: dict[str, Any] = {"kind": "fact", "text": "Drinks tea with milk."}
    saves = {"times": 1, "action": {"tool_use": [{"name": "save_memory", "input": note}]}}
    await provider.script([saves, *AWAY])
    assert await guest.ask("I drink tea with milk.")
    (asked,) = await other.requests()
    assert asked["outcome"] == "answered", asked["error"]
    assert "save_memory" in json.dumps(asked["body"]["messages"])
    assert await guest.one("SELECT count(*) FROM notes") == 1
    await provider.script([])
    assert await guest.ask("And now?")
    assert {one["outcome"] for one in (await provider.requests())[-1:]} == {"answered"}
    assert not await provider.warnings()
    assert not await other.warnings()


async def test_turn_waits_for_its_own_model_while_no_fallback_answers(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    await provider.script(AWAY)
    await other.script(REFUSED)
    assert "within half a minute" in await guest.ask("Is anybody there?")
    assert await guest.one("SELECT state FROM turns") == "claimed"
    await provider.script([])
    await guest.app.pool.execute("UPDATE sessions SET retry_at = NULL")
    assert await guest.answered()
    assert await guest.one("SELECT state FROM turns") == "answered"


async def test_one_who_has_no_room_for_the_turn_is_passed_over(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    """The turn is not refused for a window that is not its own model's."""
    await other.set_window(SPARES_NAME, 2_000)
    await provider.script(AWAY)
    await other.script(
        [{"times": -1, "action": {"status": 400, "message": "prompt is too long: 9 tokens > 2"}}]
    )
    assert "within half a minute" in await guest.ask("Is anybody there?")
    assert await guest.one("SELECT state FROM turns") == "claimed"


@pytest.mark.parametrize("app_options", [WINDOW], indirect=True)
async def test_memory_is_saved_and_summaries_are_written_elsewhere(
    guest: Visit, provider: RunningFake, other: RunningFake
) -> None:
    await other.set_window(SPARES_NAME, 200_000)
    await provider.script(REFUSED)
    await talk_with_upkeep(guest, 10)
    requests = await other.requests()
    assert {one["outcome"] for one in requests} == {"answered"}, [one["error"] for one in requests]
    assert {"chat", "summary"} <= {one["kind"] for one in requests}
    assert await guest.one("SELECT base_turn FROM sessions") > 0
    assert await guest.one("SELECT DISTINCT model FROM compactions") == SPARE
    await guest.ask("What is the invoice number of the piano?")
    assert "PX-4471" in json.dumps((await other.requests())[-1]["body"])
