"""Queries about a bot and its webhook by its token, without changing anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from pydantic import SecretStr

from shared.adapters.bounded_bodies import read_body
from shared.adapters.certificates import describe_failure

LOOK_SECONDS = 8.0
"""Maximum seconds of one query."""


class TelegramUnreachable(Exception):
    """Raised if Telegram cannot be reached, or another server answers in its place."""


class TokenRefused(Exception):
    """Raised if Telegram does not know a bot with this token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotProbe:
    """Bot to which a token belongs."""

    bot_id: int
    username: str
    """Username without @; "" if Telegram reports none."""
    name: str
    """Display name of the bot."""
    reads_all_group_messages: bool
    """Whether privacy mode is off, so that the bot receives all messages of its groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookProbe:
    """State of a bot's webhook as Telegram reports it."""

    host: str
    """Host to which updates are posted, "" for a polled bot; the whole address may be secret."""
    waiting: int
    """Number of updates that Telegram holds for the bot."""
    last_error: str
    """Telegram's message about the newest failed delivery; "" if none failed."""
    last_error_at: datetime | None
    """Time of that failure; None if none failed."""


async def probe_bot(token: SecretStr, *, api_url: str, seconds: float = LOOK_SECONDS) -> BotProbe:
    """Return the bot of a token; `api_url` is the Bot API's base URL.

    Raises TelegramUnreachable, and TokenRefused for an unknown token.
    """
    result = await _ask(token, "getMe", api_url=api_url, seconds=seconds)
    return BotProbe(
        bot_id=int(result.get("id", 0)),
        username=str(result.get("username", "")),
        name=str(result.get("first_name", "")),
        reads_all_group_messages=bool(result.get("can_read_all_group_messages")),
    )


async def probe_webhook(token: SecretStr, *, api_url: str, seconds: float = LOOK_SECONDS) -> WebhookProbe:
    """Return the state of a bot's webhook; `api_url` is the Bot API's base URL.

    Raises TelegramUnreachable, and TokenRefused for an unknown token.
    """
    result = await _ask(token, "getWebhookInfo", api_url=api_url, seconds=seconds)
    at = result.get("last_error_date")
    return WebhookProbe(
        host=urlsplit(str(result.get("url", ""))).hostname or "",
        waiting=int(result.get("pending_update_count", 0)),
        last_error=str(result.get("last_error_message", "")),
        last_error_at=datetime.fromtimestamp(at, UTC) if isinstance(at, int) else None,
    )


MOST_ANSWER_BYTES = 2**20
"""Maximum bytes of the Bot API's answer to these queries."""


async def _ask(token: SecretStr, method: str, *, api_url: str, seconds: float) -> Mapping[str, Any]:
    """Call a method of the Bot API and return its result. Raises TelegramUnreachable and TokenRefused.

    The URL contains the token, so messages of the client's errors must not be shown.
    """
    where = urlsplit(api_url).hostname
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.get(f"{api_url}/bot{token.get_secret_value()}/{method}", allow_redirects=False) as answer,
        ):
            status, body = answer.status, json.loads(await read_body(answer, MOST_ANSWER_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise TelegramUnreachable(f"{where} did not answer ({describe_failure(error)})") from None
    if status in (401, 404) and isinstance(body, Mapping) and body.get("ok") is False:
        raise TokenRefused("Telegram does not know a bot with this token")
    result = body.get("result") if isinstance(body, Mapping) else None
    if status != 200 or not isinstance(result, Mapping):
        raise TelegramUnreachable(f"{where} answered {status}, but not as Telegram does")
    return result
