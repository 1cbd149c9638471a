"""One visitor's talk, whatever carries it: what their frames do, and what is said to them in return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

import structlog

from shared.core.commands.arguments import render_arguments
from shared.core.commands.commands import nearest_commands
from shared.core.commands.texts import did_you_mean
from shared.core.values.errors import (
    BadInput,
    EvertalkError,
    MessageTooLong,
    SessionMoved,
    StorageUnavailable,
    UnknownMessage,
)
from shared.locales import catalogue
from shared.services.commands.feedback import FEEDBACK_CHARS
from web.auth.site_tokens import BadIdentity, StillAnswering
from web.auth.visitors import Known, UnknownSite, UnknownToken
from web.chat.message_intake import (
    announce_edit,
    announce_message,
    build_inbound,
    check_messages,
    delete_message,
    store_edit,
    store_message,
)
from web.parts import Parts, audience_of
from web.protocol import wire
from web.server.rate_limits import ClientLimits

log = structlog.get_logger(__name__)

STEP_SECONDS = 15.0
COMMAND_SECONDS = 200.0
COMMAND_LATER = "That could not be done just now. Please give the command again in a moment."
RETRY_MS = 2_000

Send = Callable[[Mapping[str, Any]], None]
"""Shows a frame to the screen that asked, and to no other."""


class FrameTooLarge(BadInput):
    """The message is too large to be read."""

    code = "message_too_long"
    advice = f"{wire.MAX_CHARS:,} characters are the most. Please split it."


class UnknownCommand(BadInput):
    """Unknown command."""

    code = "unknown_command"
    advice = "Type /help to see what you can do here."


class Closed(Exception):
    """The conversation on this line is over: with a code, and an error frame where there is one."""

    def __init__(self, code: int, reason: str, *, error: EvertalkError | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.error = error

    def frames(self, *, public: bool) -> list[Mapping[str, Any]]:
        """Return the frames to send before the connection is closed."""
        said: list[Mapping[str, Any]] = []
        if self.error is not None:
            said.append(wire.error(self.error, public=public))
        if self.code == wire.CLOSE_SLOW:
            said.append(wire.bye(self.code, self.reason, retry_ms=RETRY_MS))
        if self.code == wire.CLOSE_RESTART:
            said.append(wire.bye(self.code, self.reason, retry_ms=0))
        return said


def _is_away(error: EvertalkError) -> bool:
    return isinstance(error, StorageUnavailable)


def build_retry_close(error: Exception) -> Closed:
    """Return a close that makes the browser send again under the same `cid`."""
    log.warning("storage_unavailable", reason=str(error))
    return Closed(wire.CLOSE_SLOW, "try again", error=StorageUnavailable())


class IdentityChanged(Exception):
    """Change of the visitor's identity on an open connection."""

    def __init__(self, known: Known) -> None:
        super().__init__("signed again")
        self.known = known


async def admit(parts: Parts, deciding: Awaitable[Known]) -> Known:
    """Return the visitor once `deciding` is done. Raises Closed."""
    try:
        async with asyncio.timeout(STEP_SECONDS):
            known = await deciding
    except BadIdentity as error:
        raise Closed(wire.CLOSE_TOKEN, error.code, error=error) from None
    except StillAnswering as error:
        raise Closed(wire.CLOSE_SLOW, "busy", error=error) from None
    except UnknownToken as error:
        raise Closed(wire.CLOSE_TOKEN, "unknown token", error=error) from None
    except UnknownSite as error:
        raise Closed(wire.CLOSE_SITE, "unknown site", error=error) from None
    except wire.RateLimited as error:
        raise Closed(wire.CLOSE_RATE, "too many newcomers", error=error) from None
    except (StorageUnavailable, TimeoutError) as error:
        raise build_retry_close(error) from None
    if known.moved:
        parts.hub.handle_move()
    return known


