"""What a call costs, in millionths of a dollar, and the most that one could cost."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from shared.core.model import Prices, Usage


def cost_micro(usage: Usage, prices: Prices | None) -> int | None:
    """Rounded up; None, not 0, when the prices or the usage are unknown.

    A price in dollars per million tokens is the same number in micro-dollars per token.
    """
    if prices is None or not usage.known:
        return None
    return math.ceil(
        usage.input_tokens * _exact(prices.input)
        + usage.output_tokens * _exact(prices.output)
        + usage.cache_read_tokens * _exact(prices.cache_read)
        + usage.cache_write_tokens * _exact(prices.cache_write)
    )


def worst_case_micro(context_tokens: int, max_output: int, prices: Prices) -> int:
    """What must be reserved: everything written to the cache anew, and the longest answer."""
    dearest = max(_exact(prices.input), _exact(prices.cache_write), _exact(prices.cache_read))
    return math.ceil(context_tokens * dearest + max_output * _exact(prices.output))


@lru_cache(maxsize=256)
def _exact(price: float) -> Fraction:
    """The decimal number that was written down, not its binary neighbour."""
    return Fraction(str(price))
