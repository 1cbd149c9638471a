"""Public failures of compaction (numbers of the collection) on the whole system."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from shared.core.session.session_state import CompactionStored
from shared.core.session.turns import JobOrder
from shared.core.values.errors import StaleView, StorageUnavailable
from shared.core.values.messages import text_of
from tests.acceptance.known_failures.due_talks import talk, until_due
from tests.kit.app_driver import Visit, running_app
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.messages_api.shapes import compact_json
from tests.kit.known_failures import command, invariants_hold
from tests.kit.rival_compactors import rivals_of


async def chats(provider: RunningFake) -> list[str]:
    """The bodies of all chat requests as JSON text, in their order."""
    return [compact_json(r["body"]) for r in await provider.requests() if r["kind"] == "chat"]


async def test_c01_what_is_said_during_a_compaction_is_kept(guest: Visit, provider: RunningFake) -> None:
    """What arrived during a compaction was destroyed when it was written back (biorouter)."""
    turns = await until_due(guest)
    await provider.script([{"match": {"kind": "summary"}, "times": 1, "action": {"latency": 1.0}}])
    job = asyncio.ensure_future(guest.run_due_jobs())
    await asyncio.sleep(0.1)
    for number in range(3):
        await guest.ask(f"Meanwhile {number}")
    await job
    assert await guest.one("SELECT count(*) FROM compactions WHERE active") == 1
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    said = [text_of(e.blocks) for e in state.view.entries if e.author == "person"]
    assert [f"Meanwhile {n}" for n in range(3)] == said[-3:]
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == turns + 3
    await invariants_hold(guest)


async def test_c02_a_late_compaction_does_not_bring_back_what_was_put_away(guest: Visit) -> None:
    """A cleared session came back to life with the commit of a slow compaction (openai-agents)."""
    rivals = await rivals_of(guest)
    await talk(guest, 5)

    async def anew() -> None:
        await guest.app.stores.jobs.start_new_conversation(guest.session_id, fixed_tokens=900)

    with pytest.raises(StaleView):
        await rivals.try_once(before_commit=anew)
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    assert state.view.entries == ()
    assert state.view.head is not None
    assert state.view.head.kind == "new"


async def test_c03_nothing_is_hidden_before_the_summary_is_durable(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session was emptied first, and the replacement was never written (openai-agents)."""
    await until_due(guest)
    before = await guest.app.stores.jobs.load_state(guest.session_id)

    async def full(*_: object, **__: object) -> None:
        raise StorageUnavailable("no space left on device")

    monkeypatch.setattr(type(guest.app.stores.jobs), "record_compaction", full)
    await guest.run_due_jobs()
    after = await guest.app.stores.jobs.load_state(guest.session_id)
    assert (after.view.base_turn, after.view.entries) == (before.view.base_turn, before.view.entries)
    assert await guest.one("SELECT count(*) FROM compactions") == 0


async def test_c04_an_answer_that_ends_after_a_compaction_is_there_once(
    guest: Visit, provider: RunningFake
) -> None:
    """A stale partial answer was appended again behind the summary (coder)."""
    await until_due(guest)
    action = {"pace_ms": 60, "text": "The quick brown heron waits at pier nine."}
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": action}])
    answering = asyncio.ensure_future(guest.ask("Who waits there?"))
    await asyncio.sleep(0.1)
    await guest.run_due_jobs()
    await answering
    await guest.ask("Go on.")
    assert (await chats(provider))[-1].count("heron waits") == 1
    await invariants_hold(guest)


async def test_c05_a_message_that_comes_during_a_flush_is_answered(
    guest: Visit, provider: RunningFake
) -> None:
    """The turn that saved memory took the place of the person's message, which was lost (openclaw)."""
    while not await guest.one("SELECT count(*) FROM jobs WHERE kind = 'flush'"):
        await talk(guest, 1)
    await provider.script([{"match": {"kind": "flush"}, "times": 1, "action": {"latency": 0.8}}])
    job = asyncio.ensure_future(guest.run_due_jobs())
    await asyncio.sleep(0.1)
    assert "pier nine" in await guest.ask("Please say: pier nine.")
    await job
    assert await guest.one("SELECT count(*) FROM flushes WHERE outcome IN ('saved', 'nothing')") >= 1
    await invariants_hold(guest)


