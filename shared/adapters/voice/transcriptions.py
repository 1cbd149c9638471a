"""Asks any server that has OpenAI's `/audio/transcriptions` what is said in a recording."""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from shared.adapters.models.breaker import Breaker, BreakerState
from shared.adapters.models.error_mapping import error_of, read_refusal
from shared.core.values.errors import (
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
)
from shared.core.values.model import Usage
from shared.core.values.recordings import Recording, name_recording
from shared.core.values.storable import storable
from shared.ports import Transcript

SECONDS = 120.0
CONNECT_SECONDS = 10.0
MOST_ANSWER_BYTES = 2 * 1024 * 1024
TRIES = 2
LONGEST_WAIT_SECONDS = 5.0


class HttpTranscriber:
    """One account at one server; where a `ModelError` has `aborted`, it may have cost something."""

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        base = url.rstrip("/")
        self._url = f"{base if urlsplit(base).path.strip('/') else f'{base}/v1'}/audio/transcriptions"
        self._key = key
        self.model = model
        self._seconds = seconds
        self._breaker = Breaker()
        self._refused: set[str] = set()
        """Fields that this server does not take."""

    def states(self) -> Mapping[str, BreakerState]:
        """As those of models, for the dashboard and alerts."""
        return {self._url: self._breaker.state()}

    async def transcribe(self, recording: Recording, *, language: str = "") -> Transcript:
        """`language` is a guess, as `de`; empty where there is none."""
        try:
            async with asyncio.timeout(self._seconds + 1.0):
                return await self._tries(recording, language)
        except TimeoutError as error:
            raise ModelUnavailable("took too long") from error

    async def _tries(self, recording: Recording, language: str) -> Transcript:
        failures = 0
        while True:
            self._breaker.admit()
            try:
                return await self._attempt(recording, language)
            except ModelRejectedRequest as error:
                if not self._narrows(error):
                    raise
            except (ModelUnavailable, ModelBusy) as error:
                failures += 1
                wait = error.retry_after_seconds if isinstance(error, ModelBusy) else 0.5
                if failures == TRIES or error.aborted or wait > LONGEST_WAIT_SECONDS:
                    raise
                await asyncio.sleep(wait)

    async def _attempt(self, recording: Recording, language: str) -> Transcript:
        try:
            transcript = await self._ask(recording, language)
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
        return transcript

    def _narrows(self, error: ModelRejectedRequest) -> bool:
        """Some servers refuse what others need: they are asked again without it, and then never for it."""
        named = [name for name in ("response_format", "language") if name in str(error)]
        fresh = [name for name in named if name not in self._refused]
        self._refused.update(fresh[:1])
        return bool(fresh)

    async def _ask(self, recording: Recording, language: str) -> Transcript:
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        sent = False
        try:
            async with aiohttp.ClientSession(
                timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session:
                form = self._form(recording, language)
                request = session.post(self._url, data=form, headers=headers, allow_redirects=False)
                async with request as response:
                    sent = response.status == 200
                    body = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failed = ModelUnavailable(type(error).__name__)
            failed.aborted = (Usage(known=False),) if sent or isinstance(error, TimeoutError) else ()
            raise failed from error
        if response.status != 200:
            raise error_of(read_refusal(response.status, _parsed(body), headers=response.headers))
        return _transcript(_parsed(body))

    def _form(self, recording: Recording, language: str) -> aiohttp.FormData:
        form = aiohttp.FormData()
        form.add_field(
            "file",
            io.BytesIO(recording.body),
            filename=name_recording(recording.mime),
            content_type=recording.mime,
        )
        form.add_field("model", self.model)
        form.add_field("response_format", "json" if "response_format" in self._refused else "verbose_json")
        if language and "language" not in self._refused:
            form.add_field("language", language)
        return form


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


def _transcript(told: Any) -> Transcript:
    text = told.get("text") if isinstance(told, Mapping) else None
    if not isinstance(text, str):
        broken = ModelUnavailable("the answer has no text")
        broken.aborted = (Usage(known=False),)
        raise broken
    usage = told.get("usage")
    seconds = told.get("duration", usage.get("seconds") if isinstance(usage, Mapping) else None)
    return Transcript(text=" ".join(storable(text).split()), seconds=_positive(seconds))


def _positive(value: object) -> float | None:
    """Some say it as text."""
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
