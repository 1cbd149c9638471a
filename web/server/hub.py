"""Brings what happens in a session to every screen that shows it, in order, from this process or another."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import structlog

from shared.core.session.events import (
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
from shared.runtime.tasks import BackgroundTasks
from web.protocol import wire
from web.server.send_queue import Draft, Pieces, SendQueue

log = structlog.get_logger(__name__)

SCREEN_SECONDS = 0.05
"""At most 20 delta frames a second to a screen."""
ANNOUNCE_SECONDS = 0.1
"""At most 10 a second to other processes."""
PATIENCE_SECONDS = 0.02
"""Events of this process may overtake each other by this much before Postgres is asked."""
POLL_SECONDS = 1.0
POLLS_WHILE_HEARING = 5
"""With Redis at hand Postgres is looked at only every so many polls."""
PAGE = 500
OUTGOING = 1_000
GATHER_SECONDS = 0.001
"""So long announcements gather: a turn's own work goes first, and what comes together is one message."""
WANTED = {"t": "wanted"}
"""Asks other processes for the text so far of an answer; never a frame of a screen."""
LEFT = {"t": "left"}
"""Somebody signed out of a place."""
ANEW_MS = 1_000
HELD_BACK = 1_000
"""Events a screen may be sent before its welcome is ready."""


class Announcements(Protocol):
    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...
    async def announce_all(self, session_id: int, messages: Sequence[Mapping[str, Any]]) -> None: ...
    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]: ...
    async def subscribe(self, session_ids: Sequence[int]) -> None: ...


class StoredEvent(Protocol):
    @property
    def event_seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def payload(self) -> Mapping[str, Any]: ...


class EventLog(Protocol):
    async def after(self, session_id: int, event_seq: int, *, limit: int = PAGE) -> Sequence[StoredEvent]: ...
    async def heads(self, session_ids: Sequence[int]) -> dict[int, int]: ...
    async def where_they_lead(self, address_ids: Sequence[int]) -> dict[int, int]: ...


Measure = Callable[[int], Awaitable[ContextMeasured | None]]


class Subscriber:
    """One screen in a room: first held back until its welcome is out, then strictly in order."""

    __slots__ = ("_held", "address_id", "admitted_by", "last", "name", "outbox", "public")

    def __init__(
        self,
        outbox: SendQueue,
        *,
        public: bool,
        address_id: int = 0,
        name: str = "",
        admitted_by: bytes | int | None = None,
    ) -> None:
        self.outbox = outbox
        self.admitted_by = admitted_by
        """The hash of a visitor's token, or the id of a program's key."""
        self.name = name
        """What a screen is called whose frames come in by another way than they go out."""
        self.public = public
        self.address_id = address_id
        self.last: int | None = None
        self._held: list[tuple[int, str]] | None = []

    def durable(self, event_seq: int, text: str) -> None:
        if self._held is not None:
            self._held.append((event_seq, text))
            if len(self._held) > HELD_BACK:
                self.outbox.close(wire.CLOSE_SLOW, "too much at once; come back and resume")
        elif self.last is None or event_seq > self.last:
            self.outbox.put(text)
            self.last = event_seq

    def passing(self, text: str, *, machinery: bool, droppable: bool) -> None:
        """What is shown only to those who are here; before the welcome, the welcome says it."""
        if self._held is None and not (machinery and self.public):
            self.outbox.put(text, passing=droppable)

    def begin(self, welcome: str, head: int) -> None:
        """The welcome, then whatever came meanwhile."""
        held, self._held = self._held or [], None
        self.last = head
        self.outbox.put(welcome, free=True)
        for event_seq, text in held:
            self.durable(event_seq, text)


