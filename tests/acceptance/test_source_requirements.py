"""What the documents that Evertalk comes from ask for, one test per line, under the preset concerned.

First SPEC-008's acceptance criteria AC-1 … AC-19, then the tests that it lists by name, then section 11 of
Pantheon's design. Where the mission corrects a document, the corrected behaviour is tested and named.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shared.adapters.postgres.turns.pins import PostgresPins
from shared.core.compaction.jobs import NEAR_LIMIT, next_job
from shared.core.compaction.plan import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.context.build_context import build_context, shown_entry
from shared.core.context.prompts import SILENT, default_layers
from shared.core.context.selection import select
from shared.core.overflow.filler_trimming import hides_above, plan_hiding
from shared.core.overflow.overflow_recovery import fit
from shared.core.session.budget import budget_for, pressure
from shared.core.session.overrides import agent_policy
from shared.core.session.presets import preset
from shared.core.session.pruning import plan_pruning
from shared.core.session.session import Compaction, Entry, View
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import Image, ToolResult, text_of, tool_results
from shared.core.values.tokens import by_script, chars_over_four, estimate_messages
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.builders import entry, exchanges, tool_turn, view, words
from tests.kit.fakes.messages_api.harness import RunningFake
from web.security import STATUS

SPEC, PANTHEON = preset("spec008"), preset("pantheon")
BUDGET = budget_for(SPEC, 200_000, 8_192, 1_000)
"""SPEC-008's own numbers: flush above 176,000, compaction above 180,000."""
LONG = "a" * 1_500 + "m" * 3_000 + "z" * 1_500
FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 18
FACTS = (
    "Please remember that my sister Ingrid lives in Tromsø and works as a glaciologist.",
    "The invoice number of the piano is PX-4471.",
    "We decided to paint the kitchen in ochre on 14 March.",
)


# ---- a long talk under SPEC-008, on real servers, which the criteria are read from


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTalk:
    """What was sent, stored and shown in one conversation that was flushed and compacted."""

    requests: list[Any]
    usage: dict[str, int]
    audits: list[dict[str, Any]]
    totals: dict[str, Any]
    links: list[dict[str, Any]]
    flushes: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    events: list[dict[str, Any]]
    session: dict[str, Any]
    chat_model: str
    summary_model: str
    after_restart: str
    """The last answer, by a process that was started after the compactions."""

    def of_kind(self, kind: str) -> list[Any]:
        return [record for record in self.requests if record["kind"] == kind]


def small_window(database_url: str, redis_url: str, provider: RunningFake, name: str) -> Any:
    return settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        preset=name, context_window=12_000, max_output=1_000, cap_total_per_day_usd="100",
    )  # fmt: skip


@pytest.fixture(scope="module")
async def long_talk(module_database_url: str, module_redis_url: str, provider: RunningFake) -> LongTalk:
    settings = small_window(module_database_url, module_redis_url, provider, "spec008")
    async with running_app(settings) as app:
        guest = await visit(app)
        for number in range(22):
            fact = FACTS[number] if number < len(FACTS) else ""
            await guest.ask(f"{fact} Message {number}. {FILLER}")
            await guest.run_due_jobs()
        session_id, address_id = guest.session_id, guest.address_id
        chat_model, summary_model = app.models.chat, app.models.summary
    async with running_app(settings) as app:
        guest = Visit(app=app, session_id=session_id, address_id=address_id)
        after_restart = await guest.ask("What is the invoice number of the piano?")

        async def rows(sql: str) -> list[dict[str, Any]]:
            return [dict(row) for row in await app.pool.fetch(sql)]

        return LongTalk(
            requests=await provider.requests(),
            usage=await provider.usage(),
            audits=await rows("SELECT * FROM turn_context_audit ORDER BY id"),
            totals=(await rows("SELECT * FROM session_totals"))[0],
            links=await rows("SELECT * FROM links ORDER BY id"),
            flushes=await rows("SELECT * FROM flushes ORDER BY id"),
            notes=await rows("SELECT * FROM notes ORDER BY id"),
            entries=await rows("SELECT * FROM entries ORDER BY seq"),
            events=await rows("SELECT * FROM events ORDER BY event_seq"),
            session=(await rows("SELECT * FROM sessions"))[0],
            chat_model=chat_model,
            summary_model=summary_model,
            after_restart=after_restart,
        )


