"""Cap on tokens of models without a price: it holds in one process and beside others."""

from __future__ import annotations

from decimal import Decimal

import pytest

from shared.adapters.models.token_cap import (
    LOOK_SECONDS,
    TokenCap,
    UnpricedDay,
    find_dearest_prices,
    find_output_weight,
    find_token_cap,
)
from shared.core.values.errors import CapReached
from tests.kit.model_makers import HandClock

WEIGHT = find_output_weight()
CAP = 100_000


class Ledger:
    """Tokens that all processes have stored."""

    def __init__(self) -> None:
        self.day, self.input, self.output, self.looks = "2026-11-28", 0, 0, 0

    async def __call__(self) -> UnpricedDay:
        self.looks += 1
        return UnpricedDay(day=self.day, input_tokens=self.input, output_tokens=self.output)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def cap(ledger: Ledger, clock: HandClock) -> TokenCap:
    return TokenCap(ledger, cap=CAP, timezone="UTC", clock=clock)


def test_default_cap_is_the_dollar_cap_at_the_dearest_price() -> None:
    dearest_input, dearest_output = find_dearest_prices()
    tokens = find_token_cap(dollars=Decimal("5.00"), tokens=None)
    assert tokens == int(5_000_000 / dearest_input)
    assert WEIGHT * dearest_input >= dearest_output * 0.9
    assert find_token_cap(dollars=Decimal("5.00"), tokens=7) == 7


async def test_calls_at_once_never_exceed_the_cap(cap: TokenCap) -> None:
    held = 0
    with pytest.raises(CapReached):
        for _ in range(1_000):
            held += 1_000 + WEIGHT * await cap.hold(1_000, 2_000)
    assert 0.9 * CAP < held <= CAP


async def test_answer_is_shortened_to_what_is_left(cap: TokenCap) -> None:
    assert await cap.hold(CAP - 600 * WEIGHT, 4_096) == 600
    with pytest.raises(CapReached):
        await cap.hold(10, 4_096)


async def test_released_call_counts_what_it_used(cap: TokenCap) -> None:
    for _ in range(10):
        longest = await cap.hold(1_000, 2_000)
        cap.release(1_000, longest, used_input=1_000, used_output=10)
    left = CAP - 10 * (1_000 + 10 * WEIGHT)
    assert await cap.hold(left - 600 * WEIGHT, 4_096) == 600


async def test_tokens_of_other_processes_count_within_seconds(
    cap: TokenCap, ledger: Ledger, clock: HandClock
) -> None:
    longest = await cap.hold(100, 600)
    cap.release(100, longest, used_input=100, used_output=600)
    ledger.input = CAP
    await cap.hold(100, 600)
    assert ledger.looks == 1
    clock.now += LOOK_SECONDS
    with pytest.raises(CapReached):
        await cap.hold(100, 600)


async def test_own_call_counts_before_the_ledger_has_it(
    cap: TokenCap, ledger: Ledger, clock: HandClock
) -> None:
    longest = await cap.hold(1_000, 600)
    cap.release(1_000, longest, used_input=CAP, used_output=600)
    clock.now += LOOK_SECONDS
    with pytest.raises(CapReached):
        await cap.hold(100, 600)
    ledger.day = "2026-11-29"
    clock.now += LOOK_SECONDS
    assert await cap.hold(100, 600) == 600, "a new day begins at nothing"
