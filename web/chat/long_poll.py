"""Chat by long polling, for networks that hold back event streams: each request waits for the next frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from aiohttp import web

from shared.runtime import BackgroundTasks
from web.auth.visitors import Known, Visitors
from web.chat.event_stream_chat import NAME, Close, Frame, find_sender
from web.chat.handshake import OpenPlace, TooManySockets
from web.chat.socket_session import Closed
from web.protocol import wire
from web.protocol.answers import ABSENT, Absent
from web.rest.calls import Call
from web.rest.kinds import Digits, SiteName, describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal, cross_origin_headers
from web.server.client_limiter import ClientLimiter
from web.server.hub import Hub
from web.server.poll_lines import PollBox, PollLine, PollLines
from web.server.send_queue import SendQueue

router = OperationRouter("stream")
HOLD_SECONDS = 25
"""Maximum seconds that a request waits; many proxies close connections that are silent for 30 seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """Frames of a waiting request, and the name of this batch for the next request."""

    frames: Sequence[Frame]
    batch: Annotated[str, describe("name of this answer; the next request repeats it")]
    close: Close | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class PollHandlers:
    """Handlers of REST requests by which clients without WebSocket or event stream poll for frames."""

    visitors: Visitors
    limiter: ClientLimiter
    poll_lines: PollLines
    open_place: OpenPlace
    tasks: BackgroundTasks
    hub: Hub

    # HEAD is not offered, because it would consume the frames.
    @router.on(
        "GET /stream/events",
        visitor=True,
        finds_caller=True,
        refusals=(401,),
        head=False,
        answers={200: Polled, 204: None},
    )
    async def poll_frames(
        self,
        call: Call,
        *,
        site: SiteName,
        stream: Annotated[str, describe("id from `POST /api/v1/stream`", pattern=NAME.pattern)],
        after: Annotated[int, Digits(), describe("number of the last event that the client has")] = 0,
        batch: Annotated[str, describe("`batch` of the last answer; empty at first", max_length=40)] = "",
        wait: Annotated[int, Digits(0, HOLD_SECONDS), describe("seconds to wait for frames")] = HOLD_SECONDS,
        locale: Annotated[str, describe("language of the visitor", max_length=40)] = "",
        session: Annotated[str, describe("id of the conversation", max_length=40)] = "",
    ) -> Polled | web.Response:
        """Get frames by long polling.

        It is for a client that can keep no connection open. The first answer is the `welcome`. The text so
        far of an answer comes whole, as a `stream` frame. 204 if nothing came. A client that names another
        `batch` than the last one is welcomed again.
        """
        request = call.request
        call.check_draining()
        if "Origin" in request.headers and not await self.visitors.is_page_allowed(request, site=site):
            raise HttpRefusal(403, "foreign_origin", "This page is not allowed to use the chat.")
        known = await find_sender(self.visitors, request, site)
        known = await self.visitors.open(known, session) or known
        session_id = known.row.session_id
        limits = self.limiter.limits_for(request)
        if seconds := self.limiter.frames.take(f"poll {session_id}", limits.frames):
            raise wire.RateLimited(retry_after_seconds=seconds, what="polls")
        hello = wire.Hello(version=wire.VERSION, site=site, last_seq=after, locale=locale, session=session)
        try:
            line = self.poll_lines.find(session_id, stream, batch) or await self._open_line(
                request, known, hello, stream
            )
        except Closed as closed:
            frames = closed.frames(public=known.audience == "public")
            return Polled(frames=frames, batch="", close=Close(code=closed.code, reason=closed.reason))
        answer = await self._wait_for_frames(line, wait)
        if answer is None:
            headers = {"Cache-Control": "no-store", **await cross_origin_headers(request)}
            return web.Response(status=204, headers=headers)
        return answer

    async def _open_line(self, request: web.Request, known: Known, hello: wire.Hello, name: str) -> PollLine:
        """Admit a client and return its new line, which replaces its former one.

        Raises Closed, and HttpRefusal with status 503 if too many clients poll.
        """
        lines, session_id = self.poll_lines, known.row.session_id
        await lines.end_named(session_id, name)
        limits, client_key = self.limiter.limits_for(request), self.limiter.client_key(request)
        if self.limiter.session_places.open(str(session_id)) >= limits.sockets_per_session:
            await lines.end_idle(session_id)
        if lines.full:
            raise HttpRefusal(503, "busy", "Too many are waiting here.", headers={"Retry-After": "5"})
        if not self.limiter.address_places.take(client_key, limits.sockets_per_address):
            raise Closed(wire.CLOSE_RATE, "too many sockets", error=TooManySockets())
        box = PollBox()
        queue = SendQueue(box, spawn=self.tasks.start, abort=box.abort)
        handshake = self.open_place(known, queue, name=name, transport="long_poll")

        async def leave() -> None:
            self.limiter.address_places.leave(client_key)
            await handshake.leave()

        try:
            await handshake.take(hello, limits)
        except BaseException:
            await leave()
            raise
        line = PollLine(name, session_id, box, leave)
        lines.add(line)
        return line

    async def _wait_for_frames(self, line: PollLine, seconds: float) -> Polled | None:
        """Return the next frames of a line; None if there is none within `seconds`."""

        def current_draft(turn: int) -> wire.Frame | None:
            draft = self.hub.draft(line.session_id)
            if draft is None or draft.turn != turn:
                return None
            if draft.whole:
                return wire.stream(turn=turn, attempt=draft.attempt, text=draft.text)
            # This piece starts after a gap, so the client asks for the whole text.
            return wire.delta(turn=turn, attempt=draft.attempt, offset=draft.units + 1, text=" ")

        self.poll_lines.use(line)
        try:
            if not await line.box.wait(seconds):
                return None
            closing, frames = line.box.closing, line.take(current_draft)
            if closing is None:
                return Polled(frames=frames, batch=line.batch)
            batch = line.batch
            await self.poll_lines.end(line)
            return Polled(frames=frames, batch=batch, close=Close(code=closing[0], reason=closing[1]))
        finally:
            if not line.box.is_read:
                self.poll_lines.rest(line)
