"""Reads what a provider's error means, in the wordings of all servers that speak one of the two APIs."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.values.errors import (
    ContentRefused,
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
    PromptTooLong,
)
from shared.core.values.messages import storable

DEFAULT_RETRY_AFTER_SECONDS = 5.0
OVERLOADED = 529
_LONGEST_WAIT_SECONDS = 86_400.0
_MAX_REASON_CHARS = 500
_MOST_READ_CHARS = 20_000
_MOST_DIGITS = 9

STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": OVERLOADED,
    # OpenAI and its likes, whose type may say less than their code
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
}
_N, _M = r"(?P<tokens>\d[\d,]*)", r"(?P<maximum>\d[\d,]*)"
_TOO_LONG = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Anthropic, also behind Bedrock, Vertex and gateways
        rf"prompt is too long: {_N} tokens? > {_M}",
        rf"input length and `?max_tokens`? exceed context limit: {_N} \+ [\d,]+ > {_M}",
        # llama.cpp, Ollama, SGLang, Together
        rf"request \({_N} tokens\) exceeds the available context size \({_M} tokens\)",
        (
            rf"input(?: length)? \({_N} tokens\) (?:exceeds|is longer than) the model's (?:maximum )?"
            rf"context length \({_M} tokens\)"
        ),
        rf"maximum context length of {_M} tokens.{{0,40}}requested a total of {_N} tokens",
        # OpenAI and its likes, Azure, vLLM, DeepSeek, OpenRouter
        (
            rf"maximum context length is {_M} tokens.{{0,60}}"
            rf"(?:resulted in|requested|your request has)(?: about)? {_N} (?:input )?tokens"
        ),
        rf"exceed the configured limit of {_M} tokens.{{0,40}}resulted in {_N} tokens",
        rf"prompt \(length {_N}\) is longer than the maximum model length of {_M}",
        rf"maximum context length (?:is|of) {_M}",
        # GitHub's models, xAI, Moonshot, Fireworks, Mistral
        rf"prompt token count of {_N} exceeds the limit of {_M}",
        rf"maximum prompt length is {_M} but the request contains {_N} tokens",
        rf"exceeded model token limit: {_M} \(requested: {_N}\)",
        rf"prompt is too long: {_N}, model maximum context length: {_M}",
        rf"prompt contains {_N} tokens.{{0,60}}too large for model with {_M} maximum context length",
        # Hugging Face's servers, Cohere
        rf"`inputs` must have less than {_M} tokens\. given: {_N}",
        rf"`inputs` tokens \+ `max_new_tokens` must be <= {_M}\. given: {_N}",
        rf"tokens in the prompt cannot exceed {_M} - received {_N}",
        # Gemini behind a gateway
        rf"input token count \({_N}\) exceeds the maximum number of tokens allowed \({_M}\)",
        rf"input token count exceeds the maximum number of tokens allowed \(?{_M}",
        # LM Studio
        rf"keep the first {_N} tokens.{{0,80}}context length of only {_M}",
    )
)
_TOO_LONG_WORDS = re.compile(
    r"prompt is too long|prompt too (?:long|large)|input is too long|too many input tokens|"
    r"context_length_exceeded|exceed_context_size|model_context_window_exceeded|"
    r"exceeds? the available context|exceeds? (?:the |model )?context (?:length|window|size)|"
    r"context window exceeds|context ?window ?exceeded|"
    r"exceeded max context length|exceeds the model'?s (?:maximum )?context|request_too_large|"
    r"greater than the context length|reduce the length of the messages|too many total text bytes",
    re.IGNORECASE,
)
_SOMETHING_ELSE_IS = re.compile(
    r"\bimages?\b|\bpdf\b|\bupload|\battachment|\bfile\b|\btools?\.\d|\bpixels\b|\bpages\b|"
    r"rate[ _]limit|per[ -](?:min|minute|hour|day)\b|\bTP[MD]\b|number of output tokens",
    re.IGNORECASE,
)
"""A limit, but not the window: shortening the conversation would help nobody."""
_PACE_WORDS = re.compile(r"rate[ _]limit|per[ -](?:min|minute|hour|day)\b|\bTP[MD]\b", re.IGNORECASE)
_ACCOUNT_WORDS = re.compile(
    r"credit balance|insufficient[_ ](?:quota|credits?|funds|balance)|exceeded your current quota|"
    r"billing|usage limits?\b|spend(?:ing)? limit|payment|out of credits|"
    r"account (?:is )?(?:disabled|suspended)",
    re.IGNORECASE,
)
_CONTENT_WORDS = re.compile(
    # Anthropic, Bedrock, Azure and OpenAI, Gemini
    r"content[ _-]?(?:filter|moderation|management policy|polic(?:y|ies))|"
    r"blocked by (?:our |the )?(?:content|safety)|"
    r"(?:usage|acceptable use|safety) polic(?:y|ies)|safety system|responsible ai|guardrail\w* interven|"
    r"prohibited_content|blocked (?:due to|for) safety|finish_?reason: safety|"
    # OpenRouter, DeepSeek, Qwen, Moonshot, Zhipu
    r"requires moderation|input was flagged|flagged (?:as|for|by)|content exists risk|data_inspection_failed|"
    r"inappropriate content|considered high risk|sensitive content|unsafe content",
    re.IGNORECASE,
)
_CONTENT_STATUS = frozenset({400, 403, 422, 451})
_ABOUT_OUR_REQUEST = re.compile(r"\A\W*(?:messages|tools|system|tool_choice|output_config|thinking)\b[.\[:]")
"""A place in what was sent: the words behind it are ours, or a person's, and tell nothing of an account."""
_QUOTA_WORD = re.compile(r"\bquota\b", re.IGNORECASE)
_SIGNATURE_WORDS = re.compile(
    r"signature.{0,40}thinking|thinking.{0,80}(?:signature|bound to)", re.IGNORECASE
)
_SCHEMA_WORDS = re.compile(
    r"output_config|output_format|text\.format|structured output|json_schema", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRefusal:
    """A provider's error as it came: status (or what its type stands for), words, time to wait."""

    status: int
    kind: str = ""
    message: str = ""
    retry_after_seconds: float | None = None
    tokens: int | None = None
    maximum: int | None = None


class ModelOverloaded(ModelUnavailable):
    """The provider has more to do than it can; another model may answer meanwhile."""


class ModelUnknown(ModelRefusedAccount):
    """The provider does not know this model (any more), or does not serve it to this account."""


def read_refusal(
    status: int, body: object, *, message: str = "", headers: Mapping[str, str] | None = None
) -> ProviderRefusal:
    """From a response, or from an error event in a stream, whose status of 200 means nothing."""
    outer = body if isinstance(body, Mapping) else {}
    inner = outer.get("error")
    error = inner if isinstance(inner, Mapping) else outer
    kind = str(error.get("type") or error.get("code") or "")
    words = str(error.get("message") or (inner if isinstance(inner, str) else "") or message)
    words = words[:_MOST_READ_CHARS]
    codes = " ".join(str(error[name]) for name in ("code", "type") if error.get(name))
    return ProviderRefusal(
        status=_status_told(error) if status < 400 else status,
        kind=kind,
        message=storable(f"{words} ({codes})" if codes else words),
        retry_after_seconds=_retry_after(headers or {}),
        tokens=_parse_tokens(error.get("n_prompt_tokens")),
        maximum=_parse_tokens(error.get("n_ctx")),
    )


def _status_told(error: Mapping[str, Any]) -> int:
    """OpenRouter's code is the status itself; a gateway's is often text."""
    for name in ("code", "type"):
        told = str(error.get(name) or "")
        if told in STATUS_OF_TYPE:
            return STATUS_OF_TYPE[told]
        if told.isascii() and told.isdigit() and 400 <= int(told) < 600:
            return int(told)
    return 500


def build_error(refused: ProviderRefusal) -> ModelError:
    """What it means for us. The order matters: a 400 can be a full window, an empty account or our bug."""
    status, words = refused.status, refused.message[:_MAX_REASON_CHARS]
    reason = f"{status}: {words}"
    if status in (400, 413, 422, 500) and _says_too_long(refused):
        tokens, maximum = _sizes(refused)
        return PromptTooLong(reason, tokens=tokens, maximum=maximum)
    if status in _CONTENT_STATUS and _CONTENT_WORDS.search(words):
        return ContentRefused(reason)
    if status in (401, 402, 403) or (status in (400, 429) and _speaks_of_account(refused)):
        return ModelRefusedAccount(reason)
    if status == 429 or (status == 413 and _PACE_WORDS.search(words)):
        wait = refused.retry_after_seconds
        return ModelBusy(reason, retry_after_seconds=DEFAULT_RETRY_AFTER_SECONDS if wait is None else wait)
    if status == OVERLOADED or refused.kind == "overloaded_error":
        return ModelOverloaded(reason)
    if status == 404:
        return ModelUnknown(reason)
    if 400 <= status < 500 and status not in (408, 409, 425, 499):
        return ModelRejectedRequest(reason)
    return ModelUnavailable(reason)


def is_about_thinking(error: ModelError) -> bool:
    """A thinking block came back after something before it had changed."""
    return isinstance(error, ModelRejectedRequest) and bool(_SIGNATURE_WORDS.search(str(error)))


def is_about_schema(error: ModelError) -> bool:
    return isinstance(error, ModelRejectedRequest) and bool(_SCHEMA_WORDS.search(str(error)))


def _says_too_long(refused: ProviderRefusal) -> bool:
    """Numbers beside the window's name are proof; words and a 413 are not if they name another limit."""
    words = refused.message
    if any(pattern.search(words) for pattern in _TOO_LONG):
        return True
    if _SOMETHING_ELSE_IS.search(words):
        return False
    return refused.status == 413 or bool(_TOO_LONG_WORDS.search(words))


def _sizes(refused: ProviderRefusal) -> tuple[int | None, int | None]:
    if refused.tokens is not None or refused.maximum is not None:
        return refused.tokens, refused.maximum
    for pattern in _TOO_LONG:
        found = pattern.search(refused.message)
        if found:
            numbers = found.groupdict()
            return _parse_tokens(numbers.get("tokens")), _parse_tokens(numbers.get("maximum"))
    return None, None


def _speaks_of_account(refused: ProviderRefusal) -> bool:
    """A rate limit is often called a quota, so that this word counts only outside a 429."""
    if refused.status == 400 and _ABOUT_OUR_REQUEST.search(refused.message):
        return False
    found = _ACCOUNT_WORDS.search(refused.message)
    return bool(found) or (refused.status != 429 and bool(_QUOTA_WORD.search(refused.message)))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        if headers.get("retry-after-ms"):
            return _bound(float(headers["retry-after-ms"]) / 1_000)
        value = headers.get("retry-after")
        return None if not value else _bound(float(value))
    except (ValueError, OverflowError):
        return _seconds_until(headers.get("retry-after", ""))


def _seconds_until(date: str) -> float | None:
    try:
        return _bound(email.utils.parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _bound(seconds: float) -> float | None:
    return max(0.0, min(_LONGEST_WAIT_SECONDS, seconds)) if math.isfinite(seconds) else None


def _parse_tokens(value: object) -> int | None:
    """None for what is no number of tokens that anything could have."""
    digits = str(value).replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None
