"""Money: exact, rounded up, and unknown is not free."""

from __future__ import annotations

from shared.core.model import Prices, Usage
from shared.core.money import cost_micro, worst_case_micro

PRICES = Prices(input=2.0, output=10.0, cache_read=0.1, cache_write=2.5, dated="2026-11-01")


def test_a_call_costs_the_sum_of_its_four_kinds_of_tokens() -> None:
    usage = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=10_000, cache_write_tokens=200)
    assert cost_micro(usage, PRICES) == 2_000 + 1_000 + 1_000 + 500


def test_a_part_of_a_micro_dollar_is_a_whole_one_but_never_more() -> None:
    assert cost_micro(Usage(cache_read_tokens=1), PRICES) == 1
    assert cost_micro(Usage(cache_read_tokens=30), PRICES) == 3
    assert cost_micro(Usage(), PRICES) == 0


def test_unknown_prices_and_unknown_usage_are_unknown() -> None:
    assert cost_micro(Usage(input_tokens=1), None) is None
    assert cost_micro(Usage(known=False), PRICES) is None


def test_the_worst_case_is_never_below_what_a_call_costs() -> None:
    reserved = worst_case_micro(1_300, 100, PRICES)
    assert reserved == 1_300 * 2.5 + 1_000
    usage = Usage(input_tokens=300, cache_write_tokens=1_000, output_tokens=100)
    assert (cost_micro(usage, PRICES) or 0) <= reserved


def test_the_worst_case_of_an_hour_is_what_it_costs_to_write() -> None:
    usage = Usage(cache_write_tokens=1_000, cache_hour_tokens=1_000)
    assert worst_case_micro(1_000, 0, PRICES, hour=True) == cost_micro(usage, PRICES) == 4_000


def test_what_is_kept_for_an_hour_costs_twice_the_input() -> None:
    usage = Usage(cache_write_tokens=1_000, cache_hour_tokens=400)
    assert cost_micro(usage, PRICES) == 600 * 2.5 + 400 * 4
