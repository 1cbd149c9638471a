"""Errors in the wordings of many servers, and what they mean for us."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import pytest

from shared.adapters.models.error_mapping import (
    AbilityRefused,
    ModelOverloaded,
    ModelUnknown,
    build_error,
    is_about_thinking,
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


def meant(status: int, message: str = "", kind: str = "", headers: Any = None, **fields: Any) -> ModelError:
    body = {"type": "error", "error": {"type": kind, "message": message, **fields}}
    return build_error(read_refusal(status, body, headers=headers))


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
        (400, "prompt is too long: 277403 tokens > 200000 maximum", 277_403, 200_000),
        (400, "ValidationException: prompt is too long: 210,031 tokens > 200,000", 210_031, 200_000),
        (
            400,
            (
                "Its maximum context length is 128000 tokens. However, you requested about 145000 "
                "tokens (140000 of text input, 5000 in the output)."
            ),
            145_000,
            128_000,
        ),
        (
            400,
            (
                "The maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in "
                "the messages, 1000 in the completion)."
            ),
            9_000,
            8_192,
        ),
        (
            400,
            (
                "This model's maximum context length is 4096 tokens and your request has 3900 input tokens "
                "(512 > 4096 - 3900)."
            ),
            3_900,
            4_096,
        ),
        (
            400,
            "tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens",
            300_000,
            272_000,
        ),
        (
            400,
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            5_000,
            4_096,
        ),
        (
            400,
            (
                "Requested count exceeds the model's maximum context length of 4096 tokens. You requested "
                "a total of 5000 tokens: 4000 tokens from the input messages and 1000 for the completion."
            ),
            5_000,
            4_096,
        ),
        (
            400,
            "input length (5000 tokens) exceeds the model's maximum context length (4096 tokens)",
            5_000,
            4_096,
        ),
        (422, "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000", 5_000, 4_095),
        (
            422,
            (
                "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 "
                "`max_new_tokens`"
            ),
            4_000,
            4_096,
        ),
        (
            400,
            (
                "Prompt contains 40000 tokens and 0 drafts, too large for model with 32768 maximum context "
                "length"
            ),
            40_000,
            32_768,
        ),
        (
            400,
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
            5_000,
            4_081,
        ),
        (
            400,
            "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
            140_000,
            131_072,
        ),
        (400, "Your request exceeded model token limit: 131072 (requested: 140000)", 140_000, 131_072),
        (400, "prompt token count of 140000 exceeds the limit of 128000", 140_000, 128_000),
        (400, "The prompt is too long: 5000, model maximum context length: 4096", 5_000, 4_096),
        (
            400,
            "The input token count exceeds the maximum number of tokens allowed 1048576.",
            None,
            1_048_576,
        ),
        (400, "litellm.ContextWindowExceededError: OpenAIException - too much", None, None),
        (400, "Please reduce the length of the messages or completion.", None, None),
        (400, "Request size exceeds model context window", None, None),
        (400, "the request exceeds the available context size. try increasing the context size", None, None),
        (400, "Too many input tokens", None, None),
        (400, "Prompt too large", None, None),
        (400, "messages.0.content.0.text: too many total text bytes: 11178087 > 9000000", None, None),
        (
            400,
            "The number of tokens to keep from the initial prompt is greater than the context length",
            None,
            None,
        ),
        (400, "invalid params, context window exceeds limit", None, None),
        (400, "model_context_window_exceeded", None, None),
    ],
)
def test_a_full_window_is_recognised_in_many_wordings(
    status: int, message: str, tokens: int | None, maximum: int | None
) -> None:
    error = meant(status, message, "invalid_request_error")
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum) == (tokens, maximum)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "messages.0.content.1.image.source: image exceeds 5 MB maximum: 6000000 > 5242880"),
        (400, "image is too long for the input: 9000 pixels"),
        (400, "tools.0.name: string is too long; 64 is the most"),
        (400, "tools.3.input: input is too long"),
        (400, "A PDF must not exceed 100 pages: prompt too large"),
        (400, "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens"),
        (400, "`max_tokens` must be greater than `thinking.budget_tokens`"),
        (400, "context window too small: minimum is 1000 tokens"),
        (400, "Let's investigate the context overflow bug"),
        (400, "Reasoning is mandatory for this endpoint and cannot be disabled."),
        (400, "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        (413, "request size exceeds upload limit"),
    ],
)
def test_what_only_resembles_a_full_window_is_our_bug(status: int, message: str) -> None:
    assert isinstance(meant(status, message, "invalid_request_error"), ModelRejectedRequest)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "This request would exceed your organization's rate limit of 40,000 input tokens per minute."),
        (429, "rate limit exceeded"),
        (429, "Too Many Requests: 200000 tokens per day"),
        (
            413,
            "Rate limit reached on tokens per minute (TPM): Limit 6000, Used 5000, Requested 900",
        ),
    ],
)
def test_too_many_tokens_per_minute_are_waited_for(status: int, message: str) -> None:
    assert isinstance(meant(status, message), ModelBusy)


def test_a_plan_whose_tokens_are_used_up_is_the_accounts_matter() -> None:
    message = "request token limit exceeded for this billing plan"
    assert isinstance(meant(402, message), ModelRefusedAccount)


def test_a_413_from_the_edge_need_not_be_json() -> None:
    error = build_error(
        read_refusal(413, "<html><h1>413 Request Entity Too Large</h1></html>", message="413")
    )
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum) == (None, None)


def test_full_window_may_be_reported_in_mid_stream() -> None:
    body = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"},
    }
    error = build_error(read_refusal(200, body))
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum) == (9, 8)


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


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Output blocked by content filtering policy"),
        (400, "The response was filtered due to the prompt triggering Azure's content management policy."),
        (400, "Your request was rejected as a result of our safety system."),
        (400, "This request may violate our usage policies"),
        (400, "The model returned: content_policy_violation"),
        (400, "The output text was blocked by our content filters"),
        (400, "PROHIBITED_CONTENT"),
        (403, "This model requires moderation on this provider. Your input was flagged for violence"),
        (400, "Content Exists Risk"),
        (400, "data_inspection_failed: Output data may contain inappropriate content."),
        (400, "The request was rejected because it was considered high risk"),
        (422, "unsafe content"),
        (451, "blocked by content policy"),
    ],
)
def test_content_refusal_is_neither_bug_nor_account_problem(status: int, message: str) -> None:
    error = meant(status, message, "invalid_request_error")
    assert isinstance(error, ContentRefused)
    assert not error.transient


def test_content_is_refused_in_the_middle_of_a_stream_too() -> None:
    body = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
    }
    assert isinstance(build_error(read_refusal(200, body)), ContentRefused)


@pytest.mark.parametrize(
    "message",
    [
        "messages.4.content.0: a payment of 12 is no text",
        "tools.2.name: 'billing_lookup!' does not match the pattern",
        "tools[0].input_schema: out of credits is no type",
        "system: quota must be a list",
    ],
)
def test_words_of_a_request_that_is_refused_say_nothing_of_the_account(message: str) -> None:
    assert isinstance(meant(400, message, "invalid_request_error"), ModelRejectedRequest)


@pytest.mark.parametrize(
    "value",
    ["nan", "inf", "-inf", "-5", "1e400", "soon", "", "Wed, 99 Foo 2026", "Mon, 01 Jan 0001 00:00:00 GMT"],
)
def test_a_time_to_wait_that_is_none_is_not_waited_for(value: str) -> None:
    error = meant(429, "rate limit", headers={"retry-after": value})
    assert isinstance(error, ModelBusy)
    assert error.retry_after_seconds in (0.0, 5.0)


@pytest.mark.parametrize("digits", ["9" * 10, "9" * 400, "9" * 5_000])
def test_a_number_of_tokens_that_nothing_could_have_is_passed_over(digits: str) -> None:
    error = meant(400, f"prompt is too long: {digits} tokens > {digits} maximum", "invalid_request_error")
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.maximum) == (None, None)


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


def test_overload_is_recognised_with_and_without_its_status() -> None:
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
    error = build_error(read_refusal(502, "<html>Bad gateway</html>", message="Error code: 502"))
    assert type(error) is ModelUnavailable
    assert "502" in str(error)


def test_thinking_and_schema_refusals_are_recognised() -> None:
    moved = "Invalid signature in thinking block. The block is bound to a different conversation"
    assert is_about_thinking(meant(400, moved))
    assert is_about_thinking(meant(400, "messages.3: Invalid `signature` in `thinking` block"))
    assert not is_about_thinking(meant(400, "messages: roles must alternate"))
    schema = meant(400, "output_config.format.schema: additionalProperties must be false")
    assert isinstance(schema, AbilityRefused)
    assert schema.missing.ability == "json"
