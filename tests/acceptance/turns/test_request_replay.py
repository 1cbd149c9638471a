"""What a turn was sent is made again from the database alone, byte for byte."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.core.values.money import worst_case_micro
from shared.ports import Tool
from shared.services.turns.request_replay import PromptPartErased, rebuild_request
from tests.acceptance.sent_requests import CHAT, COUNTER, FILLER, Sent, again, blocks, sorted_keys, unmarked
from tests.kit.app_driver import LookUp, Visit
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
def app_options() -> dict[str, Any]:
    """Choose a window that a few results of tools fill."""
    return {"max_output": 1_000, "soft_budget": 25_000}


@pytest.fixture
def app_tools() -> list[Tool]:
    return [LookUp()]


async def test_every_turn_of_a_long_talk_is_made_again(guest: Visit, provider: RunningFake) -> None:
    """Plain and tool turns, shortened results, summaries, a request that had to be made to fit."""
    sent = Sent(guest, provider)
    for number in range(10):
        await sent.ask(f"Please look up {number}.", f"first {number}", f"second {number}")
    for number in range(8):
        await sent.ask(f"Message {number}. {FILLER}")
        await guest.run_due_jobs()
    await provider.set_window(CHAT, 9_000)
    for number in range(8):
        await sent.ask(f"Late message {number}. {FILLER}", *(["last"] if number == 4 else []))
    facts = await guest.app.pool.fetchrow(
        """SELECT count(*) FILTER (WHERE prune_triggered) AS pruned, count(DISTINCT head) AS heads,
                  count(*) FILTER (WHERE recipe ? 'fit') AS fitted, count(*) AS calls
             FROM turn_context_audit"""
    )
    assert facts is not None
    assert facts["calls"] == len(sent.bodies) == 26
    assert facts["pruned"] >= 1
    assert facts["heads"] >= 1
    assert facts["fitted"] >= 1
    refused = [r["error"] for r in await provider.requests() if r["status"] != 200]
    assert all("prompt is too long" in error for error in refused), refused
    for turn, body in enumerate(sent.bodies, start=1):
        assert sorted_keys(await again(guest, turn)) == sorted_keys(body), turn


async def test_erased_prompt_part_is_reported_as_erased(guest: Visit, provider: RunningFake) -> None:
    await Sent(guest, provider).ask("Hello")
    await guest.app.pool.execute("DELETE FROM prompt_parts")
    stored = await PostgresReplays(guest.app.pool).load_turn(guest.session_id, 1)
    assert stored is not None
    with pytest.raises(PromptPartErased):
        rebuild_request(stored, count=COUNTER.count_tokens)


async def test_the_prefix_is_the_same_bytes_from_turn_to_turn(guest: Visit, provider: RunningFake) -> None:
    """Until a summary or a batch of shortened results: a turn only adds to what the last one had sent."""
    sent = Sent(guest, provider)
    for number in range(6):
        await sent.ask(f"Message {number}. {FILLER}")
    for earlier, later in pairwise(sent.bodies):
        before, after = json.loads(earlier), json.loads(later)
        for body in (before, after):
            unmarked(body)
        assert json.dumps(after["system"]) == json.dumps(before["system"])
        assert json.dumps(after["tools"]) == json.dumps(before["tools"])
        stable = before["messages"][:-1]
        assert json.dumps(after["messages"][: len(stable)]) == json.dumps(stable)
        *words, _clock = before["messages"][-1]["content"]
        assert after["messages"][len(stable)]["content"] == words
    chats = [r for r in await provider.requests() if r["kind"] == "chat"]
    assert all(len(marks(record["body"])) <= 4 for record in chats)
    read = [record["usage"]["cache_read_input_tokens"] for record in chats]
    assert read[2:] == sorted(read[2:])
    assert read[2] > 0
    public_id = await guest.one("SELECT public_id FROM sessions")
    assert public_id
    totals = await guest.app.pool.fetchrow("SELECT * FROM session_totals")
    assert totals is not None
    assert totals["cache_read_tokens"] == sum(read)


async def test_a_person_who_comes_back_within_the_hour_finds_the_prefix_kept(
    guest: Visit, provider: RunningFake
) -> None:
    sent = Sent(guest, provider)
    for number in range(5):
        await sent.ask(f"Message {number}. {FILLER}")
        await guest.app.pool.execute("UPDATE turns SET opened_at = opened_at - interval '20 minutes'")
        await provider.advance_clock(1_200)
    await sent.ask("And once more.")
    chats = [r for r in await provider.requests() if r["kind"] == "chat"]
    assert {mark.get("ttl") for mark in marks(chats[0]["body"])} == {None}
    assert {mark.get("ttl") for mark in marks(chats[-1]["body"])} == {"1h"}
    assert chats[1]["usage"]["cache_read_input_tokens"] == 0
    assert chats[-1]["usage"]["cache_read_input_tokens"] > 1_000


async def test_worst_case_cost_of_every_call_is_reserved_before_it(
    guest: Visit, provider: RunningFake
) -> None:
    sent = Sent(guest, provider)
    for number in range(8):
        await sent.ask(f"Message {number}. {FILLER * 7}")
        await guest.app.pool.execute("UPDATE turns SET opened_at = opened_at - interval '20 minutes'")
    card = await guest.app.models.load_card(guest.app.models.chat)
    assert card.prices is not None
    audits = await guest.app.pool.fetch(
        """SELECT a.estimated_input_tokens_after_prune AS tokens, a.recipe->'hour' AS hour,
                  (a.recipe->>'max')::int AS max FROM turn_context_audit a ORDER BY a.id"""
    )
    assert {bool(row["hour"]) for row in audits} == {True, False}
    worst = [
        worst_case_micro(row["tokens"], row["max"], card.prices, hour=bool(row["hour"])) for row in audits
    ]
    assert await guest.one("SELECT sum(amount_micro) FROM reservations WHERE job_id IS NULL") >= sum(worst)
    assert await guest.one("SELECT sum(reserved_micro) FROM spend_days") == 0


def marks(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [block["cache_control"] for block in blocks(body) if "cache_control" in block]
