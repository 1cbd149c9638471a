"""Memory is saved before anything is hidden: by marks, in portions, late but never lost, and in silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.turns.edits import FENCE_JOBS
from shared.adapters.redis.announcer import RedisAnnouncer
from shared.core.values.errors import StorageUnavailable
from shared.ports import DASHBOARD
from shared.services.memory.memory_tools import SaveMemoryTool
from tests.acceptance.long_talks import (
    FACTS,
    WINDOW,
    everything_is_due,
    guests,
    live_on_another_day,
    talk,
    talk_until,
)
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

LARGER = 12_000
NO_FLUSH = [{"match": {"kind": "flush"}, "times": -1, "action": {"status": 400, "message": "Not now."}}]


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


@pytest.fixture
async def goclaw(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    async for visitor in guests(database_url, redis_url, provider, preset="goclaw", context_window=LARGER):
        yield visitor


async def test_marks_are_flushed_once_each_and_never_within_five_minutes(goclaw: Visit) -> None:
    await talk_until(goclaw, "SELECT count(*) FROM jobs WHERE trigger = 'at_50'")
    assert await goclaw.one("SELECT context_tokens FROM sessions") >= LARGER / 2
    await goclaw.run_due_jobs()
    assert await goclaw.one("SELECT count(*) FROM flushes WHERE threshold = 'at_50'") == 1
    await talk_until(goclaw, "SELECT count(*) FROM jobs WHERE trigger = 'at_75'")
    await goclaw.run_due_jobs()
    assert await goclaw.one("SELECT count(*) FROM flushes") == 1
    waiting = (
        "SELECT state = 'due' AND due_at > now() + interval '4 minutes' FROM jobs WHERE trigger = 'at_75'"
    )
    assert await goclaw.one(waiting)
    await goclaw.app.pool.execute("UPDATE flushes SET ended_at = now() - interval '6 minutes'")
    await everything_is_due(goclaw)
    await goclaw.run_due_jobs()
    rows = await goclaw.app.pool.fetch("SELECT threshold, from_turn, through_turn FROM flushes ORDER BY id")
    assert [row["threshold"] for row in rows] == ["at_50", "at_75"]
    assert rows[1]["from_turn"] == rows[0]["through_turn"] + 1


async def test_a_compactions_own_flush_waits_for_nothing(goclaw: Visit) -> None:
    await talk_until(goclaw, "SELECT count(*) FROM jobs WHERE trigger = 'at_50'")
    await goclaw.run_due_jobs()
    await talk(goclaw, 2, first=20)
    await goclaw.app.commands._store.request_job(goclaw.session_id, _by_hand())
    await goclaw.run_due_jobs()
    assert await goclaw.one("SELECT count(*) FROM compactions WHERE active") == 1
    assert await goclaw.one("SELECT flushed_turn >= base_turn FROM sessions")


async def test_failed_flush_does_not_block_compaction_and_is_repeated_later(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script(NO_FLUSH)
    await talk(guest, 12)
    await everything_is_due(guest)
    await guest.run_due_jobs()
    base = await guest.one("SELECT base_turn FROM sessions")
    assert base > 0
    assert await guest.one("SELECT flushed_turn FROM sessions") == 0
    assert await guest.one("SELECT count(*) FROM flushes WHERE outcome = 'failed'") >= 1
    assert await guest.one("SELECT count(*) FROM jobs WHERE trigger = 'late' AND state = 'due'") == 1
    assert await guest.one("SELECT count(*) FROM notes") == 0
    await everything_is_due(guest)
    await guest.run_due_jobs()
    row = await guest.app.pool.fetchrow("SELECT state, faults, last_error FROM jobs WHERE trigger = 'late'")
    assert row is not None
    assert (row["state"], row["faults"]) == ("due", 1)
    assert "Not now" in row["last_error"]
    await provider.reset()
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT flushed_turn >= base_turn FROM sessions")
    notes = [row["text"] for row in await guest.app.pool.fetch("SELECT text FROM notes")]
    assert any(note in fact for note in notes for fact in FACTS), notes
    assert (
        await guest.one("SELECT from_turn FROM flushes WHERE threshold = 'late' AND outcome = 'saved'") == 1
    )
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == 12


async def test_a_note_that_cannot_be_stored_is_asked_for_again(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, away = PostgresNotes.save, iter([True])

    async def save_when_back(self: PostgresNotes, *given: Any, **named: Any) -> Any:
        if next(away, False):
            raise StorageUnavailable("the database is away")
        return await save(self, *given, **named)

    monkeypatch.setattr(PostgresNotes, "save", save_when_back)
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE kind = 'flush' OR kind = 'compact'")
    await guest.run_due_jobs()
    assert next(away, None) is None, "a note was to be stored"
    assert await guest.one("SELECT count(*) FROM usage WHERE purpose = 'flush'") == 1, "the call is paid"
    assert await guest.one("SELECT flushed_turn FROM sessions") == 0
    assert await guest.one("SELECT count(*) FROM jobs WHERE state = 'due'") >= 1
    await everything_is_due(guest)
    await guest.run_due_jobs()
    notes = [row["text"] for row in await guest.app.pool.fetch("SELECT text FROM notes")]
    assert any(note in fact for note in notes for fact in FACTS), notes


@pytest.mark.parametrize("ends", ["in_error", "too_late"])
async def test_turns_whose_note_was_not_stored_are_read_again(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """A model that cannot call tools is not told that its note failed, so nobody would save it again."""
    save, broken = PostgresNotes.save, iter([True])

    async def save_later(self: PostgresNotes, *given: Any) -> Any:
        if next(broken, False):
            if ends == "too_late":
                await asyncio.Event().wait()
            raise RuntimeError("a fault of the program")
        return await save(self, *given)

    monkeypatch.setattr(SaveMemoryTool, "timeout_seconds", 0.2)
    monkeypatch.setattr(PostgresNotes, "save", save_later)
    await flushed_with(guest, provider, {"tool_use": [_save("Bertil is a dog.")]})
    assert await guest.one("SELECT flushed_turn FROM sessions") == 0
    row = await guest.app.pool.fetchrow("SELECT outcome, error FROM flushes")
    assert row is not None
    assert row["outcome"] == "failed"
    assert row["error"].startswith("note_not_stored: save_memory ")
    assert await guest.one("SELECT count(*) FROM usage WHERE purpose = 'flush'") == 1
    await provider.reset()
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT count(*) FROM notes") > 0


async def test_the_next_compaction_reads_what_an_earlier_one_hid_unread(
    guest: Visit, provider: RunningFake
) -> None:
    """A cursor must never jump over turns that are hidden already."""
    await provider.script(NO_FLUSH)
    await talk(guest, 12)
    await guest.run_due_jobs()
    assert await guest.one("SELECT flushed_turn < base_turn FROM sessions")
    await provider.reset()
    while await guest.one("SELECT count(*) FROM compactions") < 2:
        await talk(guest, 1, first=50)
        await guest.run_due_jobs()
    rows = await guest.app.pool.fetch(
        "SELECT from_turn, through_turn FROM flushes WHERE outcome IN ('saved', 'nothing') ORDER BY id"
    )
    read = [turn for row in rows for turn in range(row["from_turn"], row["through_turn"] + 1)]
    assert read == list(range(1, len(read) + 1))
    assert await guest.one("SELECT flushed_turn >= base_turn FROM sessions")


async def test_new_has_memory_saved_without_making_anybody_wait(guest: Visit, provider: RunningFake) -> None:
    await talk(guest, 5)
    before = len(await provider.requests())
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    assert len(await provider.requests()) == before
    await guest.run_due_jobs()
    flushes = [record for record in (await provider.requests())[before:] if record["kind"] == "flush"]
    assert flushes
    assert flushes[0]["usage"]["cache_read_input_tokens"] > 0
    assert await guest.one("SELECT flushed_turn FROM sessions") == 5
    assert await guest.one("SELECT count(*) FROM notes") > 0
    await guest.ask("What do you know?")
    assert await guest.one("SELECT count(*) FROM flushes") == 1


async def test_sweep_finds_owed_flushes(guest: Visit) -> None:
    await talk(guest, 2)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    await guest.app.pool.execute("DELETE FROM jobs")
    assert len(await guest.app.stores.flushes.request_owed_flushes()) == 1
    assert await guest.app.stores.flushes.request_owed_flushes() == []
    await guest.run_due_jobs()
    assert await guest.one("SELECT flushed_turn FROM sessions") == 2
    assert await guest.app.stores.flushes.request_owed_flushes() == []


async def test_failed_late_flush_is_not_retried_within_the_hour(guest: Visit) -> None:
    await talk(guest, 2)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    await guest.app.pool.execute("UPDATE jobs SET state = 'dead', ended_at = now()")
    await guest.app.pool.execute("UPDATE sessions SET troubled_at = now()")
    assert await guest.app.stores.flushes.request_owed_flushes() == []
    await guest.app.pool.execute("UPDATE jobs SET ended_at = now() - interval '61 minutes'")
    assert len(await guest.app.stores.flushes.request_owed_flushes()) == 1
    await guest.run_due_jobs()
    assert await guest.one("SELECT flushed_turn FROM sessions") == 2


async def test_contradictory_settings_fail_late_flush_with_a_row_until_corrected(
    guest: Visit,
) -> None:
    await talk(guest, 2)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    before = await guest.one("SELECT config FROM agents")
    await guest.app.pool.execute("UPDATE agents SET config = $1", {"persona": "You know it all. " * 4_000})
    await everything_is_due(guest)
    await guest.run_due_jobs()
    flush = await guest.app.pool.fetchrow("SELECT * FROM flushes")
    assert flush is not None
    assert (flush["outcome"], flush["from_turn"], flush["through_turn"]) == ("failed", 1, 2)
    assert flush["error"].startswith("no_room")
    late = await guest.app.pool.fetchrow("SELECT state, faults FROM jobs WHERE trigger = 'late'")
    assert late is not None
    assert (late["state"], late["faults"]) == ("due", 1)
    await guest.app.pool.execute("UPDATE agents SET config = $1", before)
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT flushed_turn FROM sessions") == 2


async def test_flush_by_hand_reads_hidden_and_live_turns(guest: Visit) -> None:
    await talk(guest, 2)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    await talk(guest, 2, first=2)
    await flush_by_hand(guest)
    assert await guest.one("SELECT flushed_turn FROM sessions") == 4
    rows = await guest.app.pool.fetch("SELECT threshold, from_turn, through_turn FROM flushes ORDER BY id")
    assert [tuple(row) for row in rows] == [("late", 1, 2), ("manual", 3, 4)]
    assert await guest.one("SELECT state FROM jobs") == "done"


async def test_flush_by_hand_is_dead_when_hidden_turns_cannot_be_read(
    guest: Visit, provider: RunningFake
) -> None:
    refused = {"status": 400, "message": "Not with 'Solveig' in it."}
    await provider.script([{"match": {"kind": "flush"}, "times": -1, "action": refused}])
    await talk(guest, 2)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    await flush_by_hand(guest)
    assert await guest.one("SELECT state FROM jobs") == "dead"
    for error in ("SELECT error FROM flushes", "SELECT last_error FROM jobs"):
        assert "Not with … in it." in await guest.one(error), "a quotation may be a person's"


@pytest.mark.parametrize("hidden", [False, True])
async def test_job_is_due_again_for_the_portions_that_are_left(
    guest: Visit, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    requests = guest.app.job_runner._flusher._silent_requests
    next_portion = requests.next_portion

    async def next_turn(state: Any, view: Any, tools: Any, *, through: int, model: str) -> Any:
        least = min(through, view.flushed_turn + 1)
        return await next_portion(state, view, tools, through=least, model=model)

    monkeypatch.setattr(requests, "next_portion", next_turn)
    monkeypatch.setattr("shared.services.compaction.flusher.MAX_PORTIONS", 2)
    await talk(guest, 3)
    if hidden:
        new = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")
        assert new.success
    await flush_by_hand(guest)
    assert await guest.one("SELECT flushed_turn FROM sessions") == 2
    assert await guest.one("SELECT state FROM jobs") == "due"
    await everything_is_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT flushed_turn FROM sessions") == 3
    assert await guest.one("SELECT state FROM jobs") == "done"


async def flush_by_hand(guest: Visit) -> None:
    """Run a flush as an operator's command requests it, as the session's only job."""
    await guest.app.pool.execute("DELETE FROM jobs")
    await guest.app.stores.jobs.request_job(guest.session_id, replace(_by_hand(), kind="flush"))
    await guest.run_due_jobs()


async def test_late_flush_is_never_dead_and_waits_longer_after_each_fault(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a fault of the program")

    await talk(guest, 1)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    await guest.app.pool.execute("UPDATE jobs SET faults = 5, due_at = now()")
    monkeypatch.setattr(guest.app.job_runner._flusher, "flush_late", fail)
    await guest.run_due_jobs()
    waits = "SELECT due_at - now() > interval '10 minutes' FROM jobs WHERE state = 'due' AND faults = 6"
    assert await guest.one(waits)


async def test_an_early_flush_that_fails_is_tried_three_times(guest: Visit, provider: RunningFake) -> None:
    await provider.script(NO_FLUSH)
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE kind = 'flush'")
    for _ in range(3):
        await everything_is_due(guest)
        await guest.run_due_jobs()
    row = await guest.app.pool.fetchrow("SELECT state, faults FROM jobs WHERE kind = 'flush'")
    assert row is not None
    assert (row["state"], row["faults"]) == ("dead", 3)
    assert await guest.one("SELECT flushed_turn FROM sessions") == 0


async def test_large_view_is_flushed_in_portions_without_omission(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 26)
    await guest.run_due_jobs()
    rows = await guest.app.pool.fetch("SELECT from_turn, through_turn FROM flushes ORDER BY id")
    assert len(rows) > 1
    read = [turn for row in rows for turn in range(row["from_turn"], row["through_turn"] + 1)]
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= await guest.one("SELECT base_turn FROM sessions")
    shown = [
        str(record["body"]["messages"]) for record in await provider.requests() if record["kind"] == "flush"
    ]
    for turn in range(len(read)):
        assert any(f"Message {turn}. " in text for text in shown), turn
    hard = await guest.one("SELECT max(hard_limit) FROM turn_context_audit")
    sizes = [record["input_tokens"] for record in await provider.requests() if record["kind"] == "flush"]
    assert max(sizes) <= hard, sizes


async def test_flush_request_shares_prefix_and_tools_of_last_turn(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE kind = 'flush'")
    chat = [record for record in await provider.requests() if record["kind"] == "chat"][-1]["body"]
    await guest.run_due_jobs()
    flush = next(record for record in await provider.requests() if record["kind"] == "flush")
    assert flush["body"]["tools"] == chat["tools"]
    assert list(flush["body"]["tools"][0]) == list(chat["tools"][0])
    assert flush["body"]["system"] == chat["system"]
    assert flush["body"]["model"] == chat["model"]
    assert flush["usage"]["cache_read_input_tokens"] > flush["usage"]["input_tokens"]


async def test_flush_text_is_never_shown_to_the_person(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openclaw 136302: a flush took the place of a person's message."""
    words = "Dear person, I have saved it all."
    await provider.script([{"match": {"kind": "flush"}, "times": 1, "action": {"text": words}}])
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE kind = 'flush'")
    told: list[Mapping[str, Any]] = []

    async def announce(session_id: int, message: Mapping[str, Any]) -> None:
        if session_id != DASHBOARD:  # operators see how far it is
            told.append(message)

    monkeypatch.setattr(guest.app.announcer, "announce", announce)
    before = [
        await guest.one(f"SELECT count(*) FROM {table}") for table in ("events", "entries", "deliveries")
    ]
    heard = len(guest.heard)
    await guest.run_due_jobs()
    after = [
        await guest.one(f"SELECT count(*) FROM {table}") for table in ("events", "entries", "deliveries")
    ]
    assert after == before
    assert told == []
    assert len(guest.heard) == heard
    assert await guest.one("SELECT stray_text FROM flushes") == words
    assert await guest.one("SELECT outcome FROM flushes") == "nothing"


