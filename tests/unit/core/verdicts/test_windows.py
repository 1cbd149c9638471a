"""Windows that refusals name: believed from the second refusal on, until a larger prompt is accepted."""

from __future__ import annotations

import pytest

from shared.core.verdicts.windows import BELIEVED_SECONDS, LARGEST_WINDOW, SMALLEST_WINDOW, LearnedWindow
from tests.kit.model_makers import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def window(clock: HandClock) -> LearnedWindow:
    return LearnedWindow(clock=clock)


def refuse(window: LearnedWindow, *sessions: int, maximum: int = 3_000, is_quoted: bool = False) -> None:
    for session in sessions:
        window.record_refused(maximum, session=session, is_quoted=is_quoted)


@pytest.mark.parametrize(
    ("sessions", "believed"),
    [((), False), ((1,), False), ((1, 1), True), ((1, 2), True), ((0, 0), True), ((0, 1), True)],
)
def test_exact_number_is_believed_from_the_second_refusal_on(
    window: LearnedWindow, sessions: tuple[int, ...], believed: bool
) -> None:
    refuse(window, *sessions)
    assert window.get_believed_maximum() == (3_000 if believed else None)


@pytest.mark.parametrize(
    ("sessions", "believed"),
    [((1,) * 20, False), ((1, 2) * 10, False), ((1, 2, 3), True), ((0, 1, 2), False)],
)
def test_number_from_the_conversation_needs_three_sessions(
    window: LearnedWindow, sessions: tuple[int, ...], believed: bool
) -> None:
    refuse(window, *sessions, is_quoted=True)
    assert window.get_believed_maximum() == (3_000 if believed else None)


def test_two_different_numbers_prove_nothing(window: LearnedWindow) -> None:
    refuse(window, 1, maximum=3_000)
    refuse(window, 2, maximum=4_000)
    assert window.get_believed_maximum() is None


def test_single_new_number_leaves_the_believed_one(window: LearnedWindow) -> None:
    refuse(window, 1, 1, maximum=4_000)
    refuse(window, 1, maximum=3_000)
    assert window.get_believed_maximum() == 4_000
    refuse(window, 1, maximum=3_000)
    assert window.get_believed_maximum() == 3_000


def test_belief_lapses_and_doubles_when_it_is_confirmed(window: LearnedWindow, clock: HandClock) -> None:
    refuse(window, 1, 2)
    clock.now += BELIEVED_SECONDS - 1
    assert window.get_believed_maximum() == 3_000
    clock.now += 1
    assert window.get_believed_maximum() is None, "the next request goes out as before"
    refuse(window, 2)
    clock.now += 2 * BELIEVED_SECONDS - 1
    assert window.get_believed_maximum() == 3_000
    clock.now += 1
    assert window.get_believed_maximum() is None


def test_refusals_of_a_day_ago_prove_nothing(window: LearnedWindow, clock: HandClock) -> None:
    refuse(window, 1)
    clock.now += 86_401
    refuse(window, 1)
    assert window.get_believed_maximum() is None


def test_prompts_accepted_before_a_refusal_disprove_nothing(window: LearnedWindow) -> None:
    window.record_accepted(50_000)
    refuse(window, 1, 1)
    assert window.get_believed_maximum() == 3_000


def test_larger_prompt_accepted_later_disproves_the_number(window: LearnedWindow) -> None:
    refuse(window, 1, 1)
    window.record_accepted(3_000)
    assert window.get_believed_maximum() == 3_000
    window.record_accepted(3_001)
    assert window.get_believed_maximum() is None
    refuse(window, 1)
    assert window.get_believed_maximum() is None, "the former refusals are disproved, too"


@pytest.mark.parametrize("maximum", [-5, 0, SMALLEST_WINDOW - 1, LARGEST_WINDOW + 1, 10**400])
def test_numbers_that_no_window_has_are_ignored(window: LearnedWindow, maximum: int) -> None:
    refuse(window, 1, 2, 3, maximum=maximum)
    assert window.get_believed_maximum() is None


def test_refusals_that_are_kept_do_not_grow(window: LearnedWindow, clock: HandClock) -> None:
    for number in range(5_000):
        window.record_refused(20_000, session=number)
        clock.now += 60
    assert len(window._refusals) <= 100
