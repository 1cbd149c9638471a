"""Presets and their overrides: numbers that contradict each other are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.policy import (
    SETTING_KINDS,
    ContextPolicy,
    ContradictoryPolicy,
    check_policy,
    fit_to_window,
    with_overrides,
)

STEADY = preset("steady")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_agrees_with_itself(name: str) -> None:
    assert preset(name).name == name
    check_policy(preset(name))


def test_an_unknown_preset_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ContradictoryPolicy, match=r"'stedy'.*spec008, steady"):
        preset("stedy")


def test_spec008_is_what_its_seed_says() -> None:
    policy = preset("spec008")
    assert (policy.context_window, policy.reserve, policy.timing.flush_threshold) == (200_000, 20_000, 4_000)
    assert (policy.keeping.keep_turns, policy.soft_budget, policy.timing.compact_before_call) == (
        5,
        None,
        True,
    )
    assert (policy.writing.summariser, policy.writing.summary_falls_back) == ("cheap", False)


@pytest.mark.parametrize("window", [4_000, 9_000, 16_000, 28_000, 200_000])
def test_a_small_window_shrinks_the_margins_by_the_formula(window: int) -> None:
    policy = fit_to_window(preset("steady"), window)
    assert policy.reserve == min(20_000, window - min(8_000, window // 2))
    assert 0 < policy.timing.flush_threshold < window - policy.reserve


def test_overrides_that_are_none_change_nothing() -> None:
    steady = preset("steady")
    assert with_overrides(steady, soft_budget=None, reserve=None) == steady
    assert with_overrides(steady, soft_budget=60_000).soft_budget == 60_000


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"reserve": 200_000}, "reserve=200000.*context_window=200000"),
        ({"reserve": -1}, "reserve=-1"),
        ({"context_window": 0}, "context_window=0"),
        ({"soft_budget": 0}, "soft_budget=0"),
        ({"soft_budget": 3_000}, "flush_threshold=4000.*soft_budget=3000"),
        ({"flush_threshold": 190_000, "soft_budget": 195_000}, "flush_threshold=190000.*180000"),
        ({"flush_threshold": -1}, "flush_threshold=-1"),
        ({"answer_least": 0}, "answer_least=0"),
        ({"keep_turns": 0}, "keep_turns=0"),
        ({"land_at": 1.0}, "land_at=1.0"),
        ({"warning_at": 0.95}, "warning_at=0.95.*critical_at=0.9"),
        ({"max_output_share": 0.0}, "max_output_share=0.0"),
        ({"gain_at_most": 0.0}, "gain_at_most=0.0"),
        ({"gain_at_most": 1.0}, "gain_at_most=1.0"),
        ({"overhead": -50_000}, "overhead=-50000"),
        ({"tail_share_most": 5.0}, "tail_share_most=5.0"),
        ({"prune_head_chars": -5_000}, "prune_head_chars=-5000"),
        ({"keep_turns_least": -3}, "keep_turns_least=-3"),
        ({"prune_over_chars": 2_000}, "4000 characters.*prune_over_chars=2000"),
        ({"prune_clear_after_assistants": 1}, "prune_clear_after_assistants=1"),
    ],
)
def test_contradictions_are_refused_with_their_numbers(overrides: dict[str, Any], named: str) -> None:
    with pytest.raises(ContradictoryPolicy, match=named) as refused:
        with_overrides(preset("steady"), **overrides)
    assert "contradict" in refused.value.advice


SETTINGS = """
    answer_least checkpoints compact_above compact_after_turns compact_ahead compact_at
    compact_at_equal compact_auto compact_before_call compact_share compact_share_of context_window
    critical_at exact_outputs fixed_share flush_cooldown_seconds flush_share flush_share_below
    flush_shares flush_threshold flush_with_summary gain_at_most hide_chatter_at history_turns
    idle_compaction idle_over keep_turns keep_turns_least land_at max_output max_output_share
    max_rounds overhead overhead_share picture_turns pins_share prune_batch prune_batch_over
    prune_clear_after_assistants prune_clear_over_chars prune_cleared prune_duplicate
    prune_duplicates prune_error_tail_chars prune_first prune_head_chars prune_keep_last_assistants
    prune_mark prune_over_chars prune_protect_tokens prune_rule prune_tail_chars prune_when_cold
    recall_tokens reserve reserve_leaves reserve_leaves_share soft_budget spill_over status_of
    summariser summary_falls_back summary_form summary_least summary_margin summary_merged
    summary_most tail_least tail_most tail_room tail_share tail_share_most trim_from trim_tokens
    warning_at window_messages
"""
"""Names that stored agents and settings use."""


def test_settings_of_policy_keep_their_stored_names() -> None:
    assert sorted(STEADY.to_settings()) == sorted(SETTING_KINDS) == SETTINGS.split()


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_policy_read_from_its_settings_equals_itself(name: str) -> None:
    read = ContextPolicy(name=name).with_settings(**preset(name).to_settings())
    assert read == preset(name)


def test_settings_are_changed_in_whichever_strategy_holds_them() -> None:
    changed = STEADY.with_settings(max_output=100, prune_over_chars=9_000, prune_first=True)
    settings = {**STEADY.to_settings(), "max_output": 100, "prune_over_chars": 9_000, "prune_first": True}
    assert changed.to_settings() == settings


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError):
        STEADY.with_settings(prune_everything=True)