async def test_text_next_to_a_saved_note_is_never_shown(guest: Visit, provider: RunningFake) -> None:
    call = {"name": "save_memory", "input": {"text": "Bertil is a dog.", "kind": "fact"}}
    await provider.script(
        [
            {"match": {"kind": "flush"}, "times": 1, "action": {"tool_use": [call]}},
            {"match": {"kind": "flush"}, "times": 1, "action": {"text": "Saved one note."}},
        ]
    )
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE kind = 'flush'")
    await guest.run_due_jobs()
    row = await guest.app.pool.fetchrow("SELECT outcome, note_count, stray_text FROM flushes")
    assert row is not None
    assert row["outcome"] == "saved"
    assert row["note_count"] == 1


async def flushed_with(guest: Visit, provider: RunningFake, *actions: dict[str, Any]) -> int:
    """How often the model was asked when it answers in this way, and then says nothing more."""
    rules = [{"match": {"kind": "flush"}, "times": 1, "action": action} for action in actions]
    await provider.script([*rules, {"match": {"kind": "flush"}, "times": -1, "action": {"text": "SILENT"}}])
    await talk_until(guest, "SELECT count(*) FROM jobs WHERE kind = 'flush'")
    await guest.run_due_jobs()
    return len([record for record in await provider.requests() if record["kind"] == "flush"])


