"""Savings by caching and summaries, computed from recorded tokens and prices of the day, estimated low.

Caching: the same tokens at the price of plain input, less the price paid. Summaries: for each answered turn
the tokens that its summary replaced, at the price of reading them from a cache, less the cost of making
summaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from shared.core.values.money import Prices

PriceOn = Callable[[str, date], Prices | None]
"""Function that returns a model's prices on a day by the model's name; None if they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Savings in micro-dollars, negative if the means cost more; None if no price is known.

    `tokens` are all tokens looked at; `unpriced_tokens` of them are not included in `micro`.
    """

    tokens: int
    micro: int | None
    unpriced_tokens: int


def compute_caching_savings(rows: Sequence[Mapping[str, Any]], price_on: PriceOn) -> Saving:
    """Return the savings by the provider's cache: the price without it less the cost paid.

    Each row sums one model and day (`model`, `day` as ISO date): tokens of each kind, and the cost paid in
    micro-dollars. `tokens` of the result are those read from the cache.
    """
    tokens = unpriced = 0
    micro: int | None = None
    for row in rows:
        prices = price_on(row["model"], date.fromisoformat(row["day"]))
        tokens += row["cache_read_tokens"]
        if prices is None:
            unpriced += row["cache_read_tokens"]
            continue
        prompt = row["input_tokens"] + row["cache_read_tokens"] + row["cache_write_tokens"]
        plain = math.floor(prompt * prices.input + row["output_tokens"] * prices.output)
        micro = (micro or 0) + plain - row["cost_micro"]
    return Saving(tokens=tokens, micro=micro, unpriced_tokens=unpriced)


def compute_summary_savings(
    rows: Sequence[Mapping[str, Any]], price_on: PriceOn, *, paid_micro: int | None
) -> Saving:
    """Return the savings by summaries: the tokens that they replaced, at the price of a cache read, less
    their cost.

    Each row sums one model and day (`model`, `day` as ISO date, `tokens`). `paid_micro` is the cost of the
    summaries in micro-dollars; if None (unknown), the savings are unknown.
    """
    tokens = unpriced = 0
    worth: int | None = None
    for row in rows:
        prices = price_on(row["model"], date.fromisoformat(row["day"]))
        tokens += row["tokens"]
        if prices is None:
            unpriced += row["tokens"]
            continue
        worth = (worth or 0) + math.floor(row["tokens"] * prices.cache_read)
    known = None if worth is None or paid_micro is None else worth - paid_micro
    return Saving(tokens=tokens, micro=known, unpriced_tokens=unpriced)
