"""Sends the events of a conversation to all clients that show it, in order, from this and from other
processes.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol, get_args

import structlog

from shared.core.session.turns import (
    ContextMeasured,
    Delta,
    Organizing,
    ReplyEvent,
    RunEnded,
    RunStarted,
    Stored,
    ToolRunning,
)
from shared.core.values.errors import StorageUnavailable
from shared.ports import ALL_PROCESSES, DASHBOARD, TELEGRAM_CHAT_MOVED, TURN_DUE, TYPING
from shared.runtime import BackgroundTasks
from shared.services.turns.turn_dispatcher import OpenReplySink, SessionAnswerer, TurnDispatcher
from web.protocol import wire
from web.server.send_queue import Draft, Pieces, SendQueue

log = structlog.get_logger(__name__)

SCREEN_SECONDS = 0.05
"""Seconds between two delta frames to a client."""
ANNOUNCE_SECONDS = 0.1
"""Seconds between two delta announcements to other processes."""
PATIENCE_SECONDS = 0.02
"""Seconds in which events of this process may arrive out of order before the database is queried."""
POLL_SECONDS = 1.0
"""Seconds between two queries for events that were not announced."""
POLLS_WHILE_HEARING = 5
"""Number of `POLL_SECONDS` between two queries while Redis delivers announcements."""
PAGE = 500
"""Maximum events per query."""
OUTGOING = 1_000
"""Maximum announcements that wait to be sent."""
GATHER_SECONDS = 0.001
"""Seconds for which announcements are collected into one message."""
WANTED = {"t": "wanted"}
"""Announcement that asks for the text of a running answer; never sent to clients."""
LEFT = {"t": "left"}
"""Announcement of a visitor's sign-out."""
RESET_SPREAD_MS = 1_000
"""Milliseconds within which clients reconnect after `reset`, at random."""
HELD_BACK = 1_000
"""Maximum events held back for a client before its welcome is ready."""
LATER_FRAMES = 1_000
"""Maximum frames about an answer that wait while earlier events are read; more are dropped, since clients
ask for the text again.
"""
_OF_A_RUN = ("run", "delta", "stream")
_RUN_ENDS = ("done", "aborted", "failed", "queued")
"""States of a `run` frame after which its turn is not being answered."""


