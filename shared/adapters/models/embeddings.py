"""Asks a server with `/embeddings`, as OpenAI has it, which passages mean what a question means."""

from __future__ import annotations

import asyncio
import hashlib
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Any, TypeAlias

from shared.adapters.models.reranker import SECONDS, RerankServer, read_rows
from shared.core.memory.recall import fuse_orders
from shared.core.values.errors import ModelUnavailable

LATE_SECONDS = 30.0
"""Seconds that a request may continue after its caller has stopped waiting."""
KEPT_SECONDS = 600.0
KEPT_NUMBERS = 4 * 2**20
"""Numbers of four bytes in all: 16 MiB, as 4,096 vectors of 1,024 numbers."""

Vector: TypeAlias = "array[float]"


class VectorCache:
    """Cache of passages' vectors by hash of the text, in memory only, so that erased text disappears."""

    def __init__(self, *, numbers: int = KEPT_NUMBERS, seconds: float = KEPT_SECONDS) -> None:
        self._numbers = numbers
        self._seconds = seconds
        self._vectors: dict[bytes, Vector] = {}

    def find(self, passages: Iterable[str]) -> dict[str, Vector]:
        return {text: self._vectors[key] for text in passages if (key := _key(text)) in self._vectors}

    def keep(self, vectors: Mapping[str, Vector]) -> None:
        """One at least, and all of one length; the oldest go where there is no room."""
        added = {_key(text): vector for text, vector in vectors.items()}
        self._vectors |= added
        room = self._numbers // max(map(len, vectors.values()))
        self._drop([*self._vectors][: max(0, len(self._vectors) - room)])
        asyncio.get_running_loop().call_later(self._seconds, self._drop, tuple(added))

    def clear(self) -> None:
        self._vectors.clear()

    def _drop(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._vectors.pop(key, None)


class HttpEmbedder(RerankServer):
    """The order that passages have counts as much as how near they are to the question.

    Vectors that come too late for one question are kept for the next.
    """

    path = "/embeddings"

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        super().__init__(url=url, key=key, model=model, seconds=seconds)
        self._kept = VectorCache()
        self._requests: set[asyncio.Task[Vector]] = set()

    async def ask(self, question: str, passages: Sequence[str]) -> Sequence[int]:
        vectors = self._kept.find(passages)
        new = [*dict.fromkeys(text for text in passages if text not in vectors)]
        request = asyncio.create_task(self._embed(question, new, vectors))
        self._requests.add(request)
        request.add_done_callback(self._discard_result)
        await asyncio.wait((request,))
        asked = request.result()
        near = [sum(map(mul, asked, vectors[text])) for text in passages]
        places = range(len(passages))
        return fuse_orders(places, sorted(places, key=lambda place: -near[place]))

    async def close(self) -> None:
        for request in self._requests:
            request.cancel()
        await super().close()

    async def _embed(self, question: str, new: Sequence[str], vectors: dict[str, Vector]) -> Vector:
        """Return the vector of the question; those of new passages are cached and added to `vectors`."""
        async with asyncio.timeout(LATE_SECONDS):
            content = await self.post({"input": [question, *new]})
        # Forty vectors of a thousand numbers take ten milliseconds.
        rows = await asyncio.to_thread(read_rows, content, "data", _unit_vector, count=1 + len(new))
        if len(rows) <= len(new):
            raise ModelUnavailable("the answer has no vector for some passages")
        fresh = {text: rows[place] for place, text in enumerate(new, start=1)}
        vectors |= fresh
        if any(len(vector) != len(rows[0]) for vector in vectors.values()):
            self._kept.clear()
            raise ModelUnavailable("the vectors differ in length")
        if fresh:
            self._kept.keep(fresh)
        return rows[0]

    def _discard_result(self, request: asyncio.Task[Vector]) -> None:
        """Discard the result of a request whose caller may have gone."""
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()


def _unit_vector(row: Mapping[str, Any]) -> Vector:
    """Return a vector of length 1, so that a product is a cosine. Raises ValueError and TypeError."""
    numbers = array("d", row["embedding"])
    length = math.hypot(*numbers)
    if not 0 < length < math.inf:
        raise ValueError(length)
    return array("f", (number / length for number in numbers))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
