"""One WebSocket: hello, then messages and commands in, everything that happens in the session out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog
from aiohttp import WSMsgType, web

from shared.core.errors import (
    BadInput,
    EvertalkError,
    SessionMoved,
    StorageUnavailable,
    UnreadableMessage,
)
from shared.core.exchange import Accepted, Inbound
from shared.core.screen import iso
from web import wire
from web.hub import Seat
from web.limits import Limits, Window
from web.outbox import Outbox
from web.parts import PARTS, Parts, audience_of
from web.security import Refusal
from web.visitors import Known, UnknownSite, UnknownToken, describe

log = structlog.get_logger(__name__)

HELLO_SECONDS = 10.0
STEP_SECONDS = 15.0
COMMAND_SECONDS = 200.0
HARD_FRAME_BYTES = 4 * wire.MAX_FRAME_BYTES
"""aiohttp closes without a word beyond this; up to here we say why."""
BACKLOG = 500
HISTORY = 50
RETRY_MS = 2_000


class TooManySockets(BadInput):
    """This conversation is open in too many places."""

    code = "too_many_sockets"
    advice = "Close some of the other tabs, then reload this one."
    retry_after_seconds = 15.0


class FrameTooLarge(BadInput):
    """The message is too large to be read."""

    code = "message_too_long"
    advice = f"{wire.MAX_CHARS:,} characters are the most. Please split it."


class Closed(Exception):
    """The conversation on this socket is over: with a code, and an error frame where there is one."""

    def __init__(self, code: int, reason: str, *, error: EvertalkError | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.error = error


async def chat(request: web.Request) -> web.StreamResponse:
    """The origin is checked before the upgrade: afterwards a foreign page would have its answer."""
    parts = request.app[PARTS]
    if parts.readiness.draining:
        raise Refusal(503, "restarting", "The server restarts. Please come back in a moment.")
    if not await parts.visitors.admits(request):
        raise Refusal(403, "foreign_origin", "This page is not allowed to use the chat.")
    socket = web.WebSocketResponse(
        timeout=5.0,
        heartbeat=wire.HEARTBEAT_SECONDS,
        compress=False,
        max_msg_size=HARD_FRAME_BYTES,
        writer_limit=64 * 1024,
    )
    if not socket.can_prepare(request):
        raise Refusal(426, "upgrade_needed", "This address speaks WebSocket only.")
    await socket.prepare(request)
    await _Chat(request, socket, parts).run()
    return socket


class _Chat:
    def __init__(self, request: web.Request, socket: web.WebSocketResponse, parts: Parts) -> None:
        self._request = request
        self._socket = socket
        self._parts = parts
        self._limits: Limits = parts.limits_for(request)
        self._address = parts.proxies.client_address(request)
        self._outbox = Outbox(socket, spawn=parts.tasks.start, abort=self._abort)
        self._frames = Window(self._limits.frames, self._limits.frames_seconds)
        self._strikes = 0
        self._language = ""
        self._public = False

    async def run(self) -> None:
        if not self._parts.address_places.take(self._address, self._limits.sockets_per_address):
            self._end(Closed(wire.CLOSE_RATE, "too many sockets", error=TooManySockets()))
            await self._wait_for_close()
            return
        try:
            await self._talk()
        except Closed as closed:
            self._end(closed)
            await self._wait_for_close()
        finally:
            self._parts.address_places.leave(self._address)

    async def _talk(self) -> None:
        hello = await self._hello()
        self._language = hello.locale
        known = await self._greeted(hello)
        key = str(known.row.session_id)
        if not self._parts.session_places.take(key, self._limits.sockets_per_session):
            raise Closed(wire.CLOSE_RATE, "too many sockets", error=TooManySockets())
        self._public = known.audience == "public"
        seat = Seat(self._outbox, public=self._public, address_id=known.row.address_id)
        try:
            await self._parts.hub.join(known.row.session_id, seat)
            await self._welcome(seat, known, hello)
            await self._listen(known)
        finally:
            self._parts.session_places.leave(key)
            await asyncio.shield(self._parts.hub.leave(known.row.session_id, seat))

    # Hello and welcome.

    async def _hello(self) -> wire.Hello:
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

    async def _greeted(self, hello: wire.Hello) -> Known:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                return await self._parts.visitors.greet(self._request, hello)
        except UnknownToken as error:
            raise Closed(wire.CLOSE_TOKEN, "unknown token", error=error) from None
        except UnknownSite as error:
            raise Closed(wire.CLOSE_SITE, "unknown site", error=error) from None
        except (StorageUnavailable, TimeoutError) as error:
            raise self._away(error) from None

    async def _welcome(self, seat: Seat, known: Known, hello: wire.Hello) -> None:
        """The seat is taken before the head is read: what happens in between is held back, not lost."""
        parts, session_id = self._parts, known.row.session_id
        try:
            async with asyncio.timeout(STEP_SECONDS):
                head = await parts.events.head(session_id)
                if head is None:
                    raise Closed(wire.CLOSE_TOKEN, "unknown session", error=UnknownToken())
                seen = hello.last_seq if hello.session in ("", str(known.row.session_public_id)) else 0
                resumed, events = await self._backlog(session_id, seen, head.event_seq)
                state = dict(await parts.events.running(session_id))
                measured = None
                pinned: tuple[str, ...] = ()
                if known.audience == "personal":
                    measured = await parts.conversation.gauge(session_id)
                    pinned = await parts.events.pinned(session_id)
        except (StorageUnavailable, TimeoutError) as error:
            raise self._away(error) from None
        public = known.audience == "public"
        frame = wire.welcome(
            session=str(known.row.session_public_id),
            token=known.token,
            log_epoch=head.log_epoch,
            head=head.event_seq,
            resumed=resumed,
            events=_for_public(events) if public else events,
            commands=[command.entry(hello.locale) for command in parts.commands_for(known.audience)],
            pinned=pinned,
            ctx=None if measured is None else wire.ctx(measured),
            state=self._state(session_id, state, public=public),
            audience=known.audience,
            model={"name": "" if public else parts.model.name, "offline": parts.model.offline},
        )
        seat.begin(wire.encode(frame), head.event_seq)
        parts.hub.begun(session_id, head.event_seq)
        log.debug("visitor_greeted", **describe(known), resumed=resumed)

    async def _backlog(
        self, session_id: int, last_seq: int, head: int
    ) -> tuple[bool, Sequence[Mapping[str, Any]]]:
        """What this screen missed, or, when that is too much or impossible, the newest messages."""
        if 0 < last_seq <= head and head - last_seq <= BACKLOG:
            rows = await self._parts.events.after(session_id, last_seq, limit=BACKLOG)
            resumed = True
        else:
            rows = await self._parts.events.newest(session_id, messages=HISTORY, limit=BACKLOG)
            resumed = False
        shown = [row for row in rows if row.event_seq <= head]
        return resumed, [wire.durable(row.event_seq, row.kind, row.payload) for row in shown]

    def _state(self, session_id: int, stored: dict[str, Any], *, public: bool) -> dict[str, Any]:
        """What runs, as Postgres knows it, with the text that only memory has."""
        draft = self._parts.hub.draft(session_id)
        run = stored.get("run")
        if draft is not None and (run is None or run.get("turn") == draft.turn):
            stored["run"] = {**(run or {}), **draft.state()}
        stored.setdefault("queued", [])
        if public:
            stored.pop("compaction", None)
        return {name: value for name, value in stored.items() if value is not None}

    # Frames.

    async def _listen(self, known: Known) -> None:
        async for message in self._socket:
            if self._outbox.closing:
                return
            if message.type is WSMsgType.BINARY:
                failure = UnreadableMessage("a binary frame")
                raise Closed(wire.CLOSE_BINARY, "text frames only", error=failure)
            if message.type is not WSMsgType.TEXT:
                return
            if _bytes(message.data) > wire.MAX_FRAME_BYTES:
                raise Closed(wire.CLOSE_TOO_BIG, "64 KiB are the most", error=FrameTooLarge())
            await self._frame(known, message.data)

    async def _frame(self, known: Known, data: str) -> None:
        cid: str | None = None
        try:
            if wait := self._frames.take():
                cid = _cid_hint(data)
                raise wire.RateLimited(retry_after_seconds=wait, what="frames")
            frame = wire.read_frame(data)
            cid = getattr(frame, "cid", None)
            await self._handle(known, frame)
        except StorageUnavailable as error:
            raise self._away(error) from None
        except SessionMoved:
            # Without a word about the message: the browser sends it again where it is welcomed next.
            raise Closed(wire.CLOSE_RESTART, "moved") from None
        except BadInput as error:
            self._strike()
            self._send(wire.error(error, cid=cid or getattr(error, "cid", None), public=self._public))
        except EvertalkError as error:
            self._send(wire.error(error, cid=cid, public=self._public))

    async def _handle(self, known: Known, frame: wire.ClientFrame) -> None:
        match frame:
            case wire.Msg():
                await self._message(known, frame)
            case wire.CommandAsked():
                self._command(known, frame.cid, frame.command, frame.args)
            case wire.PinAsked(cid=cid, mid=mid, pinned=pinned):
                self._command(known, cid, "pin" if pinned else "unpin", mid)
            case wire.Stop():
                await self._stop(known, frame)
            case wire.Ping(n=n):
                self._send(wire.pong(n))
            case wire.Hello():
                raise wire.BadFrame("hello was said already")
            case wire.Unknown():
                pass

    async def _message(self, known: Known, frame: wire.Msg) -> None:
        session_id = known.row.session_id
        wire.clean(frame.text)
        await self._check_rate(session_id, f"web:{frame.cid}")
        inbound = Inbound(
            session_id=session_id,
            address_id=known.row.address_id,
            text=frame.text,
            dedupe_key=f"web:{frame.cid}",
            cid=frame.cid,
        )
        try:
            async with asyncio.timeout(STEP_SECONDS):
                accepted = await self._parts.conversation.accept(inbound)
        except TimeoutError:
            raise StorageUnavailable("accept took too long") from None
        self._send(wire.ack(frame.cid, accepted))
        if not accepted.repeated:
            self._parts.hub.durable(session_id, accepted.event_seq, "msg", _payload(frame, accepted))
        self._parts.replies.answer(session_id)

    async def _check_rate(self, session_id: int, dedupe_key: str) -> None:
        """What was accepted before is never refused: its browser would take the refusal for a loss."""
        windows, most = self._parts, self._limits.messages
        wait = windows.session_windows.take(str(session_id), most)
        wait = wait or windows.address_windows.take(self._address, most)
        if wait and not await self._parts.events.stored_message(session_id, dedupe_key):
            raise wire.RateLimited(retry_after_seconds=wait)

    async def _stop(self, known: Known, frame: wire.Stop) -> None:
        session_id = known.row.session_id
        async with asyncio.timeout(STEP_SECONDS):
            stopping = await self._parts.conversation.stop(session_id)
        draft = self._parts.hub.draft(session_id)
        if not stopping and draft is None and frame.mid and frame.mid.startswith("t"):
            # Nothing runs: this screen missed the end, and must not go on waiting for it.
            self._send(wire.run(int(frame.mid[1:]), "done"))

    def _command(self, known: Known, cid: str, name: str, args: str | Mapping[str, Any]) -> None:
        """In the background: a summary takes a while, and messages must get through meanwhile."""
        if name not in {command.name for command in self._parts.commands_for(known.audience)}:
            raise UnknownCommand(name)
        words = wire.clean(args if isinstance(args, str) else wire.arguments_text(args))
        self._parts.tasks.start(self._run_command(known, cid, name, words))

    async def _run_command(self, known: Known, cid: str, name: str, args: str) -> None:
        async def progress(message: str, percent: int | None) -> None:
            self._send(wire.command_progress(cid, name, message, percent))

        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                outcome = await self._parts.commands.run(
                    session_id=known.row.session_id, address_id=known.row.address_id, name=name, args=args,
                    cid=cid, progress=progress, audience=audience_of(known.row.audience),
                    language=self._language,
                )  # fmt: skip
        except EvertalkError as error:
            self._send(wire.error(error, cid=cid, public=self._public))
            return
        except TimeoutError:
            self._send(wire.error(StorageUnavailable("command took too long"), cid=cid))
            return
        frame = result_payload(cid, outcome)
        if outcome.event_seq:
            # The service has told the other processes already.
            self._parts.hub.arrived(known.row.session_id, outcome.event_seq, "command.result", frame)
        else:
            self._send({"t": "command.result", **frame})

    # The ends.

    def _strike(self) -> None:
        self._strikes += 1
        if self._strikes > self._limits.strikes:
            raise Closed(wire.CLOSE_RATE, "too many refused frames")

    def _away(self, error: Exception) -> Closed:
        """Without a cid and with a close: the browser sends again by itself, under the same id."""
        log.warning("storage_away", reason=str(error))
        return Closed(wire.CLOSE_SLOW, "try again", error=StorageUnavailable())

    def _end(self, closed: Closed) -> None:
        if closed.error is not None:
            self._send(wire.error(closed.error, public=self._public))
        if closed.code == wire.CLOSE_SLOW:
            self._send(wire.bye(closed.code, closed.reason, retry_ms=RETRY_MS))
        if closed.code == wire.CLOSE_RESTART:
            self._send(wire.bye(closed.code, closed.reason, retry_ms=0))
        self._outbox.close(closed.code, closed.reason)

    async def _wait_for_close(self) -> None:
        """The outbox closes the socket; until then it belongs to this handler."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._outbox.closed()
        except TimeoutError:
            self._abort()

    def _send(self, frame: Mapping[str, Any]) -> None:
        self._outbox.put(wire.encode(frame))

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


class UnknownCommand(BadInput):
    """There is no such command here."""

    code = "unknown_command"
    advice = "Type /help to see what you can do here."


def _for_public(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A welcome need not name what its visitor may not see."""
    return [wire.for_public(event) for event in events if event["t"] not in wire.HIDDEN_FROM_PUBLIC]


def result_payload(cid: str | None, outcome: Any) -> dict[str, Any]:
    payload = {"command": outcome.command, "success": outcome.success, "result": outcome.result}
    if cid:
        payload["cid"] = cid
    return payload if outcome.error is None else {**payload, "error": outcome.error}


def _payload(frame: wire.Msg, accepted: Accepted) -> dict[str, Any]:
    return {
        "mid": accepted.mid,
        "cid": frame.cid,
        "role": "person",
        "text": frame.text,
        "at": iso(datetime.fromtimestamp(accepted.at_ms / 1000, UTC)),
        "turn": accepted.turn,
    }


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _cid_hint(data: str) -> str | None:
    """The cid of a frame that is refused unread, so that its bubble does not hang."""
    try:
        return getattr(wire.read_frame(data), "cid", None)
    except EvertalkError:
        return None
