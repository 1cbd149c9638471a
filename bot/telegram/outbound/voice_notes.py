"""Sends answers as voice notes after their text, at most once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from bot.telegram.client.calls import CallNotSent
from bot.telegram.client.sender import Sender
from bot.telegram.outbound.notifier import get_chat_target
from bot.telegram.texts import get_command_texts
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.voice.speech import PostgresSpeech
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.runtime import BackgroundTasks, CrashPoint
from shared.services.voice.speaking import SpeakingService

log = structlog.get_logger(__name__)

VOICE_NOTE_SECONDS = 0.5
"""Seconds between two checks for due voice notes."""
FILE_NAME = "answer.ogg"
"""File name of a voice note."""


class VoiceNotes:
    """Sends due voice notes for all bots of the process; those of one session one after the other."""

    def __init__(
        self,
        speaking: SpeakingService,
        store: PostgresSpeech,
        chats: PostgresTelegramChats,
        *,
        senders: Mapping[int, Sender],
        tasks: BackgroundTasks,
        crash_point: CrashPoint,
    ) -> None:
        self._speaking = speaking
        self._store = store
        self._chats = chats
        self._senders = senders
        self._tasks = tasks
        self._crash_point = crash_point
        self._busy: set[int] = set()

    async def send_due(self, accounts: Sequence[int]) -> None:
        """Start to send the due voice notes of these bots in the background. Raises StorageUnavailable."""
        for session_id, turn, address_id in await self._store.list_due_notes(accounts):
            if session_id not in self._busy:
                self._busy.add(session_id)
                self._tasks.start(self._send_note(session_id, turn, address_id))

    async def _send_note(self, session_id: int, turn: int, address_id: int) -> None:
        try:
            chat = await self._chats.find_chat(address_id)
            sender = None if chat is None else self._senders.get(chat.bot_id)
            if chat is not None and sender is not None:
                await self._send(sender, chat, session_id, turn)
        except StorageUnavailable as error:
            log.warning("voice_note_deferred", session_id=session_id, turn=turn, reason=str(error))
        finally:
            self._busy.discard(session_id)

    async def _send(self, sender: Sender, chat: ChatRow, session_id: int, turn: int) -> None:
        """Make and send one voice note.

        If speech cannot be made, or after any outcome but CallNotSent, the note is not tried again.
        """
        target, texts = get_chat_target(chat), get_command_texts(chat)
        await sender.send_typing(target, action="record_voice")
        try:
            body = await self._speaking.speak(session_id, turn, form="opus", texts=texts)
        except StorageUnavailable:
            raise
        except EvertalkError as error:
            log.warning("voice_note_not_made", session_id=session_id, turn=turn, code=error.code)
            await self._store.end_note(session_id, turn)
            return
        if not await self._store.begin_note(session_id, turn):
            return
        self._crash_point("before_voice_note")
        outcome = await sender.send_document(target, name=FILE_NAME, content=body, voice=True, silent=True)
        self._crash_point("after_voice_note")
        if isinstance(outcome, CallNotSent):
            await self._store.mark_note_not_sent(session_id, turn)
            return
        log.info("voice_note_finished", session_id=session_id, turn=turn, outcome=type(outcome).__name__)
        await self._store.end_note(session_id, turn)
