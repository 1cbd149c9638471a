"""Chat over a WebSocket: expects a hello, then carries out frames and sends the events of the
conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import WSMsgType, web

from shared.core.values.errors import EvertalkError, UnreadableMessage
from shared.runtime import BackgroundTasks
from web.auth.visitors import Known, NobodyYet, Visitors
from web.chat.handshake import OpenPlace, ScreenOffers, TooManySockets, build_newcomer_welcome
from web.chat.screen_actions import STEP_SECONDS
from web.chat.socket_session import Closed, IdentityChanged, OpenSession, SocketSession, admit
from web.ports import Readiness
from web.protocol import wire
from web.security import HttpRefusal
from web.server.client_limiter import ClientLimiter
from web.server.hub import Hub
from web.server.rate_limits import ClientLimits, Window
from web.server.send_queue import SendQueue

HELLO_SECONDS = 10.0
"""Seconds in which the hello must arrive."""
HARD_FRAME_BYTES = 2 * wire.MAX_FRAME_BYTES
"""Maximum bytes of a frame that aiohttp accepts.

Up to here a too large frame gets an error, beyond it none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketHandlers:
    """Handler of the WebSocket address, which runs the chat of each connection until it closes."""

    readiness: Readiness
    visitors: Visitors
    limiter: ClientLimiter
    hub: Hub
    tasks: BackgroundTasks
    offers: ScreenOffers
    open_session: OpenSession
    open_place: OpenPlace

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Serve the chat over a WebSocket until it closes.

        Raises HttpRefusal before the upgrade. The origin is checked first, since after the upgrade a foreign
        page could read the response.
        """
        if self.readiness.draining:
            raise HttpRefusal(503, "restarting", "The server restarts. Please come back in a moment.")
        if not await self.visitors.is_page_allowed(request):
            raise HttpRefusal(403, "foreign_origin", "This page is not allowed to use the chat.")
        socket = web.WebSocketResponse(
            timeout=5.0,
            heartbeat=wire.HEARTBEAT_SECONDS,
            compress=False,
            max_msg_size=HARD_FRAME_BYTES,
            writer_limit=64 * 1024,
        )
        if not socket.can_prepare(request):
            raise HttpRefusal(426, "upgrade_needed", "This address speaks WebSocket only.")
        await socket.prepare(request)
        await _Chat(
            request, socket, visitors=self.visitors, limiter=self.limiter, hub=self.hub, tasks=self.tasks,
            offers=self.offers, open_session=self.open_session, open_place=self.open_place,
        ).run()  # fmt: skip
        return socket


class _Chat:
    """One WebSocket connection, from the hello to its close."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        *,
        visitors: Visitors,
        limiter: ClientLimiter,
        hub: Hub,
        tasks: BackgroundTasks,
        offers: ScreenOffers,
        open_session: OpenSession,
        open_place: OpenPlace,
    ) -> None:
        self._request = request
        self._socket = socket
        self._visitors = visitors
        self._limiter = limiter
        self._hub = hub
        self._offers = offers
        self._open_session = open_session
        self._open_place = open_place
        self._limits: ClientLimits = limiter.limits_for(request)
        self._client_key = limiter.client_key(request)
        self._send_queue = SendQueue(socket, spawn=tasks.start, abort=self._abort)
        self._public = False

    async def run(self) -> None:
        """Serve the connection until it is closed."""
        if not self._limiter.address_places.take(self._client_key, self._limits.sockets_per_address):
            self._end(Closed(wire.CLOSE_RATE, "too many sockets", error=TooManySockets()))
            await self._wait_for_close()
            return
        try:
            await self._serve_visitor()
        except Closed as closed:
            self._end(closed)
            await self._wait_for_close()
        finally:
            self._limiter.address_places.leave(self._client_key)

    async def _serve_visitor(self) -> None:
        """Admit the visitor and serve frames, again after each change of identity."""
        hello = await self._receive_hello()
        request = self._request

        def greet(hello: wire.Hello) -> Coroutine[Any, Any, Known]:
            return self._visitors.greet(request, hello, wait=lambda: self._limiter.take_newcomer(request))

        first: str | None = None
        known: Known | None
        try:
            known = await admit(self._hub, greet(hello))
        except NobodyYet as nobody:
            first = await self._wait_for_action(nobody, hello)
            known = await admit(self._hub, greet(replace(hello, begin=True))) if first else None
        while known is not None:
            known = await self._serve_connection(known, hello, first)
            first = None

    async def _wait_for_action(self, nobody: NobodyYet, hello: wire.Hello) -> str | None:
        """Return the first `wire.Action`; None if the visitor left without one.

        A ping is answered; frames about a conversation, such as `stop`, are ignored. Raises Closed.
        """
        self._public = nobody.audience == "public"
        self._send(build_newcomer_welcome(self._offers, nobody, hello.locale))
        take_frame = Window(self._limits.frames, self._limits.frames_seconds).take
        with self._hub.track_unjoined(self._send_queue):
            async for message in self._socket:
                if self._send_queue.closing or message.type is not WSMsgType.TEXT:
                    return None
                try:
                    frame = wire.read_frame(message.data)
                except EvertalkError as error:
                    raise Closed(wire.CLOSE_BAD_HELLO, "bad frame", error=error) from None
                if wait := take_frame():
                    limited = wire.RateLimited(retry_after_seconds=wait, what="frames")
                    raise Closed(wire.CLOSE_RATE, "frames", error=limited)
                if isinstance(frame, wire.Ping):
                    self._send(wire.pong(frame.n))
                elif isinstance(frame, wire.Action):
                    return str(message.data)
        return None

    async def _serve_connection(self, known: Known, hello: wire.Hello, first: str | None) -> Known | None:
        """Serve the connection until it closes or the visitor signs in or out.

        Return the new identity then, else None.
        """
        self._public = known.audience == "public"
        socket_session = self._open_session(
            known, limits=self._limits, client_key=self._client_key, language=hello.locale,
            take_frame=Window(self._limits.frames, self._limits.frames_seconds).take, send=self._send,
        )  # fmt: skip
        handshake = self._open_place(known, self._send_queue)
        try:
            await handshake.take(hello, self._limits)
            if first is not None:
                await socket_session.receive(first)
            await self._carry_out_frames(socket_session)
        except IdentityChanged as change:
            return change.known
        finally:
            await handshake.leave()
            if socket_session.signed_out:
                self._hub.publish_sign_out(known.row.session_id, known.row.address_id)
        return None

    async def _receive_hello(self) -> wire.Hello:
        """Return the hello, which must be the first frame. Raises Closed."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = await self._socket.receive()
        except TimeoutError:
            raise Closed(wire.CLOSE_NO_HELLO, "no hello") from None
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            raise Closed(1000, "gone")
        try:
            frame = wire.read_frame(message.data) if message.type is WSMsgType.TEXT else None
        except EvertalkError as error:
            raise Closed(wire.CLOSE_BAD_HELLO, "bad hello", error=error) from None
        if not isinstance(frame, wire.Hello) or frame.version != wire.VERSION:
            failure = wire.BadFrame("hello of version 1 comes first")
            raise Closed(wire.CLOSE_BAD_HELLO, "bad hello", error=failure)
        return frame

    async def _carry_out_frames(self, socket_session: SocketSession) -> None:
        """Carry out frames until the connection closes. Raises Closed and IdentityChanged."""
        async for message in self._socket:
            if self._send_queue.closing:
                return
            if message.type is WSMsgType.BINARY:
                failure = UnreadableMessage("a binary frame")
                raise Closed(wire.CLOSE_BINARY, "text frames only", error=failure)
            if message.type is not WSMsgType.TEXT:
                return
            await socket_session.receive(message.data)
            if self._send_queue.crowded:
                # Frames that arrived together are read without a pause, so let the event loop send their
                # replies in between.
                await asyncio.sleep(0)

    # Ends of the connection.

    def _end(self, closed: Closed) -> None:
        """Send the frames of a close, then close the connection."""
        for frame in closed.frames(public=self._public):
            self._send(frame)
        self._send_queue.close(closed.code, closed.reason)

    async def _wait_for_close(self) -> None:
        """Wait until the send queue has closed the connection; abort it after `STEP_SECONDS`."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._send_queue.wait_closed()
        except TimeoutError:
            self._abort()

    def _send(self, frame: Mapping[str, Any]) -> None:
        self._send_queue.put(wire.encode(frame))

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()