class SessionChannel:
    """The screens of one session, and the answer that is being written."""

    __slots__ = (
        "delivered", "draft", "filling", "later", "others", "pending", "seats", "session_id", "shown",
    )  # fmt: skip

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.seats: set[Subscriber] = set()
        self.delivered: int | None = None
        """The highest number every seat was given; None until the first welcome."""
        self.pending: dict[int, tuple[str, Mapping[str, Any]] | None] = {}
        self.draft: Draft | None = None
        self.shown = Pieces(SCREEN_SECONDS)
        self.others = Pieces(ANNOUNCE_SECONDS)
        self.filling = False
        self.later: list[Mapping[str, Any]] = []
        """What another process said of its run while the message before it is still being read."""

    @property
    def idle(self) -> bool:
        return not self.seats and self.draft is None

    def show(self, frame: Mapping[str, Any]) -> None:
        if not self.seats:
            return
        kind = frame["t"]
        text = wire.encode({name: value for name, value in frame.items() if name not in ("to", "place")})
        machinery = kind in ("ctx", "compaction.progress")
        to, place = frame.get("to"), frame.get("place")
        for seat in tuple(self.seats):
            if to in (None, seat.name) and place in (None, seat.address_id):
                seat.passing(text, machinery=machinery, droppable=kind == "delta")

    def deliver(self, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        self.delivered = event_seq
        frame = wire.durable(event_seq, kind, payload)
        whole, plain = wire.encode(frame), wire.encode(wire.for_public(frame))
        for seat in tuple(self.seats):
            seat.durable(event_seq, plain if seat.public else whole)
        if kind == "msg" and payload.get("role") == "assistant":
            self.shown.clear()
            self.others.clear()


class Hub:
    """All rooms of this process. Nothing here is truth: what is missed is read from Postgres."""

    def __init__(
        self, *, announcer: Announcements, events: EventLog, measure: Measure, tasks: BackgroundTasks
    ) -> None:
        self.origin = secrets.token_hex(8)
        self._announcer = announcer
        self._events = events
        self._measure = measure
        self._tasks = tasks
        self._rooms: dict[int, SessionChannel] = {}
        self._looking: set[SendQueue] = set()
        self._outgoing: asyncio.Queue[tuple[int, Mapping[str, Any]]] = asyncio.Queue(OUTGOING)
        self._following = asyncio.Lock()
        self.on_due: Callable[[], None] = lambda: None
        """Called when a turn may wait for this channel behind one of another."""

    def start(self) -> None:
        for loop in (self._announce, self._listen, self._poll):
            self._tasks.run_forever(loop)

    @property
    def screens(self) -> int:
        return sum(len(room.seats) for room in self._rooms.values())

    def seats(self) -> list[Subscriber]:
        return [seat for room in self._rooms.values() for seat in room.seats]

    # Coming and going.

    @contextmanager
    def looking(self, outbox: SendQueue) -> Iterator[None]:
        """A screen without a conversation yet."""
        self._looking.add(outbox)
        try:
            yield
        finally:
            self._looking.discard(outbox)

    async def join(self, session_id: int, seat: Subscriber) -> None:
        """From now on the seat is given everything; call `Seat.begin` when its welcome is ready."""
        room = self._room(session_id)
        room.seats.add(seat)
        if len(room.seats) == 1:
            await self._follow()

    def begun(self, session_id: int, head: int) -> None:
        """A welcome with this head was sent: what it showed must reach the other screens too."""
        room = self._rooms.get(session_id)
        if room is None:
            return
        if room.delivered is None:
            room.delivered = head
        self.reach(session_id, head)
        self._advance(room)

    async def leave(self, session_id: int, seat: Subscriber) -> None:
        room = self._rooms.get(session_id)
        if room is None or seat not in room.seats:
            return
        room.seats.discard(seat)
        if not room.seats:
            room.delivered = None
            room.pending.clear()
            self._forget(room)
            await self._follow()

    def draft(self, session_id: int) -> Draft | None:
        room = self._rooms.get(session_id)
        return room.draft if room else None

    async def begin_anew(self) -> None:
        """The numbers of events may stand for others now: every screen comes back, and counts from there."""
        for room in self._rooms.values():
            room.delivered = None
            room.pending.clear()
        self.close_all(spread_ms=ANEW_MS)

    def close_all(self, *, spread_ms: int = 5_000) -> None:
        """Tell every screen to come back, not all at the same moment."""
        for outbox in [*(seat.outbox for seat in self.seats()), *self._looking]:
            goodbye = wire.bye(
                wire.CLOSE_RESTART, "restart", retry_ms=random.randrange(250, max(251, spread_ms))
            )
            outbox.put(wire.encode(goodbye))
            outbox.close(wire.CLOSE_RESTART, "restart")

    # What happens in this process.

    def hear(self, session_id: int, event: ReplyEvent) -> None:
        match event:
            case Stored(event_seq=event_seq, kind=kind, payload=payload):
                self.durable(session_id, event_seq, kind, payload)
            case Delta():
                self._delta(session_id, event)
            case RunStarted(turn=turn, attempt=attempt):
                self._room(session_id).draft = Draft(turn=turn, attempt=attempt)
                self._passing(session_id, wire.run(turn, "started"))
            case ToolRunning(turn=turn, name=name, subject=subject):
                if (draft := self.draft(session_id)) and draft.turn == turn:
                    draft.tool, draft.subject = name, subject
                self._passing(session_id, wire.run(turn, "tool", tool=name, subject=subject))
            case Organizing():
                self._passing(session_id, wire.organizing(event))
            case RunEnded(turn=turn):
                self._passing(session_id, wire.run_ended(event))
                self._end_draft(session_id, turn)
            case ContextMeasured():
                self._passing(session_id, wire.ctx(event))

    def durable(self, session_id: int, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        """An event that is committed; other processes get its number and read the rest."""
        self._tell_others(session_id, {"event_seq": event_seq})
        self.arrived(session_id, event_seq, kind, payload)

    def arrived(self, session_id: int, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        """A committed event that other processes know of already."""
        room = self._rooms.get(session_id)
        if room is not None and room.seats:
            room.pending[event_seq] = (kind, payload)
            self._advance(room)

    def show(self, session_id: int, frame: Mapping[str, Any]) -> None:
        """A frame for the screens of this process alone."""
        if room := self._rooms.get(session_id):
            room.show(frame)

    def tell(self, session_id: int, frame: Mapping[str, Any], *, to: str) -> None:
        """A frame for one screen by its name, in whichever process it is."""
        room = self._rooms.get(session_id)
        addressed = {**frame, "to": to}
        if room is not None and any(seat.name == to for seat in room.seats):
            room.show(addressed)
        else:
            self._tell_others(session_id, addressed)

    def read(self, session_id: int, address_id: int, event_seq: int) -> None:
        """The screens of one place agree on what was seen there."""
        frame = {**wire.read(event_seq), "place": address_id}
        self.show(session_id, frame)
        self._tell_others(session_id, frame)

    def typing(self, public_id: str) -> None:
        """Operators who look at this conversation are told; nobody else."""
        self._tell_others(DASHBOARD, {**TYPING, "session": public_id})

    def ask_for(self, session_id: int, turn: int) -> None:
        """Whoever has the whole text so far shows it to all screens."""
        self._tell_others(session_id, {**WANTED, "turn": turn})

    def reach(self, session_id: int, head: int) -> None:
        """Somebody saw that the events go up to this number."""
        room = self._rooms.get(session_id)
        if room is None or not room.seats or head < 1:
            return
        if room.delivered is None or head > room.delivered:
            room.pending.setdefault(head, None)
            self._advance(room)

    def moved(self) -> None:
        """Some place leads elsewhere now: its screens, here and in other processes, are sent there."""
        self._tell_others(ALL_PROCESSES, TELEGRAM_CHAT_MOVED)
        self._tasks.start(self._look_who_moved())

    def left(self, session_id: int, address_id: int) -> None:
        """Somebody signed out: other screens of the place come back by what they have a right to."""
        self._tell_others(ALL_PROCESSES, {**LEFT, "session": session_id, "place": address_id})
        self._send_on(session_id, address_id, "signed out")

    def _delta(self, session_id: int, delta: Delta) -> None:
        room = self._room(session_id)
        if room.draft is None or room.draft.turn != delta.turn:
            room.draft = Draft(turn=delta.turn, attempt=delta.attempt)
        room.draft.add(delta)
        room.shown.add(delta, lambda: self._flush_shown(room))
        room.others.add(delta, lambda: self._flush_others(room))

    def _flush_shown(self, room: SessionChannel) -> None:
        if frame := room.shown.take():
            room.show(frame)

    def _flush_others(self, room: SessionChannel) -> None:
        if frame := room.others.take():
            self._tell_others(room.session_id, frame)

    def _passing(self, session_id: int, frame: Mapping[str, Any]) -> None:
        room = self._rooms.get(session_id)
        if room is not None:
            self._flush_shown(room)
            self._flush_others(room)
            room.show(frame)
        if frame["t"] != "ctx":
            self._tell_others(session_id, frame)

    def _end_draft(self, session_id: int, turn: int) -> None:
        room = self._rooms.get(session_id)
        if room is not None and room.draft is not None and room.draft.turn <= turn:
            room.draft = None
            room.shown.clear()
            room.others.clear()
            self._forget(room)

    # In order, without gaps.

    def _advance(self, room: SessionChannel) -> None:
        if room.delivered is None:
            return
        for event_seq in [number for number in room.pending if number <= room.delivered]:
            del room.pending[event_seq]
        while (event := room.pending.get(room.delivered + 1)) is not None:
            del room.pending[room.delivered + 1]
            self._deliver(room, room.delivered + 1, *event)
        if room.pending and not room.filling:
            room.filling = True
            self._tasks.start(self._fill(room))

    def _deliver(self, room: SessionChannel, event_seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        room.deliver(event_seq, kind, payload)
        turn = payload.get("turn")
        if kind == "msg" and payload.get("role") != "person" and isinstance(turn, int):
            self._end_draft(room.session_id, turn)
        if kind == "compaction":
            self._tasks.start(self._measure_again(room.session_id))

    async def _fill(self, room: SessionChannel) -> None:
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
            while room.seats and room.delivered is not None and room.pending:
                if room.pending.get(room.delivered + 1) is None:
                    await self._read_missing(room)
                self._advance_held(room)
        finally:
            room.filling = False
            while room.later:
                room.show(room.later.pop(0))

    def _advance_held(self, room: SessionChannel) -> None:
        """As `_advance`, by the task that fills: it must not start another."""
        assert room.filling
        self._advance(room)

    async def _read_missing(self, room: SessionChannel) -> None:
        start = room.delivered
        assert start is not None
        try:
            rows = await self._events.after(room.session_id, start, limit=PAGE)
        except StorageUnavailable:
            await asyncio.sleep(POLL_SECONDS)
            return
        for row in rows:
            if row.event_seq == (room.delivered or 0) + 1 and room.seats:
                self._deliver(room, row.event_seq, row.kind, row.payload)
        if not rows:
            # Announced but not there (a restore, a lie): forgotten, the next poll knows better.
            room.pending.clear()

    async def _measure_again(self, session_id: int) -> None:
        try:
            measured = await self._measure(session_id)
        except StorageUnavailable:
            return
        if measured is not None:
            self.show(session_id, wire.ctx(measured))

    # Other processes.

    def _tell_others(self, session_id: int, message: Mapping[str, Any]) -> None:
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
                self._heard(session_id, message)

    def _heard(self, session_id: int, message: Mapping[str, Any]) -> None:
        event_seq, kind = message.get("event_seq"), message.get("t")
        if kind == TURN_DUE["t"]:
            self.on_due()
        elif kind == TELEGRAM_CHAT_MOVED["t"]:
            self._tasks.start(self._look_who_moved())
        elif kind == LEFT["t"]:
            self._send_on(message["session"], message["place"], "signed out")
        elif isinstance(event_seq, int):
            self.reach(session_id, event_seq)
        elif kind == WANTED["t"]:
            self._answer_wanted(session_id, message)
        elif isinstance(kind, str) and (room := self._rooms.get(session_id)) and room.seats:
            frame = {name: value for name, value in message.items() if name != "origin"}
            if kind == "delta" and not self._far_delta(room, frame):
                return
            if kind == "stream" and not self._far_text(room, frame):
                return
            if kind == "run" and frame.get("state") in ("done", "aborted", "failed", "queued"):
                room.draft = None
            if kind == "run" and room.filling and len(room.later) < HELD_BACK:
                room.later.append(frame)
            else:
                room.show(frame)

    def _answer_wanted(self, session_id: int, message: Mapping[str, Any]) -> None:
        room = self._rooms.get(session_id)
        draft = room.draft if room is not None else None
        if room is None or draft is None or draft.turn != message.get("turn") or not draft.whole:
            return
        # What was collected goes first, so that what follows begins where this text ends.
        self._flush_others(room)
        self._tell_others(session_id, wire.stream(turn=draft.turn, attempt=draft.attempt, text=draft.text))

    def _far_text(self, room: SessionChannel, frame: Mapping[str, Any]) -> bool:
        try:
            turn, attempt, text = int(frame["turn"]), int(frame["attempt"]), str(frame["text"])
        except (KeyError, TypeError, ValueError):
            return False
        room.draft = Draft.of(turn=turn, attempt=attempt, text=text)
        return True

    def _far_delta(self, room: SessionChannel, frame: Mapping[str, Any]) -> bool:
        try:
            delta = Delta(
                turn=int(frame["turn"]),
                attempt=int(frame["attempt"]),
                offset=int(frame["off"]),
                text=str(frame["text"]),
            )
        except (KeyError, TypeError, ValueError):
            return False
        if room.draft is None or room.draft.turn != delta.turn:
            room.draft = Draft(turn=delta.turn, attempt=delta.attempt)
        room.draft.add(delta)
        return True

    async def _poll(self) -> None:
        """Finds what was never announced; with no Redis at all it is the only way."""
        beats = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            beats += 1
            hears = getattr(self._announcer, "connected", True)
            if hears and beats % POLLS_WHILE_HEARING:
                continue
            followed = [room.session_id for room in self._rooms.values() if room.seats]
            if not followed:
                continue
            await self._look_who_moved()
            try:
                heads = await self._events.heads(followed)
            except StorageUnavailable:
                continue
            for session_id, head in heads.items():
                self.reach(session_id, head)

    async def _look_who_moved(self) -> None:
        """Screens whose place leads to another session now; the announcement alone would be hearsay."""
        rooms = self._rooms.values()
        here = {
            (room.session_id, seat.address_id) for room in rooms for seat in room.seats if seat.address_id
        }
        if not here:
            return
        try:
            leads = await self._events.where_they_lead([address_id for _, address_id in here])
        except StorageUnavailable:
            return
        for session_id, address_id in here:
            if leads.get(address_id, session_id) != session_id:
                self._send_on(session_id, address_id, "moved")

    def _send_on(self, session_id: int, address_id: int, reason: str) -> None:
        """Its screens come back at once, and are welcomed where the place leads to now."""
        room = self._rooms.get(session_id)
        for seat in tuple(room.seats) if room is not None else ():
            if seat.address_id == address_id:
                seat.outbox.put(wire.encode(wire.bye(wire.CLOSE_RESTART, reason, retry_ms=0)))
                seat.outbox.close(wire.CLOSE_RESTART, reason)

    async def _follow(self) -> None:
        async with self._following:
            await self._announcer.subscribe([room.session_id for room in self._rooms.values() if room.seats])

    def _room(self, session_id: int) -> SessionChannel:
        room = self._rooms.get(session_id)
        if room is None:
            room = self._rooms[session_id] = SessionChannel(session_id)
        return room

    def _forget(self, room: SessionChannel) -> None:
        if room.idle and self._rooms.get(room.session_id) is room:
            room.shown.clear()
            room.others.clear()
            del self._rooms[room.session_id]
