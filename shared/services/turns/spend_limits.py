"""Money for one call of a turn: before there is none, a shorter answer, some patience, a smaller request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from shared.core.session.turns import Caps, Claim
from shared.core.values.errors import CapHeld, CapReached, cap_reached
from shared.core.values.model import Prices
from shared.core.values.money import Shortage, most_input, most_output, worst_case_micro
from shared.services.turns.request_builder import PreparedRequest
from shared.services.turns.spend_tracker import CallCosts, TurnSpendStore

MIN_OUTPUT = 512
"""Tokens: an answer for which less is left is not begun."""
USUAL_OUTPUT = 2_048
"""Tokens: while waiting may bring more money, a shorter answer than this is not begun."""
WAIT_SECONDS = 20.0
"""So long a person sees the typing sign while other calls settle; then their turn is put back."""
POLL_SECONDS = 0.5
MAX_TRIES = 5
"""In a row: others may take what was just seen to be left."""

ShrinkRequest = Callable[[int], Awaitable[PreparedRequest | None]]
"""The request in so many tokens at most; None where it cannot be made as small."""


class SpendLimiter:
    """Nothing is sent whose worst case is not set aside, beside what the turn has cost already.

    The provider tells with the answer what it had in its cache, and never promises to have it: until then all
    input counts as new. What fits by that cannot overrun a cap, whatever became of the cache meanwhile.
    """

    def __init__(self, spend: TurnSpendStore, *, caps: Caps) -> None:
        self._spend = spend
        self._caps = caps

    async def reserve(
        self,
        costs: CallCosts,
        prepared: PreparedRequest,
        *,
        stop: asyncio.Future[None],
        shrink: ShrinkRequest,
    ) -> PreparedRequest:
        """The request as far as the caps pay for it, whose worst case is set aside. Raises CapReached where
        what is spent leaves no room, CapHeld where only what others have set aside is in the way. When the
        person asks to stop it returns at once.
        """
        prices = prepared.card.prices
        if costs.claim.reservation_id is None and costs.claim.refused_scope is None:
            return prepared
        if prices is None:
            return _refuse_unpriced(costs.claim, prepared, self._caps)
        offer = _CallOffer(whole=prepared, prices=prices, spent_micro=costs.micro)
        until, tries = asyncio.get_running_loop().time() + WAIT_SECONDS, 0
        asked = prepared
        while not stop.done():
            try:
                await self._reserve_micro(costs, offer.micro(asked))
                return asked
            except CapReached as error:
                refused = error
            patient = asyncio.get_running_loop().time() < until
            shorter = offer.within(refused.shortages, waits=patient) if tries < MAX_TRIES else None
            if shorter is not None:
                asked, tries = shorter, tries + 1
            elif patient and offer.fits_once_settled(refused.shortages):
                await asyncio.wait([stop], timeout=POLL_SECONDS)
                asked, tries = offer.whole, 0
            else:
                asked = await self._shrink(offer, refused, shrink)
                offer = replace(offer, whole=asked)
        return asked

    async def _shrink(self, offer: _CallOffer, refused: CapReached, shrink: ShrinkRequest) -> PreparedRequest:
        """A request that what is left pays for now; half of that if it can be, so that more turns follow."""
        if offer.fits_once_settled(refused.shortages):
            raise CapHeld(str(refused)) from refused
        most = offer.most_input(refused.shortages)
        for tokens in (most // 2, most):
            small = await shrink(tokens) if 0 < tokens < offer.whole.estimate else None
            fitted = small and replace(offer, whole=small).within(refused.shortages, waits=False)
            if fitted is not None:
                return fitted
        if any(one.held_micro for one in refused.shortages):
            raise CapHeld(str(refused)) from refused
        raise refused

    async def _reserve_micro(self, costs: CallCosts, micro: int) -> None:
        """The claim has done so for most first calls; one reservation grows with the turn.

        The claim could not know the message, the agent's model or how long the prefix is to be kept; where a
        cap refused it, what it got in other scopes is given back, and it is asked anew and whole.
        """
        claim = costs.claim
        if claim.refused_scope is None and claim.reservation_id is not None:
            if micro > max(costs.held_micro, claim.reserved_micro):
                await self._spend.raise_reservation(claim.reservation_id, micro, caps=self._caps)
                costs.held_micro = micro
            return
        if claim.reservation_id is not None:
            await self._spend.release_reservation(claim.reservation_id)
            costs.claim = replace(claim, reservation_id=None)
        id_ = await self._spend.reserve(claim.session_id, micro, caps=self._caps, turn=claim.turn)
        costs.claim = replace(
            claim, reservation_id=id_, reserved_micro=micro, refused_scope=None, near_caps=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallOffer:
    """A request, what it costs at worst, and what of it the caps leave room for."""

    whole: PreparedRequest
    prices: Prices
    spent_micro: int
    """By the turn's earlier calls; its reservation holds that, too."""

    def micro(self, prepared: PreparedRequest) -> int:
        return self.spent_micro + self._worst(prepared, prepared.request.max_output_tokens)

    def _worst(self, prepared: PreparedRequest, output: int) -> int:
        return worst_case_micro(prepared.estimate, output, self.prices, hour=prepared.request.cache_long)

    def _left(self, shortages: Sequence[Shortage]) -> int:
        return min((one.left_micro for one in shortages), default=0) - self.spent_micro

    def within(self, shortages: Sequence[Shortage], *, waits: bool) -> PreparedRequest | None:
        """With the longest answer that there is room for now; None when that is too short to begin."""
        request = self.whole.request
        longest = most_output(
            self.whole.estimate, request.max_output_tokens, self._left(shortages), self.prices,
            hour=request.cache_long,
        )  # fmt: skip
        waits = waits and any(one.held_micro for one in shortages)
        if longest < min(request.max_output_tokens, USUAL_OUTPUT if waits else MIN_OUTPUT):
            return None
        return replace(self.whole, request=replace(request, max_output_tokens=longest))

    def fits_once_settled(self, shortages: Sequence[Shortage]) -> bool:
        """Whether the shortest answer had room if nobody else held anything."""
        least = self.spent_micro + self._worst(self.whole, MIN_OUTPUT)
        return bool(shortages) and all(least <= one.once_settled_micro for one in shortages)

    def most_input(self, shortages: Sequence[Shortage]) -> int:
        return most_input(
            self.whole.estimate, MIN_OUTPUT, self._left(shortages), self.prices,
            hour=self.whole.request.cache_long,
        )  # fmt: skip


def _refuse_unpriced(claim: Claim, prepared: PreparedRequest, caps: Caps) -> PreparedRequest:
    """What a call of unknown price may cost nobody can say: it goes as far as the claim's cap let it."""
    if claim.refused_scope is not None:
        raise cap_reached(claim.refused_scope, timezone=caps.timezone)
    return prepared