class Announcements(Protocol):
    """Sender and receiver of announcements between processes."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Publish one message of a session; raises nothing."""
        ...

    async def announce_all(self, session_id: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Publish messages of a session in their order; raises nothing."""
        ...

    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield session id and message of each received announcement, for ever."""
        ...

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Receive the announcements of these sessions instead of former ones."""
        ...


class StoredEvent(Protocol):
    """Event as stored in the database."""

    @property
    def event_seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def payload(self) -> Mapping[str, Any]: ...


class EventLog(Protocol):
    """Store of the events of conversations."""

    async def list_after(
        self, session_id: int, event_seq: int, *, limit: int = PAGE
    ) -> Sequence[StoredEvent]:
        """Return the events of a session with a higher number, oldest first, at most `limit`."""
        ...

    async def load_newest_seqs(self, session_ids: Sequence[int]) -> dict[int, int]:
        """Return the newest event number by session, 0 without events; unknown sessions are missing."""
        ...

    async def find_sessions(self, address_ids: Sequence[int]) -> dict[int, int]:
        """Return the present session by address; unknown addresses are missing."""
        ...


Measure = Callable[[int], Awaitable[ContextMeasured | None]]
"""Function from a session id to the measured context; None if unknown."""
Transport = Literal["websocket", "event_stream", "long_poll"]
"""Way in which a visitor's client is connected."""


class Subscriber:
    """Client of a conversation.

    Events are held back until `begin` has sent the welcome, and then sent in order.
    """

    __slots__ = ("_held", "address_id", "admitted_by", "last", "name", "public", "send_queue", "transport")

    def __init__(
        self,
        send_queue: SendQueue,
        *,
        public: bool,
        address_id: int = 0,
        name: str = "",
        admitted_by: bytes | int | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.send_queue = send_queue
        self.transport = transport
        """Transport of a visitor's client; None for a program that waits for an answer."""
        self.admitted_by = admitted_by
        """Hash of the visitor's token, or id of the API key; None if unknown."""
        self.name = name
        """Name of a client that sends its frames by other requests than its stream; empty for others."""
        self.public = public
        self.address_id = address_id
        self.last: int | None = None
        self._held: list[tuple[int, str]] | None = []

    def send_durable(self, event_seq: int, text: str) -> None:
        """Send a stored event; an event with a number that was sent already is ignored."""
        if self._held is not None:
            self._held.append((event_seq, text))
            if len(self._held) > HELD_BACK:
                self.send_queue.close(wire.CLOSE_SLOW, "too much at once; come back and resume")
        elif self.last is None or event_seq > self.last:
            self.send_queue.put(text)
            self.last = event_seq

    def send_ephemeral(self, text: str, *, internal: bool, droppable: bool) -> None:
        """Send a frame that is not stored; before the welcome it is dropped, since the welcome has the state.

        `internal` frames are not sent to visitors of public sites; `droppable` ones may be lost when the
        queue is full.
        """
        if self._held is None and not (internal and self.public):
            self.send_queue.put(text, droppable=droppable)

    def begin(self, welcome: str, head: int) -> None:
        """Send the welcome, which includes events up to `head`, then the events held back."""
        held, self._held = self._held or [], None
        self.last = head
        self.send_queue.put(welcome, free=True)
        for event_seq, text in held:
            self.send_durable(event_seq, text)


class SessionChannel:
    """Clients of one conversation in this process, and the text of its running answer."""

    __slots__ = (
        "delivered",
        "draft",
        "draft_is_remote",
        "filling",
        "later",
        "local_deltas",
        "pending",
        "remote_deltas",
        "session_id",
        "subscribers",
    )  # fmt: skip

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.subscribers: set[Subscriber] = set()
        self.delivered: int | None = None
        """Number of the last event that every client got; None until the first welcome."""
        self.pending: dict[int, tuple[str, Mapping[str, Any]] | None] = {}
        """Events that wait for earlier ones, by number; None if only their number is known."""
        self.draft: Draft | None = None
        self.draft_is_remote = False
        """Whether another process writes the draft; this process follows it only while it has clients."""
        self.local_deltas = Pieces(SCREEN_SECONDS)
        self.remote_deltas = Pieces(ANNOUNCE_SECONDS)
        self.filling = False
        """True while a task reads missing events."""
        self.later: list[Mapping[str, Any]] = []
        """Frames of another process about an answer that arrived while earlier events were being read, at
        most `LATER_FRAMES`.
        """

    @property
    def idle(self) -> bool:
        """Whether the channel has neither clients nor a running answer."""
        return not self.subscribers and self.draft is None

    def is_outdated(self, turn: int, attempt: int) -> bool:
        """Return whether text of this attempt at a turn is older than the draft.

        A process that has lost its lease may still send such text.
        """
        return self.draft is not None and (turn, attempt) < (self.draft.turn, self.draft.attempt)

    def show(self, frame: Mapping[str, Any]) -> None:
        """Send a frame that is not stored; its `to` or `place` limits it to one client or address."""
        if not self.subscribers:
            return
        kind = frame["t"]
        text = wire.encode({name: value for name, value in frame.items() if name not in ("to", "place")})
        internal = kind in ("ctx", "compaction.progress")
        to, place = frame.get("to"), frame.get("place")
        for subscriber in tuple(self.subscribers):
            if to in (None, subscriber.name) and place in (None, subscriber.address_id):
                subscriber.send_ephemeral(text, internal=internal, droppable=kind == "delta")

    def deliver(self, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        """Send a stored event to all clients."""
        self.delivered = event_seq
        frame = wire.durable(event_seq, kind, payload)
        whole, plain = wire.encode(frame), wire.encode(wire.for_public(frame))
        for subscriber in tuple(self.subscribers):
            subscriber.send_durable(event_seq, plain if subscriber.public else whole)
        if kind == "msg" and payload.get("role") == "assistant":
            self.local_deltas.clear()
            self.remote_deltas.clear()


class Hub:
    """Channels of all conversations that this process shows or writes.

    An event that is missed here is read from the database, which alone is authoritative.
    """

    def __init__(
        self, *, announcer: Announcements, events: EventLog, measure: Measure, tasks: BackgroundTasks
    ) -> None:
        self.origin = secrets.token_hex(8)
        self._announcer = announcer
        self._events = events
        self._measure = measure
        self._tasks = tasks
        self._channels: dict[int, SessionChannel] = {}
        self._unjoined: set[SendQueue] = set()
        self._outgoing: asyncio.Queue[tuple[int, Mapping[str, Any]]] = asyncio.Queue(OUTGOING)
        self._following = asyncio.Lock()
        self.on_due: Callable[[], None] = lambda: None
        """Function called when a turn may be due, by an announcement of any process."""

    def start(self) -> None:
        """Start the loops that send announcements, receive them, and poll the database for missed events."""
        for loop in (self._announce, self._listen, self._poll):
            self._tasks.run_forever(loop)

    @property
    def screens(self) -> int:
        """Number of connected clients of any kind, over all conversations."""
        return sum(len(channel.subscribers) for channel in self._channels.values())

    def count_transports(self) -> dict[str, int]:
        """Return the number of connected clients of visitors by transport."""
        counts = dict.fromkeys(get_args(Transport), 0)
        for subscriber in self.list_subscribers():
            if subscriber.transport is not None:
                counts[subscriber.transport] += 1
        return counts

    def list_subscribers(self) -> list[Subscriber]:
        """Return all clients of this process."""
        return [subscriber for channel in self._channels.values() for subscriber in channel.subscribers]

    # Joining and leaving.

    @contextmanager
    def track_unjoined(self, send_queue: SendQueue) -> Iterator[None]:
        """Include a client without a conversation in `close_all` while the context is open."""
        self._unjoined.add(send_queue)
        try:
            yield
        finally:
            self._unjoined.discard(send_queue)

    async def join(self, session_id: int, subscriber: Subscriber) -> None:
        """Add a client to a conversation, so that it gets every event from now on.

        The caller calls `Subscriber.begin` when the welcome is ready.
        """
        channel = self._open_channel(session_id)
        channel.subscribers.add(subscriber)
        if len(channel.subscribers) == 1:
            await self._follow()

    def mark_welcomed(self, session_id: int, head: int) -> None:
        """Record that a welcome with events up to `head` was sent, and deliver those events to the other
        clients.
        """
        channel = self._channels.get(session_id)
        if channel is None:
            return
        if channel.delivered is None:
            channel.delivered = head
        self.advance_to(session_id, head)
        self._advance(channel)

    async def leave(self, session_id: int, subscriber: Subscriber) -> None:
        """Remove a client from a conversation; no effect if it has left already."""
        channel = self._channels.get(session_id)
        if channel is None or subscriber not in channel.subscribers:
            return
        channel.subscribers.discard(subscriber)
        if not channel.subscribers:
            channel.delivered = None
            channel.pending.clear()
            if channel.draft_is_remote:
                channel.draft = None
            self._forget(channel)
            await self._follow()

    def draft(self, session_id: int) -> Draft | None:
        """Return the text of the running answer in this process's view; None if there is none."""
        channel = self._channels.get(session_id)
        return channel.draft if channel else None

    async def reset(self) -> None:
        """Forget which events were delivered, and make all clients reconnect.

        Called after a change of the database, when a number may mean another event.
        """
        for channel in self._channels.values():
            channel.delivered = None
            channel.pending.clear()
        self.close_all(spread_ms=RESET_SPREAD_MS)

    def close_all(self, *, spread_ms: int = 5_000) -> None:
        """Ask all clients to reconnect after a random time of up to `spread_ms` milliseconds, and close
        them.
        """
        for send_queue in [
            *(subscriber.send_queue for subscriber in self.list_subscribers()),
            *self._unjoined,
        ]:
            goodbye = wire.bye(
                wire.CLOSE_RESTART, "restart", retry_ms=random.randrange(250, max(251, spread_ms))
            )
            send_queue.put(wire.encode(goodbye))
            send_queue.close(wire.CLOSE_RESTART, "restart")

    # Events of this process.

    def handle_event(self, session_id: int, event: ReplyEvent) -> None:
        """Show an event of an answer that this process writes to all clients, and announce it to other
        processes.
        """
        match event:
            case Stored(event_seq=event_seq, kind=kind, payload=payload):
                self.publish(session_id, event_seq, kind, payload)
            case Delta():
                self._add_delta(session_id, event)
            case RunStarted(turn=turn, attempt=attempt):
                channel = self._open_channel(session_id)
                channel.draft, channel.draft_is_remote = Draft(turn=turn, attempt=attempt), False
                self._show_ephemeral(session_id, wire.run(turn, "started"))
            case ToolRunning(turn=turn, name=name, subject=subject):
                if (draft := self.draft(session_id)) and draft.turn == turn:
                    draft.tool, draft.subject = name, subject
                self._show_ephemeral(session_id, wire.run(turn, "tool", tool=name, subject=subject))
            case Organizing():
                self._show_ephemeral(session_id, wire.organizing(event))
            case RunEnded(turn=turn):
                self._show_ephemeral(session_id, wire.run_ended(event))
                self._end_draft(session_id, turn)
            case ContextMeasured():
                self._show_ephemeral(session_id, wire.ctx(event))

    def publish(self, session_id: int, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        """Show a committed event to the clients of this process, and announce its number to other processes.

        They read the event from the database.
        """
        self._enqueue_announcement(session_id, {"event_seq": event_seq})
        self.publish_locally(session_id, event_seq, kind, payload)

    def publish_locally(self, session_id: int, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        """Show a committed event to the clients of this process; other processes know of it already."""
        channel = self._channels.get(session_id)
        if channel is not None and channel.subscribers:
            channel.pending[event_seq] = (kind, payload)
            self._advance(channel)

    def show(self, session_id: int, frame: Mapping[str, Any]) -> None:
        """Send a frame that is not stored to the clients of a conversation in this process only."""
        if channel := self._channels.get(session_id):
            channel.show(frame)

    def send_to(self, session_id: int, frame: Mapping[str, Any], *, to: str) -> None:
        """Send a frame to one client by its name, in whichever process it is connected."""
        channel = self._channels.get(session_id)
        addressed = {**frame, "to": to}
        if channel is not None and any(subscriber.name == to for subscriber in channel.subscribers):
            channel.show(addressed)
        else:
            self._enqueue_announcement(session_id, addressed)

    def publish_read(self, session_id: int, address_id: int, event_seq: int) -> None:
        """Announce up to which event an address has read, to all of its clients in every process."""
        frame = {**wire.read(event_seq), "place": address_id}
        self.show(session_id, frame)
        self._enqueue_announcement(session_id, frame)

    def publish_typing(self, public_id: str) -> None:
        """Announce to operators who watch the conversation that the person is typing."""
        self._enqueue_announcement(DASHBOARD, {**TYPING, "session": public_id})

    def request_stream(self, session_id: int, turn: int) -> None:
        """Ask the process that writes an answer to send its whole text to all clients."""
        self._enqueue_announcement(session_id, {**WANTED, "turn": turn})

    def advance_to(self, session_id: int, head: int) -> None:
        """Record that events up to `head` exist, and deliver those that clients do not have."""
        channel = self._channels.get(session_id)
        if channel is None or not channel.subscribers or head < 1:
            return
        if channel.delivered is None or head > channel.delivered:
            channel.pending.setdefault(head, None)
            self._advance(channel)

    def handle_move(self) -> None:
        """Make every process check its clients, because an address now belongs to another conversation."""
        self._enqueue_announcement(ALL_PROCESSES, TELEGRAM_CHAT_MOVED)
        self._tasks.start(self._check_moved())

    def publish_sign_out(self, session_id: int, address_id: int) -> None:
        """Announce a sign-out, and make other clients of the address reconnect with their own rights."""
        self._enqueue_announcement(ALL_PROCESSES, {**LEFT, "session": session_id, "place": address_id})
        self._close_address(session_id, address_id, "signed out")

    def drop_draft(self, session_id: int) -> None:
        """Forget the text of an answer that this process no longer writes; that of another process stays.

        An answer that another process took over ends here without `RunEnded`.
        """
        channel = self._channels.get(session_id)
        if channel is not None and channel.draft is not None and not channel.draft_is_remote:
            self._end_draft(session_id, channel.draft.turn)

    def _add_delta(self, session_id: int, delta: Delta) -> None:
        """Add a piece of a running answer, and send collected pieces when they are due.

        A piece that is older than the draft is ignored, because another process answers the turn now.
        """
        channel = self._open_channel(session_id)
        if channel.is_outdated(delta.turn, delta.attempt):
            return
        if channel.draft is None or channel.draft.turn != delta.turn:
            channel.draft = Draft(turn=delta.turn, attempt=delta.attempt)
        channel.draft.add(delta)
        channel.draft_is_remote = False
        channel.local_deltas.add(delta, lambda: self._flush_local(channel))
        channel.remote_deltas.add(delta, lambda: self._flush_remote(channel))

    def _flush_local(self, channel: SessionChannel) -> None:
        if frame := channel.local_deltas.take():
            channel.show(frame)

    def _flush_remote(self, channel: SessionChannel) -> None:
        if frame := channel.remote_deltas.take():
            self._enqueue_announcement(channel.session_id, frame)

    def _show_ephemeral(self, session_id: int, frame: Mapping[str, Any]) -> None:
        """Send the collected pieces of text, then show a frame that is not stored.

        The frame is also announced to other processes, unless it is `ctx`.
        """
        channel = self._channels.get(session_id)
        if channel is not None:
            self._flush_local(channel)
            self._flush_remote(channel)
            channel.show(frame)
        if frame["t"] != "ctx":
            self._enqueue_announcement(session_id, frame)

    def _end_draft(self, session_id: int, turn: int) -> None:
        """Forget the text of an ended turn."""
        channel = self._channels.get(session_id)
        if channel is not None and channel.draft is not None and channel.draft.turn <= turn:
            channel.draft = None
            channel.local_deltas.clear()
            channel.remote_deltas.clear()
            self._forget(channel)

    # Delivery in order, without gaps.

    def _advance(self, channel: SessionChannel) -> None:
        """Deliver the pending events that follow the last delivered one.

        Start a task that reads missing ones.
        """
        if channel.delivered is None:
            return
        for event_seq in [number for number in channel.pending if number <= channel.delivered]:
            del channel.pending[event_seq]
        while (event := channel.pending.get(channel.delivered + 1)) is not None:
            del channel.pending[channel.delivered + 1]
            self._deliver(channel, channel.delivered + 1, *event)
        if channel.pending and not channel.filling:
            channel.filling = True
            self._tasks.start(self._fill(channel))

    def _deliver(
        self, channel: SessionChannel, event_seq: int, kind: str, payload: Mapping[str, Any]
    ) -> None:
        channel.deliver(event_seq, kind, payload)
        turn = payload.get("turn")
        if kind == "msg" and payload.get("role") != "person" and isinstance(turn, int):
            self._end_draft(channel.session_id, turn)
            channel.later = [
                frame for frame in channel.later if frame["t"] == "run" or int(frame["turn"]) > turn
            ]
        if kind == "compaction":
            self._tasks.start(self._measure_again(channel.session_id))

    async def _fill(self, channel: SessionChannel) -> None:
        """Read missing events until no event waits, then show the frames that came meanwhile."""
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
            while channel.subscribers and channel.delivered is not None and channel.pending:
                if channel.pending.get(channel.delivered + 1) is None:
                    await self._read_missing(channel)
                self._advance_held(channel)
        finally:
            channel.filling = False
            while channel.later:
                channel.show(channel.later.pop(0))

    def _advance_held(self, channel: SessionChannel) -> None:
        """Deliver pending events inside the task that reads missing ones, without starting a second task."""
        assert channel.filling
        self._advance(channel)

    async def _read_missing(self, channel: SessionChannel) -> None:
        """Read the events after the last delivered one, and deliver them."""
        start = channel.delivered
        assert start is not None
        try:
            rows = await self._events.list_after(channel.session_id, start, limit=PAGE)
        except StorageUnavailable:
            await asyncio.sleep(POLL_SECONDS)
            return
        for row in rows:
            if row.event_seq == (channel.delivered or 0) + 1 and channel.subscribers:
                self._deliver(channel, row.event_seq, row.kind, row.payload)
        if not rows:
            # An announced event that is not stored, as after a restore, is forgotten; the next poll finds
            # what exists.
            channel.pending.clear()

    async def _measure_again(self, session_id: int) -> None:
        try:
            measured = await self._measure(session_id)
        except StorageUnavailable:
            return
        if measured is not None:
            self.show(session_id, wire.ctx(measured))

    # Announcements of other processes.

    def _enqueue_announcement(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Put an announcement into the queue; it is dropped if the queue is full."""
        try:
            self._outgoing.put_nowait((session_id, {**message, "origin": self.origin}))
        except asyncio.QueueFull:
            log.warning("announcement_dropped", session_id=session_id)

    async def _announce(self) -> None:
        while True:
            session_id, message = await self._outgoing.get()
            await asyncio.sleep(GATHER_SECONDS)
            waiting = {session_id: [message]}
            while not self._outgoing.empty():
                session_id, message = self._outgoing.get_nowait()
                waiting.setdefault(session_id, []).append(message)
            for session_id, messages in waiting.items():
                await self._announcer.announce_all(session_id, messages)

    async def _listen(self) -> None:
        async for session_id, message in self._announcer.listen():
            if message.get("origin") != self.origin:
                self._handle_message(session_id, message)

    def _handle_message(self, session_id: int, message: Mapping[str, Any]) -> None:
        event_seq, kind = message.get("event_seq"), message.get("t")
        if kind == TURN_DUE["t"]:
            self.on_due()
        elif kind == TELEGRAM_CHAT_MOVED["t"]:
            self._tasks.start(self._check_moved())
        elif kind == LEFT["t"]:
            self._close_address(message["session"], message["place"], "signed out")
        elif isinstance(event_seq, int):
            self.advance_to(session_id, event_seq)
        elif kind == WANTED["t"]:
            self._send_stream(session_id, message)
        elif isinstance(kind, str) and (channel := self._channels.get(session_id)) and channel.subscribers:
            frame = {name: value for name, value in message.items() if name != "origin"}
            if kind == "delta" and not self._apply_remote_delta(channel, frame):
                return
            if kind == "stream" and not self._apply_remote_stream(channel, frame):
                return
            if kind == "run":
                self._handle_remote_run(channel, frame)
            if kind not in _OF_A_RUN or not channel.filling:
                channel.show(frame)
            elif len(channel.later) < LATER_FRAMES:
                channel.later.append(frame)

    def _handle_remote_run(self, channel: SessionChannel, frame: Mapping[str, Any]) -> None:
        """Forget the draft if another process says that its turn, or a later one, has ended."""
        turn, state = frame.get("turn"), frame.get("state")
        if not isinstance(turn, int) or state not in _RUN_ENDS:
            return
        # The process that postponed a turn may say so after this process has begun its next attempt.
        is_begun_here = state == "queued" and not channel.draft_is_remote
        self._end_draft(channel.session_id, turn - 1 if is_begun_here else turn)

    def _send_stream(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Announce the text of the running answer if this process has all of it."""
        channel = self._channels.get(session_id)
        draft = channel.draft if channel is not None else None
        if channel is None or draft is None or draft.turn != message.get("turn") or not draft.whole:
            return
        # Collected pieces are sent first, so that later ones continue after this text.
        self._flush_remote(channel)
        self._enqueue_announcement(
            session_id, wire.stream(turn=draft.turn, attempt=draft.attempt, text=draft.text)
        )

    def _apply_remote_stream(self, channel: SessionChannel, frame: Mapping[str, Any]) -> bool:
        """Take over a draft text from another process; return False if the frame is invalid or outdated."""
        try:
            turn, attempt, text = int(frame["turn"]), int(frame["attempt"]), str(frame["text"])
        except (KeyError, TypeError, ValueError):
            return False
        if channel.is_outdated(turn, attempt):
            return False
        channel.draft = Draft.from_text(turn=turn, attempt=attempt, text=text)
        channel.draft_is_remote = True
        return True

    def _apply_remote_delta(self, channel: SessionChannel, frame: Mapping[str, Any]) -> bool:
        """Add a piece of text from another process; return False if the frame is invalid or outdated."""
        try:
            delta = Delta(
                turn=int(frame["turn"]),
                attempt=int(frame["attempt"]),
                offset=int(frame["off"]),
                text=str(frame["text"]),
            )
        except (KeyError, TypeError, ValueError):
            return False
        if channel.is_outdated(delta.turn, delta.attempt):
            return False
        if channel.draft is None or channel.draft.turn != delta.turn:
            channel.draft = Draft(turn=delta.turn, attempt=delta.attempt)
        channel.draft.add(delta)
        channel.draft_is_remote = True
        return True

    async def _poll(self) -> None:
        """Read events that were not announced, every second; every fifth second while Redis is connected.

        Also disconnect clients whose address belongs to another conversation now.
        """
        beats = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            beats += 1
            hears = getattr(self._announcer, "connected", True)
            if hears and beats % POLLS_WHILE_HEARING:
                continue
            followed = [channel.session_id for channel in self._channels.values() if channel.subscribers]
            if not followed:
                continue
            await self._check_moved()
            try:
                heads = await self._events.load_newest_seqs(followed)
            except StorageUnavailable:
                continue
            for session_id, head in heads.items():
                self.advance_to(session_id, head)

    async def _check_moved(self) -> None:
        """Disconnect clients whose address belongs to another conversation now, so that they reconnect there.

        Decided by the database, since an announcement may be wrong; without the database nothing happens.
        """
        channels = self._channels.values()
        here = {
            (channel.session_id, subscriber.address_id)
            for channel in channels
            for subscriber in channel.subscribers
            if subscriber.address_id
        }
        if not here:
            return
        try:
            leads = await self._events.find_sessions([address_id for _, address_id in here])
        except StorageUnavailable:
            return
        for session_id, address_id in here:
            if leads.get(address_id, session_id) != session_id:
                self._close_address(session_id, address_id, "moved")

    def _close_address(self, session_id: int, address_id: int, reason: str) -> None:
        """Close all connections of one address with `reason`, so that its clients reconnect at once."""
        channel = self._channels.get(session_id)
        for subscriber in tuple(channel.subscribers) if channel is not None else ():
            if subscriber.address_id == address_id:
                subscriber.send_queue.put(wire.encode(wire.bye(wire.CLOSE_RESTART, reason, retry_ms=0)))
                subscriber.send_queue.close(wire.CLOSE_RESTART, reason)

    async def _follow(self) -> None:
        """Subscribe to the announcements of all conversations with clients."""
        async with self._following:
            await self._announcer.subscribe(
                [channel.session_id for channel in self._channels.values() if channel.subscribers]
            )

    def _open_channel(self, session_id: int) -> SessionChannel:
        channel = self._channels.get(session_id)
        if channel is None:
            channel = self._channels[session_id] = SessionChannel(session_id)
        return channel

    def _forget(self, channel: SessionChannel) -> None:
        """Delete a channel that is no longer needed."""
        if channel.idle and self._channels.get(channel.session_id) is channel:
            channel.local_deltas.clear()
            channel.remote_deltas.clear()
            del self._channels[channel.session_id]


# -- the answers of this process, on every screen that is open here ------------------------------------------


class SessionBroadcast:
    """Reply sink of one session that passes the events of its answers to the hub."""

    def __init__(self, hub: Hub, session_id: int) -> None:
        self._hub = hub
        self._session_id = session_id

    async def __call__(self, event: ReplyEvent) -> None:
        self._hub.handle_event(self._session_id, event)

    async def mark_idle(self) -> None:
        """Do nothing: the hub keeps the clients of the session."""

    async def close(self) -> None:
        """Forget the text of an answer that ended without `RunEnded`; the hub keeps the session's clients."""
        self._hub.drop_draft(self._session_id)


class Replies:
    """Answers of this process to turns from the web: a `TurnDispatcher` whose events go to the hub."""

    def __init__(self, sessions: SessionAnswerer, hub: Hub) -> None:
        self._hub = hub
        self._dispatcher = TurnDispatcher(sessions, channel="web", orphan=self._open_orphan_sink)

    def start(self) -> None:
        """Start the dispatcher's check of leases and its search for due turns."""
        self._dispatcher.start()

    def answer(self, session_id: int) -> None:
        """Start answering the session's due turns and return at once; during an answer, have one more round
        follow it.
        """
        self._dispatcher.dispatch(session_id, partial(SessionBroadcast, self._hub, session_id))

    def wake(self) -> None:
        """Search for due turns now instead of at the next interval."""
        self._dispatcher.wake()

    def stop_accepting(self) -> None:
        """Start no more answers; running ones continue."""
        self._dispatcher.stop_accepting()

    async def close(self, *, drain_seconds: float) -> None:
        """Wait up to `drain_seconds` for running answers, then cancel the others."""
        await self._dispatcher.close(drain_seconds=drain_seconds)

    async def _open_orphan_sink(self, session_id: int) -> OpenReplySink:
        return partial(SessionBroadcast, self._hub, session_id)
