"""Actions of a client besides messages and commands: stop an answer, rate it, mark as read, catch up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from shared.adapters.postgres.turns.events import PostgresEvents
from shared.adapters.postgres.turns.feedback import PostgresFeedback
from shared.core.values.errors import MessageTooLong, UnknownMessage
from shared.runtime import CrashPoint
from shared.services.commands.feedback import FEEDBACK_CHARS
from web.auth.visitors import Known
from web.chat.command_intake import Send
from web.ports import TurnService
from web.protocol import wire
from web.server.hub import Hub

STEP_SECONDS = 15.0
"""Seconds that one action may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenActions:
    """Carries out a client's requests about running and shown answers."""

    sessions: TurnService
    events: PostgresEvents
    feedback: PostgresFeedback
    hub: Hub
    crash_point: CrashPoint

    async def stop(self, known: Known, frame: wire.Stop, send: Send) -> None:
        """Stop the running answer.

        If no answer runs, a client that shows one as running gets the frame of its end. Raises
        StorageUnavailable and TimeoutError.
        """
        session_id = known.row.session_id
        async with asyncio.timeout(STEP_SECONDS):
            stopping = await self.sessions.stop(session_id)
        draft = self.hub.draft(session_id)
        if not stopping and draft is None and frame.mid and frame.mid.startswith("t"):
            # No answer runs: this client missed the end, and must not wait for it.
            send(wire.run(int(frame.mid[1:]), "done"))

    async def judge(self, known: Known, frame: wire.Judgement, send: Send) -> None:
        """Store a rating of an answer, acknowledge it, and announce it to the conversation's clients.

        A repeated rating is acknowledged only. Raises MessageTooLong, UnknownMessage and TimeoutError.
        """
        session_id, words = known.row.session_id, wire.clean(frame.text)
        if len(words) > FEEDBACK_CHARS:
            raise MessageTooLong(chars=len(words), limit=FEEDBACK_CHARS)
        if not frame.mid.startswith("m"):
            raise UnknownMessage(frame.mid)
        async with asyncio.timeout(STEP_SECONDS):
            judged = await self.feedback.judge(
                session_id,
                seq=int(frame.mid[1:]),
                value=frame.value,
                words=words,
                cid=frame.cid,
                source="web",
            )
        self.crash_point("after_feedback")
        if judged is None:
            raise UnknownMessage(frame.mid)
        send(wire.feedback_ack(frame.cid, judged.mid, repeated=judged.repeated))
        if judged.event_seq is not None:
            event = {"mid": judged.mid, "turn": judged.turn, "value": judged.value, "cid": frame.cid}
            self.hub.publish(session_id, judged.event_seq, "feedback", event)

    async def mark_read(self, known: Known, event_seq: int) -> None:
        """Store up to which event the visitor has read, and announce it to the visitor's other clients."""
        row = known.row
        async with asyncio.timeout(STEP_SECONDS):
            number = await self.events.mark_read(row.address_id, row.session_id, event_seq)
        self.crash_point("after_read")
        if number is not None:
            self.hub.publish_read(row.session_id, row.address_id, number)

    async def resync(self, known: Known, turn: int, send: Send) -> None:
        """Send the text of the running answer: from memory if it is complete there, else ask the process that
        writes it.

        Raises UnknownMessage if that turn does not run.
        """
        session_id = known.row.session_id
        draft = self.hub.draft(session_id)
        if draft is not None and draft.turn == turn and draft.whole:
            send(wire.stream(turn=turn, attempt=draft.attempt, text=draft.text))
            return
        async with asyncio.timeout(STEP_SECONDS):
            state = await self.events.load_running(session_id)
        if state.get("run", {}).get("turn") != turn:
            raise UnknownMessage(f"t{turn}")
        self.hub.request_stream(session_id, turn)
