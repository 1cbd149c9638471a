"""Ranges, budget and passages of the summaries of an import."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.memory.past_summaries import (
    BUDGET_MICRO,
    CONVERSATION_PAUSE,
    FIRST_PART,
    RANGE_TOKENS,
    RANGE_TURNS,
    ImportBudget,
    ImportSpending,
    ImportToSummarise,
    TurnSize,
    budget_of,
    choose_range,
    estimate_calls,
    make_passages,
    measure_turns,
    plan_range,
)
from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.session.session import Entry
from shared.core.session.turns import Caps
from shared.core.values.messages import Text
from shared.core.values.money import Prices, worst_case_micro

AT = datetime(2021, 3, 4, 10, 0, tzinfo=UTC)
PRICES = Prices(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25, dated="2026-11")
NOTHING = ImportSpending()


def sizes(*tokens: int, pauses: tuple[int, ...] = ()) -> list[TurnSize]:
    """Turns a minute apart, with a long pause before the turns at `pauses`."""
    made, at = [], AT
    for place, number in enumerate(tokens):
        at += CONVERSATION_PAUSE + timedelta(minutes=1) if place in pauses else timedelta(minutes=1)
        made.append(TurnSize(turn=place + 1, tokens=number, at=at))
    return made


def entry(seq: int, text: str = "Hello", *, turn: int | None = None, tokens: int = 10) -> Entry:
    return Entry(
        seq=seq, turn=turn or seq, step=1, role="user", author="person", blocks=(Text(text=text),),
        tokens=tokens, at=AT + timedelta(hours=seq),
    )  # fmt: skip


def waiting(covered: int = 0, turns: int = 1_000, *, newest_first: bool = False) -> ImportToSummarise:
    return ImportToSummarise(
        session_id=1, contact_id=1, state="due", covered=covered, turns=turns, searchable_turns=turns,
        is_newest_first=newest_first, agent_config={}, timezone=None, anonymous=False, spent=NOTHING,
    )  # fmt: skip


def test_range_takes_all_turns_that_fit() -> None:
    assert choose_range(sizes(RANGE_TOKENS // 2, RANGE_TOKENS // 2)) == 2
    assert choose_range(sizes(RANGE_TOKENS // 2, RANGE_TOKENS // 2 + 1)) == 1


def test_range_has_at_least_one_turn_however_long() -> None:
    assert choose_range(sizes(10 * RANGE_TOKENS, 1)) == 1


def test_range_ends_with_a_conversation_of_its_second_half() -> None:
    each = RANGE_TOKENS // 10
    assert choose_range(sizes(*[each] * 20, pauses=(7,))) == 7
    assert choose_range(sizes(*[each] * 20, pauses=(2,))) == 10
    assert choose_range(sizes(*[each] * 20, pauses=(6, 8))) == 8


@given(st.lists(st.tuples(st.integers(1, 2 * RANGE_TOKENS), st.booleans()), min_size=1, max_size=60))
def test_ranges_cover_every_turn_once(turns: list[tuple[int, bool]]) -> None:
    pauses = tuple(place for place, (_, pause) in enumerate(turns) if pause)
    left, taken = sizes(*(tokens for tokens, _ in turns), pauses=pauses), 0
    while left:
        number = choose_range(left)
        assert number > 0
        assert number == 1 or sum(turn.tokens for turn in left[:number]) <= RANGE_TOKENS
        taken += number
        left = left[number:]
    assert taken == len(turns)


@pytest.mark.parametrize("newest_first", [False, True])
def test_candidates_walk_from_the_newest_turn_to_the_oldest(newest_first: bool) -> None:
    covered, seen = 0, list[tuple[int, int]]()
    while (one := waiting(covered, newest_first=newest_first).candidates)[0] <= one[1]:
        seen.append(one)
        covered += one[1] - one[0] + 1
    assert covered == 1_000
    assert all(last - first < RANGE_TURNS for first, last in seen)
    walked = seen if newest_first else [(-last, -first) for first, last in seen]
    assert all(before[1] + 1 == after[0] for before, after in pairwise(walked))


def test_budget_is_a_quarter_of_the_smallest_daily_cap() -> None:
    caps = Caps(total=5_000_000, person=2_000_000, visitor=400_000, session=None)
    budget = budget_of(caps, day_tokens=500_000, output_weight=5)
    assert (budget.micro, budget.visitor_micro, budget.tokens) == (500_000, 100_000, 125_000)
    unlimited = Caps(total=None, person=None, visitor=None, session=None)
    assert budget_of(unlimited, day_tokens=1, output_weight=5).micro == BUDGET_MICRO


def test_budget_allows_a_call_whose_worst_case_fits_exactly() -> None:
    worst = worst_case_micro(1_000, 100, PRICES)
    budget = ImportBudget(micro=worst + 7, visitor_micro=worst + 6, tokens=0, output_weight=5)
    call = [(1_000, 100, PRICES)]
    assert budget.allows(ImportSpending(micro=7), call, anonymous=False)
    assert not budget.allows(ImportSpending(micro=8), call, anonymous=False)
    assert not budget.allows(ImportSpending(micro=7), call, anonymous=True)


def test_budget_counts_tokens_where_no_price_is_known() -> None:
    budget = ImportBudget(micro=0, visitor_micro=0, tokens=2_000, output_weight=5)
    assert budget.allows(NOTHING, [(1_500, 100, None)], anonymous=False)
    assert not budget.allows(NOTHING, [(1_501, 100, None)], anonymous=False)
    spent = ImportSpending(input_tokens=400, output_tokens=20)
    assert budget.allows(spent, [(1_000, 100, None)], anonymous=False)
    assert not budget.allows(spent, [(1_001, 100, None)], anonymous=False)


def test_plan_splits_a_range_that_a_small_window_cannot_hold() -> None:
    entries = tuple(entry(seq, tokens=1_000) for seq in range(1, 13))
    whole = plan_range(entries, window=200_000, factor=1.0, zone=UTC)
    small = plan_range(entries, window=8_000, factor=1.0, zone=UTC)
    assert (len(whole.chunks), whole.from_turn, whole.through_turn) == (1, 1, 12)
    assert len(small.chunks) > 1
    assert [one.seq for chunk in small.chunks for one in chunk] == list(range(1, 13))
    assert small.former == Ledger()
    calls = estimate_calls(small, window=8_000, most_output=16_000, factor=1.0)
    assert len(calls) == len(small.chunks)
    assert all(out == 2_000 for _, out in calls)


def test_passages_of_a_summary_stand_at_the_messages_they_cite() -> None:
    entries = [entry(seq) for seq in (4, 5, 6)]
    items = (
        LedgerItem(id="f1", kind="fact", text="Ada rows.", sources=(5, 6)),
        LedgerItem(id="f2", kind="fact", text="From nowhere.", sources=(99,)),
        LedgerItem(id="f3", kind="fact", text="Gone.", sources=(5,), closed="replaced"),
        LedgerItem(id="f4", kind="fact", text="  ", sources=(6,)),
    )
    made = make_passages(Ledger(narrative="They talked about boats.", items=items), entries)
    assert [(one.seq, one.text) for one in made] == [
        (4, "They talked about boats."), (5, "Ada rows."), (4, "From nowhere."),
    ]  # fmt: skip
    assert [one.part for one in made] == [FIRST_PART, FIRST_PART + 1, FIRST_PART + 2]
    assert made[1].at == entries[1].at


def test_turns_are_measured_by_all_their_messages() -> None:
    first, second = entry(1, turn=1), replace(entry(2, turn=1), at=AT + timedelta(days=1))
    assert measure_turns([first, second, entry(3, turn=2)]) == (
        TurnSize(turn=1, tokens=20, at=first.at),
        TurnSize(turn=2, tokens=10, at=AT + timedelta(hours=3)),
    )
