"""Refusals as many servers send them, as data: shape, wording, meaning and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models.dialects.error_bodies import read_error_body
from shared.adapters.models.error_mapping import (
    AbilityRefused,
    ModelOverloaded,
    ModelUnknown,
    build_error,
    read_refusal,
)
from shared.core.values.errors import (
    ContentRefused,
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
    PromptTooLong,
)
from tests.kit import dialects

CASES: list[dict[str, Any]] = json.loads((Path(dialects.__file__).parent / "refusals.json").read_text())
KINDS: dict[str, type[ModelError]] = {
    "full_window": PromptTooLong,
    "busy": ModelBusy,
    "account": ModelRefusedAccount,
    "unknown_model": ModelUnknown,
    "content": ContentRefused,
    "overloaded": ModelOverloaded,
    "down": ModelUnavailable,
    "rejected": ModelRejectedRequest,
}


def name_of(case: dict[str, Any]) -> str:
    return f"{case['server']}-{case['status']}-{case['expected']}"


def understood(status: int, body: Any) -> ModelError:
    return build_error(read_refusal(status, body, message=body if isinstance(body, str) else ""))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_refusal_of_a_server_is_understood(case: dict[str, Any]) -> None:
    error = understood(case["status"], case["body"])
    if kind := KINDS.get(case["expected"]):
        assert type(error) is kind, error
    else:
        assert isinstance(error, AbilityRefused), error
        assert (error.missing.ability, error.missing.number) == (case["expected"], case.get("number"))
    if isinstance(error, PromptTooLong):
        assert (error.tokens, error.maximum) == (case.get("tokens"), case.get("maximum"))
    if isinstance(error, ModelBusy) and "seconds" in case:
        assert error.retry_after_seconds == case["seconds"]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_text_of_a_refusal_is_kept_without_its_shape(case: dict[str, Any]) -> None:
    reason = str(understood(case["status"], case["body"]))
    assert not {"{", "<html"} & set(reason.split(" ", 2)[1:2])
    assert len(reason) < 600


@pytest.mark.parametrize(
    "body",
    [
        [[[[[[[[[{"message": "deep"}]]]]]]]]],
        {"error": {"error": {"error": {"error": {"error": {"error": {"error": "deep"}}}}}}},
        {"error": ["{" * 40_000]},
        {"errors": [{"message": f"number {n}"} for n in range(100_000)]},
        "[" * 100_000,
        '{"a":' * 50_000,
        "<" * 100_000,
        "<script>" * 50_000,
        {"message": 7, "code": True, "type": ["list"], "error": 3.5},
        None,
        7,
    ],
)
def test_error_body_of_any_shape_is_read_within_bounds(body: object) -> None:
    told = read_error_body(body, otherwise="otherwise")
    assert len(told.text) <= 20_000
    assert isinstance(understood(400, body), ModelError)
