"""Alerts hold facts by kind and nothing else, and say the same in words, in a webhook and in a signature."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from shared.core.ops.alerts import (
    ADVICE,
    KINDS,
    PERMITTED,
    Alert,
    BadAlert,
    Kind,
    Sending,
    advice_of,
    check_detail,
    headline,
    message,
    payload,
    signature,
    wait_seconds,
)

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
URL = "https://talk.example.org/dashboard"
SPENT = Alert(
    public_id="11111111-2222-3333-4444-555555555555", kind="spend_80", key="total",
    detail={"used_micro": 4_100_000, "cap_micro": 5_000_000}, opened_at=AT,
)  # fmt: skip


def sending(alert: Alert = SPENT, **more: Any) -> Sending:
    given: dict[str, Any] = {
        "send_id": 1, "send_key": "k", "target": "webhook", "phase": "opened", "attempt": 1,
    }  # fmt: skip
    return Sending(alert=alert, **given | more)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_a_headline_advice_and_its_facts(kind: Kind) -> None:
    assert all(KINDS[kind])
    assert set(KINDS) == set(PERMITTED) == set(get_args(Kind))


@pytest.mark.parametrize(
    "detail",
    [
        {"text": "hello"},
        {"provider": "my secret is blue"},
        {"provider": "a\nb"},
        {"provider": ["api.example.org"]},
        {"provider": True},
        {"provider": 1.5},
    ],
)
def test_no_alert_holds_words(detail: dict[str, Any]) -> None:
    with pytest.raises(BadAlert):
        check_detail("breaker_open", detail)


def test_a_message_says_what_how_much_and_what_to_do() -> None:
    assert message(SPENT, "opened", dashboard_url=URL) == (
        "80 % of today's budget is used\n$4.10 of $5.00\n\n"
        "At 100 %, all answers stop until midnight; EVERTALK_CAP_TOTAL_PER_DAY_USD raises the cap.\n\n"
        f"{URL}/alerts"
    )


def test_alert_end_has_its_own_type() -> None:
    assert headline(SPENT, "ended") == "Over: 80 % of today's budget is used"
    over = replace(SPENT, ended_at=AT)
    assert json.loads(payload(sending(over, phase="ended"), dashboard_url=URL))["type"] == "alert.ended"


def test_who_waits_is_linked_to() -> None:
    waits = replace(SPENT, kind="handover_waiting", detail={"session": "abc", "minutes": 5})
    assert message(waits, "opened", dashboard_url=URL).endswith(f"{URL}/sessions/abc")


def test_a_webhook_says_the_same_bytes_at_every_try() -> None:
    first = payload(sending(), dashboard_url=URL)
    assert first == payload(sending(attempt=7), dashboard_url=URL)
    told = json.loads(first)
    assert (told["id"], told["type"], told["alert"]["kind"]) == ("k", "alert.opened", "spend_80")
    assert told["alert"]["detail"] == {"used_micro": 4_100_000, "cap_micro": 5_000_000}
    assert told["alert"]["opened_at"] == "2026-03-01T12:00:00Z"


def test_a_signature_covers_the_time_and_every_byte() -> None:
    made = signature("s" * 32, 1_700_000_000, b"{}")
    assert (
        made == "v1=73b0c93d610ddd03ce2b853c7b6263d71114d7f83e5a29ed052cbd2a0fbddebc"
    )  # as openssl makes it
    assert made != signature("s" * 32, 1_700_000_001, b"{}")
    assert made != signature("s" * 32, 1_700_000_000, b"{ }")
    assert made != signature("t" * 32, 1_700_000_000, b"{}")


def test_waits_grow_and_then_stay() -> None:
    waits = [wait_seconds(attempt) for attempt in range(1, 13)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (5.0, 900.0)


@pytest.mark.parametrize("code", [*ADVICE, "http_500", "smtp_421"])
def test_every_failure_comes_with_advice(code: str) -> None:
    assert advice_of(code)
