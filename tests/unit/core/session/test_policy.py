"""Presets and their overrides: numbers that contradict each other are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.session.policy import ContradictoryPolicy, check_policy, fit_to_window, with_overrides
from shared.core.session.presets import PRESETS, preset


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_agrees_with_itself(name: str) -> None:
    assert preset(name).name == name
    check_policy(preset(name))


def test_an_unknown_preset_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ContradictoryPolicy, match=r"'stedy'.*spec008, steady"):
        preset("stedy")


def test_spec008_is_what_its_seed_says() -> None:
    policy = preset("spec008")
    assert (policy.context_window, policy.reserve, policy.flush_threshold) == (200_000, 20_000, 4_000)
    assert (policy.keep_turns, policy.soft_budget, policy.compact_before_call) == (5, None, True)
    assert (policy.summariser, policy.summary_falls_back) == ("cheap", False)


@pytest.mark.parametrize("window", [4_000, 9_000, 16_000, 28_000, 200_000])
def test_a_small_window_shrinks_the_margins_by_the_formula(window: int) -> None:
    policy = fit_to_window(preset("steady"), window)
    assert policy.reserve == min(20_000, window - min(8_000, window // 2))
    assert 0 < policy.flush_threshold < window - policy.reserve


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
