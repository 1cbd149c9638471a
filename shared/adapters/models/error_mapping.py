"""Meaning of providers' errors, recognised by status, codes and the wordings of all known servers."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from shared.adapters.models.dialects.abilities import LEAST_OUTPUT, find_missing_ability
from shared.adapters.models.dialects.error_bodies import ErrorBody, parse_tokens, read_error_body
from shared.adapters.models.dialects.refusal_wordings import (
    ACCOUNT,
    CONTENT,
    FAILED_CALL,
    FULL_WINDOW_WORDS,
    LOADING,
    PACE,
    QUOTA,
    SOMETHING_ELSE,
    UNKNOWN_MODEL,
    find_output_limit,
    says_full_window,
)
from shared.adapters.models.dialects.refusal_wordings import OVERLOADED as OVERLOADED_WORDS
from shared.core.values.errors import (
    ContentRefused,
    ModelAnswerUnusable,
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
    PromptTooLong,
)
from shared.core.verdicts.abilities import MissingAbility

DEFAULT_RETRY_AFTER_SECONDS = 5.0
"""Seconds that ModelBusy names if a busy provider named no wait."""
OVERLOADED = 529
"""HTTP status of an overloaded server; Anthropic's own."""
_LONGEST_WAIT_SECONDS = 86_400.0
_MAX_REASON_CHARS = 500
_MOST_SHOWN_CHARS = 300
"""Maximum characters of a JSON error's message that a form shows."""

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
    # OpenAI and servers like it, whose type may say less than their code
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
}
"""HTTP status for each error type of providers."""
_STATUS_OF_WORDS = (
    (402, ACCOUNT),
    (429, PACE),
    (400, CONTENT),
    (400, FULL_WINDOW_WORDS),
    (404, UNKNOWN_MODEL),
)
"""Status by wording, for an error that came with status 200 and names no status, as MiniMax sends it."""
_CONTENT_STATUS = frozenset({400, 403, 422, 451})
_WINDOW_STATUS = frozenset({400, 413, 422, 500})
_ABILITY_STATUS = frozenset({400, 404, 405, 415, 422, 500, 501})
_FAILED_CALL_STATUS = frozenset({400, 422, 500})
_FAILED_CALL_HINT = (
    "Your last answer could not be used: a call of a tool in it could not be read. Call tools with a JSON "
    "object as arguments, or answer."
)
_PASSING_STATUS = frozenset({408, 409, 424, 425, 499})
_EMPTY_ACCOUNT = re.compile(
    r"insufficient[_ ](?:quota|credits?|funds|(?:account )?balance)|credit balance|arrear|余额不足|欠费",
    re.IGNORECASE,
)
_TOKENS_A_MINUTE = re.compile(
    r"tokens per min(?:ute)?\b.{0,40}?limit:? (?P<limit>[\d,]{1,13})\b"
    r".{0,60}?requested:? (?P<requested>[\d,]{1,13})",
    re.IGNORECASE,
)
"""Wording of Groq and OpenAI for a request above the tokens allowed per minute."""
_DELAY = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
_WAIT_IN_WORDS = re.compile(
    r"(?:retry|try again|wait|available) (?:in|after|for) (?:about )?(?:(?P<minutes>\d{1,4})m(?=\d))?"
    r"(?P<number>\d{1,6}(?:\.\d{1,9})?) ?(?P<unit>ms|milliseconds?|seconds?|secs?|s\b|minutes?|mins?|m\b)?",
    re.IGNORECASE,
)
_ABOUT_OUR_REQUEST = re.compile(r"\A\W*(?:messages|tools|system|tool_choice|output_config|thinking)\b[.\[:]")
"""Pattern of a refusal that names a place in the request.

The text after it is quoted and says nothing of an account.
"""
_SIGNATURE_WORDS = re.compile(
    r"signature.{0,40}thinking|thinking.{0,80}(?:signature|bound to)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRefusal:
    """Error of a provider: HTTP status (or that of its type), text, codes and seconds to wait."""

    status: int
    kind: str = ""
    message: str = ""
    retry_after_seconds: float | None = None
    tokens: int | None = None
    maximum: int | None = None
    json_message: str = ""
    """Message of a JSON error; "" for a page or another body."""


class ModelOverloaded(ModelUnavailable):
    """The provider is overloaded; another model may answer meanwhile."""

    sentence = "The provider has more to do than it can; another model may answer meanwhile."


class ModelUnknown(ModelRefusedAccount):
    """The provider does not know the model or does not offer it to this account."""

    sentence = "The provider does not know this model (any more), or does not serve it to this account."


class AbilityRefused(ModelRejectedRequest):
    """The server does not accept one part of the request; a request without it may pass."""

    sentence = "The server cannot take one part of the request; a narrower request may pass."

    def __init__(self, reason: str, missing: MissingAbility) -> None:
        super().__init__(reason)
        self.missing = missing


def read_refusal(
    status: int, body: object, *, message: str = "", headers: Mapping[str, str] | None = None
) -> ProviderRefusal:
    """Return what an error response, or an error in a stream, says; raises nothing.

    `status` below 400 is replaced by that of the error. `message` is used if `body` has no text.
    """
    told = read_error_body(body, otherwise=message)
    codes = " ".join(told.codes)
    wait = _retry_after(headers or {})
    if wait is None:
        wait = _read_wait(told)
    return ProviderRefusal(
        status=_find_status(told) if status < 400 else status,
        kind=told.kind,
        message=f"{told.text} ({codes})" if codes else told.text,
        retry_after_seconds=wait,
        tokens=told.tokens,
        maximum=told.maximum,
        json_message=told.message,
    )


def _find_status(told: ErrorBody) -> int:
    """Return the status of the error's type, or the one in its body, or that of its wording; else 500."""
    for code in told.codes:
        if code in STATUS_OF_TYPE:
            return STATUS_OF_TYPE[code]
    if told.status is not None:
        return told.status
    return next((status for status, row in _STATUS_OF_WORDS if row.pattern.search(told.text)), 500)


def build_error(refused: ProviderRefusal) -> ModelError:
    """Return the exception that a refusal means, with the text that a form may show."""
    error = _find_meaning(refused)
    error.answered = True
    message = refused.json_message[:_MOST_SHOWN_CHARS]
    error.shown = (
        f"{refused.status}: {message}" if message else f"The server answered with status {refused.status}."
    )
    return error


def _find_meaning(refused: ProviderRefusal) -> ModelError:
    """Return the exception of a refusal.

    The order of tests matters: a 400 can be a full window or an empty account.
    """
    status, text = refused.status, refused.message
    words = text[:_MAX_REASON_CHARS]
    reason = f"{status}: {words}"
    if status in _WINDOW_STATUS and (sizes := _find_sizes(refused)) is not None:
        return PromptTooLong(reason, tokens=sizes[0], maximum=sizes[1])
    if status in _CONTENT_STATUS and CONTENT.pattern.search(words):
        return ContentRefused(reason)
    if status in _FAILED_CALL_STATUS and FAILED_CALL.pattern.search(words):
        return ModelAnswerUnusable(reason, hint=_FAILED_CALL_HINT)
    if status in _ABILITY_STATUS and not is_about_signature(words):
        missing = find_missing_ability(words)
        if missing is not None:
            return AbilityRefused(reason, missing)
    return _build_other(refused, words, reason)


def _build_other(refused: ProviderRefusal, words: str, reason: str) -> ModelError:
    """Return the exception of a refusal that is about no window, content or ability."""
    status = refused.status
    if (pace := _find_pace(refused.message)) is not None and pace[0] > pace[1]:
        # Waiting does not help: the request exceeds what the account may use within a minute.
        return PromptTooLong(reason, tokens=pace[0], maximum=pace[1])
    if _is_busy(refused, words):
        wait = refused.retry_after_seconds
        return ModelBusy(reason, retry_after_seconds=DEFAULT_RETRY_AFTER_SECONDS if wait is None else wait)
    if status in (401, 402, 403) or (status in (400, 429) and _speaks_of_account(refused)):
        return ModelRefusedAccount(reason)
    if status == 429:
        wait = refused.retry_after_seconds
        return ModelBusy(reason, retry_after_seconds=DEFAULT_RETRY_AFTER_SECONDS if wait is None else wait)
    if status == OVERLOADED or refused.kind == "overloaded_error":
        return ModelOverloaded(reason)
    if status == 503 and OVERLOADED_WORDS.pattern.search(words):
        return ModelOverloaded(reason)
    if status == 404 or (status in (400, 422) and _names_unknown_model(words)):
        return ModelUnknown(reason)
    if 400 <= status < 500 and status not in _PASSING_STATUS and not LOADING.pattern.search(words):
        return ModelRejectedRequest(reason)
    return ModelUnavailable(reason)


def _find_pace(text: str) -> tuple[int, int] | None:
    """Return tokens of the request and tokens per minute of the account; None unless the text names both."""
    found = _TOKENS_A_MINUTE.search(text)
    if found is None:
        return None
    requested, limit = parse_tokens(found["requested"]), parse_tokens(found["limit"])
    return None if requested is None or limit is None else (requested, limit)


def _is_busy(refused: ProviderRefusal, words: str) -> bool:
    """Return whether a temporary limit of requests was hit, and not the end of the account's money."""
    if refused.status not in (400, 403, 413, 429, 498) or not PACE.pattern.search(words):
        return False
    if refused.status == 400 and _ABOUT_OUR_REQUEST.search(refused.message):
        return False
    return refused.status == 413 or not _EMPTY_ACCOUNT.search(words)


def _names_unknown_model(words: str) -> bool:
    return bool(UNKNOWN_MODEL.pattern.search(words)) and not _ABOUT_OUR_REQUEST.search(words)


def is_about_signature(words: str) -> bool:
    """Return whether the text refuses a thinking block because messages before it have changed."""
    return bool(_SIGNATURE_WORDS.search(words))


def is_about_thinking(error: ModelError) -> bool:
    """Return whether the error refuses a thinking block because messages before it have changed."""
    return isinstance(error, ModelRejectedRequest) and is_about_signature(str(error))


def _find_sizes(refused: ProviderRefusal) -> tuple[int | None, int | None] | None:
    """Return (tokens of the request, tokens of the window) of a full window, None where not named.

    Returns None for another refusal. Numbers next to the window's name are proof; wordings and a 413 are
    not if the text names another limit.
    """
    text = refused.message
    if refused.tokens is not None or refused.maximum is not None:
        return refused.tokens, refused.maximum
    if find_output_limit(text, least=LEAST_OUTPUT) is not None:
        return None
    sizes = says_full_window(text)
    if sizes is not None:
        return sizes
    if SOMETHING_ELSE.pattern.search(text):
        return None
    if refused.status == 413 or FULL_WINDOW_WORDS.pattern.search(text):
        return None, None
    return None


def _speaks_of_account(refused: ProviderRefusal) -> bool:
    """Return whether a refusal is about the account; at 429 the word quota alone means a rate limit."""
    if refused.status == 400 and _ABOUT_OUR_REQUEST.search(refused.message):
        return False
    found = ACCOUNT.pattern.search(refused.message)
    return bool(found) or (refused.status != 429 and bool(QUOTA.pattern.search(refused.message)))


def _read_wait(told: ErrorBody) -> float | None:
    """Return the seconds to wait that a body or its text names, as in "Please retry in 3.2s".

    Returns None if it names none.
    """
    if told.retry_delay:
        found = _DELAY.fullmatch(told.retry_delay.strip())
        return _bound(float(found[1])) if found else None
    found = _WAIT_IN_WORDS.search(told.text)
    if found is None:
        return None
    minutes = float(found["minutes"] or 0)
    unit = (found["unit"] or "s").lower()
    factor = 0.001 if unit.startswith(("ms", "milli")) else 60.0 if unit.startswith("m") else 1.0
    return _bound(60.0 * minutes + factor * float(found["number"] or 0))


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
