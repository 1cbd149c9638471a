"""What a call costs, in millionths of a dollar, and the most that one could cost."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from shared.core.model import Prices, Usage

HOUR_WRITE_FACTOR = 2
"""What is to be kept for an hour costs twice the input price to write, by the provider's price list."""


def cost_micro(usage: Usage, prices: Prices | None) -> int | None:
    """Rounded up; None, not 0, when the prices or the usage are unknown.

    A price in dollars per million tokens is the same number in micro-dollars per token.
    """
    if prices is None or not usage.known:
        return None
    of_input, of_output, of_read, of_write, share = _in_whole_shares(prices)
    of_hour = max(0, HOUR_WRITE_FACTOR * of_input - of_write)
    shares = (
        usage.input_tokens * of_input
        + usage.output_tokens * of_output
        + usage.cache_read_tokens * of_read
        + usage.cache_write_tokens * of_write
        + usage.cache_hour_tokens * of_hour
    )
    return -(-shares // share)


def worst_case_micro(context_tokens: int, max_output: int, prices: Prices, *, hour: bool = False) -> int:
    """What must be reserved: everything written to the cache anew, and the longest answer."""
    dearest = max(_exact(prices.input), _exact(prices.cache_write), _exact(prices.cache_read))
    if hour:
        dearest = max(dearest, HOUR_WRITE_FACTOR * _exact(prices.input))
    return math.ceil(context_tokens * dearest + max_output * _exact(prices.output))


@lru_cache(maxsize=256)
def _in_whole_shares(prices: Prices) -> tuple[int, int, int, int, int]:
    """The four prices as whole numbers of the same share of a micro-dollar, and how many make one."""
    exact = [_exact(price) for price in (prices.input, prices.output, prices.cache_read, prices.cache_write)]
    share = math.lcm(*(price.denominator for price in exact))
    whole = [int(price * share) for price in exact]
    return whole[0], whole[1], whole[2], whole[3], share


def _exact(price: float) -> Fraction:
    """The decimal number that was written down, not its binary neighbour."""
    return Fraction(str(price))
