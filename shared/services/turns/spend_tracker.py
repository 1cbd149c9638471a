"""Money of background calls: set aside before each call, settled after it, kept for the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

from shared.core.session.turns import Caps, Claim, Spending
from shared.core.values.errors import ModelError
from shared.core.values.money import cost_micro, worst_case_micro
from shared.ports import ModelCard, ModelReply, Usage

RecordCalls = Callable[[Sequence[Spending]], None]


@dataclass(slots=True, kw_only=True)
class CallCosts:
    """What one attempt at a turn has cost so far, and what is set aside for it."""

    claim: Claim
    """As it is now: where a cap refused it, money may have been set aside later."""
    held_micro: int = 0
    """What the claim's reservation was raised to."""
    stored: list[Spending] = field(default_factory=list)
    """With a tool round."""
    unpaid: list[Spending] = field(default_factory=list)
    """In no ledger yet: the turn's end stores them, or whoever puts it back."""

    @property
    def micro(self) -> int:
        return sum(call.cost_micro or 0 for call in (*self.stored, *self.unpaid))

    def take_unpaid(self) -> tuple[Spending, ...]:
        """For the ledger, which has them once, whatever cuts this attempt off."""
        taken = tuple(self.unpaid)
        self.unpaid.clear()
        return taken


class SpendStore(Protocol):
    async def reserve(
        self, session_id: int, micro: int, *, caps: Caps, turn: int | None = None, job_id: int | None = None
    ) -> int | None: ...
    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None: ...


class TurnSpendStore(SpendStore, Protocol):
    """A turn has one reservation, made by its claim or with its first call, which grows with its rounds."""

    async def raise_reservation(self, reservation_id: int, micro: int, *, caps: Caps) -> None: ...


class SpendTracker:
    """What one job may spend and has spent."""

    def __init__(self, store: SpendStore, *, session_id: int, job_id: int | None, caps: Caps) -> None:
        self._store = store
        self._session_id = session_id
        self._job_id = job_id
        self._caps = caps
        self.spent: list[Spending] = []

    @property
    def trace_ids(self) -> tuple[int, int]:
        """The conversation, and the job as no turn of it is numbered."""
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
        """Around one call; entering raises CapReached. `hour`: the prefix is to be kept for an hour.

        Of the call's worst case `held_micro` is set aside already.
        """
        if card.prices is None:
            return self.hold_micro(0)
        worst = worst_case_micro(input_tokens, output_tokens, card.prices, hour=hour)
        return self.hold_micro(max(0, worst - held_micro))

    def hold_micro(self, micro: int) -> SpendReservation:
        """Around one call of so much; 0 where nobody knows its price: nothing is set aside."""
        return SpendReservation(self, micro)

    async def pay_for(
        self,
        ask: Callable[[], Awaitable[ModelReply]],
        *,
        input_tokens: int,
        output_tokens: int,
        card: ModelCard,
    ) -> ModelReply:
        """One call and what it cost, also when it failed or was cut off after the provider began to count."""
        async with self.hold(input_tokens, output_tokens, card) as pay:
            try:
                reply = await ask()
            except ModelError as error:
                pay([build_spending(usage, card.name, card, aborted=True) for usage in error.aborted])
                raise
            except asyncio.CancelledError:
                # Nobody says how much was written until then; what was read is reckoned.
                read = Usage(input_tokens=input_tokens, output_tokens=0, known=False)
                pay([build_spending(read, card.name, card, aborted=True)])
                raise
            pay(list_spending(reply, card))
        return reply

    def take_spent(self) -> tuple[Spending, ...]:
        """For the ledger, which has them once, whatever cuts this job off."""
        taken = tuple(self.spent)
        self.spent.clear()
        return taken

    async def reserve(self, micro: int) -> int | None:
        if micro == 0:
            return None
        return await self._store.reserve(self._session_id, micro, caps=self._caps, job_id=self._job_id)

    async def settle(self, reservation_id: int | None, calls: Sequence[Spending]) -> None:
        if reservation_id is not None:
            spent = sum(call.cost_micro or 0 for call in calls)
            await self._store.release_reservation(reservation_id, spent_micro=spent)


class SpendReservation:
    """An open reservation; `pay` notes what the call really cost."""

    def __init__(self, purse: SpendTracker, micro: int) -> None:
        self._purse = purse
        self._micro = micro
        self._reservation_id: int | None = None
        self._calls: list[Spending] = []

    async def __aenter__(self) -> RecordCalls:
        self._reservation_id = await self._purse.reserve(self._micro)
        return self._pay

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._purse.settle(self._reservation_id, self._calls)

    def _pay(self, calls: Sequence[Spending]) -> None:
        self._calls.extend(calls)
        self._purse.spent.extend(calls)


def list_spending(reply: ModelReply, card: ModelCard) -> list[Spending]:
    """The call and the attempts that were thrown away before it."""
    aborted = [build_spending(usage, reply.model, card, aborted=True) for usage in reply.aborted]
    return [*aborted, build_spending(reply.usage, reply.model, card, request_id=reply.request_id)]


def build_spending(
    usage: Usage, model: str, card: ModelCard, *, request_id: str = "", aborted: bool = False
) -> Spending:
    """One row of the ledger; where the provider did not say, our estimate is charged, `known=False`."""
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
