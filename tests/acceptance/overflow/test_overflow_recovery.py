"""Requests that are too long: refused, made smaller, answered; on real Postgres and the strict provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
import structlog

from shared.adapters.postgres.turns.counters import RunningSums
from shared.core.session.turns import Organizing
from tests.kit.app_driver import Visit, running_app, settings_for, visit, working
from tests.kit.fakes.messages_api.harness import RunningFake

CHAT = "claude-sonnet-5-5"
FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 18


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"max_output": 1_000}


@pytest.fixture
async def careful(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    """Under a preset that looks before the call."""
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        max_output=1_000, cap_total_per_day_usd="100", preset="spec008", context_window=16_000,
    )  # fmt: skip
    async with running_app(settings) as app:
        yield await visit(app)


async def talk(guest: Visit, turns: int, *, words: str = FILLER) -> None:
    for number in range(turns):
        await guest.ask(f"Message {number}. {words}")


async def test_when_the_window_is_halved_at_run_time_every_turn_is_answered(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.set_window(CHAT, 20_000)
    words = FILLER[:700]
    for turn in range(200):
        if turn == 60:
            await provider.set_window(CHAT, 10_000)
        assert await guest.ask(f"Message {turn}. {words}")
        if turn > 60 and turn % 5 == 0:
            await guest.run_due_jobs()
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 200
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == 200
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'assistant'") == 200
    refused = [record for record in await provider.requests() if record["status"] != 200]
    assert 1 <= len(refused) <= 3, [record["error"] for record in refused]
    assert all("prompt is too long" in record["error"] for record in refused)
    assert not await provider.warnings()


async def test_refused_turn_is_sent_smaller_and_requests_one_summary(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 8, words=FILLER * 3)
    already = len(await provider.requests())
    message = "prompt is too long: 12500 tokens > 12000 maximum"
    await provider.script(
        [{"match": {"kind": "chat"}, "times": 2, "action": {"status": 400, "message": message}}]
    )
    assert await guest.ask("Are you still there?")
    chats = [r for r in (await provider.requests())[already:] if r["kind"] == "chat"]
    assert [record["status"] for record in chats] == [400, 400, 200]
    sizes = [record["input_tokens"] for record in chats]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] <= 0.8 * 12_000
    assert all(r["body"]["messages"][-1]["content"][0]["text"] == "Are you still there?" for r in chats)
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == 9
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact' AND trigger = 'overflow'") == 1
    assert await guest.one("SELECT summary_triggered FROM turn_context_audit ORDER BY id DESC LIMIT 1")


async def test_a_turn_that_is_refused_four_times_ends_with_the_three_largest(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 8, words=FILLER * 3)
    measured = await guest.one("SELECT context_tokens FROM sessions")
    await provider.script([{"match": {"kind": "chat"}, "times": -1, "action": {"status": 413}}])
    already = len(await provider.requests())
    words = await guest.ask("And now?")
    assert "too much for one answer" in words
    assert words.count("tokens)") == 3
    assert "/new" in words
    assert len(await provider.requests()) - already == 4
    row = await guest.app.pool.fetchrow("SELECT * FROM turn_context_audit ORDER BY id DESC LIMIT 1")
    assert row is not None
    assert row["overflow_rejected"]
    assert row["turn_id"] == 9
    assert row["estimated_input_tokens_before"] >= row["estimated_input_tokens_after_summary"] > 0
    assert row["estimated_input_tokens_after_summary"] >= row["estimated_input_tokens_after_prune"] > 0
    assert await guest.one("SELECT error_code FROM turns WHERE turn_no = 9") == "context_budget_exceeded"
    calls = (await RunningSums(guest.app.pool).read())["calls"]
    assert calls["overflows"] == 1
    assert calls["prompt_tokens"] / calls["prompts"] > 0
    await provider.script([])
    assert await guest.ask("Then something shorter.")
    assert guest.last_words != words
    row = await guest.app.pool.fetchrow("SELECT * FROM turn_context_audit ORDER BY id DESC LIMIT 1")
    assert row is not None
    assert row["reported_input_tokens"] > measured
    error = abs(row["estimated_input_tokens_before"] - row["reported_input_tokens"])
    assert error <= 0.01 * row["reported_input_tokens"]


async def test_answer_that_filled_the_window_is_repeated_with_less_context(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.set_window(CHAT, 12_000)
    await talk(guest, 6)
    used = (await provider.requests())[-1]["input_tokens"]
    await provider.set_window(CHAT, used + 900)
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": FILLER * 4}}])
    assert await guest.ask("Tell me everything.")
    reasons = [r["stop_reason"] for r in await provider.requests() if r["kind"] == "chat"]
    assert reasons[-1] == "end_turn"
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 7


async def test_old_turns_go_behind_a_digest_before_any_is_left_out(
    guest: Visit, provider: RunningFake
) -> None:
    """No worker for a long time: nobody waits, and an early question and number are still in sight."""
    await provider.set_window(CHAT, 9_000)
    await guest.ask("The invoice number of the piano is PX-4471.")
    await talk(guest, 24)
    request = (await provider.requests())[-1]["body"]
    first = request["messages"][0]["content"][0]["text"]
    assert first.startswith("<conversation_summary")
    assert "PX-4471" in first
    assert "left out here" not in first
    assert await guest.one("SELECT count(*) FROM compactions") == 0
    statuses = {record["status"] for record in await provider.requests()}
    assert statuses == {200}


@pytest.mark.parametrize("preset", ["spec008", "opencode", "arawn"])
async def test_next_messages_keep_most_context_while_summary_is_missing(
    database_url: str,
    redis_url: str,
    provider: RunningFake,
    preset: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody works on the jobs: what was sent is made smaller by its oldest turns, now and then."""
    monkeypatch.setattr("shared.services.turns.agent_loop.COMPACTION_WAIT_SECONDS", 0.2)
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        cap_total_per_day_usd="100", preset=preset, context_window=24_000,
    )  # fmt: skip
    async with running_app(settings) as app:
        guest = await visit(app)
        await talk(guest, 60, words=FILLER * 2)
        hard = await guest.one("SELECT hard_limit FROM turn_context_audit ORDER BY id DESC LIMIT 1")
    chats = [r for r in await provider.requests() if r["kind"] == "chat"]
    assert {record["status"] for record in chats} == {200}
    sizes = [record["input_tokens"] for record in chats]
    full = next(place for place, (now, then) in enumerate(pairwise(sizes), 1) if then < now)
    assert min(sizes[full:]) >= 0.6 * hard, sizes
    begins = [r["body"]["messages"][0]["content"][0]["text"] for r in chats[full:]]
    assert all(words.startswith("<conversation_summary") for words in begins)
    assert len(set(begins)) < len(begins) / 3, "the provider's cache holds from message to message"
    # Presets by share of the window cut the room of the answer first where the window is small.
    least = 2_048 if preset == "spec008" else 1_000
    assert min(record["body"]["max_tokens"] for record in chats) >= least


