"""Spending on model calls: reservations under the caps before a call, and the ledger rows after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

from shared.core.session.turns import Caps, Claim, Spending
from shared.core.values.errors import CapHeld, CapReached, ModelError, cap_reached
from shared.core.values.money import (
    Prices,
    Shortage,
    affordable_input,
    affordable_output,
    cost_micro,
    worst_case_micro,
)
from shared.ports import ModelCard, ModelReply, Usage
from shared.services.turns.request_builder import PreparedRequest

MIN_OUTPUT = 512
"""Fewest tokens that must be affordable for an answer; with less, the call is not made."""
USUAL_OUTPUT = 2_048
"""Tokens of an answer below which a turn rather waits, as long as other calls may release money."""
WAIT_SECONDS = 20.0
"""Seconds that a turn waits for other calls to settle, before CapHeld postpones it."""
POLL_SECONDS = 0.5
"""Seconds between two tries to reserve while a turn waits for money."""
MAX_TRIES = 5
"""Most shortened requests tried in a row, since other turns may take the money in between."""

ShrinkRequest = Callable[[int], Awaitable[PreparedRequest | None]]
"""Function that returns the request shrunk to a number of tokens, or None if that is impossible."""


class SpendLimiter:
    """Reserver of each call's worst-case cost under the caps, before the call is sent.

    The reservation includes the turn's cost so far and counts all input as uncached. No cap is overrun as
    long as the provider counts at most a tenth more tokens than estimated.
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
        """Reserve the worst-case cost of a request; return the request, shortened if the caps require it.

        A shorter answer is tried first, then `shrink`. Waits up to `WAIT_SECONDS` for other calls to settle,
        or until `stop` is done. Raises CapReached if the money already spent leaves no room, CapHeld if
        reservations of other calls are in the way. Without caps, or without known prices, the request is
        returned as it is.
        """
        reserved = await self._reserve(costs, prepared, stop=stop, shrink=shrink)
        claim = costs.claim
        if claim.attempt > 1 and claim.reservation_id is not None and not costs.may_be_sent:
            await self._spend.mark_may_be_sent(claim.reservation_id)
            costs.may_be_sent = True
        return reserved

    async def _reserve(
        self,
        costs: CallCosts,
        prepared: PreparedRequest,
        *,
        stop: asyncio.Future[None],
        shrink: ShrinkRequest,
    ) -> PreparedRequest:
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
            shorter = offer.fit_within(refused.shortages, waits=patient) if tries < MAX_TRIES else None
            if shorter is not None:
                asked, tries = shorter, tries + 1
            elif patient and offer.can_fit_once_settled(refused.shortages):
                await self._lower_to_spent(costs)
                await asyncio.wait([stop], timeout=POLL_SECONDS)
                asked, tries = offer.whole, 0
            else:
                asked = await self._shrink(offer, refused, shrink)
                offer = replace(offer, whole=asked)
        return asked

    async def _shrink(self, offer: _CallOffer, refused: CapReached, shrink: ShrinkRequest) -> PreparedRequest:
        """Return a refused request shrunk until the money left pays for it.

        Tries half of the affordable input tokens, which leaves money for later turns, then all of them.
        Raises CapHeld if other calls hold reservations, else CapReached.
        """
        if offer.can_fit_once_settled(refused.shortages):
            raise CapHeld(str(refused)) from refused
        most = offer.max_input(refused.shortages)
        for tokens in (most // 2, most):
            small = await shrink(tokens) if 0 < tokens < offer.whole.estimate else None
            fitted = small and replace(offer, whole=small).fit_within(refused.shortages, waits=False)
            if fitted is not None:
                return fitted
        if any(one.held_micro for one in refused.shortages):
            raise CapHeld(str(refused)) from refused
        raise refused

    async def _reserve_micro(self, costs: CallCosts, micro: int) -> None:
        """Reserve `micro` micro-dollars in total for the turn so far and its next call. Raises CapReached.

        Raises the amount of the claim's reservation if it is too small; makes a new one if a cap had refused
        the claim.
        """
        claim = costs.claim
        if claim.refused_scope is None and claim.reservation_id is not None:
            if micro > max(costs.held_micro, claim.reserved_micro):
                await self._spend.raise_reservation(claim.reservation_id, micro, caps=self._caps)
                costs.held_micro, costs.may_be_sent = micro, True
            return
        id_ = await self._spend.reserve(claim.session_id, micro, caps=self._caps, turn=claim.turn)
        costs.claim = replace(
            claim, reservation_id=id_, reserved_micro=micro, refused_scope=None, near_caps=True
        )
        costs.may_be_sent = True

    async def _lower_to_spent(self, costs: CallCosts) -> None:
        """Lower the turn's reservation to its cost so far, so that other turns can use the rest while it
        waits.
        """
        claim = costs.claim
        if claim.reservation_id is None or max(costs.held_micro, claim.reserved_micro) <= costs.micro:
            return
        await self._spend.lower_reservation(claim.reservation_id, costs.micro)
        costs.claim, costs.held_micro = replace(claim, reserved_micro=costs.micro), costs.micro


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallOffer:
    """Request with its prices and the turn's cost so far, for computing how much of it the caps allow."""

    whole: PreparedRequest
    prices: Prices
    spent_micro: int
    """Micro-dollars spent by the turn's earlier calls, which its reservation includes."""

    def micro(self, prepared: PreparedRequest) -> int:
        """Return the micro-dollars of the turn so far plus a call's cost at worst."""
        return self.spent_micro + self._worst_micro(prepared, prepared.request.max_output_tokens)

    def _worst_micro(self, prepared: PreparedRequest, output: int) -> int:
        return worst_case_micro(prepared.estimate, output, self.prices, hour=prepared.request.cache_long)

    def _count_left(self, shortages: Sequence[Shortage]) -> int:
        return min((one.left_micro for one in shortages), default=0) - self.spent_micro

    def fit_within(self, shortages: Sequence[Shortage], *, waits: bool) -> PreparedRequest | None:
        """Return the request with the longest output that the caps allow now; None if that is too short.

        Too short is below `MIN_OUTPUT` tokens or, with `waits` while other calls hold reservations, below
        `USUAL_OUTPUT`. An output limit that was shorter from the start is always enough.
        """
        request = self.whole.request
        longest = affordable_output(
            self.whole.estimate, request.max_output_tokens, self._count_left(shortages), self.prices,
            hour=request.cache_long,
        )  # fmt: skip
        waits = waits and any(one.held_micro for one in shortages)
        if longest < min(request.max_output_tokens, USUAL_OUTPUT if waits else MIN_OUTPUT):
            return None
        return replace(self.whole, request=replace(request, max_output_tokens=longest))

    def can_fit_once_settled(self, shortages: Sequence[Shortage]) -> bool:
        """Return whether the shortest answer would be affordable if no other call held a reservation."""
        least = self.spent_micro + self._worst_micro(self.whole, MIN_OUTPUT)
        return bool(shortages) and all(least <= one.once_settled_micro for one in shortages)

    def max_input(self, shortages: Sequence[Shortage]) -> int:
        """Return the most input tokens that the money left pays for, with the shortest answer."""
        return affordable_input(
            self.whole.estimate, MIN_OUTPUT, self._count_left(shortages), self.prices,
            hour=self.whole.request.cache_long,
        )  # fmt: skip


def _refuse_unpriced(claim: Claim, prepared: PreparedRequest, caps: Caps) -> PreparedRequest:
    """Return a request of unknown price unchanged. Raises CapReached if a cap had refused the claim."""
    if claim.refused_scope is not None:
        raise cap_reached(claim.refused_scope, timezone=caps.timezone)
    return prepared


RecordCalls = Callable[[Sequence[Spending]], None]
"""Function that books calls really made: on their reservation, and for the tracker's `take_spent`."""


@dataclass(slots=True, kw_only=True)
class CallCosts:
    """Costs of one attempt at a turn so far, and its reservation."""

    claim: Claim
    """Claim with its current reservation, which may have been made after a cap refused the claim."""
    held_micro: int = 0
    """Micro-dollars to which the claim's reservation was raised; 0 if it was not raised."""
    may_be_sent: bool = False
    """True once the database knows that a repeated attempt may have sent calls."""
    stored: list[Spending] = field(default_factory=list)
    """Calls whose cost is stored, with a tool round or after a failure."""
    unpaid: list[Spending] = field(default_factory=list)
    """Calls whose cost is not stored yet; the end or the release of the turn stores it."""
    has_stored_round: bool = False
    """True once the attempt has stored a tool round, which a late part of the message can no longer join."""

    @property
    def micro(self) -> int:
        """Known cost of all calls in micro-dollars, stored or not; calls without a price count as 0."""
        return sum(call.cost_micro or 0 for call in (*self.stored, *self.unpaid))

    def mark_stored(self, calls: Sequence[Spending]) -> None:
        """Note that the cost of these calls, the first of `unpaid`, has been stored.

        Until then the end of the attempt stores it, so that a failed store loses no cost.
        """
        del self.unpaid[: len(calls)]
        self.stored += calls


class SpendStore(Protocol):
    """Store of reservations under the spending caps, in micro-dollars.

    `reserve` returns the reservation's id, None if no cap applies; raises CapReached. `release_reservation`
    ends one, of which `spent_micro` were used.
    """

    async def reserve(
        self, session_id: int, micro: int, *, caps: Caps, turn: int | None = None, job_id: int | None = None
    ) -> int | None: ...
    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None: ...


class TurnSpendStore(SpendStore, Protocol):
    """Store of a turn's single reservation, made by its claim or first call and raised by later calls.

    `raise_reservation` raises it to `micro` micro-dollars in all, or raises CapReached and leaves it
    unchanged. `lower_reservation` lowers it to `micro`. `mark_may_be_sent` notes that calls may be sent, so
    that they are booked even after a crash.
    """

    async def raise_reservation(self, reservation_id: int, micro: int, *, caps: Caps) -> None: ...
    async def lower_reservation(self, reservation_id: int, micro: int) -> None: ...
    async def mark_may_be_sent(self, reservation_id: int) -> None: ...


class SpendTracker:
    """Spending of one background job or helper: reservations under the caps, and calls whose cost is to be
    stored.
    """

    def __init__(self, store: SpendStore, *, session_id: int, job_id: int | None, caps: Caps) -> None:
        self._store = store
        self._session_id = session_id
        self._job_id = job_id
        self._caps = caps
        self.spent: list[Spending] = []

    @property
    def trace_ids(self) -> tuple[int, int]:
        """Session id and the negated job id, used in traces in place of session and turn; 0 without a job."""
        return self._session_id, -(self._job_id or 0)

    def hold(
        self,
        input_tokens: int,
        output_tokens: int,
        card: ModelCard,
        *,
        hour: bool = False,
        held_micro: int = 0,
    ) -> SpendReservation:
        """Return a context manager that reserves one call's worst-case cost, and settles it at the end.

        `hour` says that the prefix is cached for an hour; `held_micro` micro-dollars of the cost are reserved
        already. A model without prices reserves nothing. Entering raises CapReached.
        """
        if card.prices is None:
            return self.hold_micro(0)
        worst = worst_case_micro(input_tokens, output_tokens, card.prices, hour=hour)
        return self.hold_micro(max(0, worst - held_micro))

    def hold_micro(self, micro: int) -> SpendReservation:
        """Return a context manager that reserves `micro` micro-dollars for one call; 0 reserves nothing.

        Entering raises CapReached.
        """
        return SpendReservation(self, micro)

    async def pay_for(
        self,
        ask: Callable[[], Awaitable[ModelReply]],
        *,
        input_tokens: int,
        output_tokens: int,
        card: ModelCard,
    ) -> ModelReply:
        """Make one call by `ask` under a reservation of its worst-case cost, book it for `take_spent` and
        return the reply.

        A failed call is booked, too, and a cancelled one by its estimated input. Raises CapReached before the
        call, and whatever `ask` raises.
        """
        async with self.hold(input_tokens, output_tokens, card) as pay:
            try:
                reply = await ask()
            except ModelError as error:
                pay([build_spending(usage, card.name, card, aborted=True) for usage in error.aborted])
                raise
            except asyncio.CancelledError:
                # The provider reports no usage for a cancelled call, so its input is estimated.
                read = Usage(input_tokens=input_tokens, output_tokens=0, known=False)
                pay([build_spending(read, card.name, card, aborted=True)])
                raise
            pay(list_spending(reply, card))
        return reply

    def take_spent(self) -> tuple[Spending, ...]:
        """Return the calls whose cost is not stored yet and forget them, so that they are stored once."""
        taken = tuple(self.spent)
        self.spent.clear()
        return taken

    async def reserve(self, micro: int) -> int | None:
        """Reserve `micro` micro-dollars and return the reservation's id; None for 0 or if no cap applies.

        Raises CapReached.
        """
        if micro == 0:
            return None
        return await self._store.reserve(self._session_id, micro, caps=self._caps, job_id=self._job_id)

    async def settle(self, reservation_id: int | None, calls: Sequence[Spending]) -> None:
        """End a reservation, charging the cost of its `calls` instead; an id of None does nothing."""
        if reservation_id is not None:
            spent = sum(call.cost_micro or 0 for call in calls)
            await self._store.release_reservation(reservation_id, spent_micro=spent)


class SpendReservation:
    """Context manager that holds one reservation; its value is a function that records the calls
    really made.
    """

    def __init__(self, tracker: SpendTracker, micro: int) -> None:
        self._tracker = tracker
        self._micro = micro
        self._reservation_id: int | None = None
        self._calls: list[Spending] = []

    async def __aenter__(self) -> RecordCalls:
        self._reservation_id = await self._tracker.reserve(self._micro)
        return self._pay

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tracker.settle(self._reservation_id, self._calls)

    def _pay(self, calls: Sequence[Spending]) -> None:
        self._calls.extend(calls)
        self._tracker.spent.extend(calls)


def list_spending(reply: ModelReply, card: ModelCard) -> list[Spending]:
    """Return the ledger rows of a reply, unstored: its discarded attempts, then the call that succeeded."""
    aborted = [build_spending(usage, reply.model, card, aborted=True) for usage in reply.aborted]
    return [*aborted, build_spending(reply.usage, reply.model, card, request_id=reply.request_id)]


def build_spending(
    usage: Usage, model: str, card: ModelCard, *, request_id: str = "", aborted: bool = False
) -> Spending:
    """Return the ledger row for one call, unstored; its cost is None if the model has no prices.

    Usage that the provider did not report is charged as estimated. `aborted` marks a call whose answer was
    discarded.
    """
    return Spending(
        model=model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        known=usage.known,
        cost_micro=cost_micro(usage if usage.known else replace(usage, known=True), card.prices),
        request_id=request_id,
        aborted=aborted,
    )
