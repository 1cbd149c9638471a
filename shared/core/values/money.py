"""Cost of model calls in micro-dollars, actual and at most, and the cache lifetime that pays."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from statistics import median

OLD_AFTER_MONTHS = 12
"""Months after which `are_old` calls a price list old."""
_MONTH = re.compile(r"(\d{4})-(\d\d)")
_MARGIN = 10
"""Divisor of the safety margin: an estimate may be a tenth too low."""
HOUR_WRITE_FACTOR = 2
"""Price of a cache write that lasts an hour, as a multiple of the input price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a call as the provider counted them; all are 0 and `known` is False if it reported none.

    `input_tokens` are those that were neither read from the cache nor written to it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_hour_tokens: int = 0
    """Tokens of `cache_write_tokens` that the provider keeps for an hour, at a higher price."""
    known: bool = True

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and answer together, whether cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a model in dollars per million tokens, from the day `starts` on."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    dated: str
    """Date of the price list, such as `2026-11` or `2026-11-21`; empty if unknown."""
    starts: str = ""
    """Day from which the prices apply, such as `2026-11-21`; empty means always."""
    above: int | None = None
    """Prompt tokens above which `above_factor` applies to prompt and answer; None if it never applies."""
    above_factor: float = 1.0
    """Factor of all prices for a prompt of more than `above` tokens."""


def cost_micro(usage: Usage, prices: Prices | None) -> int | None:
    """Return the cost of a call in micro-dollars, rounded up; None if prices or usage are unknown.

    A price in dollars per million tokens is the same number in micro-dollars per token.
    """
    if prices is None or not usage.known:
        return None
    of_input, of_output, of_read, of_write, share = _in_whole_shares(prices)
    of_hour = max(0, HOUR_WRITE_FACTOR * of_input - of_write)
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    shares = (
        usage.input_tokens * of_input
        + usage.output_tokens * of_output
        + usage.cache_read_tokens * of_read
        + usage.cache_write_tokens * of_write
        + usage.cache_hour_tokens * of_hour
    )
    return _round_up(shares, share, _factor(prompt, prices))


