"""One of OpenAI's media endpoints at any server: asked again if that helps, never for too long."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import aiohttp

from shared.adapters.certificates import describe_failure
from shared.adapters.models.error_mapping import build_error, read_refusal
from shared.adapters.models.openai_provider import add_usual_path
from shared.adapters.redirects import refuse_redirect
from shared.core.values.errors import (
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
)
from shared.core.values.money import Usage
from shared.core.verdicts.breaker import Breaker, BreakerState

SECONDS = 120.0
CONNECT_SECONDS = 10.0
TRIES = 2
LONGEST_WAIT_SECONDS = 5.0
T = TypeVar("T")


class MediaService:
    """One account; where a `ModelError` has `aborted`, it may have cost something."""

    def __init__(
        self,
        *,
        url: str,
        path: str,
        key: str,
        most_bytes: int,
        seconds: float = SECONDS,
        optional: tuple[str, ...] = (),
    ) -> None:
        self._url = f"{add_usual_path(url.rstrip('/'))}{path}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._optional = optional
        self._breaker = Breaker(clock=time.monotonic)
        self.refused: set[str] = set()
        """Fields that this server does not take."""

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return the circuit breakers by address, for the dashboard and alerts."""
        return {self._url: self._breaker.get_state()}

    async def ask(self, request: Callable[[], dict[str, Any]], read: Callable[[bytes], T]) -> T:
        """`request` makes a body, without what is `refused`; `read` may raise ModelErrors."""
        try:
            async with asyncio.timeout(self._seconds + 1.0):
                return await self._tries(request, read)
        except TimeoutError as error:
            raise build_paid_failure("took too long") from error

    async def _tries(self, request: Callable[[], dict[str, Any]], read: Callable[[bytes], T]) -> T:
        failures = 0
        while True:
            self._breaker.admit()
            try:
                return await self._attempt(request, read)
            except ModelRejectedRequest as error:
                if not self._narrows(error):
                    raise
            except (ModelUnavailable, ModelBusy) as error:
                failures += 1
                wait = error.retry_after_seconds if isinstance(error, ModelBusy) else 0.5
                if failures == TRIES or error.aborted or wait > LONGEST_WAIT_SECONDS:
                    raise
                await asyncio.sleep(wait)

    async def _attempt(self, request: Callable[[], dict[str, Any]], read: Callable[[bytes], T]) -> T:
        try:
            answer = read(await self._post(request()))
        except ModelRefusedAccount as error:
            self._breaker.record_refusal(str(error))
            raise
        except ModelRejectedRequest:
            self._breaker.record_success()
            raise
        except ModelError as error:
            self._breaker.record_failure(str(error))
            raise
        self._breaker.record_success()
        return answer

    def _narrows(self, error: ModelRejectedRequest) -> bool:
        """Some servers refuse what others need: they are asked again without it, and then never for it."""
        fresh = [name for name in self._optional if name in str(error) and name not in self.refused]
        self.refused.update(fresh[:1])
        return bool(fresh)

    async def _post(self, body: dict[str, Any]) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=CONNECT_SECONDS)
        sent = False
        try:
            async with aiohttp.ClientSession(
                timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session:
                request = session.post(self._url, **body, headers=self._headers, allow_redirects=False)
                async with request as response:
                    sent = response.status == 200
                    answer = await self._read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if sent or isinstance(error, TimeoutError):
                raise build_paid_failure(type(error).__name__) from error
            failed = ModelUnavailable(describe_failure(error))
            failed.shown = str(failed)
            raise failed from error
        refuse_redirect(self._url, response.status, response.headers)
        if response.status != 200:
            raise build_error(read_refusal(response.status, parse_body(answer), headers=response.headers))
        return answer

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(65_536):
            body += chunk
            if len(body) > self._most_bytes:
                raise aiohttp.ClientPayloadError("the answer is too large")
        return bytes(body)


def build_paid_failure(reason: str) -> ModelUnavailable:
    failed = ModelUnavailable(reason)
    failed.aborted = (Usage(known=False),)
    return failed


def parse_body(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
