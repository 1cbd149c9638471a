"""Runs the answers of this process, and shows them on every screen that is open here."""

from __future__ import annotations

from functools import partial

from shared.core.session.events import ReplyEvent
from shared.services.turns.turn_dispatcher import OpenReplySink, SessionAnswerer, TurnDispatcher
from web.server.hub import Hub

CHANNEL = "web"


class SessionBroadcast:
    """All screens of one session."""

    def __init__(self, hub: Hub, session_id: int) -> None:
        self._hub = hub
        self._session_id = session_id

    async def __call__(self, event: ReplyEvent) -> None:
        self._hub.hear(self._session_id, event)

    async def mark_idle(self) -> None:
        """They stay open."""

    async def close(self) -> None:
        """They stay open."""


class Replies:
    def __init__(self, conversation: SessionAnswerer, hub: Hub) -> None:
        self._hub = hub
        self._answering = TurnDispatcher(conversation, channel=CHANNEL, orphan=self._orphan)
        self.start = self._answering.start
        self.begin_to_close = self._answering.stop_accepting
        self.close = self._answering.close
        self.look_now = self._answering.wake

    def answer(self, session_id: int) -> None:
        """Soon; several calls are one."""
        self._answering.dispatch(session_id, partial(SessionBroadcast, self._hub, session_id))

    async def _orphan(self, session_id: int) -> OpenReplySink:
        return partial(SessionBroadcast, self._hub, session_id)
