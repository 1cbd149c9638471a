"""Calls to the Bot API whose answers we want as they came; its token is in no error and in no log."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import aiohttp

from shared.adapters.certificates import describe_failure
from shared.config.settings import TELEGRAM_API_URL
from shared.core.values.errors import EvertalkError

MAX_DEPTH = 64
"""Telegram's own updates have some ten."""
MAX_UPDATE_ID = 2**62


class InvalidJson(ValueError):
    """Bytes that are no storable JSON."""


def parse_json(body: bytes, *, strict: bool = True) -> Any:
    """Raises InvalidJson. Not strict: numbers beyond measure are None, depth is for the caller to judge."""
    constant, decimal = (_reject_constant, _parse_finite) if strict else (_return_none, _parse_finite_or_none)
    try:
        found = json.loads(body, parse_constant=constant, parse_float=decimal)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(type(error).__name__) from None
    if strict and not is_shallow(found):
        raise InvalidJson("nested too deeply")
    return found


def is_update(found: Any) -> bool:
    """Return whether it is an object with a valid `update_id`; other fields are checked when it is read."""
    if not isinstance(found, Mapping):
        return False
    number = found.get("update_id")
    return type(number) is int and 0 <= number <= MAX_UPDATE_ID


def is_shallow(found: Any, levels: int = MAX_DEPTH) -> bool:
    match found:
        case dict():
            return levels > 0 and all(is_shallow(item, levels - 1) for item in found.values())
        case list():
            return levels > 0 and all(is_shallow(item, levels - 1) for item in found)
        case _:
            return True


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _return_none(constant: str) -> None:
    return None


def _parse_finite_or_none(number: str) -> float | None:
    found = float(number)
    return found if math.isfinite(found) else None


def _parse_finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError("a number beyond all measure")
    return found


CONNECT_SECONDS = 10.0
CALL_SECONDS = 20.0
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
TOKEN = re.compile(r"[0-9]{1,16}:[A-Za-z0-9_-]{20,128}")


class InvalidBotToken(EvertalkError):
    """Telegram does not know this bot token."""

    code = "telegram_token_refused"
    advice = (
        "Telegram refuses the bot token. Ask @BotFather for the token (/token), put it into "
        "TELEGRAM_BOT_TOKEN and start again."
    )


class CallRefused(EvertalkError):
    """Telegram answered, and the answer is no. A rate limit is none: see TelegramUnavailable."""

    code = "telegram_refused"

    def __init__(self, method: str, status: int, description: str) -> None:
        super().__init__(f"{method}: {status} {description}")
        self.status = status
        self.description = description


class TelegramUnavailable(EvertalkError):
    """No usable answer: no connection, a broken one, a proxy's page, 5xx, or 429 with the seconds to wait."""

    code = "telegram_unavailable"

    def __init__(self, reason: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class FileTooLarge(EvertalkError):
    """The file is larger than the limit."""

    code = "file_too_large"


def parse_bot_id(token: str) -> int:
    """The number before the colon; raises InvalidBotToken for what cannot be a token."""
    if not TOKEN.fullmatch(token):
        raise InvalidBotToken("not of the form 123456:ABC…")
    return int(token.partition(":")[0])


class BotApi:
    """Calls of one bot over separate connections."""

    def __init__(self, token: str, *, base_url: str = TELEGRAM_API_URL) -> None:
        self.bot_id = parse_bot_id(token)
        self._token = token
        self._base_url = base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"BotApi(bot_id={self.bot_id})"

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float = CALL_SECONDS
    ) -> Any:
        """The `result`. Raises InvalidBotToken, CallRefused and TelegramUnavailable."""
        url = f"{self._base_url}/bot{self._token}/{method}"
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        failure, status, body = "", 0, b""
        try:
            async with self._get_session().post(url, json=dict(params or {}), timeout=timeout) as response:
                status = response.status
                body = await _read_body(response, MAX_RESPONSE_BYTES)
        except FileTooLarge:
            failure = "an answer without end"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = describe_failure(error)  # its text contains the URL, and with it the token
        if failure:
            raise TelegramUnavailable(f"{method}: {failure}")
        return _parse_result(method, status, body)

    async def download(self, path: str, *, max_bytes: int, seconds: float) -> bytes:
        """The bytes of a `file_path`. Raises FileTooLarge, CallRefused and TelegramUnavailable."""
        url = f"{self._base_url}/file/bot{self._token}/{path}"
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        failure = ""
        try:
            async with self._get_session().get(url, timeout=timeout) as response:
                if 200 <= response.status < 300:
                    return await _read_body(response, max_bytes)
                status = response.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure, status = describe_failure(error), 0
        if failure or status >= 500:
            raise TelegramUnavailable(f"download: {failure or status}")
        raise CallRefused("download", status, "")

    async def reconnect(self) -> None:
        """Close the connections; the next call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        await self.reconnect()

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(trust_env=self._base_url == TELEGRAM_API_URL)
        return self._session


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    found = bytearray()
    while chunk := await response.content.readany():
        found += chunk
        if len(found) > max_bytes:
            raise FileTooLarge(f"more than {max_bytes} bytes")
    return bytes(found)


def _parse_result(method: str, status: int, body: bytes) -> Any:
    try:
        answer = parse_json(body, strict=False)
    except InvalidJson:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise TelegramUnavailable(f"{method}: {status} with something that is not Telegram's JSON")
    if answer["ok"]:
        return answer.get("result")
    code = answer.get("error_code")
    status = code if type(code) is int else status
    description = str(answer.get("description", ""))[:300]
    if status == 401 or (status == 404 and method == "getMe"):
        raise InvalidBotToken(f"{method}: {status} {description}")
    if status >= 500 or status == 429:
        wait = _parse_retry_after(answer)
        raise TelegramUnavailable(f"{method}: {status} {description}", retry_after_seconds=wait)
    raise CallRefused(method, status, description)


def _parse_retry_after(answer: Mapping[str, Any]) -> float:
    parameters = answer.get("parameters")
    wanted = parameters.get("retry_after") if isinstance(parameters, Mapping) else None
    return float(wanted) if isinstance(wanted, int | float) and wanted > 0 else 0.0
