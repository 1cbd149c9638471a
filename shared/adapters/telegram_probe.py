"""A look at a bot from outside: whose token it is and what Telegram says of its webhook; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from pydantic import SecretStr

LOOK_SECONDS = 8.0


class TelegramSilent(Exception):
    """Telegram cannot be reached, or what answers is not Telegram."""


class TokenRefused(Exception):
    """Telegram knows no bot with this token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotSeen:
    bot_id: int
    username: str
    name: str
    reads_all_group_messages: bool
    """True when privacy mode is off: the bot hears everything said in its groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSeen:
    host: str
    """Where updates are posted to; empty when the bot is polled. The whole address may be secret."""
    waiting: int
    """Updates that Telegram holds for us."""
    last_error: str
    last_error_at: datetime | None


async def look_at_bot(token: SecretStr, *, api_url: str, seconds: float = LOOK_SECONDS) -> BotSeen:
    """Raises TelegramSilent and TokenRefused."""
    told = await _ask(token, "getMe", api_url=api_url, seconds=seconds)
    return BotSeen(
        bot_id=int(told.get("id", 0)),
        username=str(told.get("username", "")),
        name=str(told.get("first_name", "")),
        reads_all_group_messages=bool(told.get("can_read_all_group_messages")),
    )


async def look_at_webhook(token: SecretStr, *, api_url: str, seconds: float = LOOK_SECONDS) -> WebhookSeen:
    """Raises TelegramSilent and TokenRefused."""
    told = await _ask(token, "getWebhookInfo", api_url=api_url, seconds=seconds)
    at = told.get("last_error_date")
    return WebhookSeen(
        host=urlsplit(str(told.get("url", ""))).hostname or "",
        waiting=int(told.get("pending_update_count", 0)),
        last_error=str(told.get("last_error_message", "")),
        last_error_at=datetime.fromtimestamp(at, UTC) if isinstance(at, int) else None,
    )


async def _ask(token: SecretStr, method: str, *, api_url: str, seconds: float) -> Mapping[str, Any]:
    """The token is part of the address, so no error of the client's own may be shown."""
    where = urlsplit(api_url).hostname
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.get(f"{api_url}/bot{token.get_secret_value()}/{method}", allow_redirects=False) as answer,
        ):
            status, told = answer.status, await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise TelegramSilent(f"{where} did not answer ({type(error).__name__})") from None
    if status in (401, 404) and isinstance(told, Mapping) and told.get("ok") is False:
        raise TokenRefused("Telegram knows no bot with this token")
    result = told.get("result") if isinstance(told, Mapping) else None
    if status != 200 or not isinstance(result, Mapping):
        raise TelegramSilent(f"{where} answered {status}, but not as Telegram does")
    return result