async def test_c08_flush_that_always_fails_blocks_no_turn(guest: Visit, provider: RunningFake) -> None:
    """Flush and overflow called each other, and the person waited for over an hour (openclaw)."""
    wrong = {"status": 400, "message": "tools: something is wrong"}
    await provider.script([{"match": {"kind": "flush"}, "times": -1, "action": wrong}])
    await talk(guest, 10, upkeep=True)
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 10
    assert await guest.one("SELECT count(*) FROM compactions WHERE active") >= 1
    tries = [r for r in await provider.requests() if r["kind"] == "flush"]
    assert 1 <= len(tries) <= 10


async def test_c10_each_flush_reads_what_no_flush_has_read(guest: Visit) -> None:
    """Each time memory was saved, the whole history was gone through again (enduragent)."""
    await talk(guest, 16, upkeep=True)
    rows = await guest.app.pool.fetch(
        "SELECT from_turn, through_turn FROM flushes WHERE outcome IN ('saved', 'nothing') ORDER BY id"
    )
    assert len(rows) >= 2
    assert all(later["from_turn"] > earlier["through_turn"] for earlier, later in pairwise(rows))


async def test_c19_after_a_compaction_nothing_is_due_by_old_numbers(guest: Visit) -> None:
    """The old size was still stored, and the next turn began another compaction (claude-code)."""
    await until_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT context_tokens < context_limit FROM sessions")
    await guest.ask("One short word?")
    assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'") == 1


async def test_c29_after_a_compaction_tools_work_as_before(guest: Visit, provider: RunningFake) -> None:
    """A line saying that the summary was for reference only made the model stop using tools (hermes)."""
    await guest.ask("Please remember that my dog is called Bertil.")
    turns = 1 + await until_due(guest)
    before = await newest_tools(provider)
    await guest.run_due_jobs()
    assert await guest.one("SELECT base_turn FROM sessions") in range(1, turns)
    notes = await guest.one("SELECT count(*) FROM notes")
    await guest.ask("Please remember that my cat is called Miso.")
    assert await guest.one("SELECT count(*) FROM notes") == notes + 1
    assert await newest_tools(provider) == before


async def newest_tools(provider: RunningFake) -> list[dict[str, Any]]:
    """Return the tools of the newest request, without marks of the cache, which move."""
    tools = json.loads((await chats(provider))[-1])["tools"]
    return [{name: value for name, value in tool.items() if name != "cache_control"} for tool in tools]


async def test_c30_a_summary_is_no_message(guest: Visit) -> None:
    """Summaries appeared as bubbles of the person and in the titles of sessions (claude-code)."""
    turns = await until_due(guest)
    await guest.run_due_jobs()
    summary = await guest.one("SELECT summary_text FROM compactions WHERE active")
    assert summary
    shown = await guest.app.pool.fetch("SELECT payload::text AS text FROM events WHERE kind = 'msg'")
    assert len(shown) == 2 * turns
    assert all(summary not in row["text"] for row in shown)
    assert await guest.one("SELECT count(*) FROM entries") == 2 * turns


async def test_c39_silent_turn_text_is_never_shown(guest: Visit, provider: RunningFake) -> None:
    """Directives for media in internal text were carried out and sent to the person (hermes)."""
    stray = "MEDIA:/tmp/private.png I will now tell you a secret."
    await provider.script([{"match": {"kind": "flush"}, "times": -1, "action": {"text": stray}}])
    await until_due(guest)
    await guest.run_due_jobs()
    assert await guest.one("SELECT count(*) FROM flushes WHERE stray_text = $1", stray) >= 1
    assert await guest.one("SELECT count(*) FROM events WHERE payload::text LIKE '%MEDIA%'") == 0
    assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%MEDIA%'") == 0


