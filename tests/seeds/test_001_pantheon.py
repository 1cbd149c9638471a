"""Document 001, Pantheon F23: budgets, triggers, assembly, overflow and audit under the preset `pantheon`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog

from shared.adapters.models import token_counter
from shared.adapters.models.catalog import ModelEntry, build_card
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.config.settings import load_settings
from shared.core.compaction.jobs import next_job
from shared.core.compaction.plan import CompactionPlan, plan_compaction
from shared.core.context.build_context import build_context, select
from shared.core.context.prompts import NOTES_TAG, RECALL_TAG, default_layers, system_text
from shared.core.identity.people import LinkedContacts
from shared.core.overflow.filler_trimming import hiding_threshold, plan_hiding
from shared.core.overflow.overflow_recovery import fit
from shared.core.presets.catalog import preset
from shared.core.session.budget import budget_for, pressure
from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.session.policy import NoRoom
from shared.core.session.session import Compaction, Entry
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import text_of
from shared.core.values.tokens import chars_over_four
from tests.kit.app_driver import Visit, visit, working
from tests.kit.builders import entry, exchange, exchanges, tool_turn, view, words
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.seeds.lines import seed
from tests.seeds.scenes import (
    FILLER,
    House,
    command,
    first_words,
    house_on,
    in_front_of,
    newest,
    requests,
    said,
)

PANTHEON = preset("pantheon")
SMALL = {"preset": "pantheon", "context_window": 12_000, "max_output": 1_000}
REFUSED = [{"match": {"kind": "chat"}, "times": -1, "action": {"status": 400, "reason": "too_long"}}]
BUDGET = budget_for(PANTHEON, 10_240, 128_000, 500)
"""7,168 tokens of input: summaries from 5,018 on, filler left out from 6,452 on."""


@pytest.fixture
async def pantheon(start: House) -> AsyncIterator[Visit]:
    async with start(**SMALL) as guest:
        yield guest


# ---- the budget


@seed("001", 34, 35, 36, 37, 38, 39, 40, 134)
@pytest.mark.parametrize(
    ("limit", "output", "overhead", "budget"),
    [
        (8_192, 1_638, 1_024, 5_530),
        (10_240, 2_048, 1_024, 7_168),
        (32_000, 2_048, 1_600, 28_352),
        (200_000, 2_048, 10_000, 187_952),
    ],
)
def test_the_input_budget_is_what_both_reserves_leave_of_the_models_window(
    limit: int, output: int, overhead: int, budget: int
) -> None:
    made = budget_for(PANTHEON, limit, 128_000, 500)
    assert (made.window, made.out, made.hard) == (limit, output, budget)
    assert made.window - made.out - made.hard == overhead


@seed("001", 41, 42)
@pytest.mark.parametrize(("limit", "leaves"), [(1_279, None), (1_280, None), (1_281, 1)])
def test_a_window_that_leaves_no_input_is_refused(limit: int, leaves: int | None) -> None:
    """1,280 less 256 for the answer and 1,024 beside it is just nothing."""
    if leaves is None:
        with pytest.raises(NoRoom):
            budget_for(PANTHEON, limit, 128_000, 0)
    else:
        assert budget_for(PANTHEON, limit, 128_000, 0).hard == leaves


@seed("001", 45)
def test_unknown_model_has_a_window_of_8192() -> None:
    card = build_card(ModelEntry(name="nobody-knows-it"))
    assert (card.window, card.window_known) == (8_192, False)
    assert budget_for(PANTHEON, card.window, card.max_output, 0).hard == 5_530


@seed("001", 23)
async def test_each_models_own_window_is_what_a_turn_is_held_against(
    start: House, provider: RunningFake
) -> None:
    await provider.set_window("claude-haiku-4-5", 200_000)
    async with start(preset="pantheon") as guest:
        await guest.ask("Hello")
        await guest.app.pool.execute("""UPDATE agents SET config = '{"model": "claude-haiku-4-5"}'""")
        await guest.ask("And now?")
        rows = await guest.app.pool.fetch("SELECT model_context_limit FROM turn_context_audit ORDER BY id")
        assert [row["model_context_limit"] for row in rows] == [1_000_000, 200_000]


@seed("001", 27, 28, 29, 145)
async def test_the_environment_says_how_long_an_answer_may_be(
    start: House, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_MAX_OUTPUT_TOKENS", "777")
    async with start(preset="pantheon") as guest:
        await guest.ask("Hello")
        assert (await newest(provider))["body"]["max_tokens"] == 777


@seed("001", 30)
async def test_answer_has_2048_tokens_by_default(start: House, provider: RunningFake) -> None:
    assert load_settings().max_output is None
    async with start(preset="pantheon") as guest:
        await guest.ask("Hello")
        assert (await newest(provider))["body"]["max_tokens"] == 2_048


# ---- the triggers


@seed("001", 48)
@pytest.mark.parametrize(("tokens", "due"), [(5_017, False), (5_018, True), (5_019, True)])
def test_a_summary_is_due_from_seven_tenths_of_the_budget_on(tokens: int, due: bool) -> None:
    assert (pressure(BUDGET, tokens) == "compact") is due
    state = view(exchanges(7, tokens=350))
    wish = next_job(state, budget=BUDGET, policy=PANTHEON, context_tokens=tokens)
    assert (wish is not None) is due


@seed("001", 50, 134)
@pytest.mark.parametrize(("turns", "due"), [(7, False), (8, True), (9, True)])
def test_a_summary_is_due_after_eight_turns_however_small(turns: int, due: bool) -> None:
    wish = next_job(view(exchanges(turns, tokens=20)), budget=BUDGET, policy=PANTHEON, context_tokens=900)
    assert (wish is not None and wish.trigger == "turns") is due


@seed("001", 49)
@pytest.mark.parametrize(("tokens", "hides"), [(6_451, False), (6_452, True), (6_453, True)])
def test_filler_is_left_out_from_nine_tenths_of_the_budget_on(tokens: int, hides: bool) -> None:
    assert hiding_threshold(PANTHEON, BUDGET) == 6_452
    state = view(exchanges(9, tokens=300), hold_compaction=True)
    assert bool(plan_hiding(state, PANTHEON, budget=BUDGET, context_tokens=tokens)) is hides


@seed("001", 24, 53)
async def test_every_eighth_turn_since_the_last_summary_brings_another(start: House) -> None:
    async with start(preset="pantheon") as guest:
        for number in range(16):
            await guest.ask(f"We decided that shelf {number} is painted in ochre on 14 March. {FILLER}")
            await guest.run_due_jobs()
        assert await guest.one("SELECT array_agg(through_turn ORDER BY id) FROM compactions") == [4, 12]
        assert await guest.one("SELECT array_agg(DISTINCT trigger) FROM compactions") == ["turns"]


@seed("001", 13, 14, 53, 137)
async def test_a_summary_is_triggered_at_the_threshold_and_not_before(pantheon: Visit) -> None:
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
    assert await pantheon.one("SELECT kind FROM compactions") == "summary"
    assert await pantheon.one("SELECT answered_turn - base_turn FROM sessions") <= 4


@seed("001", 54, 95, 114, 138)
async def test_filler_is_left_out_only_after_summarising_has_had_its_turn(
    pantheon: Visit, provider: RunningFake
) -> None:
    """Corrected: what is left out stays left out, so that the provider's cache survives."""
    for number in range(9):
        await pantheon.ask(f"Message {number}. {FILLER if number < 6 else ''}")
        await pantheon.run_due_jobs()
    assert await pantheon.one("SELECT kind FROM compactions") == "summary"
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
    assert await pantheon.one("SELECT count(*) FROM turn_context_audit WHERE prune_triggered") > 0


