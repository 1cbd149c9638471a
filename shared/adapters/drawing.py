"""Asks any server that has OpenAI's `/images/generations` for a picture of what somebody describes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from shared.adapters.models.breaker import Breaker, BreakerState
from shared.adapters.models.error_mapping import error_of, read_refusal
from shared.core.values.errors import ModelError, ModelRefusedAccount, ModelRejectedRequest, ModelUnavailable
from shared.core.values.model import Usage

SECONDS = 180.0
CONNECT_SECONDS = 10.0
MOST_ANSWER_BYTES = 40 * 1024 * 1024
_FORMAT = "response_format"


class HttpPictureMaker:
    """One account at one server; where a `ModelError` has `aborted`, it may have cost something."""

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        base = url.rstrip("/")
        self._url = f"{base if urlsplit(base).path.strip('/') else f'{base}/v1'}/images/generations"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.model = model
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        self._breaker = Breaker()
        self._takes_format = True
        """Older models send an address unless they are asked for bytes; newer ones refuse to be asked."""

    def states(self) -> Mapping[str, BreakerState]:
        """As those of models, for the dashboard and alerts."""
        return {self._url: self._breaker.state()}

    async def make(self, prompt: str) -> bytes:
        """One picture, of a kind that nobody has looked at yet. Raises ModelErrors."""
        self._breaker.admit()
        try:
            picture = await self._ask(prompt)
        except ModelRefusedAccount as error:
            self._breaker.refused(str(error))
            raise
        except ModelRejectedRequest:
            self._breaker.succeeded()
            raise
        except ModelError as error:
            self._breaker.failed(str(error))
            raise
        self._breaker.succeeded()
        return picture

    async def _ask(self, prompt: str) -> bytes:
        try:
            return await self._post(prompt)
        except ModelRejectedRequest as error:
            if not self._takes_format or _FORMAT not in str(error):
                raise
            self._takes_format = False
        return await self._post(prompt)

    async def _post(self, prompt: str) -> bytes:
        body: dict[str, Any] = {"model": self.model, "prompt": prompt, "n": 1}
        if self._takes_format:
            body[_FORMAT] = "b64_json"
        paid = False
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
                ) as session,
                session.post(self._url, json=body, headers=self._headers, allow_redirects=False) as response,
            ):
                paid = response.status == 200
                answer = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _paid(type(error).__name__, paid or isinstance(error, TimeoutError)) from error
        told = await asyncio.to_thread(_parsed, answer)
        if response.status != 200:
            raise error_of(read_refusal(response.status, told, headers=response.headers))
        picture = await asyncio.to_thread(_picture, told)
        if not picture:
            raise _paid("the answer has no picture", paid)
        return picture


def _paid(reason: str, paid: bool) -> ModelUnavailable:
    failed = ModelUnavailable(reason)
    failed.aborted = (Usage(known=False),) if paid else ()
    return failed


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > MOST_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too large")
    return bytes(body)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _picture(told: Any) -> bytes:
    data = told.get("data") if isinstance(told, Mapping) else None
    first = data[0] if isinstance(data, list) and data else None
    encoded = first.get("b64_json") if isinstance(first, Mapping) else None
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        return b""
