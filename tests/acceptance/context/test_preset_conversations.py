"""Windows, separators, chatter and agents' own policies end to end, against the strict fake provider."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.context.build_context import select
from shared.core.presets.catalog import preset
from shared.core.session.turns import JobOrder
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake

FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 18


@pytest.fixture
async def opened_visit(database_url: str, redis_url: str, provider: RunningFake) -> Any:
    await provider.reset()

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Visit]:
        given = settings_for(
            database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
            cap_total_per_day_usd="100", **settings,
        )  # fmt: skip
        async with running_app(given) as app:
            yield await visit(app)

    return opened


async def command(guest: Visit, name: str) -> Any:
    return await guest.app.commands.run(session_id=guest.session_id, address_id=None, name=name)


async def requests(provider: RunningFake, kind: str = "chat") -> list[Any]:
    return [record for record in await provider.requests() if record["kind"] == kind]


async def nothing_broken(guest: Visit, provider: RunningFake) -> None:
    database_url = guest.app.settings.database_url
    assert database_url is not None
    connection = await asyncpg.connect(database_url.get_secret_value(), timeout=60)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close(timeout=30)
    assert {record["status"] for record in await provider.requests()} == {200}


def said(record: Any) -> str:
    return str(record["body"]["messages"])


async def test_chatbox_sends_six_messages_and_keeps_the_rest_in_the_log(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="chatbox") as guest:
        for number in range(6):
            await guest.ask(f"Message number {number}.")
        newest = (await requests(provider))[-1]
        assert len(newest["body"]["messages"]) == 5, "six would begin with an answer"
        assert "number 2." not in said(newest)
        assert "number 3." in said(newest)
        assert await guest.one("SELECT count(*) FROM entries") == 12
        gauge = await guest.app.sessions.measure_context(guest.session_id)
        assert gauge is not None
        assert gauge.used == await guest.one("SELECT context_tokens FROM sessions"), (
            "the gauge says what is sent"
        )
        await nothing_broken(guest, provider)


async def test_chatbox_summarises_on_command_what_it_does_not_send_any_more(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="chatbox") as guest:
        for number in range(12):
            await guest.ask(f"We decided that shelf {number} is painted in ochre on {number + 1} March.")
            await guest.run_due_jobs()
        assert await guest.one("SELECT count(*) FROM jobs") == 0
        order = JobOrder(kind="compact", key="k", trigger="manual", payload={})
        assert await guest.app.stores.jobs.request_job(guest.session_id, order)
        await guest.run_due_jobs()
        assert await guest.one("SELECT through_turn FROM compactions WHERE kind = 'summary'") == 12
        await guest.ask("Which shelves?")
        assert "conversation_summary" in said((await requests(provider))[-1])
        await nothing_broken(guest, provider)


async def test_stored_context_size_matches_request_after_summary_undo_and_restore(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="chatbox") as guest:

        async def counted_as_sent() -> bool:
            """The stored number, against the very request that would be built now."""
            gauge = await guest.app.sessions.measure_context(guest.session_id)
            state = await guest.app.stores.jobs.load_state(guest.session_id)
            assert gauge is not None
            sent = sum(e.tokens for e in select(state.view, preset("chatbox"), channel="web").view.entries)
            behind = state.view.head.tokens if state.view.head else 0
            room = await guest.app.sessions.load_request_limits(state)
            expected = room.fixed + round(room.talk_ratio * (sent + behind))
            return bool(abs(gauge.used - expected) <= 0.03 * expected)

        for number in range(12):
            await guest.ask(f"We decided that shelf {number} is painted in ochre on {number + 1} March.")
        order = JobOrder(kind="compact", key="k", trigger="manual", payload={})
        assert await guest.app.stores.jobs.request_job(guest.session_id, order)
        await guest.run_due_jobs()
        for number in range(6):
            await guest.ask(f"And then shelf {number} was moved.")
        for name in ("undo", "restore"):
            assert (await command(guest, name)).success
            assert await counted_as_sent(), name


async def test_messages_outside_the_window_are_hidden_without_model_and_flushed(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(max_rounds=2, model="claude-haiku-5-5") as guest:
        await guest.ask("Please remember that my dog Bertil is allergic to chicken.")
        for number in range(53):
            await guest.ask(f"{number}")
        await guest.run_due_jobs()
        assert await guest.one("SELECT kind FROM compactions") == "window"
        assert await guest.one("SELECT base_turn FROM sessions") == 52
        assert await requests(provider, "summary") == []
        flushes = await requests(provider, "flush")
        assert "Bertil" in said(flushes[0]), "the silent turn reads what the window had left out"
        assert await guest.one("SELECT flushed_turn FROM sessions") >= 52
        state = await guest.app.stores.jobs.load_state(guest.session_id)
        assert len(state.view.entries) <= 2 * 4, "a session of a window stays bounded"
        undone = await command(guest, "undo")
        assert not undone.success
        assert "left the window" in undone.result
        await guest.app.pool.execute(
            "UPDATE jobs SET state = 'due', ended_at = NULL, due_at = now() WHERE trigger = 'window'"
        )
        await guest.run_due_jobs()
        assert await guest.one("SELECT count(*) FROM compactions") == 1, (
            "a job that is run twice finds its row"
        )
        await guest.ask("Still there?")
        assert len((await requests(provider))[-1]["body"]["messages"]) == 3
        await nothing_broken(guest, provider)


async def test_a_separator_hides_everything_before_and_nothing_is_lost(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit() as guest:
        await guest.ask("Please remember that my sister Ingrid lives in Tromsø.")
        await guest.ask("The invoice number of the piano is PX-4471.")
        done = await command(guest, "separator")
        assert done.success
        await guest.run_due_jobs()
        (flush,) = {record["id"]: record for record in (await requests(provider, "flush"))[:1]}.values()
        assert "PX-4471" in said(flush), "what was hidden is read by the flush that comes after"
        assert await guest.one("SELECT flushed_turn FROM sessions") == 2
        assert await guest.one("SELECT threshold FROM flushes") == "late"
        await guest.ask("What is the number?")
        assert "PX-4471" not in said((await requests(provider))[-1])
        assert not (await command(guest, "undo")).success
        assert await guest.one("SELECT kind FROM compactions WHERE active") == "separator"
        assert await guest.one("SELECT count(*) FROM notes") > 0, "what is known about the person stays"
        await nothing_broken(guest, provider)


async def test_undo_goes_back_to_a_separator_and_never_beyond_it(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="pantheon") as guest:
        for number in range(8):
            await guest.ask(f"We decided that shelf {number} is painted in ochre on 14 March. {FILLER}")
            await guest.run_due_jobs()
        assert await guest.one("SELECT base_turn FROM sessions") == 4
        assert (await command(guest, "separator")).success
        refused = await command(guest, "undo")
        assert not refused.success
        assert "separator" in refused.result
        for number in range(8, 16):
            await guest.ask(f"We decided that shelf {number} is painted in blue on 15 March. {FILLER}")
            await guest.run_due_jobs()
        assert await guest.one("SELECT base_turn FROM sessions") == 12
        assert (await command(guest, "undo")).success
        assert await guest.one("SELECT base_turn FROM sessions") == 8
        assert (
            await guest.one("SELECT l.kind FROM compactions l JOIN sessions s ON s.head = l.id")
            == "separator"
        )
        assert not (await command(guest, "undo")).success
        notes_told = re.compile("<known_about_this_person>.*?</known_about_this_person>")
        assert "ochre" not in notes_told.sub("", said((await requests(provider))[-1]))
        await nothing_broken(guest, provider)


async def test_a_separator_with_nothing_before_it_changes_nothing(opened_visit: Any) -> None:
    async with opened_visit() as guest:
        assert not (await command(guest, "separator")).success
        await guest.ask("Hello")
        assert (await command(guest, "separator")).success
        again = await command(guest, "separator")
        assert not again.success
        assert "nothing above" in again.result
        assert await guest.one("SELECT count(*) FROM compactions") == 1
        begun = await command(guest, "new")
        assert (begun.success, "new conversation starts" in begun.result) == (True, True), (
            "a separator is no beginning"
        )
        assert not (await command(guest, "new")).success
        assert not (await command(guest, "separator")).success
        assert await guest.one("SELECT string_agg(kind, ' ') FROM compactions") == "new"


async def test_a_failed_flush_is_caught_up_before_newer_turns_are_read(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit() as guest:
        await guest.ask("The code of the gate is the year of the flood, 1953.")
        await provider.script(
            [{"match": {"kind": "flush"}, "times": 3, "action": {"status": 400, "message": "no"}}]
        )
        await command(guest, "new")
        await guest.run_due_jobs()
        assert await guest.one("SELECT flushed_turn FROM sessions") == 0
        await provider.script([])
        await guest.ask("Now about the boat.")
        await command(guest, "separator")
        await guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")
        await guest.run_due_jobs()
        read = [said(record) for record in await requests(provider, "flush") if record["status"] == 200]
        assert any("1953" in words for words in read)
        assert any("boat" in words for words in read)
        assert await guest.one("SELECT flushed_turn FROM sessions") == 2


async def test_pantheon_summarises_after_eight_turns_and_again_after_eight_more(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="pantheon") as guest:
        for number in range(16):
            await guest.ask(f"We decided that shelf {number} is painted in ochre on 14 March. {FILLER}")
            await guest.run_due_jobs()
            made = await guest.one("SELECT count(*) FROM compactions WHERE active")
            assert made == (number + 1) // 8
        assert await guest.one("SELECT array_agg(through_turn ORDER BY id) FROM compactions") == [4, 12]
        assert await guest.one("SELECT min(trigger) FROM compactions") == "turns"
        await nothing_broken(guest, provider)


async def test_chatter_is_left_out_at_nine_tenths_and_stays_left_out(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="pantheon", context_window=12_000, max_output=600) as guest:
        for number in range(8):
            await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": FILLER}}])
            await guest.ask(f"Person's word {number}. {FILLER}")
            await guest.app.pool.execute("UPDATE sessions SET hold_compaction = true")
        for number in range(8, 24):
            await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": FILLER}}])
            await guest.ask(f"Person's word {number}.")
            await guest.app.pool.execute("UPDATE sessions SET hold_compaction = true")
        hidden = await guest.one(
            """SELECT count(*) FROM prune_decisions d JOIN entries e USING (session_id, seq)
                WHERE d.form = 'hide' AND e.author = 'assistant'"""
        )
        assert hidden > 0
        assert hidden == await guest.one("SELECT count(*) FROM prune_decisions")
        newest = said((await requests(provider))[-1])
        assert all(f"word {number}." in newest for number in range(24)), "people's words all stay"
        assert await guest.one("SELECT count(*) FROM turn_context_audit WHERE prune_triggered") > 0
        over = "SELECT count(*) FROM turn_context_audit WHERE reported_input_tokens > hard_limit"
        assert await guest.one(over) == 0
        await nothing_broken(guest, provider)


async def test_agent_has_own_policy_and_broken_row_breaks_no_turn(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit() as guest:
        for number in range(4):
            await guest.ask(f"Message number {number}.")
        assert len((await requests(provider))[-1]["body"]["messages"]) == 7
        await guest.app.pool.execute(
            """UPDATE agents SET config = '{"preset": "arawn", "context": {"max_rounds": 2}}'"""
        )
        await guest.ask("And now?")
        assert len((await requests(provider))[-1]["body"]["messages"]) == 3
        window = await guest.one(
            "SELECT model_context_limit FROM turn_context_audit ORDER BY id DESC LIMIT 1"
        )
        assert window == 1_000_000
        await guest.app.pool.execute("""UPDATE agents SET config = '{"context": {"max_round": 2}}'""")
        assert await guest.ask("Does this still work?")
        assert len((await requests(provider))[-1]["body"]["messages"]) == 11


async def test_turns_of_history_are_counted_by_the_channel_of_the_turn(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(history_turns="telegram=1,web=2") as guest:
        for number in range(5):
            await guest.ask(f"Message number {number}.")
        assert len((await requests(provider))[-1]["body"]["messages"]) == 5


async def test_lobechat_stores_answers_with_the_providers_own_count(
    opened_visit: Any, provider: RunningFake
) -> None:
    async with opened_visit(preset="lobechat") as guest:
        await guest.ask("Hello")
        row = await guest.app.pool.fetchrow(
            """SELECT e.tokens, u.output_tokens FROM entries e, usage u
                WHERE e.author = 'assistant' AND u.purpose = 'chat'"""
        )
        assert row is not None
        ratio = await guest.one("SELECT token_ratio FROM sessions")
        assert row["tokens"] * ratio == pytest.approx(row["output_tokens"], rel=0.5)
        assert row["tokens"] <= row["output_tokens"]