class SocketSession:
    """Session of a visitor on a socket. `take_frame` returns seconds to wait before a frame, 0 for none."""

    def __init__(
        self,
        parts: Parts,
        known: Known,
        *,
        limits: ClientLimits,
        address: str,
        language: str,
        take_frame: Callable[[], float],
        send: Send,
    ) -> None:
        self._parts = parts
        self._known = known
        self._limits = limits
        self._address = address
        self._language = language
        self._take_frame = take_frame
        self._send = send
        self._public = known.audience == "public"
        self._strikes = 0
        self.signed_out = False
        """True if other screens of the address must learn of the sign-out after this one has left."""

    async def receive(self, data: str | Mapping[str, Any]) -> None:
        """One frame, as text or as its object; raises Closed when this was the last, IdentityChanged."""
        if _bytes(data) > wire.MAX_FRAME_BYTES:
            raise Closed(
                wire.CLOSE_TOO_BIG, f"{wire.MAX_FRAME_BYTES // 1024} KiB are the most", error=FrameTooLarge()
            )
        cid: str | None = None
        try:
            if wait := self._take_frame():
                cid = _cid_hint(data)
                raise wire.RateLimited(retry_after_seconds=wait, what="frames")
            frame = wire.read_frame(data)
            cid = getattr(frame, "cid", None)
            await self._handle(frame)
        except (StorageUnavailable, TimeoutError) as error:
            raise build_retry_close(error) from None
        except SessionMoved:
            # Without a word about the message: the browser sends it again where it is welcomed next.
            raise Closed(wire.CLOSE_RESTART, "moved") from None
        except BadInput as error:
            self._strike()
            self._send(wire.error(error, cid=cid or getattr(error, "cid", None), public=self._public))
        except EvertalkError as error:
            self._send(wire.error(error, cid=cid, public=self._public))

    def _strike(self) -> None:
        self._strikes += 1
        if self._strikes > self._limits.strikes:
            raise Closed(wire.CLOSE_RATE, "too many refused frames")

    async def _handle(self, frame: wire.ClientFrame) -> None:
        match frame:
            case wire.Msg() | wire.Edit() | wire.DeleteAsked():
                await self._message(frame)
            case wire.CommandAsked():
                self._command(frame.cid, frame.command, frame.args)
            case wire.PinAsked(cid=cid, mid=mid, pinned=pinned):
                self._command(cid, "pin" if pinned else "unpin", mid)
            case wire.Stop():
                await self._stop(frame)
            case wire.Judgement():
                await self._judge(frame)
            case wire.Read(seq=seq):
                await self._read(seq)
            case wire.Resync(mid=mid):
                await self._resync(int(mid[1:]))
            case wire.Identify(identity=identity):
                await self._identify(identity)
            case wire.Typing():
                self._parts.hub.publish_typing(str(self._known.row.session_public_id))
            case wire.Ping(n=n):
                self._send(wire.pong(n))
            case wire.Hello():
                raise wire.BadFrame("hello was said already")

    async def _identify(self, identity: str | None) -> None:
        """Sign in or out. Raises IdentityChanged, after which a new welcome is sent."""
        visitors = self._parts.visitors
        anew = (
            visitors.sign_out(self._known) if identity is None else visitors.identify(self._known, identity)
        )
        self.signed_out = identity is None and self._known.row.identified
        raise IdentityChanged(await admit(self._parts, anew))

    async def _message(self, frame: wire.Msg | wire.Edit | wire.DeleteAsked) -> None:
        """Its writer learns the number of it before all screens are shown it."""
        if isinstance(frame, wire.DeleteAsked):
            await self._delete(frame)
            return
        parts, known = self._parts, self._known
        wire.clean(frame.text)
        await check_messages(
            parts, self._limits, known, cid=frame.cid, address=self._address, chars=len(frame.text)
        )
        if isinstance(frame, wire.Edit):
            accepted, shown = await store_edit(parts, known, seq=frame.seq, text=frame.text, cid=frame.cid)
            self._send(wire.ack(frame.cid, accepted))
            announce_edit(parts, accepted, shown)
            return
        inbound = await build_inbound(parts, known, text=frame.text, cid=frame.cid, files=frame.attachments)
        accepted = await store_message(parts, inbound)
        self._send(wire.ack(frame.cid, accepted))
        announce_message(parts, inbound, accepted)

    async def _delete(self, frame: wire.DeleteAsked) -> None:
        await check_messages(
            self._parts, self._limits, self._known, cid=frame.cid, address=self._address, chars=0
        )
        await delete_message(self._parts, self._known, seq=frame.seq)
        self._send(wire.delete_ack(frame.cid, frame.seq))

    async def _stop(self, frame: wire.Stop) -> None:
        session_id = self._known.row.session_id
        async with asyncio.timeout(STEP_SECONDS):
            stopping = await self._parts.sessions.stop(session_id)
        draft = self._parts.hub.draft(session_id)
        if not stopping and draft is None and frame.mid and frame.mid.startswith("t"):
            # Nothing runs: this screen missed the end, and must not go on waiting for it.
            self._send(wire.run(int(frame.mid[1:]), "done"))

    async def _judge(self, frame: wire.Judgement) -> None:
        session_id, words = self._known.row.session_id, wire.clean(frame.text)
        if len(words) > FEEDBACK_CHARS:
            raise MessageTooLong(chars=len(words), limit=FEEDBACK_CHARS)
        if not frame.mid.startswith("m"):
            raise UnknownMessage(frame.mid)
        async with asyncio.timeout(STEP_SECONDS):
            judged = await self._parts.stores.feedback.judge(
                session_id,
                seq=int(frame.mid[1:]),
                value=frame.value,
                words=words,
                cid=frame.cid,
                source="web",
            )
        self._parts.crash_point("after_feedback")
        if judged is None:
            raise UnknownMessage(frame.mid)
        self._send(wire.feedback_ack(frame.cid, judged.mid, repeated=judged.repeated))
        if judged.event_seq is not None:
            event = {"mid": judged.mid, "turn": judged.turn, "value": judged.value, "cid": frame.cid}
            self._parts.hub.publish(session_id, judged.event_seq, "feedback", event)

    async def _read(self, event_seq: int) -> None:
        row = self._known.row
        async with asyncio.timeout(STEP_SECONDS):
            number = await self._parts.stores.events.mark_read(row.address_id, row.session_id, event_seq)
        self._parts.crash_point("after_read")
        if number is not None:
            self._parts.hub.publish_read(row.session_id, row.address_id, number)

    async def _resync(self, turn: int) -> None:
        """From here where the whole text is known, else from the process that writes it."""
        session_id = self._known.row.session_id
        draft = self._parts.hub.draft(session_id)
        if draft is not None and draft.turn == turn and draft.whole:
            self._send(wire.stream(turn=turn, attempt=draft.attempt, text=draft.text))
            return
        async with asyncio.timeout(STEP_SECONDS):
            state = await self._parts.stores.events.load_running(session_id)
        if state.get("run", {}).get("turn") != turn:
            raise UnknownMessage(f"t{turn}")
        self._parts.hub.request_stream(session_id, turn)

    def _command(self, cid: str, name: str, args: str | Mapping[str, Any]) -> None:
        """In the background: a summary takes a while, and messages must get through meanwhile."""
        known = self._known
        offered = {one.name: one for one in self._parts.commands_for(known.audience, site=known.site)}
        if name not in offered:
            nearest = nearest_commands(name, offered)
            raise UnknownCommand(name, advice=did_you_mean(nearest, catalogue("commands", self._language)))
        for value in () if isinstance(args, str) else args.values():
            wire.clean(value if isinstance(value, str) else "")
        words = args if isinstance(args, str) else render_arguments(name, offered[name].arguments, args)
        wire.clean(words)
        self._parts.tasks.start(self._run_command(cid, name, words))

    async def _run_command(self, cid: str, name: str, args: str) -> None:
        async def progress(message: str, percent: int | None) -> None:
            self._send(wire.command_progress(cid, name, message, percent))

        row = self._known.row
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                outcome = await self._parts.commands.run(
                    session_id=row.session_id, address_id=row.address_id, name=name, args=args, cid=cid,
                    progress=progress, audience=audience_of(row.audience), language=self._language,
                )  # fmt: skip
        except EvertalkError as error:
            told = StorageUnavailable(str(error), advice=COMMAND_LATER) if _is_away(error) else error
            self._send(wire.error(told, cid=cid, public=self._public))
            return
        except TimeoutError:
            late = StorageUnavailable("command took too long", advice=COMMAND_LATER)
            self._send(wire.error(late, cid=cid))
            return
        if name == "retry" and outcome.success:
            self._parts.replies.answer(row.session_id)
        frame = result_payload(cid, outcome)
        if outcome.event_seq:
            # The service has told the other processes already.
            self._parts.hub.publish_locally(
                self._known.row.session_id, outcome.event_seq, "command.result", frame
            )
        else:
            self._send({"t": "command.result", **frame})


def result_payload(cid: str | None, outcome: Any) -> dict[str, Any]:
    payload = {"command": outcome.command, "success": outcome.success, "result": outcome.result}
    if cid:
        payload["cid"] = cid
    if outcome.choices:
        payload["choices"] = [asdict(choice) for choice in outcome.choices]
    return payload if outcome.error is None else {**payload, "error": outcome.error}


def _bytes(data: str | Mapping[str, Any]) -> int:
    text = data if isinstance(data, str) else wire.encode(data)
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _cid_hint(data: str | Mapping[str, Any]) -> str | None:
    """The cid of a frame that is refused unread, so that its bubble does not hang."""
    try:
        return getattr(wire.read_frame(data), "cid", None)
    except EvertalkError:
        return None
