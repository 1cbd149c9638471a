"""Client of servers with `/rerank`, which rank passages by how well they answer a question."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import aiohttp
import structlog

from shared.adapters.bounded_bodies import BodyTooLarge, read_body
from shared.adapters.certificates import describe_failure
from shared.adapters.models.openai_provider import add_usual_path
from shared.adapters.redirects import refuse_redirect
from shared.core.values.errors import ModelError, ModelRedirected, ModelUnavailable
from shared.core.verdicts.session_breakers import SessionBreakers

log = structlog.get_logger(__name__)

SECONDS = 0.3
"""Maximum seconds of one call during recall."""
T = TypeVar("T")


class RecallServer:
    """Client of a server that is called during recall; its connection is kept open, since time is short."""

    path: ClassVar[str]
    """Path of the calls below the base URL."""
    events: ClassVar[tuple[str, str]]
    """Log events for the first failure, and for the first answer after it."""

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        self._url = f"{add_usual_path(url.rstrip('/'))}{self.path}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._model = {"model": model} if model else {}
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None
        self._failing = False

    async def post(self, body: Mapping[str, Any]) -> bytes:
        """POST a JSON body and return the body of the answer.

        Raises ModelUnavailable if the call fails, ModelRedirected if the server redirects elsewhere.
        """
        payload = {**self._model, **body}
        try:
            request = self._open_session().post(
                self._url, json=payload, headers=self._headers, allow_redirects=False
            )
            async with request as response:
                content = await read_body(response)
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) if isinstance(error, BodyTooLarge) else describe_failure(error)
            failed = ModelUnavailable(reason)
            failed.shown = reason
            raise failed from error
        refuse_redirect(self._url, response.status, response.headers)
        if response.status != 200:
            raise ModelUnavailable(f"status {response.status}")
        return content

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self._session

    def log_change(self, *, failing: bool, reason: str = "") -> None:
        """Log once when calls begin to fail, and once when they work again."""
        if failing != self._failing:
            self._failing = failing
            log.warning(self.events[not failing], reason=reason, endpoint=self.path)

    async def close(self) -> None:
        """Close the connection if one was opened."""
        if self._session is not None:
            await self._session.close()


class HttpReranker(RecallServer):
    """Client that ranks passages; a circuit breaker pauses it while the server fails."""

    path = "/rerank"
    events = ("rerank_fails", "rerank_works_again")

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        super().__init__(url=url, key=key, model=model, seconds=seconds)
        self._breaker = SessionBreakers(clock=time.monotonic)

    async def ask(self, question: str, passages: Sequence[str]) -> Sequence[int]:
        """Return indexes of the scored passages, best first, without a timeout. Raises ModelUnavailable."""
        body = {"query": question, "documents": [*passages], "top_n": len(passages)}
        scored = read_rows(await self.post(body), "results", _score, count=len(passages))
        return sorted(scored, key=lambda place: -scored[place])

    async def rank(
        self, question: str, passages: Sequence[str], *, session: int | None = None
    ) -> Sequence[int] | None:
        """Return indexes of the scored passages, best first.

        Returns None if the server fails, is too slow, or its breaker is open. `session` is the session id by
        which the breaker counts failures.
        """
        try:
            self._breaker.admit(session)
        except ModelError:
            return None
        try:
            async with asyncio.timeout(self._seconds):
                places = await self.ask(question, passages)
        except (ModelUnavailable, ModelRedirected, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._seconds:g} s"
            self._breaker.record_failure(reason, session=session)
            self.log_change(failing=True, reason=reason)
            return None
        self._breaker.record_success(session)
        self.log_change(failing=False)
        return places


def read_rows(content: bytes, name: str, read: Callable[[Any], T], *, count: int) -> dict[int, T]:
    """Return what `read` makes of each row of an answer, by the row's index.

    Raises ModelUnavailable if the answer has another form or an index of `count` or more.
    """
    try:
        rows: Any = json.loads(content)[name]
        found = {_index(row): read(row) for row in rows}
    except (ArithmeticError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise ModelUnavailable(f"the answer has no {name}") from error
    if len(found) != len(rows) or not all(0 <= place < count for place in found):
        raise ModelUnavailable("the answer is about other passages")
    return found


def _score(row: Mapping[str, Any]) -> float:
    return float(row["relevance_score"])


def _index(row: Mapping[str, Any]) -> int:
    index = row["index"]
    if type(index) is not int:
        raise TypeError(index)
    return index
