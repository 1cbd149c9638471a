"""Runs the answers of this process, and shows them on every screen that is open here."""

from __future__ import annotations

from functools import partial

from shared.core.session.events import ReplyEvent
from shared.services.turns.turn_dispatcher import Answering, Answers, OpenScreen
from web.hub import Hub

CHANNEL = "web"


class Room:
    """All screens of one session."""

    def __init__(self, hub: Hub, session_id: int) -> None:
        self._hub = hub
        self._session_id = session_id

    async def __call__(self, event: ReplyEvent) -> None:
        self._hub.hear(self._session_id, event)

    async def answered(self) -> None:
        """They stay open."""

    async def close(self) -> None:
        """They stay open."""


class Replies:
    def __init__(self, conversation: Answers, hub: Hub) -> None:
        self._hub = hub
        self._answering = Answering(conversation, channel=CHANNEL, orphan=self._orphan)
        self.start = self._answering.start
        self.begin_to_close = self._answering.begin_to_close
        self.close = self._answering.close
        self.look_now = self._answering.look_now

    def answer(self, session_id: int) -> None:
        """Soon; several calls are one."""
        self._answering.answer(session_id, partial(Room, self._hub, session_id))

    async def _orphan(self, session_id: int) -> OpenScreen:
        return partial(Room, self._hub, session_id)
