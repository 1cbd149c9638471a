"""Cap on tokens of models without a price: what it asks of the store, and what it makes of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pytest

from shared.adapters.models.token_cap import (
    LEAST_OUTPUT,
    HeldTokens,
    TokenCap,
    find_dearest_prices,
    find_output_weight,
    find_token_cap,
)
from shared.core.values.errors import CapReached, StorageUnavailable

WEIGHT = find_output_weight()
CAP = 100_000


class Store:
    """Reservations in memory."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.settled: dict[int, int] = {}
        self.is_away = False

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
        used = sum(self.held.values()) + sum(self.settled.values())
        longest = min(output_tokens, (cap - used - input_tokens) // weight)
        if longest < min(output_tokens, least_output):
            return None
        number = len(self.held) + len(self.settled) + 1
        self.held[number] = input_tokens + weight * longest
        return number, longest

    async def settle_tokens(self, reservation_id: int, tokens: int) -> None:
        if self.is_away:
            raise StorageUnavailable
        self.settled[reservation_id] = tokens
        del self.held[reservation_id]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def cap(store: Store) -> TokenCap:
    return TokenCap(store, cap=CAP, timezone="UTC")


def test_default_cap_is_the_dollar_cap_at_the_dearest_price() -> None:
    dearest_input, dearest_output = find_dearest_prices()
    tokens = find_token_cap(dollars=Decimal("5.00"), tokens=None)
    assert tokens == int(5_000_000 / dearest_input)
    assert WEIGHT * dearest_input >= dearest_output * 0.9
    assert find_token_cap(dollars=Decimal("5.00"), tokens=7) == 7


async def test_answer_is_shortened_to_what_is_left(cap: TokenCap) -> None:
    held = await cap.hold(CAP - 600 * WEIGHT, 4_096)
    assert held.output_tokens == 600
    with pytest.raises(CapReached):
        await cap.hold(10, 4_096)


async def test_answer_below_the_shortest_is_not_begun(cap: TokenCap) -> None:
    with pytest.raises(CapReached):
        await cap.hold(CAP - (LEAST_OUTPUT - 1) * WEIGHT, 4_096)
    assert (await cap.hold(CAP - 20 * WEIGHT, 20)).output_tokens == 20


async def test_settled_call_counts_what_it_used(cap: TokenCap, store: Store) -> None:
    held = await cap.hold(1_000, 2_000)
    await cap.settle(held, used_input=900, used_output=10)
    assert store.settled == {held.reservation_id: 900 + 10 * WEIGHT}


async def test_reservation_stays_while_the_database_is_away(cap: TokenCap, store: Store) -> None:
    held = await cap.hold(1_000, 2_000)
    store.is_away = True
    await cap.settle(held, used_input=900, used_output=10)
    assert store.held == {held.reservation_id: 1_000 + 2_000 * WEIGHT}


async def test_crash_point_is_between_reservation_and_call(store: Store) -> None:
    seen: list[tuple[str, int]] = []
    cap = TokenCap(
        store, cap=CAP, timezone="UTC", crash_point=lambda name: seen.append((name, len(store.held)))
    )
    assert isinstance(await cap.hold(1_000, 2_000), HeldTokens)
    assert seen == [("after_tokens_held", 1)]
