"""Flush, compaction and undo end to end, against the strict fake provider as its own process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.session.turns import JobOrder
from tests.acceptance.long_talks import FILLER, WINDOW, talk_with_upkeep
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


async def test_a_long_talk_is_compacted_again_and_again_and_nothing_is_lost(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 16)
    compactions = await guest.one("SELECT count(*) FROM compactions WHERE kind = 'summary' AND active")
    assert compactions >= 2
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == 16
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 16
    statuses = {record["status"] for record in await provider.requests()}
    assert statuses == {200}, [r["error"] for r in await provider.requests() if r["status"] != 200]
    assert not await provider.warnings()


async def test_an_early_fact_is_still_answered_after_compactions(guest: Visit) -> None:
    await talk_with_upkeep(guest, 14)
    assert await guest.one("SELECT base_turn FROM sessions") > 2
    assert "PX-4471" in await guest.ask("What is the invoice number of the piano?")


async def test_every_hidden_range_was_flushed_before_or_its_failure_is_recorded(guest: Visit) -> None:
    await talk_with_upkeep(guest, 14)
    assert await guest.one("SELECT count(*) FROM compactions WHERE active AND flush_id IS NULL") == 0
    assert await guest.one("SELECT count(*) FROM notes") > 0
    assert await guest.one("SELECT count(*) FROM events WHERE kind = 'msg'") == 28


async def test_active_links_cover_just_what_is_hidden(guest: Visit) -> None:
    await talk_with_upkeep(guest, 16)
    rows = await guest.app.pool.fetch(
        "SELECT from_turn, through_turn FROM compactions WHERE active ORDER BY from_turn"
    )
    base = await guest.one("SELECT base_turn FROM sessions")
    covered = [turn for row in rows for turn in range(row["from_turn"], row["through_turn"] + 1)]
    assert covered == list(range(1, base + 1))


async def test_no_request_is_larger_than_hard_and_limit_holds_after_compaction(guest: Visit) -> None:
    await talk_with_upkeep(guest, 16)
    rows = await guest.app.pool.fetch(
        "SELECT reported_input_tokens AS used, hard_limit, input_budget FROM turn_context_audit ORDER BY id"
    )
    assert all(row["used"] <= row["hard_limit"] for row in rows)
    assert await guest.one("SELECT context_tokens <= context_limit FROM sessions")


async def test_undo_gives_back_the_same_request_byte_for_byte(guest: Visit, provider: RunningFake) -> None:
    await talk_with_upkeep(guest, 7, upkeep=False)
    before = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="context")
    compacting = asyncio.ensure_future(
        guest.app.commands.run(
            session_id=guest.session_id, address_id=None, name="compact", args="the piano --force"
        )
    )
    while not compacting.done():
        await guest.run_due_jobs()
        await asyncio.sleep(0.02)
    compacted = await compacting
    assert compacted.success, compacted
    assert await guest.one("SELECT base_turn FROM sessions") > 0
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    undone = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")
    assert undone.success, undone
    after = await guest.app.stores.jobs.load_state(guest.session_id)
    assert [entry.seq for entry in after.view.entries] == list(range(1, 15))
    assert after.view.hold_compaction
    assert state.view.base_turn > after.view.base_turn == 0
    assert before.success


async def test_undo_without_a_summary_says_so(guest: Visit) -> None:
    result = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")
    assert not result.success
    assert "Nothing has been summarised" in result.result


async def test_new_hides_everything_and_undo_never_crosses_it(guest: Visit) -> None:
    await talk_with_upkeep(guest, 2, upkeep=False)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    assert state.view.entries == ()
    again = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")
    assert not again.success
    undone = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")
    assert not undone.success


async def test_a_message_during_a_compaction_is_safe(guest: Visit, provider: RunningFake) -> None:
    await talk_with_upkeep(guest, 9, upkeep=False)
    await provider.script([{"match": {"kind": "summary"}, "times": 1, "action": {"latency": 0.5}}])
    job = asyncio.ensure_future(guest.run_due_jobs())
    await asyncio.sleep(0.2)
    words = await guest.ask("Are you still there while you tidy up?")
    await job
    assert words
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 10
    assert await guest.one("SELECT count(*) FROM compactions WHERE active") == 1


async def test_a_useless_summary_becomes_a_digest_and_the_talk_goes_on(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script([{"match": {"kind": "summary"}, "times": -1, "action": {"prose": True}}])
    await talk_with_upkeep(guest, 9)
    assert await guest.one("SELECT count(*) FROM compactions WHERE kind = 'digest'") >= 1
    assert await guest.ask("Still here?")


async def test_an_empty_account_makes_turns_wait_and_they_run_when_it_works(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script(
        [{"match": {"kind": "chat"}, "times": 1, "action": {"status": 400, "reason": "credit"}}]
    )
    await guest.ask("Hello?")
    assert "needs attention" in guest.last_words
    assert await guest.one("SELECT state FROM turns") == "claimed"
    await guest.app.pool.execute("UPDATE sessions SET retry_at = now()")
    await asyncio.sleep(0)
    assert await guest.one("SELECT count(*) FROM events") == 2


async def test_the_ledger_is_what_the_provider_counted(guest: Visit, provider: RunningFake) -> None:
    await talk_with_upkeep(guest, 9)
    counted = await provider.usage()
    row = await guest.app.pool.fetchrow(
        """SELECT sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
                  sum(cache_read_tokens) AS cache_read, sum(cache_write_tokens) AS cache_write FROM usage"""
    )
    assert row is not None
    assert row["input_tokens"] == counted["input_tokens"]
    assert row["output_tokens"] == counted["output_tokens"]
    assert row["cache_read"] == counted["cache_read_input_tokens"]
    assert row["cache_write"] == counted["cache_creation_input_tokens"]


async def test_shrunk_view_is_still_summarised_and_stays_below_hard_limit(
    guest: Visit,
) -> None:
    """No worker for a while: requests are made to fit, and the meter does not forget what was left out."""
    await talk_with_upkeep(guest, 26, upkeep=False)
    assert await guest.one("SELECT max(context_tokens) FROM sessions") > await guest.one(
        "SELECT max(hard_limit) FROM turn_context_audit"
    )
    over_hard = "SELECT count(*) FROM turn_context_audit WHERE reported_input_tokens > hard_limit"
    assert await guest.one(over_hard) == 0
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'") == 1
    await guest.run_due_jobs()
    assert await guest.one("SELECT count(*) FROM compactions WHERE active") >= 1
    await talk_with_upkeep(guest, 2)
    assert await guest.one("SELECT context_tokens < context_limit FROM sessions")
    assert await guest.one(over_hard) == 0


async def test_a_turn_that_ends_after_a_compaction_keeps_the_new_measure(
    guest: Visit, provider: RunningFake
) -> None:
    """The answer was built on the old view; its size must not call for a second summary."""
    while not await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'"):
        await talk_with_upkeep(guest, 1, upkeep=False)
    await provider.script(
        [{"match": {"kind": "chat"}, "times": 1, "action": {"pace_ms": 100, "text": FILLER}}]
    )
    answering = asyncio.create_task(guest.ask(f"One more. {FILLER}"))
    while not await guest.one("SELECT count(*) FROM turns WHERE state = 'claimed'"):
        await asyncio.sleep(0.01)
    await guest.run_due_jobs()
    after = await guest.one("SELECT tokens_after FROM compactions WHERE active")
    await answering
    now = await guest.one("SELECT context_tokens FROM sessions")
    assert after < now < await guest.one("SELECT context_limit FROM sessions")
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact' AND state = 'due'") == 0
    assert await guest.one("SELECT count(*) FROM compactions") == 1


async def test_flush_runs_once_per_cycle_when_requested_twice(guest: Visit) -> None:
    """A turn that was claimed before the flush ended asks for it again."""
    while not await guest.one("SELECT count(*) FROM jobs WHERE kind = 'flush'"):
        await guest.ask(FILLER[: len(FILLER) // 4])
    await guest.run_due_jobs()
    made = await guest.one("SELECT count(*) FROM flushes")
    await guest.ask("Just a word.")
    again = JobOrder(kind="flush", key="late", trigger="near_limit", payload={"threshold": "near_limit"})
    assert await guest.app.stores.jobs.request_job(guest.session_id, again)
    await guest.run_due_jobs()
    assert await guest.one("SELECT count(*) FROM flushes") == made
    assert await guest.one("SELECT state FROM jobs WHERE key = 'late'") == "done"
