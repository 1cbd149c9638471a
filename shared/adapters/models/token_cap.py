"""Cap on the tokens of models whose price is unknown: it stands in for the caps in dollars."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal

from shared.adapters.models.catalog import HOSTS
from shared.core.values.errors import cap_reached

LOOK_SECONDS = 5.0
"""Seconds for which the sum of all processes is used; what this process adds counts at once."""
NEAR_SHARE = 0.8
"""Share of the cap above which the sum is loaded before each call."""
LEAST_OUTPUT = 512
"""Tokens: an answer for which less is left is not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedDay:
    """Tokens of a day's calls without a price, in all processes."""

    day: str
    input_tokens: int
    output_tokens: int


def find_dearest_prices() -> tuple[float, float]:
    """Return the dearest known prices of input and output, in dollars per million tokens."""
    known = [card.prices for rows in HOSTS.values() for card in rows.values() if card.prices is not None]
    return max(price.input for price in known), max(price.output for price in known)


def find_output_weight() -> int:
    """Return how many input tokens an output token counts for, by the dearest known prices."""
    dearest_input, dearest_output = find_dearest_prices()
    return max(1, round(dearest_output / dearest_input))


def find_token_cap(*, dollars: Decimal, tokens: int | None) -> int:
    """Return the cap of a day: the setting, else what `dollars` pay for at the dearest known price."""
    return int(float(dollars) * 1_000_000 / find_dearest_prices()[0]) if tokens is None else tokens


class TokenCap:
    """Cap of one process; near its end each call asks for the sum of all processes."""

    def __init__(
        self,
        load_day: Callable[[], Awaitable[UnpricedDay]],
        *,
        cap: int,
        timezone: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load_day = load_day
        self._cap = cap
        self._timezone = timezone
        self._clock = clock
        self._weight = find_output_weight()
        self._day = ""
        self._used = 0
        self._loaded_at = float("-inf")
        self._held = 0

    async def hold(self, input_tokens: int, output_tokens: int) -> int:
        """Set a call's tokens aside, and return the longest answer that is left; `release` ends it.

        Raises: CapReached if less than the shortest answer is left.
        """
        if self._is_old(input_tokens):
            await self._load()
        left = (self._cap - self._used - self._held - input_tokens) // self._weight
        if left < min(output_tokens, LEAST_OUTPUT):
            raise cap_reached("total", timezone=self._timezone)
        longest = min(output_tokens, left)
        self._held += self._size_of(input_tokens, longest)
        return longest

    def release(self, input_tokens: int, output_tokens: int, *, used_input: int, used_output: int) -> None:
        """End a held call, and count the tokens that it used."""
        self._held -= self._size_of(input_tokens, output_tokens)
        self._used += self._size_of(used_input, used_output)

    async def _load(self) -> None:
        """Load the sum of all processes; what this one has used on the same day may not be stored yet."""
        found = await self._load_day()
        stored = self._size_of(found.input_tokens, found.output_tokens)
        self._used = max(self._used, stored) if found.day == self._day else stored
        self._day, self._loaded_at = found.day, self._clock()

    def _is_old(self, more: int) -> bool:
        is_near = self._used + self._held + more > NEAR_SHARE * self._cap
        return is_near or self._clock() - self._loaded_at >= LOOK_SECONDS

    def _size_of(self, input_tokens: int, output_tokens: int) -> int:
        return input_tokens + self._weight * output_tokens
