"""HTTP session of aiogram's `Bot` with a size limit for responses, reconnection, and errors without the
token.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from functools import partial
from io import BytesIO
from typing import Any, cast

import aiohttp
from aiogram import Bot
from aiogram.client.default import DefaultBotProperties
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import PRODUCTION, TelegramAPIServer
from aiogram.exceptions import TelegramAPIError, TelegramNetworkError, TelegramRetryAfter
from aiogram.methods import GetUpdates, TelegramMethod
from aiogram.types import LinkPreviewOptions

from bot.aiogram_loader import get_response_models
from bot.telegram.client.update_json import parse_json
from shared.adapters.certificates import describe_failure
from shared.core.values.errors import EvertalkError

REQUEST_SECONDS = 30.0
"""Maximum seconds of a call, unless it names another limit."""
CONNECT_SECONDS = 5.0
"""Maximum seconds for connecting to the Bot API."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one response; a hundred updates have less than 10 MB."""
_TOKEN = re.compile(r"[0-9]{1,16}:[A-Za-z0-9_-]{20,128}")


class InvalidBotToken(EvertalkError):
    """Raised for a bot token that is malformed or that Telegram refuses."""

    sentence = "Telegram does not know this bot token."
    code = "telegram_token_refused"
    advice = (
        "Telegram refuses the bot token. Ask @BotFather for the token (/token), put it into "
        "TELEGRAM_BOT_TOKEN and start again."
    )


class FileTooLarge(EvertalkError):
    """Raised when a download or a response is larger than its limit."""

    sentence = "The file is larger than the limit."
    code = "file_too_large"


class DownloadFailed(EvertalkError):
    """Raised when a file could not be downloaded; `status` is the HTTP status, 0 without a response."""

    sentence = "A file did not come; `status` is the server's answer, 0 without one."
    code = "download_failed"

    def __init__(self, reason: str, *, status: int) -> None:
        super().__init__(reason)
        self.status = status


class GetRawUpdates(GetUpdates):
    """Method `getUpdates` that returns updates as raw JSON values, for the inbox."""

    __returning__ = list[Any]


class BoundedFile(BytesIO):
    """Buffer for a download; raises FileTooLarge instead of growing beyond `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes

    def write(self, chunk: Any, /) -> int:
        """Append a chunk. Raises FileTooLarge, without writing, if the buffer would exceed its limit."""
        if self.tell() + len(chunk) > self._max_bytes:
            raise FileTooLarge(f"more than {self._max_bytes} bytes")
        return super().write(chunk)


class TelegramSession(AiohttpSession):
    """HTTP session of aiogram that limits the size of responses and keeps the token out of its errors."""

    def __init__(self, *, api: TelegramAPIServer, timeout: float) -> None:
        super().__init__(api=api, timeout=timeout, json_loads=partial(parse_json, strict=False))
        self._response_models = get_response_models()
        self._retired: list[aiohttp.ClientSession] = []
        """Replaced HTTP sessions, which stay open while their last calls run."""

    async def create_session(self) -> aiohttp.ClientSession:
        """Return the open HTTP session, or open a new one.

        The proxy from the environment is used for Telegram's own server only.
        """
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=self._connector_type(**self._connector_init),
                trust_env=self.api is PRODUCTION,
            )
        return self._session

    async def make_request(self, bot: Bot, method: TelegramMethod[Any], timeout: Any = None) -> Any:
        """Call a method of the Bot API and return its result. Raises aiogram's exceptions.

        `timeout` is the limit of the whole call in seconds, None for the session's default; connecting may
        take at most `CONNECT_SECONDS` of it.
        """
        session = await self.create_session()
        url = self.api.api_url(token=bot.token, method=method.__api_method__)
        seconds = self.timeout if timeout is None else float(timeout)
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))
        failure: Exception
        try:
            async with session.post(url, data=self.build_form_data(bot, method), timeout=limits) as response:
                content = await _read_body(response, MAX_RESPONSE_BYTES)
        except (aiohttp.ClientError, OSError, FileTooLarge) as error:
            failure = error
        else:
            text = content.decode("utf-8", "replace")
            return self.check_response(bot, method, response.status, text).result
        # Other causes may contain the URL, and so the token.
        named = isinstance(failure, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        raise TelegramNetworkError(method=method, message=describe_failure(failure)) from (
            failure if named else None
        )

    async def stream_content(
        self,
        url: str,
        headers: dict[str, Any] | None = None,
        timeout: int = 30,
        chunk_size: int = 65536,
        raise_for_status: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        """Yield a file in chunks of at most `chunk_size` bytes. Raises DownloadFailed.

        `timeout` is in seconds. With `raise_for_status` False, the body of an error response is yielded too.
        """
        try:
            async for chunk in super().stream_content(url, headers, timeout, chunk_size, raise_for_status):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            failure = DownloadFailed(describe_failure(error), status=getattr(error, "status", 0))
        else:
            return
        raise failure

    async def reconnect(self) -> None:
        """Make the next call open new connections; running calls keep theirs."""
        await self._close_retired()
        if self._session is not None:
            self._retired.append(self._session)
            self._session = None

    async def close(self) -> None:
        """Close all HTTP sessions."""
        await self._close_retired()
        if self._session is not None:
            await self._session.close()

    async def _close_retired(self) -> None:
        while self._retired:
            await self._retired.pop().close()


def create_bot(token: str, *, api_url: str | None = None, timeout: float = REQUEST_SECONDS) -> Bot:
    """Return the client of one bot; the caller must close its session.

    `api_url` is the address of another Bot API server, None for Telegram's own; `timeout` is the limit of
    each call in seconds. Raises InvalidBotToken for a malformed token.
    """
    if not _TOKEN.fullmatch(token):
        raise InvalidBotToken("not of the form 123456:ABC…")
    server = PRODUCTION if api_url is None else TelegramAPIServer.from_base(api_url)
    # The Bot API has deprecated the name `link_preview_is_disabled`, so it is not used here.
    usual = DefaultBotProperties(
        link_preview=LinkPreviewOptions(is_disabled=True), allow_sending_without_reply=True
    )
    return Bot(token, session=TelegramSession(api=server, timeout=timeout), default=usual)


def get_session(bot: Bot) -> TelegramSession:
    """Return the session of a bot that was made by `create_bot`."""
    return cast("TelegramSession", bot.session)


def describe_call_error(error: Exception) -> str:
    """Return the text of Telegram's error, or a description of another error without the token."""
    return error.message if isinstance(error, TelegramAPIError) else describe_failure(error)


def get_retry_seconds(error: Exception) -> float:
    """Return the seconds that Telegram demands before the next call; 0 for other errors."""
    return float(error.retry_after) if isinstance(error, TelegramRetryAfter) else 0.0


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the body of a response. Raises FileTooLarge if it is longer than `max_bytes`."""
    content = bytearray()
    while chunk := await response.content.readany():
        content += chunk
        if len(content) > max_bytes:
            raise FileTooLarge(f"more than {max_bytes} bytes")
    return bytes(content)
