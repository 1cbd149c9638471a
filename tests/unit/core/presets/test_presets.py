"""Every row of the table of presets, at equal, one below and one above each boundary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.core.compaction.jobs import find_reached_mark, next_job, turns_since_summary
from shared.core.compaction.plan import CompactionPlan, plan_compaction
from shared.core.context.build_context import select
from shared.core.overflow.filler_trimming import hiding_threshold
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.budget import ContextBudget, Pressure, Status, budget_for, gauge, pressure
from shared.core.session.session import Compaction, View
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import Text
from shared.core.values.tokens import reply_tokens
from tests.kit.builders import entry, exchanges, view

ROOT = Path(__file__).resolve().parents[4]


def budget(name: str, window: int, *, fixed: int = 1_000, output: int = 64_000) -> ContextBudget:
    return budget_for(preset(name), window, output, fixed)


def plan(name: str, window: int, state: View, now: int) -> CompactionPlan:
    made = plan_compaction(state, budget=budget(name, window), policy=preset(name), now_tokens=now)
    assert isinstance(made, CompactionPlan), made
    return made


# The model's window, and the largest context that is not due yet.
TRIGGERS = [
    ("steady", 1_000_000, 17_000),
    ("spec008", 1_000_000, 180_000),
    ("pantheon", 200_000, 131_566),
    ("pantheon", 8_192, 3_870),
    ("lobechat", 1_000_000, 64_000),
    ("opencode", 200_000, 190_000),
    ("opencode", 1_000_000, 950_000),
    ("claude-code", 200_000, 150_000),
    ("langmem", 200_000, 3_000),
    ("arawn", 200_000, 179_999),
    ("arawn", 1_000_000, 899_999),
    ("openclaw", 1_000_000, 960_000),
    ("goclaw", 1_000_000, 960_000),
]


@pytest.mark.parametrize(("name", "window", "most"), TRIGGERS)
def test_a_compaction_is_due_just_above_the_last_size_that_is_not(name: str, window: int, most: int) -> None:
    made = budget(name, window)
    assert made.compact_at == most
    assert pressure(made, most - 1) in ("calm", "flush")
    assert pressure(made, most) in ("calm", "flush")
    assert pressure(made, most + 1) in ("compact", "overflow")


def test_every_compacting_preset_has_a_boundary_test() -> None:
    assert {name for name, _, _ in TRIGGERS} == {name for name in PRESETS if preset(name).timing.compact_auto}


@pytest.mark.parametrize("name", ["openclaw", "goclaw"])
def test_ninety_six_percent_of_200k_leaves_an_8000_answer(name: str) -> None:
    made = budget(name, 200_000)
    assert (made.compact_at, made.window - made.out) == (192_000, 192_000)
    assert pressure(made, 192_001) == "compact"


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("window", [8_192, 32_000, 128_000, 200_000, 1_000_000])
def test_no_preset_leaves_a_window_without_room(name: str, window: int) -> None:
    made = budget(name, window)
    assert (
        0 < made.compact_at <= made.limit <= made.hard < made.hard + made.out_least <= made.window <= window
    )
    assert made.out_least <= made.out == made.answer_beside(0)


@pytest.mark.parametrize("name", ["spec008", "opencode", "arawn", "openclaw", "goclaw"])
@pytest.mark.parametrize("window", [8_192, 24_000, 32_000, 128_000, 200_000, 1_000_000])
def test_message_has_room_above_a_limit_just_below_hard(name: str, window: int) -> None:
    made = budget(name, window)
    share = 0.03 if preset(name).timing.compact_share else 0.1
    assert made.hard - made.limit >= min(4_000, int(share * made.hard)) - 1
    for tokens in (made.limit, made.limit + 1, made.hard):
        assert tokens + made.answer_beside(tokens) <= made.window
    least = min(2_048, int(0.03 * window)) if preset(name).timing.compact_share else 2_048
    assert made.answer_beside(made.hard) == min(least, made.out)


# ---- steady and spec008


@pytest.mark.parametrize(
    ("tokens", "expected"), [(15_300, "calm"), (15_301, "flush"), (17_000, "flush"), (17_001, "compact")]
)
def test_steady_flushes_a_tenth_before_its_soft_budget(tokens: int, expected: Pressure) -> None:
    assert pressure(budget("steady", 200_000), tokens) == expected


def test_steady_lands_at_six_tenths_and_keeps_five_short_turns() -> None:
    steady = preset("steady")
    assert (steady.keeping.land_at, steady.keeping.keep_turns, steady.keeping.keep_turns_least) == (0.6, 5, 1)
    assert (steady.keeping.tail_share, steady.keeping.tail_least) == (0.1, 400)
    assert (steady.keeping.tail_share_most, steady.keeping.tail_room) == (0.15, 2_000)
    made = plan("steady", 200_000, view(exchanges(40, tokens=230)), 18_000)
    assert made.expected_after - 1_000 <= 0.6 * 16_000
    assert made.through_turn <= 35


@pytest.mark.parametrize(
    ("tokens", "expected"), [(176_000, "calm"), (176_001, "flush"), (180_000, "flush"), (180_001, "compact")]
)
def test_spec008_counts_from_the_window_less_20000_and_4000(tokens: int, expected: Pressure) -> None:
    assert pressure(budget("spec008", 200_000), tokens) == expected


# ---- pantheon


@pytest.mark.parametrize(
    ("limit", "output", "overhead", "left"),
    [(8_192, 1_638, 1_024, 5_530), (10_240, 2_048, 1_024, 7_168), (200_000, 2_048, 10_000, 187_952)],
)
def test_pantheons_input_budget_is_the_limit_less_both_reserves(
    limit: int, output: int, overhead: int, left: int
) -> None:
    made = budget("pantheon", limit)
    assert (made.out, limit - made.out - made.hard, made.hard) == (output, overhead, left)


@pytest.mark.parametrize(("tokens", "expected"), [(3_870, "calm"), (3_871, "compact"), (3_872, "compact")])
def test_pantheon_summarises_at_seven_tenths_and_equal_counts(tokens: int, expected: Pressure) -> None:
    assert pressure(budget("pantheon", 8_192), tokens) == expected, "0.70 × 5,530 = 3,871"


@pytest.mark.parametrize(("turns", "due"), [(7, False), (8, True), (9, True)])
def test_pantheon_summarises_after_eight_turns_however_small_they_are(turns: int, due: bool) -> None:
    state = view(exchanges(turns, tokens=50))
    wish = next_job(
        state, budget=budget("pantheon", 200_000), policy=preset("pantheon"), context_tokens=2_000
    )
    assert (wish is not None and (wish.kind, wish.trigger) == ("compact", "turns")) is due


@pytest.mark.parametrize(("newest", "due"), [(15, False), (16, True), (17, True)])
def test_eight_turns_count_from_the_newest_summary(newest: int, due: bool) -> None:
    head = Compaction(id=1, kind="summary", from_turn=1, through_turn=4, tokens=300, summary_text="tea")
    state = view(exchanges(newest - 4, first=5, tokens=50), head=head, cycle=1, flushed_turn=4)
    pantheon = preset("pantheon")
    assert turns_since_summary(state, pantheon) == newest - 8
    wish = next_job(state, budget=budget("pantheon", 200_000), policy=pantheon, context_tokens=2_000)
    assert (wish is not None) is due


def test_turns_count_from_zero_after_undo_or_separator() -> None:
    pantheon = preset("pantheon")
    separator = Compaction(id=2, kind="separator", from_turn=1, through_turn=8)
    assert turns_since_summary(view(exchanges(7, first=9), head=separator), pantheon) == 7
    held = view(exchanges(12, tokens=50), hold_compaction=True)
    wish = next_job(held, budget=budget("pantheon", 200_000), policy=pantheon, context_tokens=2_000)
    assert wish is None


def test_pantheon_keeps_four_turns_raw_and_hides_chatter_at_nine_tenths() -> None:
    made = plan("pantheon", 8_192, view(exchanges(20, tokens=95)), 3_900)
    assert made.through_turn == 16
    assert hiding_threshold(preset("pantheon"), budget("pantheon", 8_192)) == 4_977


# ---- lobechat


@pytest.mark.parametrize(("tokens", "expected"), [(63_999, "calm"), (64_000, "calm"), (64_001, "compact")])
def test_lobechat_compresses_above_half_of_128000(tokens: int, expected: Pressure) -> None:
    assert pressure(budget("lobechat", 1_000_000), tokens) == expected


def test_lobechat_counts_answers_as_the_provider_did_and_all_else_by_estimate() -> None:
    lobechat = preset("lobechat")
    said = (Text(text="hello"),)
    exact = reply_tokens(said, exact=lobechat.exact_outputs, reported=330, ratio=1.1, estimate=10)
    assert round(exact * 1.1) == 330
    assert reply_tokens(said, exact=lobechat.exact_outputs, reported=None, ratio=1.1, estimate=10) == 10
    assert [name for name in PRESETS if preset(name).exact_outputs] == ["lobechat"]


# ---- chatbox


@pytest.mark.parametrize(("turns", "sent"), [(2, 5), (3, 5), (30, 5)])
def test_chatbox_sends_the_last_six_messages_from_a_person_on(turns: int, sent: int) -> None:
    asked = [*exchanges(turns), entry(999, turns + 1, "now")]
    assert len(select(view(asked, open_turn=turns + 1), preset("chatbox")).view.entries) == sent


def test_chatbox_sends_six_when_they_begin_with_a_person() -> None:
    assert len(select(view(exchanges(30)), preset("chatbox")).view.entries) == 6


def test_chatbox_never_summarises_at_any_size() -> None:
    state = view(exchanges(40, tokens=5_000), flushed_turn=40)
    made = budget("chatbox", 200_000)
    for tokens in (made.limit + 1, made.hard + 1):
        assert next_job(state, budget=made, policy=preset("chatbox"), context_tokens=tokens) is None


def test_chatbox_archives_everything_that_has_ended_on_command() -> None:
    assert plan("chatbox", 200_000, view(exchanges(10, tokens=900)), 60_000).through_turn == 10


# ---- opencode, claude-code


@pytest.mark.parametrize(
    ("name", "share", "window"),
    [
        ("opencode", 0.95, 200_000),
        ("claude-code", 0.75, 200_000),
        ("arawn", 0.9, 200_000),
        ("openclaw", 0.96, 200_000),
    ],
)
def test_the_limit_is_the_sources_own_share_of_the_models_window(
    name: str, share: float, window: int
) -> None:
    assert budget(name, window).limit == round(share * window)


def test_opencode_protects_40000_tokens_of_results_and_clears_only_above_20000() -> None:
    one = preset("opencode")
    pruning = one.pruning
    assert (pruning.prune_rule, pruning.prune_protect_tokens) == ("protect", 40_000)
    assert (pruning.prune_batch, pruning.prune_batch_over) == (20_000, True)
    assert pruning.prune_cleared == "[output too long, was trimmed]"
    assert one.writing.summary_form == "handover"


def test_claude_code_clears_results_first() -> None:
    assert preset("claude-code").pruning.prune_first


# ---- langmem


@pytest.mark.parametrize(("tokens", "expected"), [(2_999, "calm"), (3_000, "calm"), (3_001, "compact")])
def test_langmem_starts_its_running_summary_above_2000_of_conversation(
    tokens: int, expected: Pressure
) -> None:
    assert pressure(budget("langmem", 200_000, fixed=1_000), tokens) == expected


def test_langmem_lands_at_384_with_a_summary_of_128() -> None:
    one = preset("langmem")
    assert round(one.keeping.land_at * 2_000) == 384
    assert (
        one.writing.summary_least,
        one.writing.summary_most,
        one.writing.summary_form,
        one.keeping.keep_turns,
    ) == (128, 128, "running", 1)


@pytest.mark.parametrize(("tokens", "first"), [(400, 1), (401, 3)])
def test_langmem_trims_to_4000_whole_messages_from_the_last(tokens: int, first: int) -> None:
    state = view(exchanges(5, tokens=tokens))
    assert select(state, preset("langmem")).view.entries[0].seq == first, "ten messages of 400 are 4,000"


# ---- arawn


@pytest.mark.parametrize(
    ("used", "status"),
    [
        (139_999, "ok"),
        (140_000, "warning"),
        (179_999, "warning"),
        (180_000, "critical"),
        (180_001, "critical"),
    ],
)
def test_arawns_gauge_is_of_the_models_window(used: int, status: Status) -> None:
    shown = gauge(budget("arawn", 200_000), used)
    assert (shown.status, shown.limit) == (status, 200_000)


@pytest.mark.parametrize("window", [8_192, 16_000, 32_000, 64_000])
def test_arawn_turns_red_before_it_compacts_on_small_windows(window: int) -> None:
    made = budget("arawn", window)
    red = next(used for used in range(window) if gauge(made, used).status == "critical")
    due = next(used for used in range(window) if pressure(made, used) in ("compact", "overflow"))
    assert red < due
    assert 0.88 * window <= due <= 0.9 * window
    assert gauge(made, due).limit == window


@pytest.mark.parametrize("window", [8_192, 16_000, 32_000, 200_000])
def test_goclaws_third_flush_comes_before_its_summary(window: int) -> None:
    made, policy = budget("goclaw", window), preset("goclaw")
    third = -(-9 * window // 10)
    assert pressure(made, third) in ("calm", "flush")
    found = [find_reached_mark(made, policy, third + step) for step in (-1, 0, 1)]
    assert found == ["at_75", "at_90", "at_90"]


def test_arawn_compacts_at_critical_and_keeps_three_turns() -> None:
    assert pressure(budget("arawn", 200_000), 180_000) == "compact"
    made = plan("arawn", 200_000, view(exchanges(40, tokens=2_250)), 180_000)
    assert made.through_turn == 37
    assert preset("arawn").writing.summariser == "own"


# ---- openclaw, goclaw


def test_openclaw_sends_everything_since_the_last_summary() -> None:
    state = view(exchanges(400, tokens=200))
    assert select(state, preset("openclaw"), channel="telegram").view is state


def test_openclaw_limits_turns_by_channel_when_configured() -> None:
    limited = preset("openclaw").with_settings(history_turns=(("telegram", 50),))
    state = view([*exchanges(80), entry(999, 81, "now")], open_turn=81)
    assert len(select(state, limited, channel="telegram").view.entries) == 101
    assert select(state, limited, channel="web").view is state


def test_openclaws_history_is_at_most_half_the_window_afterwards() -> None:
    made = plan("openclaw", 200_000, view(exchanges(96, tokens=1_000)), 193_000)
    assert made.expected_after - 1_000 <= 0.5 * 192_000
    assert (preset("openclaw").writing.summary_merged, preset("openclaw").writing.summary_margin) == (
        True,
        1.2,
    )


def test_goclaw_is_openclaw_with_flushes_checkpoints_and_a_cheap_summariser() -> None:
    one, other = preset("goclaw"), preset("openclaw")
    differs = dict(one.to_settings().items() - other.to_settings().items())
    assert set(differs) == {"flush_shares", "checkpoints", "summariser"}
    assert one.timing.flush_shares == (0.5, 0.75, 0.9)
    assert (one.writing.summariser, one.writing.summary_falls_back) == ("cheap", True)


# ---- max_rounds with any preset


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize(("rounds", "messages"), [(1, 1), (2, 3), (3, 5)])
def test_max_rounds_combine_with_every_preset(name: str, rounds: int, messages: int) -> None:
    limited = preset(name).with_settings(max_rounds=rounds)
    state = view([*exchanges(30), entry(999, 31, "now")], open_turn=31)
    kept = select(state, limited).view.entries
    assert len(kept) == messages <= 2 * rounds


def test_what_fits_nowhere_is_refused_with_advice() -> None:
    error = ContextBudgetExceeded(
        hard=5_530, largest=[("message m1", 9_000), ("tools", 1_000), ("system", 300)]
    )
    assert error.code == "context_budget_exceeded"
    assert "message m1 (9,000 tokens)" in error.advice


def test_table_of_presets_says_what_each_recalls() -> None:
    text = (ROOT / "docs" / "context.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.+\| ([\d,]+ tokens|none) \|$", text, re.MULTILINE)
    recalled = {name: policy.keeping.recall_tokens for name, policy in PRESETS.items()}
    assert dict(rows) == {name: f"{most:,} tokens" if most else "none" for name, most in recalled.items()}
    assert all(most >= 400 for most in recalled.values() if most)
