"""Background work at its own pace: digests become summaries, failures rest, idle time is used, no loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from shared.adapters.redis.arq_queue import ArqDoorbell
from shared.core.compaction.plan import CompactionPlan, NothingToCompact, why_not_committed
from shared.core.presets.catalog import PRESETS
from shared.core.session.session_state import ChangeRefused, SessionState
from shared.core.session.turns import JobOrder
from shared.locales import catalogue
from shared.ports import DASHBOARD
from shared.services.commands.context import describe_compaction
from shared.services.compaction import compactor, job_runner
from shared.services.compaction.flusher import STAGE as FLUSHING
from shared.services.compaction.silent_requests import SilentRequests
from tests.acceptance.long_talks import (
    WINDOW,
    everything_is_due,
    guests,
    live_on_another_day,
    talk,
    talk_until,
)
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake
from worker.jobs import JOB_SECONDS, JobDoorbell

PROSE = [{"match": {"kind": "summary"}, "times": -1, "action": {"prose": True}}]
COMPACT_IS_DUE = "SELECT count(*) FROM jobs WHERE kind = 'compact' AND trigger = 'limit'"
STREET = "We went the long way home along the river and past the old mill. " * 6
COUNT_LINKS = "SELECT count(*) FROM compactions WHERE active"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


async def compact_by_hand(guest: Visit, *, force: bool = True) -> Mapping[str, Any]:
    order = JobOrder(kind="compact", key="by hand", trigger="manual", payload={"force": force})
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    await guest.app.job_runner.run(job_id)
    return (await guest.app.stores.jobs.load_job_outcome(job_id))[1]


async def job(guest: Visit, trigger: str) -> Any:
    row = await guest.app.pool.fetchrow(
        "SELECT * FROM jobs WHERE trigger = $1 ORDER BY id DESC LIMIT 1", trigger
    )
    assert row is not None
    return row


# ---- digests


async def test_digest_becomes_summary_of_same_range_when_model_answers(
    guest: Visit, provider: RunningFake
) -> None:
    day = await live_on_another_day(guest)
    await talk(guest, 8)
    await provider.script(PROSE)
    await compact_by_hand(guest)
    digest = await guest.app.pool.fetchrow("SELECT * FROM compactions WHERE active")
    assert digest is not None
    assert digest["kind"] == "digest"
    waiting = "SELECT due_at > now() + interval '30 s' FROM jobs WHERE trigger = 'upgrade' AND state = 'due'"
    assert await guest.one(waiting)
    await provider.reset()
    await everything_is_due(guest)
    await guest.run_due_jobs()
    link = await guest.app.pool.fetchrow("SELECT * FROM compactions WHERE active")
    assert link is not None
    assert link["kind"] == "summary"
    assert link["trigger"] == "upgrade"
    for column in ("from_turn", "through_turn", "from_seq", "through_seq", "parent"):
        assert link[column] == digest[column]
    assert f"{day}" in link["summary_text"], "days go by the person's clock"
    assert await guest.one("SELECT head FROM sessions") == link["id"]
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    assert state.view.cycle == 1
    undone = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")
    assert undone.success
    assert await guest.one("SELECT base_turn FROM sessions") == 0


async def test_a_digest_that_was_taken_back_is_not_upgraded(guest: Visit, provider: RunningFake) -> None:
    await talk(guest, 8)
    await provider.script(PROSE)
    await compact_by_hand(guest)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")).success
    await provider.reset()
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert (await job(guest, "upgrade"))["outcome"]["nothing"] == "gone"
    assert await guest.one(COUNT_LINKS) == 0


async def test_restored_digest_is_upgraded_although_its_first_job_found_nothing(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 8)
    await provider.script(PROSE)
    await compact_by_hand(guest)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")).success
    await provider.reset()
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert (await job(guest, "upgrade"))["outcome"]["nothing"] == "gone"
    assert (
        await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="restore")
    ).success
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT kind FROM compactions WHERE active") == "summary"


async def test_digest_upgrade_backs_off_and_stores_failures_without_text(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 8)
    await provider.script(PROSE)
    await compact_by_hand(guest)
    waits = []
    for _ in range(3):
        await everything_is_due(guest)
        await guest.run_due_jobs()
        waits.append(
            await guest.one(
                "SELECT extract(epoch FROM due_at - now())::int FROM jobs WHERE trigger = 'upgrade'"
            )
        )
    assert waits[0] <= 300 < waits[1] <= 1_200 < waits[2] <= 4_800
    row = await job(guest, "upgrade")
    assert row["faults"] == 3
    assert {failure["attempt"] for failure in row["failures"]} == {1, 2, 3}
    assert {failure["model"] for failure in row["failures"]} == {
        guest.app.models.summary, guest.app.models.chat
    }  # fmt: skip
    assert "pleasant conversation" not in str(row["failures"])
    assert await guest.one("SELECT count(*) FROM compactions WHERE active AND kind = 'digest'") == 1


async def test_job_without_time_left_hides_turns_behind_a_digest(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(guest, 8)
    monkeypatch.setattr(compactor, "MODEL_SECONDS", 0.0)
    assert (await compact_by_hand(guest))["kind"] == "digest"
    assert not [record for record in await provider.requests() if record["kind"] == "summary"]
    assert (await job(guest, "manual"))["failures"][0]["code"] == "out_of_time"
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'flush' AND trigger = 'late'") == 1
    assert await guest.one("SELECT count(*) FROM jobs WHERE trigger = 'upgrade'") == 1


def test_the_runner_leaves_time_to_store_a_digest() -> None:
    assert compactor.MODEL_SECONDS + 60 < job_runner.JOB_TIMEOUT_SECONDS < JOB_SECONDS


async def test_failed_answers_of_a_compaction_are_kept_with_their_model_and_reason(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 8)
    await provider.script([{"match": {"kind": "summary"}, "times": 1, "action": {"prose": True}}])
    await compact_by_hand(guest)
    row = await job(guest, "manual")
    assert row["outcome"]["kind"] == "summary"
    assert [failure["model"] for failure in row["failures"]] == [guest.app.models.summary]
    assert row["failures"][0]["code"]


# ---- rest


async def fail_three_times(guest: Visit) -> None:
    """As if three background compactions had just fallen back to a digest."""
    await guest.app.pool.execute(
        """INSERT INTO jobs (kind, session_id, key, state, trigger, outcome, ended_at)
           SELECT 'compact', $1, 'before ' || n, 'done', 'limit',
                  '{"compaction": 0, "kind": "digest", "at_turn": -99}', now() - interval '1 minute'
             FROM generate_series(1, 3) n""",
        guest.session_id,
    )


@pytest.mark.control("S29")
async def test_after_three_failures_background_compaction_rests_for_fifteen_minutes(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_until(guest, COMPACT_IS_DUE)
    await fail_three_times(guest)
    asked = len([record for record in await provider.requests() if record["kind"] == "summary"])
    await guest.run_due_jobs()
    row = await job(guest, "limit")
    waiting = await guest.one(
        "SELECT count(*) FROM jobs WHERE state = 'due' AND due_at > now() + interval '13 m'"
    )
    assert waiting == 1
    assert row["id"]
    assert await guest.one(COUNT_LINKS) == 0
    assert len([r for r in await provider.requests() if r["kind"] == "summary"]) == asked
    # Every further turn finds it asked for already, until the conversation no longer fits.
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE trigger = 'overflow'")
    assert await guest.one("SELECT count(*) FROM jobs WHERE key LIKE 'compact:%'") == 1
    await guest.run_due_jobs()
    assert await guest.one("SELECT kind FROM compactions WHERE active") == "digest"
    assert len([r for r in await provider.requests() if r["kind"] == "summary"]) == asked


async def test_a_person_may_have_it_summarised_while_the_background_rests(guest: Visit) -> None:
    await talk(guest, 8)
    await fail_three_times(guest)
    assert (await compact_by_hand(guest))["kind"] == "summary"


async def thrash(guest: Visit) -> None:
    """As if the last three compactions had each been needed again within three turns."""
    await guest.app.pool.execute(
        """INSERT INTO jobs (kind, session_id, key, state, trigger, outcome, ended_at)
           SELECT 'compact', s.id, 'before ' || n, 'done', 'limit',
                  jsonb_build_object('compaction', 0, 'kind', 'summary',
                                     'at_turn', s.answered_turn - 8 + 2 * n), now()
             FROM sessions s, generate_series(1, 3) n""",
    )


@pytest.mark.control("S29", "S30")
async def test_compaction_that_does_not_help_stops_and_says_what_fills_the_context(guest: Visit) -> None:
    """claude-code 85489: thrashing was caused by instructions, and the wrong diagnosis was shown."""
    await talk_until(guest, COMPACT_IS_DUE)
    await thrash(guest)
    await guest.run_due_jobs()
    row = await guest.app.pool.fetchrow("SELECT * FROM jobs WHERE state = 'dead'")
    assert row is not None
    assert row["outcome"]["nothing"] == "thrashing"
    assert "does not help" in row["last_error"]
    assert row["outcome"]["largest"][0][0] == "history"
    assert len(row["outcome"]["messages"]) == 3
    assert "weather" not in str(row["outcome"])
    before = await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'")
    await talk(guest, 2, first=60)
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'") == before


async def test_what_no_longer_fits_is_hidden_without_a_model_while_thrashing_rests(
    guest: Visit, provider: RunningFake
) -> None:
    """What leaves the requests and is not hidden is in no summary, and recall does not look for it."""
    await talk_until(guest, COMPACT_IS_DUE)
    await thrash(guest)
    await guest.run_due_jobs()
    asked = len([r for r in await provider.requests() if r["kind"] == "summary"])
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE trigger = 'overflow'")
    await guest.run_due_jobs()
    assert await guest.one("SELECT kind FROM compactions WHERE active") == "digest"
    assert len([r for r in await provider.requests() if r["kind"] == "summary"]) == asked
    assert await guest.one("SELECT base_turn > 0 AND indexed_turn = base_turn FROM sessions")


async def test_after_thrashing_a_compaction_by_hand_starts_it_again(guest: Visit) -> None:
    await talk_until(guest, COMPACT_IS_DUE)
    await thrash(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT compaction_backoff->>'reason' FROM sessions") == "thrashing"
    assert (await compact_by_hand(guest))["kind"] == "summary"
    assert await guest.one("SELECT compaction_backoff FROM sessions") is None


async def test_a_compaction_that_was_overtaken_by_another_does_nothing(guest: Visit) -> None:
    await talk_until(guest, COMPACT_IS_DUE)
    await compact_by_hand(guest)
    await guest.run_due_jobs()
    assert (await job(guest, "limit"))["outcome"]["nothing"] == "done_already"
    assert await guest.one(COUNT_LINKS) == 1


@pytest.fixture
async def spec008(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    async for visitor in guests(database_url, redis_url, provider, preset="spec008"):
        yield visitor


async def test_digest_comes_at_once_when_turns_wait_for_the_summary(
    spec008: Visit, provider: RunningFake
) -> None:
    await talk_until(spec008, COMPACT_IS_DUE)
    await fail_three_times(spec008)
    await spec008.run_due_jobs()
    assert await spec008.one("SELECT kind FROM compactions WHERE active") == "digest"
    assert not [record for record in await provider.requests() if record["kind"] == "summary"]


async def test_spec008_never_asks_the_main_model_for_a_summary(spec008: Visit, provider: RunningFake) -> None:
    await talk(spec008, 8)
    await provider.script(PROSE)
    await compact_by_hand(spec008)
    asked = {record["model"] for record in await provider.requests() if record["kind"] == "summary"}
    assert asked == {spec008.app.models.summary}
    assert await spec008.one("SELECT kind FROM compactions WHERE active") == "digest"


# ---- hold, undo, restore


async def test_after_an_undo_automatic_compaction_is_held_until_the_next_overflow(guest: Visit) -> None:
    await talk_until(guest, COMPACT_IS_DUE)
    await compact_by_hand(guest)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")).success
    await guest.app.pool.execute("UPDATE sessions SET cycle = 0")
    due = JobOrder(kind="compact", key="asked before the undo", trigger="limit", payload={"cycle": 0})
    assert await guest.app.stores.jobs.request_job(guest.session_id, due)
    await guest.run_due_jobs()
    assert (await job(guest, "limit"))["outcome"]["nothing"] == "held"
    assert await guest.one(COUNT_LINKS) == 0
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE trigger = 'overflow'")
    await guest.run_due_jobs()
    assert await guest.one(COUNT_LINKS) == 1


async def test_an_undo_that_would_not_fit_is_refused_with_its_numbers(guest: Visit) -> None:
    await talk(guest, 8)
    await compact_by_hand(guest)
    refused = await guest.app.stores.jobs.undo_compaction(
        guest.session_id, limit_tokens=1_234, fixed_tokens=1_000
    )
    assert isinstance(refused, ChangeRefused)
    assert refused.reason == "would_not_fit"
    assert "1,234" in refused.advice
    assert await guest.one(COUNT_LINKS) == 1


async def test_a_restore_is_possible_until_the_next_summary(guest: Visit) -> None:
    await talk(guest, 8)
    await compact_by_hand(guest)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")).success
    assert (
        await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="restore")
    ).success
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")).success
    await compact_by_hand(guest)
    restored = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="restore")
    assert not restored.success


async def test_force_never_puts_a_summary_in_place_of_something_shorter(guest: Visit) -> None:
    for number in range(8):
        await guest.ask(f"Short message {number}.")
    done = await compact_by_hand(guest)
    assert done["nothing"] == "grows"
    before, after = (int(part.split()[0].replace(",", "")) for part in done["detail"].split(" → "))
    assert before < after
    assert await guest.one("SELECT count(*) FROM compactions") == 0
    assert await guest.one("SELECT count(*) FROM usage WHERE purpose = 'compact'") >= 1, "it is paid for"
    said = describe_compaction(catalogue("commands", "en"), "done", done)[1]
    assert "longer than what it replaces" in said
    assert f"{before:,} → {after:,} tokens" in said
    assert "länger" in describe_compaction(catalogue("commands", "de"), "done", done)[1]


async def test_a_summary_that_gains_too_little_gives_way_to_a_smaller_digest(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(guest, 8)
    committed: list[tuple[int, int]] = []

    def strict(plan: CompactionPlan, tokens: int, **more: Any) -> NothingToCompact | None:
        committed.append((len(committed), tokens))
        if len(committed) == 1:
            return NothingToCompact(reason="gain_too_small", detail="as if it were too long")
        return why_not_committed(plan, tokens, **more)

    monkeypatch.setattr(compactor, "why_not_committed", strict)
    await compact_by_hand(guest, force=False)
    row = await job(guest, "manual")
    assert row["outcome"]["kind"] == "digest"
    assert row["failures"][-1]["code"] == "the summary gains too little"
    assert await guest.one("SELECT count(*) FROM compactions WHERE active AND kind = 'digest'") == 1


async def test_where_no_summary_gains_enough_nothing_is_hidden_and_the_session_rests(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk_until(guest, COMPACT_IS_DUE)
    too_small = NothingToCompact(reason="gain_too_small", detail="9,000 tokens now, 8,900 with the summary")
    monkeypatch.setattr(compactor, "why_not_committed", lambda *_, **__: too_small)
    await guest.run_due_jobs()
    row = await job(guest, "limit")
    assert (row["state"], row["outcome"]["nothing"]) == ("done", "gain_too_small")
    assert await guest.one(COUNT_LINKS) == 0
    assert await guest.one("SELECT compaction_backoff->>'reason' FROM sessions") == "nothing"


async def test_force_takes_no_gain_and_no_hold_but_never_an_open_turn(guest: Visit) -> None:
    for number in range(7):
        await guest.ask(f"Message {number}. Then we talked about the weather and the garden. {STREET}")
    assert "nothing" in await compact_by_hand(guest, force=False)
    assert (await compact_by_hand(guest))["turns"] >= 1
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")).success
    await guest.say("And one that nobody has answered yet.")
    done = await compact_by_hand(guest)
    assert done["turns"] >= 1
    assert await guest.one("SELECT base_turn <= answered_turn FROM sessions")


# ---- idle


@pytest.fixture
async def idler(
    database_url: str, redis_url: str, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Visit]:
    monkeypatch.setitem(PRESETS, "steady", PRESETS["steady"].with_settings(idle_over=1_500))
    async for visitor in guests(database_url, redis_url, provider, context_window=40_000):
        yield visitor


IDLE_IS_DUE = "SELECT count(*) FROM jobs WHERE trigger = 'idle'"


async def idle_for(guest: Visit, seconds: int) -> None:
    await guest.app.pool.execute(
        "UPDATE sessions SET last_active_at = now() - make_interval(secs => $1)", float(seconds)
    )
    await everything_is_due(guest)


async def test_an_idle_conversation_is_compacted_once_while_the_provider_remembers_it(
    idler: Visit, provider: RunningFake
) -> None:
    await talk_until(idler, IDLE_IS_DUE)
    assert await idler.one("SELECT due_at > now() + interval '200 s' FROM jobs WHERE trigger = 'idle'")
    await talk(idler, 3, first=30)
    assert await idler.one(IDLE_IS_DUE) == 1
    await idler.run_due_jobs()
    assert await idler.one(COUNT_LINKS) == 0
    await idle_for(idler, 245)
    events = await idler.one("SELECT count(*) FROM events WHERE kind = 'msg'")
    await idler.run_due_jobs()
    assert await idler.one("SELECT trigger FROM compactions WHERE active") == "idle"
    assert await idler.one("SELECT count(*) FROM events WHERE kind = 'msg'") == events
    assert await idler.one("SELECT flushed_turn >= base_turn FROM sessions")
    flush = next(record for record in await provider.requests() if record["kind"] == "flush")
    assert flush["usage"]["cache_read_input_tokens"] > 0


async def test_who_talks_on_puts_the_idle_compaction_off(idler: Visit) -> None:
    await talk_until(idler, IDLE_IS_DUE)
    await idle_for(idler, 100)
    await idler.run_due_jobs()
    row = await job(idler, "idle")
    assert (row["state"], row["outcome"]["deferred"]) == ("due", "talking")
    assert (
        await idler.one(
            """SELECT extract(epoch FROM j.due_at - s.last_active_at)::int FROM jobs j
                 JOIN sessions s ON s.id = j.session_id WHERE j.trigger = 'idle'"""
        )
        >= 235
    )
    await idle_for(idler, 245)
    await idler.say("Wait, one more thing.")
    await idler.app.pool.execute("UPDATE sessions SET last_active_at = now() - interval '245 s'")
    await idler.run_due_jobs()
    assert (await job(idler, "idle"))["state"] == "due"
    assert await idler.one(COUNT_LINKS) == 0
    assert await idler.answered()


async def test_what_the_provider_has_forgotten_is_not_compacted_for_its_sake(idler: Visit) -> None:
    await talk_until(idler, IDLE_IS_DUE)
    await idle_for(idler, 400)
    await idler.run_due_jobs()
    assert (await job(idler, "idle"))["outcome"]["nothing"] == "cold"
    assert await idler.one(COUNT_LINKS) == 0


async def test_idle_compaction_uses_the_hour_for_which_a_slow_conversation_is_cached(idler: Visit) -> None:
    await talk_until(idler, IDLE_IS_DUE)
    await talk(idler, 3, first=30)
    await idler.app.pool.execute(
        "UPDATE turns SET opened_at = now() - (100 - turn_no) * interval '10 minutes'"
    )
    seconds = "SELECT extract(epoch FROM due_at - now())::int FROM jobs WHERE trigger = 'idle'"
    await idle_for(idler, 245)
    await idler.run_due_jobs()
    assert (await job(idler, "idle"))["outcome"]["deferred"] == "talking"
    assert 3_000 < await idler.one(seconds) <= 3_600 - 60 - 245
    # The end of another job orders it for the same time.
    await idler.app.pool.execute("DELETE FROM jobs WHERE trigger = 'idle'")
    await idler.app.job_runner.run(await obsolete_job(idler))
    assert 3_000 < await idler.one(seconds) <= 3_600 - 60


async def test_pictures_are_not_described_for_a_compaction_that_is_not_needed(
    idler: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[int] = []

    async def describe(_: SilentRequests, state: SessionState) -> SessionState:
        described.append(state.session_id)
        return state

    monkeypatch.setattr(SilentRequests, "with_descriptions", describe)
    await idler.ask("Hello.")
    await idler.app.job_runner.run(await obsolete_job(idler))
    assert (await job(idler, "limit"))["outcome"]["nothing"] == "done_already"
    assert described == []
    await talk(idler, 8)
    await compact_by_hand(idler)
    assert described != []


async def obsolete_job(guest: Visit) -> int:
    """A compaction of an earlier cycle, which ends without effect."""
    order = JobOrder(kind="compact", key="obsolete", trigger="limit", payload={"cycle": 99})
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    return job_id


async def test_an_idle_compaction_needs_no_redis(idler: Visit) -> None:
    await talk_until(idler, IDLE_IS_DUE)
    await talk(idler, 3, first=30)
    await idle_for(idler, 245)
    calls = JobDoorbell(replace(idler.app, doorbell=ArqDoorbell("redis://127.0.0.1:1/0")))
    now = time.monotonic()
    await calls.ring(await idler.app.stores.jobs.due_jobs(), now)
    assert await idler.one(COUNT_LINKS) == 0
    await calls.ring(await idler.app.stores.jobs.due_jobs(), now + 10)
    async with asyncio.timeout(20):
        while (await job(idler, "idle"))["state"] != "done":
            await asyncio.sleep(0.05)
    assert (await job(idler, "idle"))["outcome"]["turns"] > 0
    await calls.close()


# ---- who writes, and what is told meanwhile


@pytest.fixture
async def warm(
    database_url: str, redis_url: str, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Visit]:
    monkeypatch.setitem(PRESETS, "steady", PRESETS["steady"].with_settings(summariser="warm"))
    async for visitor in guests(database_url, redis_url, provider):
        yield visitor


async def test_warm_summary_uses_the_cached_prefix(warm: Visit, provider: RunningFake) -> None:
    await talk(warm, 8)
    await compact_by_hand(warm)
    requests = await provider.requests()
    chat = [record["body"] for record in requests if record["kind"] == "chat"][-1]
    summary = next(record for record in requests if record["kind"] == "summary")
    assert summary["model"] == warm.app.models.chat
    assert summary["body"]["tools"] == chat["tools"]
    assert summary["body"].get("tool_choice") == chat.get("tool_choice")
    assert summary["usage"]["cache_read_input_tokens"] > summary["usage"]["input_tokens"]
    assert await warm.one("SELECT kind FROM compactions WHERE active") == "summary"
    assert await warm.one("SELECT model FROM compactions WHERE active") == warm.app.models.chat


async def test_unusable_warm_summary_is_written_by_summary_model(warm: Visit, provider: RunningFake) -> None:
    await talk(warm, 8)
    await provider.script([{"match": {"kind": "summary"}, "times": 2, "action": {"prose": True}}])
    await compact_by_hand(warm)
    assert await warm.one("SELECT model FROM compactions WHERE active") == warm.app.models.summary


async def test_compaction_progress_is_announced_by_stage_and_never_falls(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(guest, 8)
    told: list[Mapping[str, Any]] = []
    dashboard: list[Mapping[str, Any]] = []

    async def announce(session_id: int, message: Mapping[str, Any]) -> None:
        (dashboard if session_id == DASHBOARD else told).append(message)

    monkeypatch.setattr(guest.app.announcer, "announce", announce)
    await compact_by_hand(guest)
    frames = [message for message in told if message.get("t") == "compaction.progress"]
    percents = [frame["percent"] for frame in frames]
    assert percents == sorted(percents)
    assert (percents[0], percents[-1]) == (0, 100)
    assert frames[0]["stage"] == "saving what should be kept"
    assert "summarising" in [frame["stage"] for frame in frames]
    assert frames[-1]["state"] == "done"
    assert all(set(message) == {"event_seq"} for message in told if message not in frames)
    shown = [one for one in dashboard if one["t"] == "progress"]
    assert [one["percent"] for one in shown] == sorted(one["percent"] for one in shown)
    assert [(str(one["job"]), one["percent"], one["stage"]) for one in shown if one["stage"] != FLUSHING] == [
        (frame["id"], frame["percent"], frame["stage"]) for frame in frames
    ]
