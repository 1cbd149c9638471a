"""Cap on the tokens of models with unknown prices, used in place of a cap in dollars.

The tokens of a call are reserved in the database before it is sent, so that all processes together stay below
the cap.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from shared.adapters.models.catalog import HOSTS
from shared.core.values.errors import StorageUnavailable, cap_reached
from shared.runtime import CrashPoint, ignore_crash_point

LEAST_OUTPUT = 512
"""Minimum output tokens of a call; with less left of the cap, it is refused."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTokens:
    """Reservation of tokens for one call."""

    reservation_id: int
    """Id of the reservation in the database."""
    output_tokens: int
    """Maximum output tokens that the reservation covers."""


class TokenReservations(Protocol):
    """Store of token reservations, counted in input tokens; an output token counts `weight` times."""

    async def reserve_tokens(
        self,
        *,
        cap: int,
        input_tokens: int,
        output_tokens: int,
        least_output: int,
        weight: int,
        free_models: Sequence[str],
    ) -> tuple[int, int] | None:
        """Reserve tokens.

        Returns the id and the maximum output tokens, or None if less than `least_output` is left of
        `cap`.
        """
        ...

    async def settle_tokens(self, reservation_id: int, tokens: int) -> None:
        """End a reservation; the call used `tokens` tokens of the cap."""
        ...


def find_dearest_prices() -> tuple[float, float]:
    """Return the highest known prices of input and output, in dollars per million tokens."""
    known = [card.prices for rows in HOSTS.values() for card in rows.values() if card.prices is not None]
    return max(price.input for price in known), max(price.output for price in known)


def find_output_weight() -> int:
    """Return how many input tokens an output token counts for, by the highest known prices."""
    dearest_input, dearest_output = find_dearest_prices()
    return max(1, round(dearest_output / dearest_input))


def find_token_cap(*, dollars: Decimal, tokens: int | None) -> int:
    """Return the cap in tokens per day: `tokens` or, if None, what `dollars` buy at the highest price."""
    return int(float(dollars) * 1_000_000 / find_dearest_prices()[0]) if tokens is None else tokens


class TokenCap:
    """Cap on the tokens per day of a deployment, shared by its processes."""

    def __init__(
        self,
        store: TokenReservations,
        *,
        cap: int,
        timezone: str,
        free_models: Sequence[str] = (),
        crash_point: CrashPoint = ignore_crash_point,
    ) -> None:
        self._store = store
        self._cap = cap
        self._timezone = timezone
        self._free_models = tuple(free_models)
        self._crash_point = crash_point
        self._weight = find_output_weight()

    async def hold(self, input_tokens: int, output_tokens: int) -> HeldTokens:
        """Reserve tokens of a call with the longest output that the cap allows.

        `settle` ends the reservation. Raises CapReached if less than LEAST_OUTPUT is left,
        StorageUnavailable.
        """
        found = await self._store.reserve_tokens(
            cap=self._cap,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            least_output=LEAST_OUTPUT,
            weight=self._weight,
            free_models=self._free_models,
        )
        if found is None:
            raise cap_reached("total", timezone=self._timezone)
        self._crash_point("after_tokens_held")
        return HeldTokens(reservation_id=found[0], output_tokens=found[1])

    async def settle(self, held: HeldTokens, *, used_input: int, used_output: int) -> None:
        """Replace a reservation by the tokens that the call used.

        If the database does not answer, the reservation stays, and the sweep later counts it in full.
        """
        try:
            await self._store.settle_tokens(held.reservation_id, used_input + self._weight * used_output)
        except StorageUnavailable:
            _log.warning("tokens_settled_later: reservation %s", held.reservation_id)
