"""Chat without a WebSocket: the client reads an event stream, and sends frames by requests."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NotRequired

import structlog
from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.people.tickets import TICKET_SECONDS, PostgresTickets, TicketHolder
from shared.core.values.errors import StorageUnavailable
from shared.runtime import BackgroundTasks
from web.auth.visitors import Known, UnknownToken, Visitors
from web.chat.handshake import OpenPlace, TooManySockets
from web.chat.screen_actions import STEP_SECONDS
from web.chat.socket_session import Closed, IdentityChanged, OpenSession, SocketSession
from web.protocol import wire
from web.protocol.answers import ABSENT, Absent
from web.rest.arguments import Json, Shape
from web.rest.calls import Call
from web.rest.kinds import SiteName, Thing, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal, cross_origin_headers
from web.server.client_limiter import ClientLimiter
from web.server.http_server import HEADERS, Connection
from web.server.hub import Hub
from web.server.rate_limits import ClientLimits
from web.server.send_queue import SendQueue

log = structlog.get_logger(__name__)

router = OperationRouter("stream")
TicketWord = Annotated[
    str, describe("ticket from `POST /api/v1/stream`", json_schema_extra={"maxLength": 200})
]
COMMENT_SECONDS = 15.0
"""Seconds between two heartbeats on a stream."""
MAX_FRAMES = 32
"""Maximum frames in one request."""
STILL_HERE = wire.encode(wire.pong(0))
"""Heartbeat frame of an event stream: a `pong` with number 0."""
Hello = TypedDict("Hello", {
    "t": Literal["hello"], "v": Literal[1], "site": SiteName,
    "last_seq": Annotated[int, Field(ge=0, le=2**53)],
    "token": NotRequired[Annotated[str, Field(max_length=256)]],
    "identity": NotRequired[Annotated[str, describe("identity token that the site's server has signed")]],
    "locale": NotRequired[str], "tz": NotRequired[str], "session": NotRequired[str],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Ticket that opens an event stream once, and the name of that stream."""

    ticket: str
    stream: str
    expires_in: float
    token: str | Absent = ABSENT