@seed("001", 8)
async def test_no_request_ever_goes_above_the_budget(pantheon: Visit, provider: RunningFake) -> None:
    while await pantheon.one("SELECT count(*) FROM compactions WHERE active") < 2:
        await pantheon.ask(f"Another message. {FILLER * 3}")
        await pantheon.run_due_jobs()
    over = "SELECT count(*) FROM turn_context_audit WHERE reported_input_tokens > hard_limit"
    assert await pantheon.one(over) == 0
    assert {record["status"] for record in await provider.requests()} == {200}


@seed("001", 26)
async def test_underestimated_size_costs_one_retry_and_no_answer(
    pantheon: Visit, provider: RunningFake
) -> None:
    for number in range(3):
        await pantheon.ask(f"Message {number}. {FILLER}")
    refusal = {"status": 400, "message": "prompt is too long: 12500 tokens > 12000 maximum"}
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": refusal}])
    assert await pantheon.ask("Are you still there?")
    assert [record["status"] for record in await requests(provider)][-2:] == [400, 200]
    assert await pantheon.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 4


@seed("001", 25)
def test_the_same_state_makes_the_same_bytes_and_the_same_plan() -> None:
    state = view(exchanges(12, tokens=400))
    made = [build_context(state, policy=PANTHEON, system=default_layers(), count=words) for _ in range(2)]
    assert repr(made[0]) == repr(made[1])
    plans = [plan_compaction(state, budget=BUDGET, policy=PANTHEON, now_tokens=9_600) for _ in range(2)]
    assert plans[0] == plans[1]


