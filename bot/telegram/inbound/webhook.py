"""Receives updates that Telegram posts: checks secret and size, stores the update, then answers 200."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import structlog
from aiogram import Bot
from aiogram.exceptions import AiogramError, TelegramBadRequest, TelegramUnauthorizedError
from aiohttp import ClientPayloadError, web

from bot.telegram.client.calls import Backoff
from bot.telegram.client.session import InvalidBotToken, describe_call_error, get_retry_seconds
from bot.telegram.client.update_json import InvalidJson, is_update, parse_json
from bot.telegram.inbound.update_parser import ALLOWED_UPDATES
from shared.core.tools.web_address import is_this_machine
from shared.core.values.errors import EvertalkError, StorageUnavailable

log = structlog.get_logger(__name__)

PATH = "/telegram/{bot_id}"
"""Path to which Telegram posts the updates of a bot."""
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - the header's name
"""Header in which Telegram sends the webhook's secret."""
MAX_BODY_BYTES = 1024 * 1024
"""Maximum bytes of a posted update."""
BODY_SECONDS = 15.0
"""Seconds in which the body of a request must arrive."""
RETRY_SECONDS = 5
"""Seconds after which Telegram shall post again while the database is unavailable."""
MAX_CONNECTIONS = 40
"""Maximum simultaneous connections that Telegram may open."""
MIN_SECRET_CHARS = 32
"""Minimum characters of a webhook's secret."""
CALL_SECONDS = 20
"""Timeout in seconds of calls to Telegram."""
WEBHOOK_CHECK_SECONDS = 60.0
"""Seconds between two checks whether another deployment with the same token has set its own webhook."""
WEBHOOK_TAKEN = (
    "Another program has changed the webhook of this bot. Two deployments cannot share a token: give one of "
    "them a bot of its own, then restart the other."
)
"""Problem for operators if the webhook of a bot has another address than ours."""
PORTS = (443, 80, 88, 8443)
"""Ports to which Telegram posts."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")

WebhookHandler = Callable[[web.Request], Awaitable[web.Response]]


class BadWebhook(EvertalkError):
    """Raised for a webhook that cannot be used as configured; its advice says why."""

    sentence = "The webhook cannot be used as it is configured."
    code = "bad_webhook"


class WebhookUpdateStore(Protocol):
    """Store of the updates of all bots."""

    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int:
        """Store updates, and return how many are new. Raises StorageUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Webhook of a bot: address, secret and kinds of updates.

    Raises BadWebhook with advice if the address or the secret cannot be used safely.
    """

    url: str
    """Public address of `PATH`."""
    secret: str
    allowed_updates: tuple[str, ...] = ALLOWED_UPDATES

    def __post_init__(self) -> None:
        check_secret(self.secret)
        check_url(self.url)

    @property
    def registered_url(self) -> str:
        """Address as registered at Telegram; its parameter depends on the secret, so a new secret changes it.

        Telegram does not tell which secret it uses.
        """
        trace = hashlib.sha256(b"evertalk webhook" + self.secret.encode()).hexdigest()[:8]
        return f"{self.url}{'&' if '?' in self.url else '?'}v={trace}"


def check_secret(secret: str) -> None:
    """Check a webhook's secret. Raises BadWebhook if it is too short or Telegram would refuse it."""
    if not _SECRET.fullmatch(secret):
        reason = "has characters (or a length) that Telegram refuses"
    elif len(secret) < MIN_SECRET_CHARS:
        reason = f"is shorter than {MIN_SECRET_CHARS} characters"
    else:
        return
    raise BadWebhook(
        f"the webhook's secret {reason}",
        advice=f"The webhook's secret {reason}. Choose {MIN_SECRET_CHARS} to 256 of A-Z a-z 0-9 _ and -, for "
        'example: python3 -c "import secrets; print(secrets.token_urlsafe(32))"',
    )