async def test_preset_that_checks_before_the_call_waits_and_says_so(careful: Visit) -> None:
    async with working(careful):
        while not any(isinstance(event, Organizing) for event in careful.heard):
            assert len(careful.heard) < 2_000
            await careful.ask(f"One more. {FILLER}")
    row = await careful.app.pool.fetchrow("SELECT * FROM turn_context_audit ORDER BY id DESC LIMIT 1")
    assert row is not None
    assert row["summary_triggered"]
    assert row["head"] is not None
    assert row["reported_input_tokens"] < row["input_budget"]
    assert await careful.one("SELECT count(*) FROM compactions WHERE active") == 1
    waiting = [event.turn for event in careful.heard if isinstance(event, Organizing)]
    assert waiting == [row["turn_id"]]


async def test_turn_is_answered_without_a_worker(careful: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.services.turns.agent_loop.COMPACTION_WAIT_SECONDS", 0.2)
    await talk(careful, 22)
    assert await careful.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 22
    assert any(isinstance(event, Organizing) for event in careful.heard)


async def test_each_model_has_its_own_token_ratio(guest: Visit) -> None:
    await talk(guest, 3)
    first = await guest.one("SELECT token_ratio FROM sessions")
    assert await guest.one("SELECT measured_by FROM sessions") == CHAT
    await guest.app.pool.execute("""UPDATE agents SET config = '{"model": "claude-haiku-4-5"}'""")
    await guest.ask("Who are you now?")
    assert await guest.one("SELECT measured_by FROM sessions") == "claude-haiku-4-5"
    assert await guest.one("SELECT token_ratios ->> $1 FROM sessions", CHAT) == str(first)
    row = await guest.app.pool.fetchrow("SELECT * FROM turn_context_audit ORDER BY id DESC LIMIT 1")
    assert row is not None
    assert row["model_context_limit"] == 200_000
    await guest.app.pool.execute("UPDATE agents SET config = '{}'")
    await guest.ask("And now?")
    assert await guest.one("SELECT measured_by FROM sessions") == CHAT
    back = await guest.one("SELECT token_ratio FROM sessions")
    assert abs(back - first) < 0.35 * first


async def test_each_turn_tells_its_tokens_once_and_no_words(guest: Visit) -> None:
    with structlog.testing.capture_logs() as told:
        await talk(guest, 2, words="The word is Zanzibar.")
    events = [event for event in told if event["event"] == "turn_tokens"]
    assert [event["turn"] for event in events] == [1, 2]
    assert all(event["reported"] and event["model"] == CHAT for event in events)
    assert "Zanzibar" not in str(told)