# ---- assembly


def assembled() -> Any:
    head = Compaction(
        id=1, kind="summary", from_turn=1, through_turn=3, through_seq=6, summary_text="They like tea."
    )
    layers = replace(default_layers(), mode="tutor", goal="learn Norwegian")
    state = view([*exchanges(2, first=4), entry(11, 6, "and now?")], head=head, open_turn=6)
    return build_context(select(state, PANTHEON).view, policy=PANTHEON, system=layers, count=words)


@seed("001", 59, 60)
def test_instructions_come_first_then_mode_and_goal() -> None:
    system = assembled().system[0].text
    rules, persona = system.index("never ends"), system.index("You are Evertalk")
    assert rules < persona < system.index("tutor") < system.index("learn Norwegian")


@seed("001", 61, 62, 63, 91)
def test_then_come_the_newest_summary_the_recent_window_and_the_newest_message() -> None:
    """Corrected: the summary stands in the first user message; a system role would give it authority."""
    made = assembled()
    shown = [text_of(message.blocks) for message in made.messages]
    assert "They like tea." not in made.system[0].text
    assert shown[0].index("They like tea.") < shown[0].index("question 4")
    assert shown[-1] == "and now?"
    assert made.messages[0].role == "user"


@seed("001", 12)
async def test_a_request_holds_the_words_of_its_own_session_alone(
    pantheon: Visit, provider: RunningFake
) -> None:
    other = await visit(pantheon.app)
    await other.ask("My safe is behind the painting of the harbour.")
    await pantheon.ask("Where is the safe?")
    assert "painting" not in str((await newest(provider))["body"])


def squeezed() -> Any:
    """Far too much history for a small budget."""
    layers = replace(default_layers(), mode="tutor", goal="learn Norwegian")
    log = [e for t in range(1, 60) for e in exchange(t, f"question {t} " + "why " * 90, "because " * 90)]
    state = view([*log, entry(9_000, 900, "and now, please?")], open_turn=900)
    return layers, fit(
        state, hard=2_000, count=words, policy=PANTHEON,
        build=lambda v: build_context(v, policy=PANTHEON, system=layers, count=words),
    )  # fmt: skip


@seed("001", 66)
def test_layers_of_the_system_prompt_are_never_dropped() -> None:
    layers, made = squeezed()
    assert made.context.system[0].text == system_text(layers)
    assert made.context.estimate <= 2_000


