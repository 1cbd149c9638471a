"""What became of a call to Telegram, as one closed set: above all, whether it can surely be tried again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent:
    """A message is in the chat."""

    message_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDone:
    """Processed, or already as it was wanted; `value` is what Telegram answered."""

    value: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNotSent:
    """Surely never processed: it may be tried again, after `retry_after` seconds where that is known."""

    reason: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUnknown:
    """Telegram may have processed it, or not."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatUnreachable:
    """The chat cannot be reached: blocked, kicked, deactivated, never there."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMoved:
    """The group is a supergroup now, with this id; nothing was processed."""

    new_chat_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRejected:
    """Telegram understood it and will never do it as it is; `status` is 400, 404 or 413."""

    reason: str
    status: int = 400


CallOutcome: TypeAlias = (
    MessageSent | CallDone | CallNotSent | CallUnknown | ChatUnreachable | ChatMoved | CallRejected
)

_UNREACHABLE = re.compile(
    r"chat not found|user is deactivated|group chat was deactivated|PEER_ID_INVALID|USER_IS_BLOCKED"
    r"|INPUT_USER_DEACTIVATED|CHAT_WRITE_FORBIDDEN|not enough rights to send|have no rights to send",
    re.IGNORECASE,
)
_UNMODIFIED = "message is not modified"
_ALREADY_DELETED = "message to delete not found"
_ENTITIES = re.compile(r"can't parse (?:message )?entit|ENTIT(?:Y|IES)_|unsupported entity", re.IGNORECASE)
_NO_THREAD = re.compile(r"message thread not found|TOPIC_DELETED|TOPIC_ID_INVALID", re.IGNORECASE)
_NO_MESSAGE = re.compile(
    r"message to edit not found|message can't be edited|MESSAGE_ID_INVALID|no text in the message to edit",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"too many requests(?:: retry after (\d+))?", re.IGNORECASE)
_USUAL_WAIT_SECONDS = 5.0


def is_entity_error(outcome: CallOutcome) -> bool:
    """The same text without entities may pass."""
    return isinstance(outcome, CallRejected) and _ENTITIES.search(outcome.reason) is not None


def is_missing_thread(outcome: CallOutcome) -> bool:
    """The topic is not there (any more); the chat is."""
    return isinstance(outcome, CallRejected) and _NO_THREAD.search(outcome.reason) is not None


def is_missing_message(outcome: CallOutcome) -> bool:
    """What was to be edited cannot be edited ever again."""
    return isinstance(outcome, CallRejected) and _NO_MESSAGE.search(outcome.reason) is not None


def classify_error(error: Exception) -> CallOutcome:
    """Only the words of Telegram and names of error types go into a reason: addresses hold the token."""
    from aiogram import exceptions

    if isinstance(error, exceptions.TelegramRetryAfter):
        return CallNotSent(reason="too many requests", retry_after=float(error.retry_after))
    if isinstance(error, exceptions.TelegramMigrateToChat):
        return ChatMoved(new_chat_id=error.migrate_to_chat_id)
    if isinstance(error, exceptions.TelegramEntityTooLarge):
        return CallRejected(reason=error.message, status=413)
    if isinstance(error, exceptions.TelegramNetworkError):
        return _of_connection(error.__cause__)
    if isinstance(error, exceptions.TelegramForbiddenError):
        return ChatUnreachable(reason=error.message)
    if isinstance(error, exceptions.TelegramBadRequest):
        return _of_bad_request(error.message)
    if isinstance(error, exceptions.TelegramNotFound):
        return CallRejected(reason=error.message, status=404)
    if isinstance(error, exceptions.TelegramUnauthorizedError | exceptions.TelegramConflictError):
        return CallNotSent(reason=error.message)
    if isinstance(error, exceptions.TelegramServerError):
        return CallUnknown(reason=error.message)
    if isinstance(error, exceptions.TelegramAPIError):
        return _of_other(error.message)
    return CallUnknown(reason=f"an answer nobody can read: {type(error).__name__}")


def _of_bad_request(words: str) -> CallOutcome:
    if _UNMODIFIED in words or _ALREADY_DELETED in words:
        return CallDone()
    if _UNREACHABLE.search(words):
        return ChatUnreachable(reason=words)
    return CallRejected(reason=words)


def _of_connection(cause: BaseException | None) -> CallOutcome:
    """Without a connection nothing can have arrived; with one, everything may have."""
    from aiohttp import ClientConnectorError, ConnectionTimeoutError

    name = type(cause).__name__ if cause is not None else "connection lost"
    if isinstance(cause, ClientConnectorError | ConnectionTimeoutError):
        return CallNotSent(reason=f"no connection: {name}")
    return CallUnknown(reason=f"connection lost: {name}")


def _of_other(words: str) -> CallOutcome:
    found = _TOO_MANY.search(words)
    if found is None:
        return CallUnknown(reason=words)
    return CallNotSent(reason=words, retry_after=float(found[1] or _USUAL_WAIT_SECONDS))