def worst_case_micro(context_tokens: int, max_output: int, prices: Prices, *, hour: bool = False) -> int:
    """Return the most micro-dollars that a call can cost, to be reserved before it, rounded up.

    The prompt is priced a tenth above `context_tokens`, since the provider may count more, and as if all of
    it were written to the cache; the answer has `max_output` tokens. `hour` uses the price of a cache kept
    for an hour.
    """
    prompt = context_tokens + -(-context_tokens // _MARGIN)
    of_input, of_output, of_read, of_write, share = _in_whole_shares(prices)
    dearest = max(of_input, of_write, of_read, HOUR_WRITE_FACTOR * of_input if hour else 0)
    return _round_up(prompt * dearest + max_output * of_output, share, _factor(prompt, prices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Spending cap that has too little left for a call; amounts are micro-dollars of the current day."""

    scope: str
    """Scope of the cap, such as `contact`, `session` or `total`."""
    cap_micro: int
    spent_micro: int
    held_micro: int = 0
    """Micro-dollars reserved for other running calls."""

    @property
    def left_micro(self) -> int:
        """Micro-dollars of the cap that are neither spent nor reserved for running calls; negative if it is
        exceeded.
        """
        return self.once_settled_micro - self.held_micro

    @property
    def once_settled_micro(self) -> int:
        """Micro-dollars of the cap that are not spent; those reserved for running calls are included."""
        return self.cap_micro - self.spent_micro


def affordable_output(
    context_tokens: int, most: int, micro: int, prices: Prices, *, hour: bool = False
) -> int:
    """Return the most answer tokens, up to `most`, that `micro` micro-dollars pay for at worst after this
    prompt.

    Returns -1 if they do not even pay for the prompt. `hour` uses the price of a cache kept for an hour.
    """
    return _find_most(most, micro, lambda tokens: worst_case_micro(context_tokens, tokens, prices, hour=hour))


def affordable_input(most: int, output_tokens: int, micro: int, prices: Prices, *, hour: bool = False) -> int:
    """Return the most prompt tokens, up to `most`, that `micro` micro-dollars pay for at worst with this
    answer.

    Returns -1 if they do not even pay for the answer. `hour` uses the price of a cache kept for an hour.
    """
    return _find_most(most, micro, lambda tokens: worst_case_micro(tokens, output_tokens, prices, hour=hour))


def _find_most(most: int, micro: int, price: Callable[[int], int]) -> int:
    return bisect_right(range(most + 1), micro, key=price) - 1


def micro_per_input_token(prices: Prices) -> float:
    """Return the micro-dollars to reserve per prompt token, including the margin of a tenth.

    Excluded are the surcharge of a long prompt and the price of a cache write for an hour.
    """
    of_input, _, of_read, of_write, share = _in_whole_shares(prices)
    return max(of_input, of_write, of_read) / share * (1 + 1 / _MARGIN)


def price_on(day: date, prices: Sequence[Prices]) -> Prices | None:
    """Return the prices in force on `day`, those that began last.

    If all begin later, the first of the sequence is returned; None if there are no prices.
    """
    begun = [price for price in prices if not price.starts or price.starts <= day.isoformat()]
    return max(begun, key=lambda price: price.starts) if begun else next(iter(prices), None)


def are_old(prices: Prices, today: date) -> bool:
    """Return whether prices date from more than 12 calendar months before `today`; False without a date.

    The date is the later one of `dated` and `starts`.
    """
    known = _MONTH.match(max(prices.dated, prices.starts))
    if known is None:
        return False
    return (today.year - int(known[1])) * 12 + today.month - int(known[2]) > OLD_AFTER_MONTHS


def _factor(prompt: int, prices: Prices) -> Fraction | None:
    """Return the price factor of a long prompt; None for a prompt of usual length."""
    is_long = prices.above is not None and prompt > prices.above
    return _exact_price(prices.above_factor) if is_long else None


def _round_up(shares: int, share: int, factor: Fraction | None) -> int:
    """Return `shares` in micro-dollars, times `factor` unless it is None, rounded up.

    Without a factor only integers are used, since every call of a turn is priced here.
    """
    return -(-shares // share) if factor is None else math.ceil(Fraction(shares, share) * factor)


@lru_cache(maxsize=256)
def _in_whole_shares(prices: Prices) -> tuple[int, int, int, int, int]:
    """Return the prices of input, output, cache read and cache write, and the divisor for micro-dollars.

    All are integers: a price divided by the divisor is in micro-dollars per token.
    """
    exact = [
        _exact_price(price) for price in (prices.input, prices.output, prices.cache_read, prices.cache_write)
    ]
    share = math.lcm(*(price.denominator for price in exact))
    whole = [int(price * share) for price in exact]
    return whole[0], whole[1], whole[2], whole[3], share


def _exact_price(price: float) -> Fraction:
    """Return a price as the exact decimal that was written, without the rounding error of a float."""
    return Fraction(str(price))


SHORT_LIFE = timedelta(minutes=5)
"""Usual lifetime of a provider's prompt cache."""
LONG_LIFE = timedelta(hours=1)
"""Long lifetime of a provider's prompt cache, which costs more to write."""
TURNS_LOOKED_AT = 20
"""Newest gaps between turns from which `median_gap` computes its median."""


def cache_life(times: Sequence[datetime]) -> timedelta:
    """Return the cache lifetime that costs less, five minutes or an hour, for the start times of the last
    turns.

    `times` may be in any order. An hour is chosen if the median gap is above five minutes and at most an
    hour; with fewer than three gaps it is five minutes, the smaller mistake.
    """
    gap = median_gap(times)
    return LONG_LIFE if gap is not None and SHORT_LIFE < gap <= LONG_LIFE else SHORT_LIFE


def median_gap(times: Sequence[datetime]) -> timedelta | None:
    """Return the median of the newest gaps, up to twenty, between `times`, in any order.

    None if there are fewer than three gaps.
    """
    newest = sorted(times)[-TURNS_LOOKED_AT - 1 :]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(newest)]
    return timedelta(seconds=median(gaps)) if len(gaps) >= 3 else None