@seed("001", 67)
def test_the_newest_message_is_never_dropped() -> None:
    _, made = squeezed()
    assert text_of(made.context.messages[-1].blocks).endswith("and now, please?")


@seed("001", 68, 69, 70, 71, 72)
@pytest.mark.parametrize(
    ("what", "turn"),
    [
        ("was not completed, so that it has no answer", [entry(900, 1, "lost question")]),
        ("asked a tool and heard no more", tool_turn(1, "fine", seq=900)[:2]),
        ("ended with a tool that failed", tool_turn(1, "broken", seq=900, is_error=True)),
    ],
)
def test_unresolved_turns_are_never_dropped(what: str, turn: list[Entry]) -> None:
    log = [*turn, *exchanges(30, first=3, tokens=10)]
    kept = select(view(log), PANTHEON.with_settings(max_rounds=1)).view.entries
    assert [e.turn for e in kept if e.turn == 1] == [1] * len(turn), what
    assert {e.turn for e in kept} == {1, 32}
    plain = [*exchange(1, "asked", "answered", seq=900), *exchanges(30, first=3, tokens=10)]
    assert {e.turn for e in select(view(plain), PANTHEON.with_settings(max_rounds=1)).view.entries} == {32}
    state = view(log)
    spared = plan_hiding(replace(state, hold_compaction=True), PANTHEON, budget=BUDGET, context_tokens=90_000)
    assert not {d.seq for d in spared} & {e.seq for e in turn}


# ---- summaries


@seed("001", 76, 98)
@pytest.mark.parametrize(("keeps", "through"), [(4, 16), (6, 14)])
def test_the_last_turns_stay_raw_four_unless_an_agent_wants_others(keeps: int, through: int) -> None:
    policy = PANTHEON.with_settings(keep_turns=keeps)
    made = plan_compaction(
        view(exchanges(20, tokens=95)), budget=budget_for(policy, 8_192, 8_192, 200), policy=policy,
        now_tokens=3_900,
    )  # fmt: skip
    assert isinstance(made, CompactionPlan)
    assert made.through_turn == through


@seed("001", 79, 80, 81, 82, 83, 86, 87, 90, 146)
async def test_a_summary_is_stored_with_its_five_fields_and_its_range(
    pantheon: Visit, provider: RunningFake
) -> None:
    """Corrected: `session_summaries` is a view; its rows are `compactions`, which hold each kind."""
    for number in range(9):
        await pantheon.ask(f"We decided that shelf {number} is painted in ochre on 14 March. {FILLER}")
        await pantheon.run_due_jobs()
    contract = await pantheon.one("SELECT contract FROM compactions WHERE active ORDER BY id DESC LIMIT 1")
    assert contract["summary_text"]
    assert {name for name in contract if isinstance(contract[name], list)} >= {
        "key_facts", "open_questions", "decisions", "action_items",
    }  # fmt: skip
    assert "ochre" in str(contract["decisions"] + contract["key_facts"])
    row = await pantheon.app.pool.fetchrow(
        """SELECT id, session_id, from_message_id, to_message_id, summary_text, created_at
             FROM session_summaries ORDER BY id DESC LIMIT 1"""
    )
    assert row is not None
    base = await pantheon.one("SELECT base_turn FROM sessions")
    newest_hidden = await pantheon.one("SELECT max(seq) FROM turn_entries WHERE turn_no <= $1", base)
    assert (row["from_message_id"], row["to_message_id"]) == (1, newest_hidden)
    await pantheon.ask("Which shelves?")
    shown = (await newest(provider))["body"]["messages"]
    assert len(shown) == 2 * (9 - base) + 1, "what is hidden is not sent"


# ---- pruning


def hidden_in(log: list[Entry], **more: Any) -> list[int]:
    state = view([*log, entry(9_000, 900, "now")], open_turn=900, hold_compaction=True, **more)
    return [d.seq for d in plan_hiding(state, PANTHEON, budget=BUDGET, context_tokens=90_000)]


