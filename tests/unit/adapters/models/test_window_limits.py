"""What refusals say of a window is believed when several say so, for minutes, never against evidence."""

from __future__ import annotations

import pytest

from shared.adapters.models.limits import LARGEST_WINDOW, SMALLEST_WINDOW, ModelLimits
from tests.kit.model_makers import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def limits(clock: HandClock) -> ModelLimits:
    return ModelLimits(clock=clock)


def refused_in(limits: ModelLimits, *turns: tuple[int, int], maximum: int = 3_000) -> None:
    for about in turns:
        limits.record_refused(maximum, about=about)


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([(1, 1)], False),
        ([(1, 1)] * 10, False),
        ([(1, 1), (1, 2)], False),
        ([(1, 1), (1, 2), (1, 3)], True),
        ([(1, 1), (2, 7)], True),
        ([(1, 1), (2, -5)], True),
        ([(0, 0), (1, 1)], False),
        ([(0, 0)] * 5, False),
    ],
)
def test_two_conversations_or_three_turns_prove_a_number(
    limits: ModelLimits, turns: list[tuple[int, int]], believed: bool
) -> None:
    refused_in(limits, *turns)
    assert limits.get_believed_maximum() == (3_000 if believed else None)


def test_different_numbers_prove_nothing(limits: ModelLimits) -> None:
    refused_in(limits, (1, 1), maximum=3_000)
    refused_in(limits, (2, 1), maximum=4_000)
    assert limits.get_believed_maximum() is None


def test_proven_limit_holds_two_minutes_and_is_renewed_by_refusal(
    limits: ModelLimits, clock: HandClock
) -> None:
    refused_in(limits, (1, 1), (2, 1))
    clock.now += 119
    assert limits.get_believed_maximum() == 3_000
    clock.now += 1
    assert limits.get_believed_maximum() is None
    assert limits.get_reported_maximum() == 3_000, "operators are not told of the end of it every two minutes"
    refused_in(limits, (2, 2))
    assert limits.get_believed_maximum() == 3_000
    clock.now += 600
    assert limits.get_reported_maximum() is None
    refused_in(limits, (3, 1))
    assert limits.get_believed_maximum() is None, "what was said ten minutes ago proves nothing any more"


def test_nothing_is_believed_below_what_was_taken_within_the_hour(
    limits: ModelLimits, clock: HandClock
) -> None:
    limits.record_accepted(50_000)
    clock.now += 3_000
    limits.record_accepted(7_000)
    refused_in(limits, (1, 1), (2, 1))
    assert limits.get_believed_maximum() == 50_000
    clock.now += 1_000
    refused_in(limits, (3, 1), (4, 1))
    assert limits.get_believed_maximum() == 7_000


def test_a_prompt_that_is_taken_disproves_every_smaller_number(limits: ModelLimits) -> None:
    refused_in(limits, (1, 1), (2, 1))
    limits.record_accepted(3_000)
    assert limits.get_believed_maximum() == 3_000
    limits.record_accepted(3_001)
    assert limits.get_believed_maximum() is None
    assert limits.get_reported_maximum() is None


@pytest.mark.parametrize("maximum", [-5, 0, SMALLEST_WINDOW - 1, LARGEST_WINDOW + 1, 10**400])
def test_numbers_that_no_window_has_are_passed_over(limits: ModelLimits, maximum: int) -> None:
    refused_in(limits, (1, 1), (2, 1), (3, 1), maximum=maximum)
    assert limits.get_believed_maximum() is None


def test_what_is_remembered_does_not_grow(limits: ModelLimits, clock: HandClock) -> None:
    for number in range(5_000):
        limits.record_accepted(number + 4_000)
        limits.record_refused(20_000, about=(number, 1))
        clock.now += 60
    assert len(limits._taken) <= 13
    assert len(limits._refusals) <= 100
