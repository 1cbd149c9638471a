"""Errors in the wordings of many servers, and what they mean for us."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import pytest

from shared.adapters.models.refusals import (
    ModelOverloaded,
    ModelUnknown,
    error_of,
    is_about_schema,
    is_about_thinking,
    read_refusal,
)
from shared.core.errors import (
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
    PromptTooLong,
)


def meant(status: int, message: str = "", kind: str = "", headers: Any = None, **fields: Any) -> ModelError:
    body = {"type": "error", "error": {"type": kind, "message": message, **fields}}
    return error_of(read_refusal(status, body, headers=headers))


@pytest.mark.parametrize(
    ("status", "message", "tokens", "maximum"),
    [
        (400, "prompt is too long: 210031 tokens > 200000 maximum", 210_031, 200_000),
        (
            400,
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            190_000,
            200_000,
        ),
        (400, "request (21031 tokens) exceeds the available context size (8192 tokens), try", 21_031, 8_192),
        (
            400,
            "maximum context length is 8192 tokens. However, your messages resulted in 9,000 tokens.",
            9_000,
            8_192,
        ),
        (
            400,
            "maximum context length is 163840 tokens. However, you requested about 200001 tokens",
            200_001,
            163_840,
        ),
        (
            400,
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            5_000,
            4_096,
        ),
        (
            400,
            "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens",
            None,
            4_096,
        ),
        (
            400,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1_200_000,
            1_048_576,
        ),
        (
            400,
            "Trying to keep the first 5000 tokens. It is loaded with context length of only 4096 tokens",
            5_000,
            4_096,
        ),
        (500, "the input length exceeds the context length", None, None),
        (400, "prompt too long; exceeded max context length by 12 tokens", None, None),
        (400, "Input is too long for requested model.", None, None),
        (413, "Request exceeds the maximum size", None, None),
    ],
)
def test_a_full_window_is_recognised_in_many_wordings(
    status: int, message: str, tokens: int | None, maximum: int | None
) -> None:
    error = meant(status, message, "invalid_request_error")
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum) == (tokens, maximum)


def test_numbers_beside_the_words_are_used_too() -> None:
    error = meant(
        400, "the request is too big", "exceed_context_size_error", n_prompt_tokens=21_031, n_ctx=8_192
    )
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum) == (21_031, 8_192)


def test_an_error_code_alone_is_enough() -> None:
    assert isinstance(meant(400, "too much", code="context_length_exceeded"), PromptTooLong)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "invalid x-api-key"),
        (402, "payment method declined"),
        (403, "not permitted"),
        (400, "Your credit balance is too low to access the Anthropic API."),
        (400, "You have reached your specified API usage limits. You will regain access on 2026-12-01."),
        (400, "Monthly quota used up"),
        (429, "You exceeded your current quota, please check your plan and billing details."),
    ],
)
def test_a_refused_account_is_nobodys_bug(status: int, message: str) -> None:
    assert isinstance(meant(status, message), ModelRefusedAccount)


def test_a_model_that_is_gone_waits_for_the_operator() -> None:
    assert isinstance(meant(404, "model: claude-old", "not_found_error"), ModelUnknown)


@pytest.mark.parametrize(
    "message",
    [
        "messages.0: roles must alternate",
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for m",
    ],
)
def test_any_other_400_is_our_bug(message: str) -> None:
    assert isinstance(meant(400, message, "invalid_request_error"), ModelRejectedRequest)


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 524])
def test_trouble_at_the_providers_side_passes(status: int) -> None:
    assert type(meant(status, "try later")) is ModelUnavailable


def test_overload_is_told_apart_with_and_without_its_status() -> None:
    assert isinstance(meant(529, "Overloaded"), ModelOverloaded)
    assert isinstance(meant(200, "Overloaded", "overloaded_error"), ModelOverloaded)
    assert type(meant(200, "Internal server error", "api_error")) is ModelUnavailable
    assert type(meant(200, "who knows", "brand_new_error")) is ModelUnavailable


def test_a_rate_limit_says_how_long_to_wait() -> None:
    def wait(**headers: str) -> float:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        error = meant(429, "Requests per minute quota reached", "rate_limit_error", headers=named)
        assert isinstance(error, ModelBusy)
        return error.retry_after_seconds

    assert wait(retry_after="7") == 7.0
    assert wait(retry_after_ms="1500") == 1.5
    assert wait() == 5.0
    assert wait(retry_after="soon") == 5.0
    assert wait(retry_after="1e99") == 86_400.0
    assert 3_500 < wait(retry_after=email.utils.formatdate(time.time() + 3_600, usegmt=True)) <= 3_600


def test_a_body_that_is_no_json_is_read_by_its_words() -> None:
    error = error_of(read_refusal(502, "<html>Bad gateway</html>", message="Error code: 502"))
    assert type(error) is ModelUnavailable
    assert "502" in str(error)


def test_thinking_and_schema_refusals_are_recognised() -> None:
    moved = "Invalid signature in thinking block. The block is bound to a different conversation"
    assert is_about_thinking(meant(400, moved))
    assert is_about_thinking(meant(400, "messages.3: Invalid `signature` in `thinking` block"))
    assert not is_about_thinking(meant(400, "messages: roles must alternate"))
    assert is_about_schema(meant(400, "output_config.format.schema: additionalProperties must be false"))