@seed("001", 95)
def test_the_oldest_filler_of_assistant_and_tools_goes_first() -> None:
    log = [
        *exchange(1, "q", "It is in /srv/data/report-2026.pdf, code PX-4471.", seq=10, tokens=300),
        *exchange(2, "q", "I see, how nice.", seq=20, tokens=300),
        *tool_turn(3, "so much", seq=30),
        *exchanges(8, first=100, tokens=300),
    ]
    gone = hidden_in(log)
    assert gone[0] == 21, "nothing exact is said there"
    assert {31, 32} <= set(gone)
    assert gone.index(11) > gone.index(32), "what names something exact goes last"
    assert not {10, 20, 30} & set(gone), "people's words stay"


@seed("001", 96, 97)
@pytest.mark.parametrize("kind", ["fact", "decision", "question"])
def test_what_the_newest_summary_rests_on_is_kept(kind: Any) -> None:
    item = LedgerItem(id="x1", kind=kind, text="Tea it is.", sources=(4,))
    head = Compaction(
        id=1, kind="summary", from_turn=0, through_turn=0, summary_text="s", ledger=Ledger(items=(item,))
    )
    log = exchanges(9, tokens=300)
    assert 4 in hidden_in(log)
    assert 4 not in hidden_in(log, head=head)


@seed("001", 98)
def test_the_last_four_turns_keep_their_filler() -> None:
    assert hidden_in(exchanges(9, tokens=300)) == [2, 4, 6, 8, 10]


@seed("001", 140)
async def test_what_is_pinned_survives_every_summary(pantheon: Visit, provider: RunningFake) -> None:
    await pantheon.ask("Never call me Bob, please.")
    pins = PostgresPins(pantheon.app.pool)
    assert await pins.pin(pantheon.session_id, 1, most_tokens=400) == "pinned"
    while await pantheon.one("SELECT count(*) FROM compactions WHERE active") < 2:
        await pantheon.ask(f"Another message. {FILLER * 3}")
        await pantheon.run_due_jobs()
    shown = first_words(await newest(provider))
    assert re.search(r"\[#1\] person \(\d{4}-\d\d-\d\d\): Never call me Bob, please\.", shown)


# ---- failures


@seed("001", 101, 102)
async def test_digest_keeps_pins_and_anchors_when_no_summary_comes(
    pantheon: Visit, provider: RunningFake
) -> None:
    await pantheon.ask("Never call me Bob, please.")
    assert await PostgresPins(pantheon.app.pool).pin(pantheon.session_id, 1, most_tokens=400) == "pinned"
    for number in range(9):
        await pantheon.ask(f"The invoice of piano {number} is PX-{number}471. {FILLER}")
    await provider.script([{"match": {"kind": "summary"}, "times": -1, "action": {"prose": True}}])
    with structlog.testing.capture_logs() as told:
        await command(pantheon, "compact", "--force")
    warned = [event for event in told if event["event"] == "summary_fell_back_to_digest"]
    assert [event["log_level"] for event in warned] == ["warning"]
    assert await pantheon.one("SELECT kind FROM compactions WHERE active") == "digest"
    await pantheon.ask("And now?")
    sent = first_words(await newest(provider))
    assert "PX-0471" in sent
    assert "Never call me Bob, please." in sent


