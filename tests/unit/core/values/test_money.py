"""Money: exact, rounded up, and unknown is not free."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.values.money import (
    Prices,
    Usage,
    affordable_input,
    affordable_output,
    are_old,
    cost_micro,
    micro_per_input_token,
    price_on,
    worst_case_micro,
)

PRICES = Prices(input=2.0, output=10.0, cache_read=0.1, cache_write=2.5, dated="2026-11-01")


def test_a_call_costs_the_sum_of_its_four_kinds_of_tokens() -> None:
    usage = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=10_000, cache_write_tokens=200)
    assert cost_micro(usage, PRICES) == 2_000 + 1_000 + 1_000 + 500


def test_part_of_a_micro_dollar_is_rounded_up_once() -> None:
    assert cost_micro(Usage(cache_read_tokens=1), PRICES) == 1
    assert cost_micro(Usage(cache_read_tokens=30), PRICES) == 3
    assert cost_micro(Usage(), PRICES) == 0


def test_unknown_prices_and_unknown_usage_are_unknown() -> None:
    assert cost_micro(Usage(input_tokens=1), None) is None
    assert cost_micro(Usage(known=False), PRICES) is None


def test_the_worst_case_is_never_below_what_a_call_costs() -> None:
    reserved = worst_case_micro(1_300, 100, PRICES)
    assert reserved == 1_430 * 2.5 + 1_000
    usage = Usage(input_tokens=430, cache_write_tokens=1_000, output_tokens=100)
    assert (cost_micro(usage, PRICES) or 0) <= reserved, "a tenth more than was estimated"


def test_the_worst_case_of_an_hour_is_what_it_costs_to_write() -> None:
    usage = Usage(cache_write_tokens=1_000, cache_hour_tokens=1_000)
    assert worst_case_micro(1_000, 0, PRICES, hour=True) == 1.1 * (cost_micro(usage, PRICES) or 0) == 4_400


def test_what_is_kept_for_an_hour_costs_twice_the_input() -> None:
    usage = Usage(cache_write_tokens=1_000, cache_hour_tokens=400)
    assert cost_micro(usage, PRICES) == 600 * 2.5 + 400 * 4


def test_long_prompt_costs_more_and_is_reserved_before_certain() -> None:
    dear = replace(PRICES, above=100_000, above_factor=5.0)
    short, long = Usage(input_tokens=100_000, output_tokens=10), Usage(input_tokens=100_001, output_tokens=10)
    assert cost_micro(short, dear) == 200_000 + 100
    assert cost_micro(long, dear) == 5 * (200_002 + 100)
    assert worst_case_micro(80_000, 0, dear) == worst_case_micro(80_000, 0, PRICES)
    assert worst_case_micro(95_000, 0, dear) == 5 * worst_case_micro(95_000, 0, PRICES)
    assert micro_per_input_token(dear) == pytest.approx(2.5 * 1.1)


def test_of_several_prices_that_of_the_day_is_taken() -> None:
    first, second = replace(PRICES, input=1.0), replace(PRICES, input=3.0, starts="2027-01-01")
    assert price_on(date(2026, 12, 31), [first, second]) == first
    assert price_on(date(2027, 1, 1), [first, second]) == second
    assert price_on(date(2026, 1, 1), [second]) == second
    assert price_on(date(2026, 1, 1), []) is None


def test_prices_that_were_read_more_than_a_year_ago_are_old() -> None:
    assert not are_old(replace(PRICES, dated="2026-11"), date(2027, 11, 30))
    assert are_old(replace(PRICES, dated="2026-11"), date(2027, 12, 1))
    assert not are_old(replace(PRICES, dated="2024-01", starts="2027-01-01"), date(2027, 12, 1))
    assert not are_old(replace(PRICES, dated="lately"), date(2030, 1, 1))


@given(
    st.integers(0, 200_000), st.integers(1, 20_000), st.integers(0, 2_000_000), st.booleans(), st.booleans()
)
def test_what_the_money_left_pays_for_is_the_most_and_not_more(
    tokens: int, most: int, micro: int, hour: bool, is_long: bool
) -> None:
    prices = replace(PRICES, above=100_000, above_factor=2.0) if is_long else PRICES
    output = affordable_output(tokens, most, micro, prices, hour=hour)
    if output >= 0:
        assert worst_case_micro(tokens, output, prices, hour=hour) <= micro
    if output < most:
        assert worst_case_micro(tokens, output + 1, prices, hour=hour) > micro
    whole = affordable_input(tokens, most, micro, prices, hour=hour)
    if whole >= 0:
        assert worst_case_micro(whole, most, prices, hour=hour) <= micro