def _save(text: str, **more: str) -> dict[str, Any]:
    return {"name": "save_memory", "input": {"text": text, "kind": "fact", **more}}


async def test_a_flush_whose_notes_were_all_saved_asks_nothing_more(
    guest: Visit, provider: RunningFake
) -> None:
    calls = [_save("Bertil is a dog."), _save("Ingrid is a glaciologist.")]
    assert await flushed_with(guest, provider, {"tool_use": calls}) == 1
    assert await guest.one("SELECT outcome || note_count FROM flushes") == "saved2"


async def test_a_refused_note_or_a_search_is_answered_in_the_same_flush(
    guest: Visit, provider: RunningFake
) -> None:
    refused = [_save("Bertil is a dog."), _save("Ingrid was born then.", event_date="soon")]
    searched = [_save("Ingrid likes ice."), {"name": "search_memory", "input": {"query": "Bertil"}}]
    assert await flushed_with(guest, provider, {"tool_use": refused}, {"tool_use": searched}) == 3
    assert await guest.one("SELECT note_count FROM flushes") == 2


async def test_flush_that_lost_its_job_stops_asking_and_its_calls_are_paid(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erased or edited message makes the job due, and the next attempt begins before the model answers."""
    save, taken = PostgresNotes.save, list[int]()

    async def save_late(self: PostgresNotes, *given: Any) -> Any:
        if not taken:
            taken.append(await _take_over(guest))
        return await save(self, *given)

    monkeypatch.setattr(PostgresNotes, "save", save_late)
    assert await flushed_with(guest, provider, {"tool_use": [_save("Bertil is a dog.")]}) == 1
    assert await guest.one("SELECT count(*) FROM notes") == 0
    assert await guest.one("SELECT epoch FROM jobs WHERE id = $1 AND state = 'running'", *taken) > 1
    assert await guest.one("SELECT count(*) FROM usage WHERE purpose = 'flush' AND job_id = $1", *taken) == 1


async def _take_over(guest: Visit) -> int:
    """Claim the running flush's job again and begin its second attempt; return the job's id."""
    row = await guest.app.pool.fetchrow("SELECT * FROM flushes")
    assert row is not None
    await guest.app.pool.execute(*FENCE_JOBS(session_id=guest.session_id))
    store = guest.app.stores.jobs
    again = await store.claim_job(row["job_id"], worker_id=guest.app.worker_id)
    assert again is not None
    await store.begin_flush(
        again, cycle=row["cycle"], threshold=row["threshold"], from_turn=row["from_turn"],
        through_turn=row["through_turn"],
    )  # fmt: skip
    return again.id


async def test_early_flush_leaves_checkpoint_that_the_next_flush_continues(goclaw: Visit) -> None:
    day = await live_on_another_day(goclaw)
    await talk_until(goclaw, "SELECT count(*) FROM jobs WHERE trigger = 'at_50'")
    await goclaw.run_due_jobs()
    assert await goclaw.one("SELECT count(*) FROM checkpoints") == 1
    await talk_until(goclaw, "SELECT count(*) FROM jobs WHERE trigger = 'at_75'")
    await goclaw.app.pool.execute("UPDATE flushes SET ended_at = now() - interval '6 minutes'")
    await everything_is_due(goclaw)
    await goclaw.run_due_jobs()
    rows = await goclaw.app.pool.fetch("SELECT * FROM checkpoints ORDER BY id")
    assert len(rows) == 2
    assert rows[1]["through_turn"] > rows[0]["through_turn"]
    assert f"{day}" in str(rows[0]["ledger"]), "days go by the person's clock"
    first = {item["id"] for item in rows[0]["ledger"]["items"]}
    assert first
    assert first <= {item["id"] for item in rows[1]["ledger"]["items"]}


async def test_a_checkpoint_stands_in_when_the_real_summary_fails(
    goclaw: Visit, provider: RunningFake
) -> None:
    await talk_until(goclaw, "SELECT count(*) FROM jobs WHERE trigger = 'at_50'")
    await goclaw.run_due_jobs()
    made = await goclaw.one("SELECT ledger FROM checkpoints")
    await provider.script([{"match": {"kind": "summary"}, "times": -1, "action": {"prose": True}}])
    await goclaw.app.stores.jobs.request_job(goclaw.session_id, _by_hand())
    await goclaw.run_due_jobs()
    row = await goclaw.app.pool.fetchrow("SELECT kind, ledger FROM compactions WHERE active")
    assert row is not None
    assert {item["id"] for item in made["items"]} <= {item["id"] for item in row["ledger"]["items"]}
    assert made["narrative"] in (row["ledger"]["narrative"], made["narrative"])


def _by_hand() -> Any:
    from shared.core.session.turns import JobOrder

    return JobOrder(kind="compact", key="by hand", trigger="manual", payload={"force": True})


async def heard_of_jobs(
    guest: Visit, redis_url: str, act: Callable[[], Awaitable[None]]
) -> list[dict[str, Any]]:
    """What operators are told of how far jobs are, while something is done."""
    listener = RedisAnnouncer(redis_url)
    await listener.subscribe((DASHBOARD,))
    heard: list[dict[str, Any]] = []
    ready = asyncio.Event()

    async def listen() -> None:
        async for _, message in listener.listen():
            if message.get("t") == "here":
                ready.set()
            elif message.get("t") == "progress":
                heard.append(dict(message))
            elif message.get("t") == "over":
                return

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        while not ready.is_set():
            await guest.app.announcer.announce(DASHBOARD, {"t": "here"})
            await asyncio.sleep(0.02)
        await act()
        await guest.app.announcer.announce(DASHBOARD, {"t": "over"})
    await listener.close()
    return heard


async def test_operators_see_flush_as_first_tenth_of_compaction_progress(
    guest: Visit, redis_url: str
) -> None:
    await talk(guest, 12)
    await guest.app.pool.execute("UPDATE jobs SET due_at = now() + interval '1 h'")
    await guest.app.stores.jobs.request_job(guest.session_id, _by_hand())
    summed = await heard_of_jobs(guest, redis_url, guest.run_due_jobs)
    saving = [one["percent"] for one in summed if one["stage"] == "saving to memory"]
    assert saving == sorted(saving)
    assert (saving[0], saving[-1]) == (0, 10)
    assert summed[-1]["percent"] == 100
    await talk(guest, 3, first=20)
    await guest.app.pool.execute("UPDATE jobs SET due_at = now() + interval '1 h' WHERE state = 'due'")
    await guest.app.stores.jobs.request_job(guest.session_id, replace(_by_hand(), kind="flush"))
    heard = await heard_of_jobs(guest, redis_url, guest.run_due_jobs)
    assert {one["job"] for one in heard} == {await guest.one("SELECT max(id) FROM jobs WHERE kind = 'flush'")}
    percents = [one["percent"] for one in heard]
    assert percents == sorted(percents)
    assert (percents[0], percents[-1]) == (0, 100)
    assert len(percents) > 2