async def test_c44_cancelled_compaction_leaves_undo_unchanged(guest: Visit) -> None:
    """A compaction that was cancelled left a revert armed, which later threw work away (opencode)."""
    rivals = await rivals_of(guest)
    await talk(guest, 5)
    await rivals.try_once()
    assert isinstance(
        await guest.app.stores.jobs.undo_compaction(guest.session_id, limit_tokens=10**9, fixed_tokens=0),
        CompactionStored,
    )
    held = await guest.app.stores.jobs.load_state(guest.session_id)

    async def pin() -> None:
        await guest.app.pool.execute("UPDATE sessions SET view_epoch = view_epoch + 1")

    with pytest.raises(StaleView):
        await rivals.try_once(before_commit=pin)
    after = await guest.app.stores.jobs.load_state(guest.session_id)
    assert (after.redo_id, after.head_id) == (held.redo_id, held.head_id)
    assert after.view.hold_compaction
    assert isinstance(
        await guest.app.stores.jobs.restore_compaction(guest.session_id, fixed_tokens=0), CompactionStored
    )


async def test_c45_hanging_summariser_delays_no_turn(guest: Visit, provider: RunningFake) -> None:
    """Without a timeout a compaction hung for twenty-three minutes, and the chat with it (openclaw)."""
    await until_due(guest)
    await provider.script([{"match": {"kind": "summary"}, "times": -1, "action": {"latency": 60}}])
    job = asyncio.ensure_future(guest.run_due_jobs())
    await asyncio.sleep(0.1)
    assert "pier nine" in await guest.ask("Please say: pier nine.")
    assert not job.done()
    job.cancel()
    await asyncio.wait([job])


async def test_c46_a_compaction_that_is_started_twice_runs_once(guest: Visit, provider: RunningFake) -> None:
    """The same compaction ran twice (claude-code)."""
    await until_due(guest)
    job_id = await guest.one("SELECT id FROM jobs WHERE kind = 'compact'")
    await asyncio.gather(*(guest.app.job_runner.run(job_id) for _ in range(3)))
    assert await guest.one("SELECT count(*) FROM compactions") == 1
    assert len([r for r in await provider.requests() if r["kind"] == "summary"]) == 1
    order = JobOrder(kind="compact", key="again", trigger="manual")
    asked = [await guest.app.stores.jobs.request_job(guest.session_id, order) for _ in range(2)]
    assert asked[1] is None, "asking twice is asking once"


async def test_c47_a_new_process_goes_on_with_the_summary(guest: Visit, provider: RunningFake) -> None:
    """After a restart the whole history was loaded instead of its summary (claude-code)."""
    turns = await until_due(guest)
    await guest.run_due_jobs()
    async with running_app(guest.app.settings) as app:
        again = Visit(app=app, session_id=guest.session_id, address_id=guest.address_id)
        await again.ask("Are you back?")
    last = (await chats(provider))[-1]
    assert "conversation_summary through_seq" in last
    said = json.loads(last)["messages"]
    assert len(said) < 2 * turns, "older messages are not sent again"


async def test_c48_the_same_note_is_kept_once(guest: Visit) -> None:
    """The memory filled with copies of copies (mem0)."""
    for _ in range(3):
        await guest.ask("Please remember that my cat is called Miso.")
    assert await guest.one("SELECT count(*) FROM notes WHERE text LIKE '%Miso%'") == 1


async def test_c18_the_command_itself_never_fails_for_size(guest: Visit) -> None:
    """`/compact` was refused as too long by the very model that was to make room (claude-code)."""
    await talk(guest, 12)
    result = await command(guest, "compact", "--force")
    assert result.success, result
    assert await guest.one("SELECT count(*) FROM compactions WHERE active") == 1
    assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%/compact%'") == 0
