"""Client of servers with OpenAI's `/embeddings`, which return vectors that represent the meaning of texts."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shared.adapters.meaning.everyday import SENTENCES
from shared.adapters.models.reranker import SECONDS, RecallServer, read_rows
from shared.core.memory.vectors import LEAST_NUMBERS, MOST_NUMBERS, Encoded, find_middle, pack_vector
from shared.core.values.errors import EncoderEnded, ModelError, ModelRedirected, ModelUnavailable
from shared.core.values.secrets_filter import redact
from shared.core.verdicts.session_breakers import SessionBreakers

PASSAGES_SECONDS = 30.0
"""Seconds to wait for one request of passages, which the worker encodes after turns."""
MOST_TEXTS, MOST_CHARS = 16, 4_000
"""Maximum texts of a request, and characters of each; common servers take at least 32 texts at once."""
MIDDLE_SECONDS = 3_600.0
"""Seconds until the mean vector is computed again; a change shows that the server's model was replaced."""
_MOST_NAME = 120

Vector: TypeAlias = "list[float]"
"""Embedding of one text: a list of numbers of the length that the model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Middle:
    """Mean vector of everyday sentences for one model, subtracted from each of its vectors."""

    encoder: str
    model: str
    numbers: tuple[float, ...]
    known_since: float


class HttpEncoder(RecallServer):
    """Client of one embeddings server; circuit breakers pause it while the server fails.

    Failures for passages and for questions are counted separately.
    """

    path = "/embeddings"
    events = ("embeddings_fail", "embeddings_work_again")

    def __init__(
        self, *, url: str, key: str, model: str, seconds: float = SECONDS,
        passages_seconds: float = PASSAGES_SECONDS,
    ) -> None:  # fmt: skip
        super().__init__(url=url, key=key, model=model, seconds=seconds)
        self._limits = {True: seconds, False: passages_seconds}
        self._breakers = {kind: SessionBreakers(clock=time.monotonic) for kind in (True, False)}
        self._middle: _Middle | None = None
        self._learning: asyncio.Task[_Middle] | None = None

    async def encode(
        self, texts: Sequence[str], *, question: bool = False, session: int | None = None
    ) -> Encoded:
        """Return vectors of texts, from which known secrets are removed before they are sent.

        Raises EncoderEnded if the server answers other texts but not these, ModelUnavailable if it answers
        none.
        """
        breaker = self._breakers[question]
        breaker.admit(session)
        try:
            async with asyncio.timeout(self._limits[question]):
                encoded = await self._encode(texts, question=question)
        except (ModelUnavailable, ModelRedirected, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._limits[question]:g} s"
            if texts and not question and await self._answers_others():
                breaker.record_success(session)
                raise EncoderEnded(f"the server does not answer for the text: {reason}") from error
            breaker.record_failure(reason, session=session)
            self.log_change(failing=True, reason=reason)
            raise ModelUnavailable(reason) from error
        breaker.record_success(session)
        self.log_change(failing=False)
        return encoded

    async def ask(self, texts: Sequence[str]) -> tuple[str, list[Vector]]:
        """Return the model name in the server's answer, and one vector per text. Raises ModelUnavailable.

        Known secrets are removed first, and each text is cut at MOST_CHARS characters.
        """
        inputs = [redact(text)[:MOST_CHARS].strip() or "-" for text in texts]
        content = await self.post({"input": inputs})
        # Parsing sixteen vectors of a thousand numbers takes some milliseconds.
        return await asyncio.to_thread(_read, content, len(texts))

    async def close(self) -> None:
        """Cancel the background task that learns about the model, and close the connection."""
        if self._learning is not None:
            self._learning.cancel()
        await super().close()

    async def _encode(self, texts: Sequence[str], *, question: bool) -> Encoded:
        middle = await self._find_middle(waits=not question)
        vectors: list[bytes] = []
        for first in range(0, len(texts), MOST_TEXTS):
            model, found = await self.ask(texts[first : first + MOST_TEXTS])
            if model != middle.model or any(len(vector) != len(middle.numbers) for vector in found):
                self._middle = None
                raise ModelUnavailable("the vectors are of another model than before")
            vectors.extend(pack_vector(vector, middle.numbers) for vector in found)
        return Encoded(encoder=middle.encoder, vectors=tuple(vectors))

    async def _find_middle(self, *, waits: bool) -> _Middle:
        """Return the mean vector, computed again if it is older than MIDDLE_SECONDS.

        With `waits` False, the former one is returned while the new one is computed.
        """
        known = self._middle
        if known is not None and time.monotonic() - known.known_since < MIDDLE_SECONDS:
            return known
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn_middle())
            # The question that started it may have stopped waiting.
            self._learning.add_done_callback(_discard_result)
        if known is not None and not waits:
            return known
        return await asyncio.shield(self._learning)

    async def _learn_middle(self) -> _Middle:
        """Compute and store the mean vector of everyday sentences. Raises ModelUnavailable."""
        async with asyncio.timeout(self._limits[False]):
            vectors: list[Vector] = []
            models: set[str] = set()
            for first in range(0, len(SENTENCES), MOST_TEXTS):
                model, found = await self.ask(SENTENCES[first : first + MOST_TEXTS])
                models.add(model)
                vectors.extend(found)
        if len(models) > 1 or len({len(vector) for vector in vectors}) > 1:
            raise ModelUnavailable("the server answers with several models")
        numbers = find_middle(vectors)
        model = models.pop()
        name = f"{model or self._model.get('model', '')}/{len(numbers)}/{_largest(numbers)}"
        self._middle = _Middle(
            encoder=name, model=model, numbers=numbers, known_since=time.monotonic()
        )  # fmt: skip
        return self._middle

    async def _answers_others(self) -> bool:
        """Return whether the server answers for an everyday sentence; then the failed texts are at fault."""
        if self._middle is None:
            return False
        try:
            async with asyncio.timeout(self._limits[False]):
                await self.ask(SENTENCES[:1])
        except (ModelError, TimeoutError):
            return False
        return True


def _read(content: bytes, count: int) -> tuple[str, list[Vector]]:
    """Return the model name and the vectors of an answer, in the order of the texts.

    The name is "" if the answer has none. Raises ModelUnavailable unless there are `count` vectors of one
    length.
    """
    rows = read_rows(content, "data", _unit_vector, count=count)
    vectors = [rows[place] for place in sorted(rows)]
    if len(vectors) < count:
        raise ModelUnavailable("the answer has no vector for some texts")
    if len({len(vector) for vector in vectors}) > 1:
        raise ModelUnavailable("the vectors differ in length")
    model = json.loads(content).get("model")
    return _NOT_OF_NAMES.sub("?", model)[:_MOST_NAME] if isinstance(model, str) else "", vectors


_NOT_OF_NAMES = re.compile(r"[^\x21-\x7e]")


def _unit_vector(row: Mapping[str, Any]) -> Vector:
    """Return a row's vector, scaled to length 1. Raises ValueError or TypeError if it is not usable."""
    embedding = row["embedding"]
    if not isinstance(embedding, list) or not LEAST_NUMBERS <= len(embedding) <= MOST_NUMBERS:
        raise ValueError("no vector of a size in use")
    numbers = [float(number) for number in embedding]
    length = math.hypot(*numbers)
    if not 0 < length < math.inf:
        raise ValueError(length)
    return [number / length for number in numbers]


def _largest(numbers: Sequence[float]) -> int:
    """Return the index of the vector's largest absolute number, by which models are distinguished."""
    return max(range(len(numbers)), key=lambda place: abs(numbers[place]))


def _discard_result(task: asyncio.Task[_Middle]) -> None:
    if not task.cancelled():
        task.exception()
