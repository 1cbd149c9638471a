"""The budget formula, its boundaries and the gauge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.budget import (
    LEAST_ROOM,
    Pressure,
    Status,
    budget_for,
    gauge,
    pressure,
    refuse_heavy_fixed,
    refuse_limit_out_of_range,
)
from shared.core.session.policy import ContradictoryPolicy, with_overrides
from tests.kit.builders import budget


def test_a_window_of_16k_has_the_numbers_of_the_design() -> None:
    made = budget(window=16_000, fixed=1_000)
    assert (made.reserve, made.limit, made.hard, made.out) == (8_000, 8_000, 11_776, 3_200)


def test_steady_counts_its_soft_budget_on_top_of_the_fixed_parts() -> None:
    made = budget(window=1_000_000, fixed=5_000)
    assert (made.window, made.limit, made.compact_at, made.flush_at) == (200_000, 21_000, 21_000, 18_900)
    assert made.conversation == 16_000


def test_spec008_compacts_above_180k_and_flushes_above_176k() -> None:
    made = budget(window=1_000_000, fixed=5_000, policy="spec008")
    assert (made.compact_at, made.flush_at) == (180_000, 176_000)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (175_999, "calm"),
        (176_000, "calm"),
        (176_001, "flush"),
        (180_000, "flush"),
        (180_001, "compact"),
        (187_952, "compact"),
        (187_953, "overflow"),
    ],
)
def test_every_boundary_is_a_greater_than(tokens: int, expected: Pressure) -> None:
    assert pressure(budget(window=200_000, policy="spec008"), tokens) == expected


@pytest.mark.parametrize(
    ("used", "status"),
    [
        (0, "ok"),
        (5_599, "ok"),
        (5_600, "warning"),
        (7_199, "warning"),
        (7_200, "critical"),
        (9_000, "critical"),
    ],
)
def test_the_gauge_turns_yellow_at_seven_tenths_and_red_at_nine(used: int, status: Status) -> None:
    shown = gauge(budget(window=16_000), used)
    assert (shown.status, shown.limit) == (status, 8_000)
    assert shown.percent == pytest.approx(100 * used / 8_000, abs=0.05)


def test_a_gauge_of_the_window_is_not_bent_by_the_limit() -> None:
    policy = with_overrides(preset("steady"), status_of="window")
    assert gauge(budget_for(policy, 100_000, 8_192, 1_000), 41_000).limit == 100_000


def test_on_small_windows_the_flush_comes_at_most_a_tenth_earlier() -> None:
    made = budget(window=16_000)
    assert made.flush_at == made.limit - made.limit // 10


def test_an_operators_own_flush_threshold_is_honoured_on_large_windows() -> None:
    policy = with_overrides(preset("steady"), flush_threshold=10_000, soft_budget=60_000)
    made = budget_for(policy, 200_000, 8_192, 1_000)
    assert made.flush_at == made.limit - 10_000


@pytest.mark.parametrize("window", [1, 500, 1_024, 1_100])
def test_a_window_without_room_is_refused_with_its_numbers(window: int) -> None:
    with pytest.raises(ContradictoryPolicy, match=str(window)):
        budget_for(preset("steady"), window, 8_192, 10)


def test_fixed_parts_above_the_limit_are_refused_at_every_call() -> None:
    with pytest.raises(ContradictoryPolicy, match="8000 tokens and the limit is 8000"):
        budget(window=16_000, fixed=8_000)


def test_fixed_parts_above_half_the_limit_are_refused_when_configured() -> None:
    refuse_heavy_fixed(preset("steady"), budget(window=16_000, fixed=4_000))
    with pytest.raises(ContradictoryPolicy, match="4001"):
        refuse_heavy_fixed(preset("steady"), budget(window=16_000, fixed=4_001))


@given(
    window=st.integers(min_value=4_000, max_value=2_000_000),
    fixed=st.integers(min_value=0, max_value=900),
    name=st.sampled_from(["steady", "spec008"]),
)
def test_the_numbers_of_a_budget_are_always_in_order(window: int, fixed: int, name: str) -> None:
    made = budget(window=window, fixed=fixed, policy=name)
    assert 0 < made.flush_at <= made.compact_at == made.limit <= made.hard
    assert 0 < made.hard < made.hard + made.out_least <= made.window
    assert made.out_least <= made.out


@pytest.mark.parametrize("name", PRESETS)
def test_chosen_limit_may_be_raised_up_to_the_hard_limit(name: str) -> None:
    policy = with_overrides(preset(name), compact_at=10_000_000)
    made = budget_for(policy, 200_000, 8_192, 3_000)
    assert made.limit == made.hard
    assert made.hard == budget_for(preset(name), 200_000, 8_192, 3_000).hard
    assert made.compact_at == made.hard - policy.timing.compact_at_equal
    assert pressure(made, made.compact_at + 1) in ("compact", "overflow")
    assert pressure(made, made.compact_at) in ("calm", "flush")


@pytest.mark.parametrize("name", PRESETS)
def test_chosen_limit_takes_the_place_of_every_preset(name: str) -> None:
    made = budget_for(with_overrides(preset(name), compact_at=30_000), 200_000, 8_192, 3_000)
    assert made.limit == 30_000
    assert pressure(made, 30_001) == "compact"


def test_chosen_limit_leaves_room_when_system_and_tools_grow() -> None:
    made = budget_for(with_overrides(preset("steady"), compact_at=4_000), 200_000, 8_192, 9_000)
    assert made.limit == 9_000 + LEAST_ROOM


@pytest.mark.parametrize(("over", "told"), [(0, ""), (1, "the largest allowed number is")])
def test_limit_beyond_the_hard_limit_is_refused_with_the_largest_number(over: int, told: str) -> None:
    hard = budget(window=200_000, fixed=3_000).hard
    policy = with_overrides(preset("steady"), compact_at=hard + over)
    made = budget_for(policy, 200_000, 8_192, 3_000)
    if not told:
        refuse_limit_out_of_range(policy, made)
        return
    with pytest.raises(ContradictoryPolicy, match=f"{told} {hard}"):
        refuse_limit_out_of_range(policy, made)


def test_limit_below_system_and_tools_is_refused_with_the_smallest_number() -> None:
    least = 3_000 + preset("steady").keeping.recall_tokens + LEAST_ROOM
    for limit, refused in ((least, False), (least - 1, True)):
        policy = with_overrides(preset("steady"), compact_at=limit)
        made = budget_for(policy, 200_000, 8_192, 3_000)
        if not refused:
            refuse_limit_out_of_range(policy, made)
            continue
        with pytest.raises(ContradictoryPolicy, match=f"the smallest allowed number is {least}"):
            refuse_limit_out_of_range(policy, made)
