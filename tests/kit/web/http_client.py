"""A test's HTTP client that releases every answer and socket at its end.

Otherwise the garbage collector finds an open one at any later time, and its warning fails the test that
happens to run then. Closing a client ends its connections, but not the answers and sockets that still hold
them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientResponse, ClientSession


def kept_in(answers: list[ClientResponse]) -> type[ClientResponse]:
    """Return a `response_class` for a client that adds every answer to `answers`, including upgrades to
    WebSocket.
    """

    class Kept(ClientResponse):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            answers.append(self)

    return Kept


@asynccontextmanager
async def browsing(**options: Any) -> AsyncIterator[ClientSession]:
    """Yield a client whose answers are all released on leaving; `options` are those of `ClientSession`."""
    answers: list[ClientResponse] = []
    async with ClientSession(response_class=kept_in(answers), **options) as client:
        try:
            yield client
        finally:
            for answer in answers:
                answer.close()