def check_url(url: str) -> None:
    """Check a webhook's address. Raises BadWebhook if Telegram would refuse it.

    Any address on the local machine is accepted, for tests.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or not host:
        raise BadWebhook(
            "no web address", advice="The webhook's address must begin with https:// and a name."
        )
    if is_this_machine(host):
        return
    if parts.scheme != "https":
        raise BadWebhook(
            "http", advice="Telegram posts to https addresses only. Give the bot's public https URL."
        )
    if (port or 443) not in PORTS:
        raise BadWebhook(
            f"port {port}",
            advice="Telegram posts to the ports 443, 80, 88 and 8443 only. Choose one of these.",
        )


async def register_webhook(bot: Bot, mode: WebhookConfig) -> bool:
    """Register the webhook unless it is already registered; return True if it was changed.

    Retries without end while Telegram is unreachable. Raises InvalidBotToken. An
    address that Telegram refuses leads to aiogram's TelegramBadRequest.
    """
    backoff = Backoff()
    while True:
        try:
            return await _register(bot, mode)
        except TelegramUnauthorizedError as refused:
            raise InvalidBotToken(f"setWebhook: {refused.message}") from None
        except TelegramBadRequest:
            raise
        except AiogramError as error:
            log.warning("telegram_unreachable", bot=bot.id, reason=describe_call_error(error))
            await asyncio.sleep(max(get_retry_seconds(error), backoff.next()))


async def find_foreign_webhook(bot: Bot, mode: WebhookConfig) -> str | None:
    """Return the problem text if Telegram posts this bot's updates to another address; empty if not.

    None if Telegram does not answer.
    """
    try:
        info = await bot.get_webhook_info(request_timeout=CALL_SECONDS)
    except AiogramError as error:
        log.warning("telegram_unreachable", bot=bot.id, reason=describe_call_error(error))
        return None
    return "" if info.url == mode.registered_url else WEBHOOK_TAKEN


async def _register(bot: Bot, mode: WebhookConfig) -> bool:
    """Register the webhook if it differs from the registered one; return whether it did."""
    info = await bot.get_webhook_info(request_timeout=CALL_SECONDS)
    wanted = (mode.registered_url, MAX_CONNECTIONS, sorted(mode.allowed_updates))
    if (info.url, info.max_connections, sorted(info.allowed_updates or ())) == wanted:
        return False
    await bot.set_webhook(
        mode.registered_url, secret_token=mode.secret, max_connections=MAX_CONNECTIONS,
        allowed_updates=list(mode.allowed_updates), drop_pending_updates=False, request_timeout=CALL_SECONDS,
    )  # fmt: skip
    return True


def make_webhook_handler(
    inbox: WebhookUpdateStore, *, find_secret: Callable[[int], str | None], on_stored: Callable[[int], None]
) -> WebhookHandler:
    """Return the handler of `POST PATH`.

    `find_secret` takes a bot id and returns None for a bot without webhook here; `on_stored` gets the id
    after an update was stored. Serve it with `AppRunner(app, auto_decompress=False)`, or a broken encoding
    fills the log with tracebacks.
    """

    async def handle_post(request: web.Request) -> web.Response:
        bot_id = _parse_bot_id(request.match_info.get("bot_id", ""))
        if not _has_secret(request, find_secret(bot_id)):
            return _build_response(401)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return _build_response(
                415
            )  # Telegram sends no encoded bodies; a small encoded one could expand to a large one
        try:
            body = await asyncio.wait_for(_read_body(request), BODY_SECONDS)
            update = parse_json(body)
        except _TooLarge:
            return _build_response(413)
        except TimeoutError:
            return _build_response(408)
        except (InvalidJson, web.RequestPayloadError, ClientPayloadError):
            return _build_response(400)
        if not is_update(update):
            return _build_response(400)
        try:
            new = await inbox.store(bot_id, [update])
        except StorageUnavailable as error:
            log.warning("inbox_unavailable", bot=bot_id, reason=str(error))
            return _build_response(503, {"Retry-After": str(RETRY_SECONDS)})
        if new:
            on_stored(bot_id)
        return _build_response(200)

    return handle_post


class _TooLarge(Exception):
    """Raised if a body exceeds MAX_BODY_BYTES."""


async def _read_body(request: web.Request) -> bytes:
    """Return the body of a request. Raises _TooLarge."""
    if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
        raise _TooLarge
    found = bytearray()
    while chunk := await request.content.readany():
        found += chunk
        if len(found) > MAX_BODY_BYTES:
            raise _TooLarge
    return bytes(found)


def _has_secret(request: web.Request, secret: str | None) -> bool:
    """Return whether the request has the bot's secret; always False if `secret` is None.

    Compares bytes, because a header may contain any. The comparison takes as long for an unknown bot as for a
    known one.
    """
    given = request.headers.get(SECRET_HEADER, "").encode("utf-8", "surrogateescape")
    same = hmac.compare_digest(given, (secret or "-" * MIN_SECRET_CHARS).encode())
    return same and bool(secret)


def _parse_bot_id(text: str) -> int:
    """Return the bot id in a path; 0 if it is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else 0


def _build_response(status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a response without a body, so that strangers learn nothing from it."""
    response = web.Response(status=status, headers=dict(headers or {}))
    if status != 200 and status != 503:
        response.force_close()  # the rest of an unread body is not read
    return response
