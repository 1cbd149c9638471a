"""Client of one of OpenAI's media endpoints at any server: retries if that can help, within a total time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping
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
from shared.core.verdicts.breaker import BreakerState
from shared.core.verdicts.evidence import Clock, EvidenceLog
from shared.core.verdicts.session_breakers import SessionBreakers

SECONDS = 120.0
"""Maximum seconds for a request with all tries."""
CONNECT_SECONDS = 10.0
"""Maximum seconds for connecting to the server."""
TRIES = 2
"""Maximum requests of one call that fails; a request without a refused field is not counted."""
LONGEST_WAIT_SECONDS = 5.0
"""Longest wait demanded by a busy server after which a call is still retried."""
KEPT_SECONDS = 86_400.0
"""Seconds for which a field that the server refused is left out of requests."""
T = TypeVar("T")
BuildBody = Callable[[Collection[str]], dict[str, Any]]
"""Function that returns the body of a request without the given fields."""


class MediaService:
    """Client of one endpoint and account, with a circuit breaker.

    `optional` are fields that are left out once the server has refused them. Where a ModelError has
    `aborted`, the call may have cost something.
    """

    def __init__(
        self,
        *,
        url: str,
        path: str,
        key: str,
        most_bytes: int,
        seconds: float = SECONDS,
        optional: tuple[str, ...] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        self._url = f"{add_usual_path(url.rstrip('/'))}{path}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._optional = optional
        self._breaker = SessionBreakers(clock=clock)
        self._refused = EvidenceLog(clock=clock, kept_seconds=KEPT_SECONDS)

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return the state of the circuit breaker by address, for the dashboard and alerts."""
        return {self._url: self._breaker.get_state()}

    async def ask(self, request: BuildBody, read: Callable[[bytes], T], *, session: int | None = None) -> T:
        """Send a request, retry it if that can help, and return what `read` makes of the answer.

        `request` builds the body without the fields that it gets. Failures in one `session` count for other
        sessions after three different sessions. Raises ModelError.
        """
        try:
            async with asyncio.timeout(self._seconds + 1.0):
                return await self._tries(request, read, session)
        except TimeoutError as error:
            raise build_paid_failure("took too long") from error

    async def _tries(self, request: BuildBody, read: Callable[[bytes], T], session: int | None) -> T:
        failures = 0
        while True:
            self._breaker.admit(session)
            try:
                return await self._attempt(request, read, session)
            except ModelRejectedRequest as error:
                if not self._narrows(error, session):
                    raise
            except (ModelUnavailable, ModelBusy) as error:
                failures += 1
                wait = error.retry_after_seconds if isinstance(error, ModelBusy) else 0.5
                if failures == TRIES or error.aborted or wait > LONGEST_WAIT_SECONDS:
                    raise
                await asyncio.sleep(wait)

    async def _attempt(self, request: BuildBody, read: Callable[[bytes], T], session: int | None) -> T:
        try:
            answer = read(await self._post(request(self._list_refused(session))))
        except ModelRefusedAccount as error:
            self._breaker.record_refusal(str(error), session=session)
            raise
        except ModelUnavailable as error:
            self._breaker.record_failure(str(error), session=session, answered=error.answered)
            raise
        except ModelError:
            # An answer of a busy server, or the refusal of this request, shows that the server works.
            self._breaker.record_success(session)
            raise
        self._breaker.record_success(session)
        return answer

    def _list_refused(self, session: int | None) -> Collection[str]:
        """Return the optional fields that the server refused in this session, or in three others."""
        return [name for name in self._optional if self._refused.find(name, session=session or 0) is not None]

    def _narrows(self, error: ModelRejectedRequest, session: int | None) -> bool:
        """Record the optional field that the error names as refused.

        Returns whether there was a new one to leave out.
        """
        refused = self._list_refused(session)
        fresh = [name for name in self._optional if name in str(error) and name not in refused]
        for name in fresh[:1]:
            self._refused.record(name, session=session or 0)
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
    """Return a ModelUnavailable of a call that may have cost something, although no usage is known."""
    failed = ModelUnavailable(reason)
    failed.aborted = (Usage(known=False),)
    return failed


def parse_body(body: bytes) -> Any:
    """Return the JSON of a body; None if it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
