"""Carries out the frames of one client, whatever the transport, and sends the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from shared.core.values.errors import (
    BadInput,
    EvertalkError,
    SessionMoved,
    StorageUnavailable,
)
from web.auth.site_tokens import BadIdentity, StillAnswering
from web.auth.visitors import Known, UnknownSite, UnknownToken, Visitors
from web.chat.command_intake import CommandIntake, Send
from web.chat.message_intake import MessageIntake
from web.chat.screen_actions import STEP_SECONDS, ScreenActions
from web.protocol import wire
from web.server.hub import Hub
from web.server.rate_limits import ClientLimits

log = structlog.get_logger(__name__)

RETRY_MS = 2_000
"""Milliseconds after which a client shall reconnect."""


class FrameTooLarge(BadInput):
    """Frame with more than `wire.MAX_FRAME_BYTES` bytes."""

    sentence = "The message is too large to be read."
    code = "message_too_long"
    advice = f"{wire.MAX_CHARS:,} characters are the most. Please split it."


class Closed(Exception):
    """Raised to close a connection with a close code and a reason.

    `error` is also sent as a frame, if given.
    """

    def __init__(self, code: int, reason: str, *, error: EvertalkError | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.error = error

    def frames(self, *, public: bool) -> list[Mapping[str, Any]]:
        """Return the frames to send before the connection is closed.

        `public` selects wording for public sites.
        """
        frames: list[Mapping[str, Any]] = []
        if self.error is not None:
            frames.append(wire.error(self.error, public=public))
        if self.code == wire.CLOSE_SLOW:
            frames.append(wire.bye(self.code, self.reason, retry_ms=RETRY_MS))
        if self.code == wire.CLOSE_RESTART:
            frames.append(wire.bye(self.code, self.reason, retry_ms=0))
        return frames


SENT_AGAIN = "The message could not be stored just now. It will be sent again by itself."
"""Advice after a storage failure, for clients that reconnect and send again."""


def build_retry_close(error: Exception) -> Closed:
    """Return the close for a storage failure.

    It makes the browser reconnect and send again under the same cid.
    """
    log.warning("storage_unavailable", reason=str(error))
    return Closed(wire.CLOSE_SLOW, "try again", error=StorageUnavailable(advice=SENT_AGAIN))


class IdentityChanged(Exception):
    """Raised when the visitor signed in or out on an open connection; `known` is the new identity."""

    def __init__(self, known: Known) -> None:
        super().__init__("signed again")
        self.known = known


async def admit(hub: Hub, deciding: Awaitable[Known]) -> Known:
    """Await the admission of a visitor and return them.

    Raises Closed, with a close code for each reason of refusal. NobodyYet passes through, for a visitor who
    has no conversation and asks for none yet.
    """
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
        hub.handle_move()
    return known


class SocketSession:
    """Carries out the frames of one client: of a whole WebSocket connection, or of one request of a client
    that has an event stream or polls.

    `client_key` is the key by which the client's network is counted. `take_frame` returns the seconds to wait
    before another frame is allowed, 0 for none; `send` sends a frame to this client.
    """

    def __init__(
        self,
        known: Known,
        *,
        visitors: Visitors,
        hub: Hub,
        intake: MessageIntake,
        commands: CommandIntake,
        actions: ScreenActions,
        limits: ClientLimits,
        client_key: str,
        language: str,
        take_frame: Callable[[], float],
        send: Send,
    ) -> None:
        self._visitors = visitors
        self._hub = hub
        self._intake = intake
        self._commands = commands
        self._actions = actions
        self._known = known
        self._limits = limits
        self._client_key = client_key
        self._language = language
        self._take_frame = take_frame
        self._send = send
        self._public = known.audience == "public"
        self._strikes = 0
        self.signed_out = False
        """Whether a sign-out must be announced to the visitor's other clients after this client has left."""

    async def receive(self, data: str | Mapping[str, Any]) -> None:
        """Carry out one frame, given as text or as parsed object; a refused one gets an error frame.

        Raises IdentityChanged after a sign-in or sign-out, and Closed if the caller must close the
        connection, such as after too many refused frames.
        """
        if _measure_bytes(data) > wire.MAX_FRAME_BYTES:
            raise Closed(
                wire.CLOSE_TOO_BIG, f"{wire.MAX_FRAME_BYTES // 1024} KiB are the most", error=FrameTooLarge()
            )
        cid: str | None = None
        try:
            if wait := self._take_frame():
                cid = _find_cid(data)
                raise wire.RateLimited(retry_after_seconds=wait, what="frames")
            frame = wire.read_frame(data)
            cid = getattr(frame, "cid", None)
            await self._handle(frame)
        except (StorageUnavailable, TimeoutError) as error:
            raise build_retry_close(error) from None
        except SessionMoved:
            # The message is not refused: the browser sends it again after the next welcome.
            raise Closed(wire.CLOSE_RESTART, "moved") from None
        except BadInput as error:
            self._strike()
            self._send(wire.error(error, cid=cid or getattr(error, "cid", None), public=self._public))
        except EvertalkError as error:
            self._send(wire.error(error, cid=cid, public=self._public))

    def _strike(self) -> None:
        """Count a refused frame. Raises Closed after too many."""
        self._strikes += 1
        if self._strikes > self._limits.strikes:
            raise Closed(wire.CLOSE_RATE, "too many refused frames")

    async def _handle(self, frame: wire.ClientFrame) -> None:
        """Carry out a frame; `Begin` and unknown frames have no effect here."""
        match frame:
            case wire.Msg() | wire.Edit():
                await self._store_message(frame)
            case wire.DeleteAsked():
                await self._delete_message(frame)
            case wire.CommandAsked() | wire.PinAsked():
                self._start_command(frame)
            case wire.Stop():
                await self._actions.stop(self._known, frame, self._send)
            case wire.Judgement():
                await self._actions.judge(self._known, frame, self._send)
            case wire.Read(seq=seq):
                await self._actions.mark_read(self._known, seq)
            case wire.Resync(mid=mid):
                await self._actions.resync(self._known, int(mid[1:]), self._send)
            case wire.Identify(identity=identity):
                await self._change_identity(identity)
            case wire.Typing():
                self._hub.publish_typing(str(self._known.row.session_public_id))
            case wire.Ping(n=n):
                self._send(wire.pong(n))
            case wire.Hello():
                raise wire.BadFrame("hello was said already")

    async def _change_identity(self, identity: str | None) -> None:
        """Sign the visitor in, or out if `identity` is None; always raises IdentityChanged or Closed."""
        visitors = self._visitors
        admission = (
            visitors.sign_out(self._known) if identity is None else visitors.identify(self._known, identity)
        )
        self.signed_out = identity is None and self._known.row.identified
        raise IdentityChanged(await admit(self._hub, admission))

    async def _store_message(self, frame: wire.Msg | wire.Edit) -> None:
        """Store a new or edited message, acknowledge it, then show it to all clients."""
        known = self._known
        wire.clean(frame.text)  # before the rate is counted, so that a text that cannot be stored costs none
        await self._intake.check_rate(
            self._limits, known, cid=frame.cid, address=self._client_key, chars=len(frame.text)
        )
        if isinstance(frame, wire.Edit):
            accepted, shown = await self._intake.store_edit(
                known, seq=frame.seq, text=frame.text, cid=frame.cid
            )
            self._send(wire.ack(frame.cid, accepted))
            self._intake.announce_edit(accepted, shown)
            return
        inbound = await self._intake.build_inbound(
            known, text=frame.text, cid=frame.cid, files=frame.attachments
        )
        accepted = await self._intake.store(inbound)
        self._send(wire.ack(frame.cid, accepted))
        self._intake.announce(inbound, accepted)

    async def _delete_message(self, frame: wire.DeleteAsked) -> None:
        """Delete a message in every client, then acknowledge it."""
        await self._intake.check_rate(
            self._limits, self._known, cid=frame.cid, address=self._client_key, chars=0
        )
        await self._intake.delete(self._known, seq=frame.seq)
        self._send(wire.delete_ack(frame.cid, frame.seq))

    def _start_command(self, frame: wire.CommandAsked | wire.PinAsked) -> None:
        """Start a command in the background; a pin is the command `pin` or `unpin`."""
        name, args = (
            (frame.command, frame.args)
            if isinstance(frame, wire.CommandAsked)
            else ("pin" if frame.pinned else "unpin", frame.mid)
        )
        self._commands.start(
            self._known, cid=frame.cid, name=name, args=args, language=self._language, send=self._send
        )


OpenSession = Callable[..., SocketSession]
"""Callable that creates the `SocketSession` of a client; its services are already bound."""


def _measure_bytes(data: str | Mapping[str, Any]) -> int:
    """Return the size of a frame in UTF-8 bytes."""
    text = data if isinstance(data, str) else wire.encode(data)
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _find_cid(data: str | Mapping[str, Any]) -> str | None:
    """Return the cid of a refused frame, so that the browser can mark its message.

    None if it cannot be read.
    """
    try:
        return getattr(wire.read_frame(data), "cid", None)
    except EvertalkError:
        return None
