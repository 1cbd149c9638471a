"""Early flushes at their marks, each once per cycle; a range is read in portions and never left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.compaction.jobs import (
    NEAR_LIMIT,
    due_threshold,
    find_reached_mark,
    next_job,
    next_portion,
    retry_seconds,
    was_flushed,
)
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.budget import ContextBudget, budget_for
from shared.core.session.timing_strategy import mark_of
from tests.kit.builders import exchanges, view

GOCLAW = preset("goclaw")
WINDOW = 200_000
STATE = view(exchanges(20, tokens=2_000), cycle=2)


def budget_of(policy: str, window: int = WINDOW) -> ContextBudget:
    return budget_for(preset(policy), window, 8_192, 1_000)


@pytest.mark.parametrize(
    ("tokens", "mark"),
    [
        (99_999, None),
        (100_000, "at_50"),
        (100_001, "at_50"),
        (149_999, "at_50"),
        (150_000, "at_75"),
        (179_999, "at_75"),
        (180_000, "at_90"),
    ],
)
def test_goclaw_flushes_at_half_three_quarters_and_nine_tenths_of_the_window(
    tokens: int, mark: str | None
) -> None:
    assert find_reached_mark(budget_of("goclaw"), GOCLAW, tokens) == mark
    wish = next_job(STATE, budget=budget_of("goclaw"), policy=GOCLAW, context_tokens=tokens)
    assert (wish and wish.trigger) == mark
    assert wish is None or wish.key == f"flush:7:2:{mark}"


def test_each_mark_is_flushed_once_per_cycle() -> None:
    tried = replace(STATE, flush_thresholds=frozenset({"at_50"}))
    budget = budget_of("goclaw")
    assert due_threshold(tried, budget=budget, policy=GOCLAW, context_tokens=120_000) is None
    assert due_threshold(tried, budget=budget, policy=GOCLAW, context_tokens=150_000) == "at_75"


def test_a_jump_over_two_marks_is_one_flush_for_both() -> None:
    budget = budget_of("goclaw")
    assert due_threshold(STATE, budget=budget, policy=GOCLAW, context_tokens=160_000) == "at_75"
    after = replace(STATE, flush_thresholds=frozenset({"at_75"}))
    assert was_flushed("at_50", after.flush_thresholds, GOCLAW)
    assert due_threshold(after, budget=budget, policy=GOCLAW, context_tokens=110_000) is None


def test_other_thresholds_of_the_cycle_do_not_stand_for_a_mark() -> None:
    assert not was_flushed("at_75", {"at_50", "compaction", NEAR_LIMIT}, GOCLAW)
    assert mark_of(0.333) == "at_33.3"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_flushes_early_only_where_it_says_so(name: str) -> None:
    policy = PRESETS[name]
    early = bool(policy.timing.flush_shares) or policy.timing.flush_threshold > 0
    budget = budget_of(name)
    assert (find_reached_mark(budget, policy, budget.hard + 1) is not None) == early
    assert find_reached_mark(budget, policy, budget.fixed) is None


def test_a_flush_never_reads_again_what_was_read() -> None:
    """enduragent 986: the whole history was sent with every flush."""
    read = replace(STATE, flushed_turn=20)
    assert due_threshold(read, budget=budget_of("goclaw"), policy=GOCLAW, context_tokens=190_000) is None


def test_context_past_the_flush_window_is_compacted_with_a_flush() -> None:
    """openclaw 20713: the window of 4,000 tokens was jumped over, and the flush never came."""
    steady = preset("steady")
    budget = budget_of("steady")
    wish = next_job(STATE, budget=budget, policy=steady, context_tokens=budget.limit + 9_000)
    assert wish is not None
    assert wish.kind == "compact"
    assert wish.payload["flush_first"] is True


def test_the_flush_comes_in_every_cycle_not_in_every_second() -> None:
    """openclaw 12590."""
    steady, budget = preset("steady"), budget_of("steady")
    for cycle in range(6):
        state = replace(STATE, cycle=cycle, flushed_turn=0)
        wish = next_job(state, budget=budget, policy=steady, context_tokens=budget.flush_at + 1)
        assert wish is not None
        assert wish.key == f"flush:7:{cycle}:{NEAR_LIMIT}"


def test_a_view_that_fits_is_read_as_the_provider_remembers_it() -> None:
    portion, last = next_portion(replace(STATE, flushed_turn=4), through=15, room=80_000)
    assert portion.entries == STATE.entries
    assert last == 15


@given(
    st.lists(st.integers(1, 3_000), min_size=1, max_size=25),
    st.integers(0, 24),
    st.integers(100, 20_000),
)
def test_portions_cover_the_range_without_gap_or_overlap(sizes: list[int], flushed: int, room: int) -> None:
    turns = len(sizes)
    entries = [replace(entry, tokens=sizes[entry.turn - 1] // 2) for entry in exchanges(turns, tokens=1)]
    state = view(entries, flushed_turn=min(flushed, turns - 1))
    read: list[int] = []
    while state.flushed_turn < turns:
        portion, last = next_portion(state, through=turns, room=room)
        assert last > state.flushed_turn
        shown = sorted({entry.turn for entry in portion.entries})
        assert set(range(state.flushed_turn + 1, last + 1)) <= set(shown)
        size = sum(entry.tokens for entry in portion.entries)
        assert size <= room or len(shown) == 1
        read += range(state.flushed_turn + 1, last + 1)
        state = replace(state, flushed_turn=last)
    assert read == list(range(min(flushed, turns - 1) + 1, turns + 1))


def test_late_flush_backs_off_up_to_an_hour() -> None:
    waits = [retry_seconds(faults) for faults in range(12)]
    assert waits[:3] == [30, 60, 120]
    assert waits == sorted(waits)
    assert waits[-1] == 3_600
    assert retry_seconds(10_000) == 3_600
