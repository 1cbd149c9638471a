"""Tells operators' pages which topics changed, and how far a job is; what is new, they ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from shared.adapters.postgres.people.operator_auth import Operators
from shared.core.values.errors import StorageUnavailable
from web.dashboard.access import HEADERS, AuthedRequest
from web.rest.operation import OperationRouter, Reply
from web.security import REQUEST_ID, HttpRefusal
from web.server.dashboard_streams import STREAMS_AT_MOST, TOPICS, Follower, Live
from web.server.event_stream import EventStream
from web.server.http_server import Connection

router = OperationRouter()
COMMENT_SECONDS = 15.0
"""Seconds without an event after which a heartbeat is sent, since proxies close silent connections."""
CHECK_SECONDS = 60.0
"""Seconds between checks of an open stream's login; a logout checks at once."""
_BYE = "bye"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHandlers:
    """Handler of the stream of changes."""

    live: Live | None
    operators: Operators

    @router.on("GET /live", role="viewer", refusals=(429, 503), media="text/event-stream")
    async def follow_changes(self, authed: AuthedRequest) -> Reply:
        """Stream changes as server-sent events.

        Events: `hello` first; `changed` with `topics`; `progress` of summaries with `job`, `percent` and
        `stage`; `typing` with the `session` that a person writes in; `end` when the login ends or the server
        restarts. Fetch changed data with the other operations.
        """
        live, request = self.live, authed.request
        if live is None:
            raise HttpRefusal(503, "not_available", "Live updates are not available just now. Poll instead.")
        follower = Follower(request.transport, authed.operator.operator_id)
        if not live.join(follower):
            words = f"At most {STREAMS_AT_MOST} at once."
            raise HttpRefusal(429, "too_many_streams", words, headers={"Retry-After": "60"})
        connection = request.protocol
        try:
            if isinstance(connection, Connection):
                connection.on_lost = lambda: follower.close("gone")
            return await self._stream(authed, follower)
        finally:
            if isinstance(connection, Connection):
                connection.on_lost = None
            await live.leave(follower)

    async def _stream(self, authed: AuthedRequest, follower: Follower) -> web.StreamResponse:
        request_id = authed.request.get(REQUEST_ID, "")
        stream = EventStream(authed.request, request_id=request_id, headers=HEADERS)
        loop = asyncio.get_running_loop()
        try:
            await stream.open()
        except (ConnectionError, TimeoutError):
            return await stream.end()
        await stream.send("hello", {"topics": list(TOPICS)})
        checked = loop.time()
        while not follower.closed and not stream.gone:
            stirred = await follower.wait_for_change(COMMENT_SECONDS)
            if follower.check or loop.time() - checked >= CHECK_SECONDS:
                follower.check, checked = False, loop.time()
                if not await self._is_login_valid(authed):
                    follower.close("login")
                    break
            if not stirred:
                await stream.beat()
                continue
            for name, told in follower.take_events():
                await stream.send(name, told)
        await stream.send("end", {"reason": follower.closed or _BYE})
        return await stream.end()

    async def _is_login_valid(self, authed: AuthedRequest) -> bool:
        """Following is not being present: it keeps no login alive."""
        try:
            who = await self.operators.authenticate(authed.token, present=False)
        except StorageUnavailable:
            return True  # nothing is told while Postgres is away, and the next look decides
        return who is not None and who.operator_id == authed.operator.operator_id and who.has_role("viewer")