Frames = TypedDict("Frames", {
    "site": SiteName, "frames": Annotated[list[Thing], Field(min_length=1, max_length=MAX_FRAMES)],
    "stream": NotRequired[Annotated[str, describe("id of this client's event stream")]],
    "locale": NotRequired[str],
    "session": NotRequired[Annotated[str, describe("id of the conversation, if the visitor has several")]],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End of a connection, with the code that a WebSocket would have."""

    code: int
    reason: str


Frame = Annotated[Mapping[str, Any], describe("frame as on the WebSocket; `t` is its kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesAnswered:
    """Frames that answer those of a request; `close` is there if the connection ended."""

    frames: Sequence[Frame]
    close: Close | Absent = ABSENT


NAME = re.compile(r"^[a-z0-9]{16,64}$")
"""Pattern of a client's id, which connects its requests with its stream."""
_NUMBER = re.compile(r"[0-9]{1,15}")


class _ReplyFrames:
    """Frames for the client that sent a request: in its response while that is open, later on its event
    stream.
    """

    def __init__(self, hub: Hub, session_id: int, name: str) -> None:
        self._hub = hub
        self._session_id = session_id
        self._name = name
        self._frames: list[Mapping[str, Any]] | None = []

    def __call__(self, frame: Mapping[str, Any]) -> None:
        if self._frames is not None:
            self._frames.append(frame)
        elif self._name:
            self._hub.send_to(self._session_id, frame, to=self._name)

    def close(self) -> list[Mapping[str, Any]]:
        """Return the frames for the response; later frames go to the event stream."""
        frames, self._frames = self._frames or [], None
        return frames


class _Stream:
    """One open event stream: admits its client, sends heartbeats and ends with a close event."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        admitted: TicketHolder,
        known: Known,
        *,
        limiter: ClientLimiter,
        tasks: BackgroundTasks,
        open_place: OpenPlace,
    ) -> None:
        self._request = request
        self._places = limiter.address_places
        self._open_place = open_place
        self._limits: ClientLimits = limiter.limits_for(request)
        self._client_key = limiter.client_key(request)
        self._known = known
        self._hello = _build_hello(admitted, request.headers.get("Last-Event-ID", ""))
        self._name = str(admitted.wishes.get("name", ""))
        self._send_queue = SendQueue(EventSink(response), spawn=tasks.start, abort=self._abort)

    async def run(self) -> None:
        """Serve the stream until it is closed."""
        if not self._places.take(self._client_key, self._limits.sockets_per_address):
            self._end(Closed(wire.CLOSE_RATE, "too many sockets", error=TooManySockets()))
            await self._send_heartbeats(once=True)
            return
        handshake = self._open_place(self._known, self._send_queue, name=self._name, transport="event_stream")
        connection = self._request.protocol
        try:
            if isinstance(connection, Connection):
                connection.on_lost = lambda: self._send_queue.cut()
            await handshake.take(self._hello, self._limits)
            await self._send_heartbeats()
        except Closed as closed:
            self._end(closed)
            await self._send_heartbeats(once=True)
        finally:
            if isinstance(connection, Connection):
                connection.on_lost = None
            self._places.leave(self._client_key)
            await handshake.leave()

    async def _send_heartbeats(self, *, once: bool = False) -> None:
        """Send a heartbeat every `COMMENT_SECONDS` until the stream is closed.

        A heartbeat has a comment for proxies, which close silent connections, and data for browser scripts,
        which get no comments. With `once`, abort the stream instead of the first heartbeat.
        """
        while not self._send_queue.is_closed:
            try:
                async with asyncio.timeout(COMMENT_SECONDS):
                    await self._send_queue.wait_closed()
            except TimeoutError:
                if once:
                    self._abort()
                    return
                self._send_queue.put(STILL_HERE, droppable=True)

    def _end(self, closed: Closed) -> None:
        for frame in closed.frames(public=self._known.audience == "public"):
            self._send_queue.put(wire.encode(frame))
        self._send_queue.close(closed.code, closed.reason)

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


class EventSink:
    """Adapter that makes an event stream's response usable by a send queue."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response

    async def send_str(self, data: str) -> None:
        """Send a frame as a server-sent event."""
        await self._response.write(encode_event(data).encode())

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Send the close code as the last event, since an event stream has no close code, and end the
        response.
        """
        said = json.dumps({"code": code, "reason": message.decode(errors="replace")})
        await self._response.write(f"event: close\ndata: {said}\n\n".encode())
        await self._response.write_eof()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHandlers:
    """Handlers of the chat without a WebSocket."""

    limiter: ClientLimiter
    visitors: Visitors
    hub: Hub
    tickets: PostgresTickets
    tasks: BackgroundTasks
    open_place: OpenPlace
    open_session: OpenSession

    @router.on("POST /stream", anyone=True, refusals=(401, 409))
    async def greet(self, call: Call, *, body: Annotated[Json, Shape(Hello)]) -> Ticket:
        """Open a chat without a WebSocket.

        The body is the `hello` frame of the WebSocket. The returned ticket opens the event stream once,
        within seconds.
        """
        # Logs contain the address of an event stream, so no token may be in it.
        request = call.request
        call.check_draining()
        limits = self.limiter.limits_for(request)
        if wait := self.limiter.streams.take(self.limiter.client_key(request), limits.sockets_per_address):
            raise wire.RateLimited(retry_after_seconds=wait, what="streams")
        hello = wire.read_frame(body)
        if not isinstance(hello, wire.Hello) or hello.version != wire.VERSION:
            raise wire.BadFrame("hello of version 1 is needed")
        name = secrets.token_hex(12)
        wishes: dict[str, Any] = {
            "last_seq": hello.last_seq, "session": hello.session, "locale": hello.locale, "name": name,
        }  # fmt: skip
        try:
            async with asyncio.timeout(STEP_SECONDS):
                begun = replace(hello, begin=True)
                known = await self.visitors.greet(
                    request, begun, wait=lambda: self.limiter.take_newcomer(request)
                )
                if known.moved:
                    self.hub.handle_move()
                if isinstance(known.admitted_by, bytes):
                    wishes["admitted_by"] = known.admitted_by.hex()
                ticket = await self.tickets.issue(known.row, wishes)
        except TimeoutError:
            raise StorageUnavailable("greeting took too long") from None
        return Ticket(ticket=ticket, stream=name, expires_in=TICKET_SECONDS, token=known.token or ABSENT)

    # HEAD is not offered, because it would use up the ticket.
    @router.on("GET /stream", anyone=True, refusals=(401,), media="text/event-stream", head=False)
    async def open_stream(
        self,
        call: Call,
        *,
        ticket: TicketWord = "",
    ) -> Reply:
        """Stream WebSocket frames as server-sent events.

        `Last-Event-ID` resumes after an event. The last event is `close` with a code.
        """
        request = call.request
        call.check_draining()
        if "Origin" in request.headers and not await self.visitors.is_page_allowed(request):
            raise HttpRefusal(403, "foreign_origin", "This page is not allowed to use the chat.")
        admitted = await self._redeem(ticket)
        admitted_by = bytes.fromhex(str(admitted.wishes.get("admitted_by", "")))
        known = replace(await self.visitors.load_known(admitted.row), admitted_by=admitted_by or None)
        response = web.StreamResponse(
            headers={
                **HEADERS,
                **await cross_origin_headers(request),
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        await _Stream(
            request,
            response,
            admitted,
            known,
            limiter=self.limiter,
            tasks=self.tasks,
            open_place=self.open_place,
        ).run()
        return response

    @router.on("POST /stream/send", visitor=True, finds_caller=True)
    async def send_frames(self, call: Call, *, body: Annotated[Json, Shape(Frames)]) -> FramesAnswered:
        """Send 1 to 32 WebSocket frames.

        The answer has a reply to each frame; later events arrive on the event stream.
        """
        request = call.request
        call.check_draining()
        frames = body.get("frames")
        if not isinstance(frames, list) or not 0 < len(frames) <= MAX_FRAMES:
            raise wire.BadFrame(f"`frames` are 1 to {MAX_FRAMES} frames")
        known = await find_sender(self.visitors, request, body.get("site"))
        known = await self.visitors.open(known, _read_word(body, "session", wire.WORDS)) or known
        reply = _ReplyFrames(self.hub, known.row.session_id, _read_word(body, "stream", NAME))
        limits = self.limiter.limits_for(request)
        socket_session = self.open_session(
            known, limits=limits, client_key=self.limiter.client_key(request),
            language=_read_word(body, "locale", wire.WORDS), send=reply,
            take_frame=lambda: self.limiter.frames.take(str(known.row.session_id), limits.frames),
        )  # fmt: skip
        closed = await _carry_out_frames(socket_session, frames)
        if socket_session.signed_out:
            self.hub.publish_sign_out(known.row.session_id, known.row.address_id)
        answered = reply.close()
        if closed is None:
            return FramesAnswered(frames=answered)
        answered += closed.frames(public=known.audience == "public")
        return FramesAnswered(frames=answered, close=Close(code=closed.code, reason=closed.reason))

    async def _redeem(self, ticket: str) -> TicketHolder:
        """Return who holds a ticket, which is then used up.

        Raises HttpRefusal with status 401 for an invalid one.
        """
        admitted = None
        if wire.is_token(ticket):
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    admitted = await self.tickets.redeem(ticket)
            except TimeoutError:
                raise StorageUnavailable("redeeming took too long") from None
        if admitted is None:
            raise HttpRefusal(401, "spent_ticket", "This ticket is used or too old. Say hello again.")
        return admitted


def encode_event(data: str) -> str:
    """Return an encoded frame as a server-sent event.

    Its id is the frame's event number, for a welcome its `head`; without one it has no id. A heartbeat gets a
    comment in addition.
    """
    if data == STILL_HERE:
        return f": still here\ndata: {data}\n\n"
    frame = json.loads(data)
    number = frame.get("head") if frame["t"] == "welcome" else frame.get("event_seq")
    return f"id: {number}\ndata: {data}\n\n" if isinstance(number, int) else f"data: {data}\n\n"


async def _carry_out_frames(socket_session: SocketSession, frames: list[Any]) -> Closed | None:
    """Carry out frames one after the other; return the close that one of them caused, else None."""
    try:
        for frame in frames:
            await socket_session.receive(frame if isinstance(frame, dict) else {})
    except Closed as closed:
        return closed
    except IdentityChanged:
        # The stream belongs to the earlier identity; the client must open a new one.
        return Closed(wire.CLOSE_RESTART, "signed again")
    return None


async def find_sender(visitors: Visitors, request: web.Request, site: Any) -> Known:
    """Return the visitor of a request to a site, by bearer token or cookie.

    Raises BadFrame for a malformed site, UnknownToken, and StorageUnavailable after `STEP_SECONDS`.
    """
    if not isinstance(site, str) or not wire.is_site(site):
        raise wire.BadFrame("`site` is missing or malformed")
    try:
        async with asyncio.timeout(STEP_SECONDS):
            known = await visitors.find_caller(request, site=site)
    except TimeoutError:
        raise StorageUnavailable("finding the visitor took too long") from None
    if known is None or known.row.site != site:
        raise UnknownToken("no visitor of this site")
    return known


def _build_hello(admitted: TicketHolder, last_event_id: str) -> wire.Hello:
    """Return the hello of a ticket; the `Last-Event-ID` of a reconnect replaces its event number."""
    wishes = admitted.wishes
    seen = int(last_event_id) if _NUMBER.fullmatch(last_event_id) else int(wishes.get("last_seq", 0))
    return wire.Hello(
        version=wire.VERSION,
        site=admitted.row.site,
        last_seq=seen,
        locale=str(wishes.get("locale", "")),
        session=str(wishes.get("session", "")),
    )


def _read_word(body: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    """Return a text field of a body; empty if it is missing or does not match the pattern."""
    value = body.get(name)
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""
