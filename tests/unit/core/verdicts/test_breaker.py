"""The breaker: when it opens, when it lets a probe through, and what closes it."""

from __future__ import annotations

import pytest

from shared.core.values.errors import ModelRefusedAccount, ModelUnavailable
from shared.core.verdicts.breaker import Breaker
from tests.kit.model_makers import HandClock


def opened(clock: HandClock) -> Breaker:
    breaker = Breaker(clock=clock)
    for _ in range(5):
        breaker.record_failure("503")
    return breaker


def test_four_failures_are_too_few_to_judge() -> None:
    breaker = Breaker(clock=HandClock())
    for _ in range(4):
        breaker.record_failure("503")
    breaker.admit()
    assert not breaker.get_state().open


def test_half_of_the_recent_calls_failing_opens_it() -> None:
    breaker = Breaker(clock=HandClock())
    for _ in range(4):
        breaker.record_success()
    for _ in range(3):
        breaker.record_failure("503")
    assert not breaker.get_state().open
    breaker.record_failure("503")
    assert breaker.get_state().open
    with pytest.raises(ModelUnavailable, match="503"):
        breaker.admit()


def test_single_conversation_never_opens_the_breaker() -> None:
    breaker = Breaker(clock=HandClock())
    for _ in range(30):
        breaker.record_failure("500: only this one", session=7)
    assert not breaker.get_state().open
    assert breaker.get_state().failures == 1
    for session in range(8, 12):
        breaker.record_failure("500", session=session)
    assert breaker.get_state().open


def test_failures_of_long_ago_are_forgotten() -> None:
    clock = HandClock()
    breaker = Breaker(clock=clock)
    for _ in range(4):
        breaker.record_failure("503")
    clock.now += 31
    breaker.record_failure("503")
    assert not breaker.get_state().open
    assert breaker.get_state().calls == 1


def test_one_probe_is_let_through_every_ten_seconds() -> None:
    clock = HandClock()
    breaker = opened(clock)
    with pytest.raises(ModelUnavailable):
        breaker.admit()
    clock.now += 10
    breaker.admit()
    with pytest.raises(ModelUnavailable):
        breaker.admit()
    clock.now += 9.9
    with pytest.raises(ModelUnavailable):
        breaker.admit()
    clock.now += 0.1
    breaker.admit()


def test_a_probe_that_succeeds_closes_it_and_forgets_the_failures() -> None:
    clock = HandClock()
    breaker = opened(clock)
    clock.now += 10
    breaker.admit()
    breaker.record_success()
    breaker.record_failure("503")
    breaker.admit()
    assert not breaker.get_state().open


def test_a_refused_account_opens_it_at_once_and_is_named_while_open() -> None:
    clock = HandClock()
    breaker = Breaker(clock=clock)
    breaker.record_refusal("401: invalid x-api-key")
    with pytest.raises(ModelRefusedAccount, match="invalid x-api-key"):
        breaker.admit()
    assert breaker.get_state().account_refused
    clock.now += 10
    breaker.admit()
    breaker.record_success()
    assert not breaker.get_state().account_refused


def test_single_refusal_of_a_working_account_concerns_its_request_only() -> None:
    breaker = Breaker(clock=HandClock())
    for _ in range(3):
        breaker.record_success()
        breaker.record_refusal("403: not permitted")
        breaker.admit()
    assert not breaker.get_state().open
    breaker.record_refusal("403: not permitted")
    assert breaker.get_state().account_refused


def test_an_account_that_was_served_long_ago_is_refused_at_once() -> None:
    clock = HandClock()
    breaker = Breaker(clock=clock)
    breaker.record_success()
    clock.now += 31
    breaker.record_refusal("402: payment required")
    assert breaker.get_state().account_refused


def test_breaker_state_names_open_time_and_next_probe() -> None:
    clock = HandClock()
    breaker = opened(clock)
    clock.now += 4
    state = breaker.get_state()
    assert (state.open_seconds, state.probe_in_seconds, state.failures) == (4.0, 6.0, 5)
    assert state.reason == "503"
