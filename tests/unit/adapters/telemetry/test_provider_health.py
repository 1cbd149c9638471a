"""What a process tells of a provider that is out: enough to act on, and none of the provider's own words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shared.adapters.models.error_mapping import build_error, read_refusal
from shared.adapters.telemetry.health import Health
from shared.core.verdicts.breaker import FEWEST_CALLS, Breaker

CANARY = "Maria-7f3a9b"


def told_of(breaker: Breaker) -> dict[str, object]:
    (provider,) = Health(lambda: {"https://api.example.org": breaker.get_state()}, Path("/"))()["providers"]
    found: dict[str, object] = provider
    return found


def answered(status: int, kind: str, words: str) -> str:
    return str(build_error(read_refusal(status, {"error": {"type": kind, "message": words}})))


@pytest.mark.parametrize(
    ("status", "kind", "words", "told"),
    [
        (
            401,
            "authentication_error",
            "invalid x-api-key sk-ant-api03-XX",
            "401 authentication_error, about the key",
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low",
            "400 invalid_request_error, about billing",
        ),
        (
            429,
            "insufficient_quota",
            "You exceeded your current quota",
            "429 insufficient_quota, about a quota",
        ),
        (403, "permission_error", "account suspended", "403 permission_error, about a closed account"),
        (403, "", f"no more for {CANARY}", "403"),
        (402, CANARY, f"{CANARY}_error said {CANARY}", "402"),
    ],
)
def test_refused_account_is_reported_by_codes_and_subject(
    status: int, kind: str, words: str, told: str
) -> None:
    breaker = Breaker(clock=time.monotonic)
    breaker.record_refusal(answered(status, kind, words))
    assert told_of(breaker)["reason"] == told


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (answered(529, "overloaded_error", "Overloaded"), "529 overloaded_error"),
        (answered(500, "", f"cannot parse: {CANARY} said hello"), "500"),
        (f"ConnectError: {CANARY}", "ConnectError"),
        ("no word for 30 s", "no word for 30 s"),
        (f"{CANARY} wrote: x", ""),
    ],
)
def test_failing_provider_is_reported_without_its_text(reason: str, told: str) -> None:
    breaker = Breaker(clock=time.monotonic)
    for _ in range(FEWEST_CALLS):
        breaker.record_failure(reason)
    found = told_of(breaker)
    assert found.get("reason", "") == told
    assert CANARY not in str(found)


def test_a_provider_that_answers_has_no_reason() -> None:
    breaker = Breaker(clock=time.monotonic)
    breaker.record_refusal(answered(401, "authentication_error", "no"))
    breaker.record_success()
    assert "reason" not in told_of(breaker)
