"""Asks a server with `/rerank`, as Jina and Cohere have it, which passages answer a question best."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import structlog

from shared.adapters.models.breaker import Breaker
from shared.adapters.models.openai_provider import with_usual_path
from shared.core.values.errors import ModelError, ModelUnavailable

log = structlog.get_logger(__name__)

SECONDS = 0.3


class HttpReranker:
    """One server. Its connection is kept, for the time is short; while it fails, it is not asked."""

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        self._url = f"{with_usual_path(url.rstrip('/'))}/rerank"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._model = {"model": model} if model else {}
        self._seconds = seconds
        self._breaker = Breaker()
        self._session: aiohttp.ClientSession | None = None
        self._failing = False

    async def rank(self, question: str, passages: Sequence[str]) -> Sequence[int] | None:
        try:
            self._breaker.admit()
        except ModelError:
            return None
        try:
            async with asyncio.timeout(self._seconds):
                places = await self.ask(question, passages)
        except (ModelUnavailable, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._seconds:g} s"
            self._breaker.failed(reason)
            self._tell(failing=True, reason=reason)
            return None
        self._breaker.succeeded()
        self._tell(failing=False)
        return places

    async def ask(self, question: str, passages: Sequence[str]) -> Sequence[int]:
        """Without a bound of time. Raises ModelUnavailable."""
        body = {**self._model, "query": question, "documents": [*passages], "top_n": len(passages)}
        try:
            request = self._opened().post(self._url, json=body, headers=self._headers, allow_redirects=False)
            async with request as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ModelUnavailable(type(error).__name__) from error
        if response.status != 200:
            raise ModelUnavailable(f"status {response.status}")
        return _places(content, len(passages))

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self._session

    def _tell(self, *, failing: bool, reason: str = "") -> None:
        """Once when it begins to fail, and once when it works again."""
        if failing != self._failing:
            self._failing = failing
            log.warning("rerank_fails" if failing else "rerank_works_again", reason=reason)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _places(content: bytes, count: int) -> Sequence[int]:
    """Best first; raises ModelUnavailable for what is no order of the passages."""
    try:
        told: Any = json.loads(content)
        scored = {_index(one): float(one["relevance_score"]) for one in told["results"]}
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise ModelUnavailable("the answer is no list of scores") from error
    if len(scored) != len(told["results"]) or not all(0 <= place < count for place in scored):
        raise ModelUnavailable("the answer names other passages")
    return sorted(scored, key=lambda place: -scored[place])


def _index(one: Mapping[str, Any]) -> int:
    index = one["index"]
    if type(index) is not int:
        raise TypeError(index)
    return index