@seed("001", 103, 104, 135)
@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 2), ("a" * 100, 32), ("日本" * 50, 32)]
)
def test_last_estimator_counts_a_quarter_of_characters_plus_a_quarter(
    text: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(_: str) -> int:
        raise MemoryError

    monkeypatch.setattr(token_counter, "estimate_by_script", exhausted)
    broken = VocabularyCounter(Path("/nowhere/vocabulary.xz"))
    assert broken.count_tokens(text) == chars_over_four(text) == tokens
    assert broken.problem


@seed("001", 15, 55, 105, 106, 107, 139)
async def test_what_fits_nowhere_is_refused_with_422_and_advice(start: House, provider: RunningFake) -> None:
    """Corrected: refused only after the ladder has nothing left to make smaller."""
    async with start(**SMALL) as guest, in_front_of(guest) as front:
        await provider.script(REFUSED)
        path = f"/sessions/{front.session}/messages?wait=60"
        status, told = await front.call("POST", path, json={"text": "Hello?"})
        assert (status, told["code"]) == (422, "context_budget_exceeded")
        advice = told["details"]["advice"]
        assert "shorten" in advice
        assert "/new" in advice
        assert len(await requests(provider)) == 4, "tried smaller before"
        await provider.script([])
        status, told = await front.call("POST", path, json={"text": "And now?"})
        assert status == 200, "a session is never broken"
        rejected = "SELECT array_agg(overflow_rejected ORDER BY id) FROM turn_context_audit"
        assert await guest.one(rejected) == [True, False]


@seed("001", 107)
def test_a_refusal_names_the_three_largest_parts() -> None:
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


# ---- audit and metrics


@pytest.fixture(scope="module")
async def audited(
    module_database_url: str, module_redis_url: str, provider: RunningFake
) -> AsyncIterator[dict[str, Any]]:
    """The newest audit row of a turn whose call waited for a summary, the row before it, and the metrics."""
    await provider.reset()
    house = house_on(module_database_url, module_redis_url, provider)
    async with house(**SMALL) as outer, in_front_of(outer) as front:
        guest = front.guest
        for number in range(7):
            await front.ask(f"Message {number}. {FILLER}{FILLER[:600]}")
        async with working(guest):
            await front.ask(f"And so much more at once. {FILLER * 5}")
        await provider.script(REFUSED)
        await front.ask("Too much?")
        await provider.script([])
        rows = await guest.app.pool.fetch("SELECT * FROM turn_context_audit ORDER BY id")
        async with front.http.get(f"{front.url}/metrics?names=deprecated") as answer:
            lines = [line for line in (await answer.text()).splitlines() if not line.startswith("#")]
        yield {"rows": [dict(row) for row in rows], "metrics": dict(line.rsplit(" ", 1) for line in lines)}


@seed("001", 111, 112, 113, 114, 115, 118, 119, 120, 121, 122, 123, 124, 125, 147)
@pytest.mark.parametrize(
    "column",
    [
        "id", "turn_id", "session_id", "model_alias", "model_context_limit", "input_budget",
        "estimated_input_tokens_before", "estimated_input_tokens_after_summary",
        "estimated_input_tokens_after_prune", "created_at",
    ],
)  # fmt: skip
def test_every_turn_leaves_a_row_of_its_sizes(audited: dict[str, Any], column: str) -> None:
    assert all(row[column] for row in audited["rows"])
    assert [row["turn_id"] for row in audited["rows"]] == list(range(1, len(audited["rows"]) + 1))


@seed("001", 113, 114, 121, 122, 123, 124)
def test_the_row_tells_what_was_done_to_make_a_turn_fit(audited: dict[str, Any]) -> None:
    *plain, summarised, _ = audited["rows"]
    assert not any(row["summary_triggered"] or row["overflow_rejected"] for row in plain)
    assert summarised["summary_triggered"]
    assert summarised["estimated_input_tokens_after_summary"] < summarised["estimated_input_tokens_before"]
    after_prune = summarised["estimated_input_tokens_after_prune"]
    assert after_prune == summarised["estimated_input_tokens_after_summary"]
    assert after_prune == pytest.approx(summarised["reported_input_tokens"], rel=0.1)
    assert summarised["input_budget"] < summarised["model_context_limit"]


@seed("001", 115, 124)
def test_the_row_tells_of_a_refusal(audited: dict[str, Any]) -> None:
    assert [row["overflow_rejected"] for row in audited["rows"]].count(True) == 1
    assert audited["rows"][-1]["overflow_rejected"]


@seed("001", 128, 129, 130)
@pytest.mark.parametrize(
    ("name", "count"),
    [("context_summary_count", 1), ("context_prune_count", 0), ("context_overflow_reject_count", 1)],
)
def test_summaries_prunings_and_refusals_are_counted(audited: dict[str, Any], name: str, count: int) -> None:
    assert float(audited["metrics"][name]) == count


@seed("001", 131)
def test_the_mean_prompt_of_a_turn_is_a_metric(audited: dict[str, Any]) -> None:
    rows = audited["rows"]
    sizes = [row["reported_input_tokens"] or row["estimated_input_tokens_after_prune"] for row in rows]
    told = float(audited["metrics"]["avg_prompt_tokens_per_turn"])
    assert told == pytest.approx(sum(sizes) / len(sizes), rel=0.05)


# ---- out of scope there


@seed("001", 18)
async def test_hidden_words_come_back_when_a_question_asks_for_them(
    start: House, provider: RunningFake
) -> None:
    """Corrected: retrieval is in scope here."""
    async with start(context_window=9_000, max_output=1_000) as guest:
        await guest.ask("The invoice number of the piano is PX-4471.")
        for number in range(9):
            await guest.ask(f"Message {number}. {FILLER}")
            await guest.run_due_jobs()
        assert await guest.one("SELECT base_turn FROM sessions") > 1
        await guest.ask("What is the invoice number of the piano?")
        *_, last = (await newest(provider))["body"]["messages"][-1]["content"]
        assert last["text"].startswith(f"<{RECALL_TAG}>")
        assert "#1 person: The invoice number of the piano is PX-4471." in last["text"]


@seed("001", 19)
async def test_what_was_noted_in_one_session_is_known_in_the_next(
    start: House, provider: RunningFake
) -> None:
    """Corrected: memory belongs to the person here, whatever session it comes from."""
    async with start() as guest:
        places, people = PostgresTelegramChats(guest.app.pool), PostgresAccountLinks(guest.app.pool)
        await places.enrol(
            7_000, username="bot", agent="default", audience="personal", access="pairing", mode="polling"
        )
        place = await places.open(7_000, chat_id=42, thread_id=0, kind="person", title="Ada")
        phone = Visit(app=guest.app, session_id=place.session_id, address_id=place.address_id)
        await phone.ask("Please remember that my dog is called Bertil.")
        code = await people.issue_code(guest.session_id, guest.address_id)
        assert isinstance(await people.link_account(place.session_id, place.address_id, code), LinkedContacts)
        kept = await guest.one("SELECT session_id FROM addresses WHERE id = $1", guest.address_id)
        assert await guest.one("SELECT count(DISTINCT session_id) FROM addresses") == 1
        page = Visit(app=guest.app, session_id=kept, address_id=guest.address_id)
        await page.ask("Hello")
        known = re.findall(rf"<{NOTES_TAG}>(.*?)</{NOTES_TAG}>", said(await newest(provider)))
        assert "Bertil" in str(known)


@seed("001", 20)
async def test_the_providers_cache_holds_from_turn_to_turn(start: House, provider: RunningFake) -> None:
    """Corrected: in scope here, it is most of the bill."""
    async with start(preset="pantheon") as guest:
        for number in range(4):
            await guest.ask(f"Message {number}. {FILLER}")
        read = await guest.one("SELECT array_agg(cache_read_tokens ORDER BY id) FROM usage")
        assert read[0] == 0
        assert read[1] > 0
        assert read[1] < read[2] < read[3]
        assert "cache_control" in said(await newest(provider))


@seed("001", 146, 147)
async def test_a_migrated_database_has_the_views_of_summaries_and_audits(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        for name in ("session_summaries", "turn_context_audit"):
            assert await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", name), name
    finally:
        await connection.close()