@pytest.fixture
async def pantheon(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    await provider.reset()
    async with running_app(small_window(database_url, redis_url, provider, "pantheon")) as app:
        yield await visit(app)


def first_words(record: Any) -> str:
    return str(record["body"]["messages"][0]["content"])


def newest_words(record: Any) -> str:
    return str(record["body"]["messages"][-1]["content"])


def tool_log(text: str, *, after: int) -> list[Entry]:
    """A turn whose tool said this, and answered turns after it."""
    return [*tool_turn(1, text, seq=1), *exchanges(after, first=100)]


def pruned(log: list[Entry]) -> list[Entry]:
    forms = {decision.seq: decision.form for decision in plan_pruning(log, SPEC, cache_cold=False)}
    return [shown_entry(replace(e, pruned=forms.get(e.seq)), None, SPEC, told=0) for e in log]


def result_of(log: list[Entry]) -> str:
    return next(result.text for e in log for result in tool_results(e.blocks))


# ---- SPEC-008: token tracking


def test_ac_1_every_call_is_estimated_before_it_is_sent(long_talk: LongTalk) -> None:
    assert len(long_talk.audits) == 23
    for audit in long_talk.audits:
        assert 0.5 < audit["estimated_input_tokens_before"] / audit["reported_input_tokens"] < 2


def test_ac_2_the_session_counts_input_and_output_of_all_calls(long_talk: LongTalk) -> None:
    """Corrected: in a row of totals beside the session, not in the session's own row."""
    totals, usage = long_talk.totals, long_talk.usage
    read = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    parts = (*read, "output_tokens")
    assert totals["total_tokens"] == sum(totals[part] for part in parts)
    counted = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    assert [totals[part] for part in parts] == [usage[name] for name in counted]
    assert totals["cache_read_tokens"] > 0


def test_ac_3_the_estimate_is_what_the_threshold_looks_at() -> None:
    state = view(exchanges(40, tokens=2_300))
    estimate = 1_000 + sum(e.tokens for e in state.entries)
    wish = next_job(state, budget=BUDGET, policy=SPEC, context_tokens=estimate)
    assert wish is not None
    assert wish.kind == "compact"


# ---- SPEC-008: pruning


def test_ac_4_old_results_keep_1500_characters_at_both_ends() -> None:
    assert result_of(pruned(tool_log(LONG, after=2))) == LONG
    assert result_of(pruned(tool_log(LONG, after=3))) == "a" * 1_500 + "..." + "z" * 1_500


def test_ac_5_very_old_results_are_cleared() -> None:
    """M has no number in the document; it is 10 here."""
    assert result_of(pruned(tool_log(LONG, after=9))) != "[Tool result cleared]"
    assert result_of(pruned(tool_log(LONG, after=10))) == "[Tool result cleared]"


def test_ac_6_an_agents_row_configures_its_pruning() -> None:
    own = agent_policy(
        SPEC, {"context": {"prune_keep_last_assistants": 8, "prune_clear_after_assistants": 20}}
    )
    log = tool_log(LONG, after=7)
    assert plan_pruning(log, SPEC, cache_cold=False)
    assert plan_pruning(log, own, cache_cold=False) == ()


def test_ac_7_words_of_people_and_of_the_assistant_are_never_pruned() -> None:
    log = [
        *tool_log(LONG, after=12),
        entry(900, 500, LONG),
        entry(901, 500, LONG, author="assistant", step=1),
    ]
    log += exchanges(12, first=600)
    shown = pruned(log)
    assert [text_of(e.blocks) for e in shown] == [text_of(e.blocks) for e in log]


# ---- SPEC-008: flush


@pytest.mark.parametrize(("tokens", "fires"), [(175_999, False), (176_000, False), (176_001, True)])
def test_ac_8_a_flush_fires_above_window_less_reserve_less_threshold(tokens: int, fires: bool) -> None:
    assert (pressure(BUDGET, tokens) == "flush") is fires
    wish = next_job(view(exchanges(40, tokens=2_000)), budget=BUDGET, policy=SPEC, context_tokens=tokens)
    assert (wish is not None and wish.kind == "flush") is fires


def test_ac_9_a_flush_ends_with_a_message_of_the_program_that_asks_to_save(long_talk: LongTalk) -> None:
    first = long_talk.of_kind("flush")[0]
    assert first["body"]["messages"][-1]["role"] == "user"
    assert "not of the person" in newest_words(first)
    assert "save_memory" in newest_words(first)


def test_ac_10_a_flush_saves_with_the_agents_own_save_memory(long_talk: LongTalk) -> None:
    tools = [tool["name"] for tool in long_talk.of_kind("flush")[0]["body"]["tools"]]
    assert tools == [tool["name"] for tool in long_talk.of_kind("chat")[-1]["body"]["tools"]]
    assert "save_memory" in tools
    assert [note for note in long_talk.notes if note["flush_id"] is not None]


def test_ac_11_nobody_sees_the_answer_of_a_flush(long_talk: LongTalk) -> None:
    shown = " ".join(str(event["payload"]) for event in long_talk.events)
    assert SILENT not in shown
    assert "not of the person" not in shown
    people = [e for e in long_talk.entries if e["author"] == "person"]
    assert len(people) == 23, "the ghost turn is no part of the log"


def test_ac_12_a_flush_fires_once_per_cycle(long_talk: LongTalk) -> None:
    """Corrected: the counter remains, but a cursor decides what is read, so that no turn is passed over."""
    near = [
        (flush["cycle"], flush["threshold"])
        for flush in long_talk.flushes
        if flush["threshold"] == NEAR_LIMIT
    ]
    assert near
    assert len(near) == len(set(near))
    assert long_talk.session["flushed_turn"] >= long_talk.session["base_turn"]


# ---- SPEC-008: compaction


@pytest.mark.parametrize(("tokens", "fires"), [(179_999, False), (180_000, False), (180_001, True)])
def test_ac_13_compaction_fires_above_window_less_reserve(tokens: int, fires: bool) -> None:
    state = view(exchanges(40, tokens=2_200), flushed_turn=40)
    wish = next_job(state, budget=BUDGET, policy=SPEC, context_tokens=tokens)
    assert (wish is not None and wish.kind == "compact") is fires


def test_ac_14_older_messages_become_one_record_by_a_call_of_its_own(long_talk: LongTalk) -> None:
    """Corrected: a block of the first user message, labelled as background; a system role is refused by most
    models, and would give people's text authority.
    """
    assert long_talk.of_kind("summary")
    newest = long_talk.of_kind("chat")[-1]
    assert first_words(newest).count("<conversation_summary through_seq=") == 1
    assert "<conversation_summary through_seq=" not in json.dumps(newest["body"]["system"])
    assert {message["role"] for message in newest["body"]["messages"]} == {"user", "assistant"}


def test_ac_15_summary_and_recent_messages_stand_for_the_whole_history(long_talk: LongTalk) -> None:
    """Corrected: the log itself is only added to; a row says what is hidden."""
    messages = long_talk.of_kind("chat")[-1]["body"]["messages"]
    base = long_talk.session["base_turn"]
    assert base >= 5
    assert len(messages) == 2 * (22 - base) + 1
    *_, said = [block["text"] for block in messages[0]["content"]]
    assert f"Message {base}. Then we talked" in said, "messages count from 0, turns from 1"
    assert len([e for e in long_talk.entries if e["author"] == "person"]) == 23


def test_ac_16_the_summary_is_stored_and_outlives_the_process(long_talk: LongTalk) -> None:
    assert [link for link in long_talk.links if link["active"] and link["summary_text"]]
    assert "PX-4471" in long_talk.after_restart


def test_ac_17_the_last_five_turns_stay_word_for_word() -> None:
    state = view(exchanges(40, tokens=3_000))
    made = plan_compaction(state, budget=BUDGET, policy=SPEC, now_tokens=241_000)
    assert isinstance(made, CompactionPlan)
    assert made.through_turn == 35


# ---- SPEC-008: cost


def test_ac_18_summaries_are_written_by_the_cheap_model(long_talk: LongTalk) -> None:
    assert "haiku" in long_talk.summary_model
    assert {record["model"] for record in long_talk.of_kind("summary")} == {long_talk.summary_model}
    assert long_talk.summary_model != long_talk.chat_model
    assert not SPEC.summary_falls_back


def test_ac_19_flushes_are_made_by_the_sessions_own_model(long_talk: LongTalk) -> None:
    assert {record["model"] for record in long_talk.of_kind("flush")} == {long_talk.chat_model}


# ---- SPEC-008: the tests that it lists


def test_estimate_tokens_empty_messages() -> None:
    assert estimate_messages((), by_script) == 0
    assert by_script("") == chars_over_four("") == 0


def test_estimate_tokens_proportional_to_content() -> None:
    """Corrected: the kind of text counts, too; characters by four is the last fallback."""
    once, ten = by_script(FILLER), by_script(FILLER * 10)
    assert ten == pytest.approx(10 * once, rel=0.01)
    assert by_script("привет " * 100) > by_script("hello! " * 100)


def test_should_compact_below_threshold_returns_false() -> None:
    assert pressure(BUDGET, 179_999) != "compact"


def test_should_compact_above_threshold_returns_true() -> None:
    assert pressure(BUDGET, 180_001) == "compact"


def test_should_flush_fires_before_compact() -> None:
    assert [pressure(BUDGET, tokens) for tokens in (176_000, 178_000, 180_001)] == [
        "calm",
        "flush",
        "compact",
    ]


def test_prune_preserves_recent_tool_results() -> None:
    assert result_of(pruned(tool_log(LONG, after=2))) == LONG


def test_prune_soft_trims_oversized_old_results() -> None:
    assert len(result_of(pruned(tool_log(LONG, after=4)))) == 3_003
    assert result_of(pruned(tool_log(LONG[:4_000], after=4))) == LONG[:4_000]


def test_prune_hard_clears_very_old_results() -> None:
    assert result_of(pruned(tool_log("short", after=10))) == "[Tool result cleared]"


def test_prune_never_modifies_user_messages() -> None:
    log = [entry(1, 1, LONG), entry(2, 1, "ok", author="assistant", step=1), *exchanges(15, first=2)]
    assert pruned(log)[0].blocks == log[0].blocks


def test_prune_never_modifies_assistant_messages() -> None:
    log = [entry(1, 1, "go"), entry(2, 1, LONG, author="assistant", step=1), *exchanges(15, first=2)]
    assert pruned(log)[1].blocks == log[1].blocks


def test_prune_skips_image_content_blocks() -> None:
    log = tool_log(LONG, after=12)
    picture = Image(attachment_id=7, mime="image/png", description="a red boat")
    log[2] = replace(log[2], blocks=(*log[2].blocks, picture))
    assert picture in pruned(log)[2].blocks


def test_compact_preserves_recent_messages() -> None:
    state = view(exchanges(30, tokens=3_500))
    made = plan_compaction(state, budget=BUDGET, policy=SPEC, now_tokens=200_000)
    assert isinstance(made, CompactionPlan)
    kept = [e for e in state.entries if e.turn > made.through_turn]
    assert [e.turn for e in kept[::2]] == [26, 27, 28, 29, 30]


def test_compact_summarizes_old_messages() -> None:
    made = plan_compaction(view(exchanges(30, tokens=3_500)), budget=BUDGET, policy=SPEC, now_tokens=200_000)
    assert isinstance(made, CompactionPlan)
    assert [e.turn for e in made.entries[::2]] == list(range(1, 26))


def test_compact_uses_haiku_model(long_talk: LongTalk) -> None:
    assert {link["model"] for link in long_talk.links if link["kind"] == "summary"} == {
        long_talk.summary_model
    }


def test_compact_noop_when_few_messages() -> None:
    made = plan_compaction(view(exchanges(5, tokens=90)), budget=BUDGET, policy=SPEC, now_tokens=190_000)
    assert isinstance(made, NothingToCompact)
    assert made.reason == "nothing_old"


def test_memory_flush_calls_save_memory_tool(long_talk: LongTalk) -> None:
    called = [
        block["name"]
        for record in long_talk.of_kind("flush")
        for block in record["answer"]
        if "name" in block
    ]
    assert set(called) == {"save_memory"}


def test_memory_flush_suppresses_silent_response(long_talk: LongTalk) -> None:
    assert any(SILENT in str(record["answer"]) for record in long_talk.of_kind("flush"))
    assert not any(SILENT in str(e["blocks"]) for e in long_talk.entries)


def test_memory_flush_fires_once_per_cycle() -> None:
    state = view(exchanges(40, tokens=2_000))
    first = next_job(state, budget=BUDGET, policy=SPEC, context_tokens=177_000)
    assert first is not None
    assert first.key == next_job(state, budget=BUDGET, policy=SPEC, context_tokens=179_000).key  # type: ignore[union-attr]


def test_memory_flush_skipped_when_already_flushed() -> None:
    state = view(exchanges(40, tokens=2_000), flush_thresholds=frozenset({NEAR_LIMIT}))
    assert next_job(state, budget=BUDGET, policy=SPEC, context_tokens=177_000) is None


def test_long_session_triggers_compaction(long_talk: LongTalk) -> None:
    assert [link for link in long_talk.links if link["kind"] == "summary" and link["active"]]
    assert {record["status"] for record in long_talk.requests} == {200}, "no 400 in more than twenty turns"


def test_flush_then_compact_preserves_ltm(long_talk: LongTalk) -> None:
    for link in long_talk.links:
        read = [
            f
            for f in long_talk.flushes
            if f["through_turn"] >= link["through_turn"] and f["outcome"] != "failed"
        ]
        assert min(f["ended_at"] for f in read) <= link["created_at"], "saved before it is hidden"
    assert any("Ingrid" in note["text"] for note in long_talk.notes)


async def test_pruned_session_still_produces_coherent_responses(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = small_window(database_url, redis_url, provider, "spec008")
    async with running_app(settings) as app:
        guest = await visit(app)
        await guest.ask("Please remember that the boat is called Aurora Nine.")
        await app.pool.execute("ALTER TABLE entry_rows DISABLE TRIGGER USER")
        await app.pool.execute(
            """UPDATE entries SET blocks = jsonb_set(blocks, '{0,text}', to_jsonb(repeat('x', 9000)))
                WHERE author = 'tool'"""
        )
        for number in range(12):
            await guest.ask(f"Message {number}.")
        assert "Aurora Nine" in await guest.ask("What is the boat called?")
        forms = await guest.one("SELECT array_agg(form ORDER BY turn_no) FROM prune_decisions")
        assert forms == ["trim", "clear"]
        newest = (await provider.requests())[-1]
        assert "[Tool result cleared]" in json.dumps(newest["body"])
        assert {record["status"] for record in await provider.requests()} == {200}
        stored = await guest.one("SELECT blocks->0->>'text' FROM entries WHERE author = 'tool'")
        assert stored == "x" * 9_000, "only the copy that is sent is shortened"


# ---- Pantheon, section 11


@pytest.mark.parametrize(
    ("limit", "budget"), [(8_192, 5_530), (10_240, 7_168), (32_000, 28_352), (200_000, 187_952)]
)
def test_unit_tests_for_budget_math(limit: int, budget: int) -> None:
    made = budget_for(PANTHEON, limit, 128_000, 500)
    output = min(2_048, limit * 20 // 100)
    assert made.hard == limit - output - max(1_024, limit * 5 // 100) == budget


def test_unit_tests_for_threshold_triggers() -> None:
    made = budget_for(PANTHEON, 10_240, 128_000, 500)
    summarise, hide = 5_018, 6_452
    assert (made.hard, made.limit, hides_above(PANTHEON, made)) == (7_168, summarise, hide)
    assert [pressure(made, tokens) for tokens in (summarise - 1, summarise, summarise + 1)] == [
        "calm", "compact", "compact",
    ]  # fmt: skip
    for turns, due in ((7, False), (8, True), (9, True)):
        wish = next_job(view(exchanges(turns, tokens=20)), budget=made, policy=PANTHEON, context_tokens=900)
        assert (wish is not None) is due


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 2), ("a" * 100, 32), ("日本" * 50, 32)]
)
def test_unit_tests_for_fallback_estimator_behavior(text: str, tokens: int) -> None:
    assert chars_over_four(text) == tokens


async def test_summary_triggered_at_threshold(pantheon: Visit, provider: RunningFake) -> None:
    while not await pantheon.one("SELECT count(*) FROM jobs WHERE kind = 'compact'"):
        await pantheon.ask(f"Another message. {FILLER * 3}")
    row = await pantheon.app.pool.fetchrow("SELECT context_tokens, context_limit FROM sessions")
    assert row is not None
    assert row["context_tokens"] >= row["context_limit"]
    before = await pantheon.one(
        "SELECT max(context_tokens) FROM turn_context_audit WHERE turn_id < (SELECT max(turn_no) FROM turns)"
    )
    assert before < row["context_limit"]
    assert await pantheon.one("SELECT trigger FROM jobs") == "limit"
    await pantheon.run_due_jobs()
    assert await pantheon.one("SELECT kind FROM links") == "summary"
    assert await pantheon.one("SELECT answered_turn - base_turn FROM sessions") <= 4


async def test_prune_triggered_after_summary(pantheon: Visit, provider: RunningFake) -> None:
    """Corrected: what is left out stays left out, so that the provider's cache survives."""
    for number in range(9):
        await pantheon.ask(f"Message {number}. {FILLER if number < 6 else ''}")
        await pantheon.run_due_jobs()
    assert await pantheon.one("SELECT kind FROM links") == "summary"
    assert await pantheon.one("SELECT count(*) FROM prune_decisions") == 0
    base = await pantheon.one("SELECT base_turn FROM sessions")
    for number in range(12):
        await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": FILLER * 2}}])
        await pantheon.ask(f"Later message {number}.")
        await pantheon.app.pool.execute("UPDATE sessions SET hold_compaction = true")
    hidden = await pantheon.app.pool.fetch(
        """SELECT e.author, te.turn_no FROM prune_decisions d JOIN entries e USING (session_id, seq)
             JOIN turn_entries te USING (session_id, seq) WHERE d.form = 'hide'"""
    )
    assert hidden
    assert {row["author"] for row in hidden} == {"assistant"}
    assert all(row["turn_no"] > base for row in hidden)


def test_prune_spares_what_the_summary_rests_on_and_the_last_four_turns() -> None:
    made = budget_for(PANTHEON, 8_192, 8_192, 200)
    state = view(exchanges(9, tokens=300), hold_compaction=True)
    seqs = [d.seq for d in plan_hiding(state, PANTHEON, budget=made, context_tokens=90_000)]
    assert seqs == [2, 4, 6, 8, 10]


async def test_overflow_rejection_path(pantheon: Visit, provider: RunningFake) -> None:
    """Corrected: refused only after the ladder has nothing left to make smaller."""
    await provider.script(
        [{"match": {"kind": "chat"}, "times": -1, "action": {"status": 400, "reason": "too_long"}}]
    )
    words_shown = await pantheon.ask("Hello?")
    assert await pantheon.one("SELECT state FROM turns") == "refused"
    assert await pantheon.one("SELECT error_code FROM turns") == "context_budget_exceeded"
    assert dict(STATUS)[ContextBudgetExceeded] == 422
    assert "shorten" in words_shown
    await provider.script([])
    assert await pantheon.ask("And now?"), "a session is never broken"


def test_overflow_names_the_three_largest_and_says_what_to_do() -> None:
    state = view([entry(1, 1, "why? " * 3_000)], open_turn=1)
    layers = replace(default_layers(), agent="be kind " * 9_000)

    with pytest.raises(ContextBudgetExceeded) as refused:
        fit(
            state, hard=5_530, count=words, policy=PANTHEON,
            build=lambda v: build_context(v, policy=PANTHEON, system=layers, count=words),
        )  # fmt: skip
    assert len(refused.value.largest) == 3
    assert refused.value.largest[0][0] == "system"
    assert "shorten" in refused.value.advice


async def test_pinned_context_is_preserved(pantheon: Visit, provider: RunningFake) -> None:
    await pantheon.ask("Never call me Bob, please.")
    pins = PostgresPins(pantheon.app.pool)
    assert await pins.pin(pantheon.session_id, 1, most_tokens=400) == "pinned"
    for number in range(20):
        await pantheon.ask(f"Message {number}. {FILLER}")
        await pantheon.run_due_jobs()
    assert await pantheon.one("SELECT base_turn FROM sessions") > 4
    newest = [record for record in await provider.requests() if record["kind"] == "chat"][-1]
    assert "Never call me Bob, please." in first_words(newest)


def test_the_order_of_assembly_is_system_summary_recent_window_newest_message() -> None:
    head = Compaction(
        id=1, kind="summary", from_turn=1, through_turn=3, through_seq=6, summary_text="They like tea."
    )
    layers = replace(default_layers(), mode="tutor", goal="learn Norwegian")
    state: View = view([*exchanges(2, first=4), entry(11, 6, "and now?")], head=head, open_turn=6)
    made = build_context(select(state, PANTHEON).view, policy=PANTHEON, system=layers, count=words)
    system = made.system[0].text
    assert system.index("never ends") < min(system.index("learn Norwegian"), system.index("tutor"))
    shown = [text_of(message.blocks) for message in made.messages]
    assert shown[0].index("They like tea.") < shown[0].index("question 4")
    assert shown[-1] == "and now?"


def test_unresolved_turns_are_never_dropped() -> None:
    lost = [entry(900, 1, "lost question"), *tool_turn(2, "no", seq=910)[:2]]
    log = [*lost, *exchanges(30, first=3, tokens=400), *tool_turn(40, "no", seq=500, is_error=True)]
    kept = select(view(log), replace(PANTHEON, max_rounds=1)).view.entries
    assert {e.turn for e in kept} == {1, 2, 40}
    assert [b for e in kept for b in e.blocks if isinstance(b, ToolResult) and b.is_error]
