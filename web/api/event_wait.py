"""Subscription of one request to the events of a session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from shared.adapters.postgres.turns.events import PostgresEvents
from shared.runtime import BackgroundTasks
from web.auth.visitors import Known
from web.server.hub import Hub, Subscriber
from web.server.send_queue import SendQueue

WAITING = 64
"""Maximum frames that an EventWaiter holds; its send queue then drops deltas first, as for any slow reader.
"""


class EventWaiter:
    """Receiver of a session's events for one REST request; a send queue writes to it as to a socket."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str | None] = asyncio.Queue(WAITING)
        self._deaf = False
        self.closed = False
        """True if no more events will come: the server ends, or the reader was too slow."""

    async def send_str(self, data: str) -> None:
        """Store a frame for `next_frame`, and wait while `WAITING` frames are stored.

        Has no effect after `stop_listening`.
        """
        if not self._deaf:
            await self._heard.put(data)

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Store an end mark, at which `next_frame` sets `closed`; `code` and `message` are ignored."""
        if not self._deaf:
            await self._heard.put(None)
        return True

    def abort(self) -> None:
        """Set `closed` at once, so that stored frames are not returned any more."""
        self.closed = True

    def stop_listening(self) -> None:
        """Drop waiting frames, ignore later ones, and release each sender that waits for room."""
        self._deaf = True
        while not self._heard.empty():
            self._heard.get_nowait()

    async def next_frame(self, seconds: float) -> dict[str, Any] | None:
        """Return the next frame; None after `seconds` without one, or if no more will come (`closed`)."""
        if self.closed:
            return None
        try:
            async with asyncio.timeout(seconds):
                text = await self._heard.get()
        except TimeoutError:
            return None
        if text is None:
            self.closed = True
            return None
        frame: dict[str, Any] = json.loads(text)
        return frame


class EventSubscription:
    """Asynchronous context manager that subscribes a request to the events of a session.

    Yields an EventWaiter, which gets the events after the newest stored one. The subscription ends with the
    context.
    """

    def __init__(self, hub: Hub, events: PostgresEvents, tasks: BackgroundTasks, known: Known) -> None:
        self._hub = hub
        self._events = events
        self._session_id = known.row.session_id
        self._waiter = EventWaiter()
        send_queue = SendQueue(self._waiter, spawn=tasks.start, abort=self._waiter.abort)
        self._subscriber = Subscriber(
            send_queue, public=known.audience == "public", address_id=known.row.address_id,
            admitted_by=known.admitted_by,
        )  # fmt: skip

    async def __aenter__(self) -> EventWaiter:
        await self._hub.join(self._session_id, self._subscriber)
        try:
            head = await self._events.load_head(self._session_id)
            number = 0 if head is None else head.event_seq
        except BaseException:
            await self._leave()
            raise
        self._subscriber.begin(json.dumps({"t": "begun"}), number)
        self._hub.mark_welcomed(self._session_id, number)
        return self._waiter

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        self._waiter.stop_listening()
        await asyncio.shield(self._hub.leave(self._session_id, self._subscriber))
