"""Stores messages of people as turns, and edits of them; each handler gets a batch of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from aiogram import Router
from aiogram.types import Message

from bot.telegram.client.calls import CallDone, CallRejected, ScaledClock
from bot.telegram.client.sender import FINAL_PATIENCE_SECONDS
from bot.telegram.handlers.chat_admission import get_reply_target
from bot.telegram.handlers.topics import TopicConversations
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.media_files import CannotRead, FileReader
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.inbound.updates import IncomingMessage, Media, list_own_texts, reword_prompt
from bot.telegram.outbound.buttons import build_edit_buttons
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.streaming_reply import TypingIndicator
from bot.telegram.texts import (
    escape_markdown,
    explain_failure,
    explain_unreadable,
    get_chat_texts,
    get_texts,
)
from shared.adapters.postgres.telegram.chats import ChatRow, MessageRow
from shared.adapters.postgres.telegram.receipts import TelegramEditReceipt, TelegramReceipt
from shared.core.context.untrusted_text import (
    OF_REPLIED,
    file_name_text,
    file_text,
    is_unread_file,
    may_be_read_later,
    unread_file_text,
)
from shared.core.session.turns import Inbound
from shared.core.values.errors import (
    BadInput,
    CapHeld,
    CapReached,
    EvertalkError,
    SessionMoved,
    StorageUnavailable,
)
from shared.core.values.files import MOST_FILE_CHARS, Document, Picture
from shared.core.values.messages import (
    Block,
    Image,
    Text,
    is_file,
    replace_file_blocks,
    typed_text_of,
    with_typed_text,
)
from shared.core.values.recordings import (
    RECORDING_NOTE,
    Recording,
    guess_language,
    name_recording,
    transcript_text,
)
from shared.locales import Catalogue
from shared.runtime import BackgroundTasks
from shared.services.turns.session_service import SessionService
from shared.services.voice.hearing import HearingService, NotHeard, RecordingEmpty, RecordingTooLong

log = structlog.get_logger(__name__)

MAX_FILES = 10
"""Maximum files read from one batch of messages; an album has at most 10."""
MAX_QUOTED_FILES = 3
"""Maximum files read for one turn from messages that a person replied to."""
STICKER_REACTION = "👍"
"""Reaction to a sticker whose own emoji is not possible as a reaction."""
EDIT_REACTION = "✍"
"""Reaction that confirms an edit for which no new answer is offered."""
LATE_POLLS = 50
"""Maximum checks, `LATE_POLL_SECONDS` apart, for the first part of a message whose rest came late."""
LATE_POLL_SECONDS = 0.1
"""Seconds between two checks for the first part of a message whose rest came late."""
MIB = 1024 * 1024
"""Bytes of a mebibyte."""
MAX_DEFERRED = 20
"""Maximum updates of unread recordings and files kept for `/retry`; the oldest are dropped first."""
MAX_READINGS = 100
"""Maximum batches whose files are kept while the batches are repeated; the oldest are dropped first."""
TRANSCRIPT_CHARS = 1_000
"""Maximum characters of a transcript that the bot shows in the chat."""
EDIT_MINUTES = 15
"""Minutes after sending within which an edit can still lead to a new answer."""
STICKER_EMOJI = frozenset("👍❤🔥👏🎉🤩💯🙏🥰😍😁👌🏆⚡🤗🫡😎")
"""Emoji of stickers that Telegram also allows as reactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    """Message about a file, to be sent to its chat as a reply to `reply_to`; None for no reply."""

    text: str
    reply_to: int | None = None


@dataclass(slots=True, kw_only=True)
class _BatchReading:
    """Files of one batch as they were read for one session, and the notices about them that are not sent yet.

    It is kept while the batch is repeated, so that a file is downloaded, paid for and reported once.
    """

    session_id: int = 0
    blocks: tuple[Block, ...] | None = None
    """Files as blocks for the model; None before they are read."""
    failure: EvertalkError | None = None
    """Reason why a recording could not be transcribed; None without."""
    notices: list[_Notice] = field(default_factory=list)
    transcripts: dict[int, str] = field(default_factory=dict)
    """Transcripts by the id of their message."""
    shown: set[int] = field(default_factory=set)
    """Ids of the messages whose transcripts the chat got."""
    heard: dict[str, str] = field(default_factory=dict)
    """Transcripts by Telegram's file id, also of recordings that a person replied to."""

    def begin(self, session_id: int) -> None:
        """Prepare to read for a session; files read for another one are forgotten, transcripts stay."""
        if session_id != self.session_id:
            self.session_id, self.blocks, self.failure = session_id, None, None

    def add_notice(self, text: str, *, reply_to: int | None = None) -> None:
        self.notices.append(_Notice(text=text, reply_to=reply_to))


class MessageHandlers:
    """Handlers of one bot for messages; each marks the updates of its batch as handled.

    All methods may raise StorageUnavailable, and LeaseLost if another process has taken over the bot.
    """

    def __init__(
        self,
        context: BotContext,
        *,
        notifier: Notifier,
        files: FileReader,
        sessions: SessionService,
        dispatch: Callable[[ChatRow], None],
        now: Callable[[], datetime],
        start: Callable[[Coroutine[Any, Any, None]], object],
        hearing: HearingService | None,
        topics: TopicConversations,
    ) -> None:
        self._topics = topics
        self._hearing = hearing
        self._start = start
        self._now = now
        self._context = context
        self._bot_id = context.identity.bot_id
        self._stores = context.stores
        self._notifier = notifier
        self._files = files
        self._sessions = sessions
        self._dispatch = dispatch
        self._readings: dict[tuple[int, ...], _BatchReading] = {}
        """Files of batches that are repeated because the database did not answer, by their update ids."""

    def build_router(self) -> Router:
        """Build the router, which tries in this order: edits, late parts, stickers alone, all other messages.

        An edit of a message that is still in the batcher arrives here as a new message.
        """
        router = Router(name="messages")
        for observer in (router.message, router.channel_post, router.edited_message):
            observer.filter(is_batch)
            observer.register(self._handle_edit, _is_edit, _is_stored)
            observer.register(self._ignore_edit, _is_edit, self._is_no_question)
            observer.register(self._accept_late_part, _is_late_part)
            observer.register(self._react_to_sticker, _is_only_stickers)
            observer.register(self._accept)
        return router

    async def handle_late(self, message: IncomingMessage, late_for: int) -> None:
        """Keep the turn of message `late_for` from being answered while the rest of that message arrives.

        Waits up to 5 seconds until the first part is stored. `message` is the late part; it is stored later.
        """
        for _ in range(LATE_POLLS):
            stored = await self._stores.telegram_chats.find_message(
                self._bot_id, message.chat.chat_id, late_for
            )
            if stored is not None:
                if stored.seq is not None:
                    await self._sessions.hold_for_rest(stored.session_id, turn=stored.turn)
                return
            await asyncio.sleep(LATE_POLL_SECONDS)  # the first part is being stored by another task

    async def handle_failed_batch(self, batch: MessageBatch, error: Exception) -> None:
        """Tell the chat that something went wrong, and mark the batch as handled with the error, so it is not
        retried.
        """
        reason = f"{type(error).__name__}: {error}"[:500]
        await self._stores.telegram_inbox.mark_handled(self._bot_id, batch.update_ids, error=reason)
        message = batch.first
        texts = get_texts(message.sender.language_code)
        await self._notifier.send(get_reply_target(message.chat), texts.say("not_now"))

    # -- messages -------------------------------------------------------------------------------------

    async def _react_to_sticker(self, _: Message, chat: ChatRow, batch: MessageBatch) -> None:
        """React to stickers without text, which get no answer; if Telegram refuses reactions, send a text."""
        last = batch.messages[-1]
        emoji = last.media.note.rstrip("\ufe0f") if last.media is not None else ""
        mark = emoji if emoji in STICKER_EMOJI else STICKER_REACTION
        text = explain_unreadable(get_chat_texts(chat), "sticker")
        self._start(self._react(chat, last.message_id, mark, instead=partial(self._send, chat, text)))
        await self._mark_handled(*batch.update_ids)

    async def _react(
        self, chat: ChatRow, message_id: int, emoji: str, *, instead: Callable[[], Awaitable[None]]
    ) -> None:
        """Set a reaction as soon as the rate limit allows.

        Call `instead` only if Telegram refuses the reaction.
        """
        outcome = await self._context.sender.react(
            chat.chat_id, message_id, emoji, patience=FINAL_PATIENCE_SECONDS
        )
        if isinstance(outcome, CallDone):
            return
        log.info("reaction_failed", chat_id=chat.chat_id, outcome=str(outcome))
        if isinstance(outcome, CallRejected):
            with suppress(StorageUnavailable):
                await instead()

    async def _send(self, chat: ChatRow, text: str, **options: Any) -> None:
        await self._notifier.send(get_chat_target(chat), text, **options)

    async def _is_no_question(self, message: Message, batch: MessageBatch) -> bool:
        """Return whether an edit of a message that was never stored is ignored: a command, an empty or an old
        one.

        Otherwise the edit is read as a new message. Old means more than 15 minutes.
        """
        edit = batch.first
        return edit.command is not None or not edit.text.strip() or self._is_too_old(edit)

    async def _ignore_edit(self, _: Message, batch: MessageBatch) -> None:
        await self._mark_handled(*batch.update_ids)

    async def _accept_late_part(
        self, message: Message, chat: ChatRow, batch: MessageBatch, stored: MessageRow
    ) -> None:
        """Hold the turn of the first part, and store the late part.

        The store adds it to that turn if the turn is unanswered, else it becomes a separate turn.
        """
        is_held = await self._sessions.hold_for_rest(chat.session_id, turn=stored.turn)
        try:
            await self._accept(message, chat, batch)
        finally:
            if is_held and await self._stores.edits.wake(chat.session_id):
                self._dispatch(chat)

    async def _accept(self, _: Message, chat: ChatRow, batch: MessageBatch) -> None:
        """Store a batch of messages as a turn and start its answer.

        An empty batch is only marked as handled.
        """
        with self._keep_reading(batch) as reading:
            if self._is_read_again(chat, batch):
                first = batch.first
                known = await self._stores.telegram_chats.find_message(
                    self._bot_id, first.chat.chat_id, first.message_id
                )
                if known is not None and known.seq is not None:
                    await self._read_files_again(chat, batch, known, reading)
                    return
            await self._store_batch(chat, batch, reading)

    @contextmanager
    def _keep_reading(self, batch: MessageBatch) -> Iterator[_BatchReading]:
        """Yield what was read of a batch, and keep it for the next try if the database does not answer."""
        reading = self._readings.pop(batch.update_ids, None) or _BatchReading()
        try:
            yield reading
        except StorageUnavailable:
            while len(self._readings) >= MAX_READINGS:
                del self._readings[next(iter(self._readings))]
            self._readings[batch.update_ids] = reading
            raise

    @staticmethod
    def _is_read_again(chat: ChatRow, batch: MessageBatch) -> bool:
        """Return whether `/retry` has asked for this batch."""
        return not set(batch.update_ids).isdisjoint(chat.settings.get("reread", ()))

    async def _store_batch(self, chat: ChatRow, batch: MessageBatch, reading: _BatchReading) -> None:
        """Store a batch with its files as a turn, start the answer, then report the files to the chat."""
        read = await self._read_or_defer(chat, batch, reading)
        if read is None:
            return
        text, more = read
        if not text.strip() and not any(map(_is_readable, more)):
            await self._send_notices(chat, reading)
            await self._mark_handled(*batch.update_ids)
            return
        # A late part may join a turn that is claimed already, so it claims none.
        store = self._sessions.accept_and_claim if batch.late_for is None else self._sessions.accept
        try:
            await store(self._build_inbound(chat, batch, text, more))
        except SessionMoved:
            await self._store_batch(await self._find_current_chat(chat), batch, reading)
            return
        except BadInput as error:
            notice = explain_failure(
                get_chat_texts(chat), code=error.code, advice=error.advice, public=self._context.public
            )
            reading.add_notice(notice)
            await self._send_notices(chat, reading)
            await self._mark_handled(*batch.update_ids)
            return
        # Next, or the claim would be given back: a notice can wait half a minute for Telegram.
        self._dispatch(chat)
        await self._record_unread(chat, batch, more, is_newest=not self._is_read_again(chat, batch))
        await self._send_notices(chat, reading)
        await self._send_transcripts(chat, reading)
        await self._topics.name_after(chat, batch.first.text)

    def _build_inbound(
        self, chat: ChatRow, batch: MessageBatch, text: str, more: tuple[Block, ...]
    ) -> Inbound:
        first = batch.first
        return Inbound(
            session_id=chat.session_id,
            address_id=chat.address_id,
            text=text if text.strip() else "",
            dedupe_key=f"tg:{self._bot_id}:{first.update_id}",
            more=more,
            receipt=TelegramReceipt(
                bot_id=self._bot_id,
                update_ids=batch.update_ids,
                chat_id=chat.chat_id,
                message_ids=batch.message_ids,
                own_texts=list_own_texts(batch.messages, text),
                files=tuple(one.media.unique_id or None if one.media else None for one in batch.messages),
                late_for=batch.late_for,
            ),
        )

    async def _read_or_defer(
        self, chat: ChatRow, batch: MessageBatch, reading: _BatchReading
    ) -> tuple[str, tuple[Block, ...]] | None:
        """Return the batch's text with transcripts, and its files as blocks.

        None if a recording could not be transcribed: the chat got a notice, and the updates wait for
        `/retry`.
        """
        try:
            more = await self._read_files(chat, batch, reading)
        except (NotHeard, CapReached, CapHeld) as error:
            await self._defer_recordings(chat, batch, reading, error)
            return None
        return _add_transcripts(batch, reading.transcripts).text, more

    async def _send_notices(self, chat: ChatRow, reading: _BatchReading) -> None:
        """Send the notices about a batch's files, each once."""
        while reading.notices:
            notice = reading.notices.pop(0)
            await self._notifier.send(get_chat_target(chat), notice.text, reply_to=notice.reply_to)

    async def _send_transcripts(self, chat: ChatRow, reading: _BatchReading) -> None:
        """Send the transcripts to the chat, each once, so that people can correct them."""
        for message_id, transcript in reading.transcripts.items():
            if message_id not in reading.shown:
                reading.shown.add(message_id)
                words = escape_markdown(transcript, most=TRANSCRIPT_CHARS)
                text = get_chat_texts(chat).say("heard", words=words)
                await self._notifier.send(get_chat_target(chat), text, reply_to=message_id, silent=True)

    async def _record_unread(
        self, chat: ChatRow, batch: MessageBatch, more: tuple[Block, ...], *, is_newest: bool
    ) -> None:
        """Keep a batch's updates for `/retry` if one of its files may be readable later.

        If not, and the batch is the newest message of its chat, nothing waits for `/retry` any more.
        """
        known = list(chat.settings.get("unheard") or ())
        if any(isinstance(block, Text) and may_be_read_later(block.text) for block in more):
            await self._keep_for_retry(chat, batch)
        elif known and is_newest:
            await self._stores.telegram_chats.change_settings(chat.address_id, {"unheard": None})

    async def _keep_for_retry(self, chat: ChatRow, batch: MessageBatch) -> None:
        """Add a batch's updates to those that `/retry` reads again."""
        known = chat.settings.get("unheard") or ()
        waiting = list(dict.fromkeys((*known, *batch.update_ids)))[-MAX_DEFERRED:]
        await self._stores.telegram_chats.change_settings(chat.address_id, {"unheard": waiting})

    async def _read_files_again(
        self, chat: ChatRow, batch: MessageBatch, known: MessageRow, reading: _BatchReading
    ) -> None:
        """Read the files of a stored message again, and replace the notes that said why they were missing.

        If the message belongs to the last turn, request a new answer.
        """
        assert known.seq is not None
        read = await self._read_or_defer(chat, batch, reading)
        if read is None:
            return
        text, more = read
        key = f"tg:{self._bot_id}:{batch.first.update_id}:again:{chat.settings.get('reread_by')}"
        edited = await self._sessions.reword(
            known.session_id,
            known.seq,
            reword=lambda blocks: (*((Text(text=text),) if text.strip() else ()), *more),
            dedupe_key=key,
        )
        await self._record_unread(chat, batch, more, is_newest=False)
        await self._mark_handled(*batch.update_ids)
        if edited.result == "last":
            await self._stores.edits.request_retry(
                known.session_id,
                channel="telegram",
                address_id=chat.address_id,
                dedupe_key=f"{key}:answer",
                turn=edited.turn,
            )
        self._dispatch(chat)
        await self._send_notices(chat, reading)

    async def _defer_recordings(
        self, chat: ChatRow, batch: MessageBatch, reading: _BatchReading, error: EvertalkError
    ) -> None:
        """Tell the chat that a recording could not be transcribed, and keep its updates for `/retry`."""
        if reading.failure is None:
            reading.failure = error
            notice = explain_failure(
                get_chat_texts(chat), code=error.code, advice=error.advice, public=self._context.public
            )
            reading.add_notice(notice, reply_to=batch.first.message_id)
        await self._keep_for_retry(chat, batch)
        await self._send_notices(chat, reading)
        await self._mark_handled(*batch.update_ids)

    async def _find_current_chat(self, chat: ChatRow) -> ChatRow:
        """Return the chat's row again after its person linked or unlinked a channel.

        Raises SessionMoved if the chat is deleted or still has the same session.
        """
        now = await self._stores.telegram_chats.find_chat(chat.address_id)
        if now is None or now.session_id == chat.session_id:
            raise SessionMoved(f"session {chat.session_id}")
        return now

    async def _read_files(
        self, chat: ChatRow, batch: MessageBatch, reading: _BatchReading
    ) -> tuple[Block, ...]:
        """Return a batch's files as blocks for the model, and add transcripts and notices to `reading`.

        A notice is added for each file that cannot be read. What an earlier try has read is not read again.
        Raises NotHeard, CapReached or CapHeld if a recording could not be transcribed.
        """
        reading.begin(chat.session_id)
        if reading.failure is not None:
            raise reading.failure
        if reading.blocks is None:
            reading.notices = []
            reading.blocks = await self._read_all(chat, batch, reading)
        return reading.blocks

    async def _read_all(
        self, chat: ChatRow, batch: MessageBatch, reading: _BatchReading
    ) -> tuple[Block, ...]:
        """Read the files of a batch, then those of messages that it replies to; return them as blocks."""
        texts = get_chat_texts(chat)
        blocks: list[Block] = []
        room = MOST_FILE_CHARS
        files = [(one.message_id, one.media) for one in batch.messages if one.media and one.media.file_id]
        if len(files) > MAX_FILES:
            reading.add_notice(texts.say("too_many_files"))
        for message_id, media in files[:MAX_FILES]:
            match await self._files.read(
                media, sender=f"session:{chat.session_id}", languages=_find_languages(chat)
            ):
                case Picture(bytes=body, mime=mime):
                    blocks.append(await self._store_picture(chat, body, mime))
                case Document(name=name, text=text, truncated=truncated, pages=pages):
                    if truncated or len(text) > room:
                        reading.add_notice(texts.say("file_shortened", name=escape_markdown(name)))
                    blocks.append(Text(text=file_text(name, text[:room])))
                    room = max(0, room - len(text))
                    blocks += [await self._store_picture(chat, page.bytes, page.mime) for page in pages]
                case Recording() as recording:
                    block = await self._transcribe(chat, recording, media, message_id, reading)
                    blocks.append(block or self._build_unread(media, "recording_empty"))
                case CannotRead(reason=reason, name=name):
                    reading.add_notice(self._explain_cannot_read(texts, reason, name, media.kind))
                    blocks.append(self._build_unread(media, reason))
        blocks += (self._build_unread(media, "too_many_files") for _, media in files[MAX_FILES:])
        known = {media.unique_id for _, media in files}
        quoted = [one.quoted.attachment for one in batch.messages if one.quoted and one.quoted.attachment]
        for media in quoted[:MAX_QUOTED_FILES]:
            if media.file_id and media.unique_id not in known and media.kind != "sticker":
                found = await self._read_quoted(chat, media, room, reading)
                room -= sum(len(block.text) for block in found if isinstance(block, Text))
                room, blocks = max(0, room), [*blocks, *found]
        return tuple(blocks)

    async def _read_quoted(
        self, chat: ChatRow, media: Media, room: int, reading: _BatchReading
    ) -> tuple[Block, ...]:
        """Return the file of a replied-to message as blocks; its text is cut to `room` characters."""
        match await self._files.read(media, sender=f"session:{chat.session_id}"):
            case Picture(bytes=body, mime=mime):
                told = Text(text=file_name_text(media.name or media.kind, of=OF_REPLIED))
                return told, await self._store_picture(chat, body, mime)
            case Document(name=name, text=text):
                return (Text(text=file_text(name, text[:room], of=OF_REPLIED)),)
            case Recording() as recording:
                return (await self._hear_quoted(chat, recording, media, reading),)
            case CannotRead(reason=reason):
                return (self._build_unread(media, reason, of=OF_REPLIED),)

    async def _hear_quoted(
        self, chat: ChatRow, recording: Recording, media: Media, reading: _BatchReading
    ) -> Block:
        """Return the transcript of a recording that a person replied to, or a note for the model if that
        failed.
        """
        kept = await self._store_recording(chat, recording)
        try:
            heard = await self._hear(chat, recording, media, reading, attachment_id=kept)
        except (RecordingTooLong, RecordingEmpty) as error:
            return self._build_unread(media, error.code, of=OF_REPLIED)
        except (NotHeard, CapReached, CapHeld):
            return self._build_unread(media, "not_heard", of=OF_REPLIED)
        return Text(text=file_text(media.name or media.kind, transcript_text(heard), of=OF_REPLIED))

    def _build_unread(self, media: Media, reason: str, *, of: str = "") -> Text:
        """Return a note for the model with the name of an unread file and the reason."""
        most = self._files.get_max_bytes(media.kind) / MIB
        kind = media.kind.replace("_", " ")
        return Text(text=unread_file_text(media.name, kind, reason, megabytes=most, of=of))

    async def _transcribe(
        self, chat: ChatRow, recording: Recording, media: Media, message_id: int, reading: _BatchReading
    ) -> Block | None:
        """Store and transcribe a recording; return its block, or None if it is too long or empty.

        In the second case, also add a notice. Adds the transcript to `reading` by message id. Raises
        NotHeard, CapReached, CapHeld.
        """
        kept = await self._store_recording(chat, recording)
        languages = (str(chat.settings.get(name) or "") for name in ("app_language", "language"))
        typing = TypingIndicator(
            self._context.sender, get_chat_target(chat), tasks=BackgroundTasks(), clock=ScaledClock()
        )
        try:
            reading.transcripts[message_id] = await self._hear(
                chat, recording, media, reading, attachment_id=kept, language=guess_language(*languages)
            )
        except (RecordingTooLong, RecordingEmpty) as error:
            notice = self._explain_cannot_read(get_chat_texts(chat), error.code, "", "voice")
            reading.add_notice(notice, reply_to=message_id)
            return None
        finally:
            await typing.stop()
        return Text(text=RECORDING_NOTE, attachment_id=kept)

    async def _store_recording(self, chat: ChatRow, recording: Recording) -> int:
        return await self._stores.attachments.store(
            chat.session_id, body=recording.body, mime=recording.mime, name=name_recording(recording.mime)
        )

    async def _hear(
        self,
        chat: ChatRow,
        recording: Recording,
        media: Media,
        reading: _BatchReading,
        *,
        attachment_id: int,
        language: str = "",
    ) -> str:
        """Return the transcript of a stored recording; an earlier try of the batch may have made it.

        That try may have been for another session, where the person was before; it is not paid for again.
        """
        assert self._hearing is not None
        if media.file_id not in reading.heard:
            reading.heard[media.file_id] = await self._hearing.hear(
                chat.session_id, attachment_id, recording, language=language
            )
        return reading.heard[media.file_id]

    def _explain_cannot_read(self, texts: Catalogue, reason: str, name: str, kind: str) -> str:
        """Return the message to the chat about a file that cannot be read.

        `name` is its name, `kind` its kind.
        """
        match reason:
            case "cannot_hear" | "cannot_watch" | "cannot_see_sticker":
                return explain_unreadable(texts, kind)
            case "file_unavailable":
                return texts.say("not_now")
            case "recording_too_long" if self._hearing is not None:
                return texts.say(reason, minutes=f"{self._hearing.limits.minutes:g}")
            case "recording_empty":
                return texts.say(reason)
        key = reason if reason in ("file_too_large", "file_locked") else "file_unreadable"
        most = self._files.get_max_bytes(kind) / MIB
        return texts.say(key, name=escape_markdown(name), megabytes=f"{most:g}")

    async def _store_picture(self, chat: ChatRow, body: bytes, mime: str) -> Image:
        attachment_id = await self._stores.attachments.store(chat.session_id, body=body, mime=mime)
        return Image(attachment_id=attachment_id, mime=mime)

    async def _handle_edit(self, _: Message, chat: ChatRow, batch: MessageBatch, stored: MessageRow) -> None:
        """Store the edited text of a message in place of the old one.

        An unanswered turn starts again, also after an edit that changes nothing, such as Telegram's preview
        of a link; if the last turn is answered, a new answer is offered.
        """
        with self._keep_reading(batch) as reading:
            message, replaced = batch.first, None
            if _has_other_file(message, stored):
                try:
                    message, replaced = await self._read_replaced_file(chat, batch, reading)
                except (NotHeard, CapReached, CapHeld) as error:
                    await self._defer_recordings(chat, batch, reading, error)
                    return
            await self._store_edit(chat, batch, message, stored, replaced)
            await self._send_notices(chat, reading)
            await self._mark_handled(*batch.update_ids)

    async def _store_edit(
        self,
        chat: ChatRow,
        batch: MessageBatch,
        message: IncomingMessage,
        known: MessageRow,
        replaced: tuple[Block, ...] | None,
    ) -> None:
        """Store an edited message; continue or restart its answer, or offer a new one.

        `message` is the edited one with transcripts, `replaced` its new file as blocks, None without.
        """
        assert known.seq is not None
        is_broken_off = not await self._is_answer_shown(known)
        if is_broken_off:
            await self._sessions.break_off(known.session_id, turn=known.turn)
        edited = await self._sessions.reword(
            known.session_id,
            known.seq,
            reword=lambda blocks: _reword_blocks(blocks, message, known, replaced),
            dedupe_key=f"tg:{self._bot_id}:{message.update_id}",
            receipt=TelegramEditReceipt(
                bot_id=self._bot_id,
                chat_id=message.chat.chat_id,
                message_id=message.message_id,
                own_text=batch.first.text,
                file_unique_id=message.media.unique_id or None if message.media else None,
            ),
        )
        match edited.result:
            case "replaced" | "restarted":
                await self._stores.edits.wake(known.session_id)
                self._dispatch(chat)
            case "last" if known.session_id == chat.session_id and not self._is_too_old(message):
                await self._offer_new_answer(chat, message, edited.turn)
            case "last" | "old":
                await self._confirm_edit(chat, message)
            case "same" | "unknown":
                if is_broken_off and await self._stores.edits.wake(known.session_id):
                    self._dispatch(chat)

    async def _read_replaced_file(
        self, chat: ChatRow, batch: MessageBatch, reading: _BatchReading
    ) -> tuple[IncomingMessage, tuple[Block, ...]]:
        """Read the new file of an edited message; return the message with transcript, and the file as blocks.

        Raises NotHeard, CapReached, CapHeld.
        """
        alone = replace(batch, messages=(replace(batch.first, quoted=None),))
        found = await self._read_files(chat, alone, reading)
        await self._record_unread(chat, batch, found, is_newest=False)
        return _add_transcripts(batch, reading.transcripts).first, found

    async def _is_answer_shown(self, known: MessageRow) -> bool:
        """Return whether a part of a turn's answer was sent, is being sent, or may have arrived."""
        parts = await self._stores.deliveries.list_parts(known.session_id, known.turn)
        return any(part.state not in ("queued", "dead") for part in parts)

    async def _offer_new_answer(self, chat: ChatRow, message: IncomingMessage, turn: int) -> None:
        """Send a message with a button for a new answer to an edited question.

        Sent once per turn; after that, an edit is only confirmed by a reaction.
        """
        if chat.settings.get("edit_offered") == turn:
            await self._confirm_edit(chat, message)
            return
        await self._stores.telegram_chats.change_settings(chat.address_id, {"edit_offered": turn})
        await self._notifier.send(
            get_chat_target(chat),
            get_chat_texts(chat).say("edited"),
            keyboard=build_edit_buttons(chat, turn),
            silent=True,
            reply_to=message.message_id,
        )

    async def _confirm_edit(self, chat: ChatRow, message: IncomingMessage) -> None:
        """React to an edited message, or reply if Telegram refuses reactions, to confirm that the new text is
        stored.
        """
        message_id, text = message.message_id, get_chat_texts(chat).say("edited_older")
        instead = partial(self._send, chat, text, silent=True, reply_to=message_id)
        self._start(self._react(chat, message_id, EDIT_REACTION, instead=instead))

    def _is_too_old(self, message: IncomingMessage) -> bool:
        return self._now() - message.sent_at > timedelta(minutes=EDIT_MINUTES)

    async def _mark_handled(self, *update_ids: int) -> bool:
        """Mark updates as handled; return False if all of them had been marked before."""
        return await self._stores.telegram_inbox.mark_handled(self._bot_id, update_ids) > 0


def _add_transcripts(batch: MessageBatch, transcripts: Mapping[int, str]) -> MessageBatch:
    """Return the batch with the transcript of each recording appended to the text of its message."""
    messages = (
        replace(one, text="\n\n".join(filter(None, (one.text, transcript_text(transcripts[one.message_id])))))
        if one.message_id in transcripts
        else one
        for one in batch.messages
    )
    return replace(batch, messages=tuple(messages)) if transcripts else batch


def _find_languages(chat: ChatRow) -> tuple[str, ...]:
    """Return the language tags that the person chose and of their app, as far as known, the chosen first."""
    found = (str(chat.settings.get(name) or "") for name in ("language", "app_language"))
    return tuple(filter(None, found))


def _has_other_file(message: IncomingMessage, known: MessageRow) -> bool:
    """Return whether an edited message has a file that its stored version does not have."""
    media = message.media
    return media is not None and bool(media.file_id) and media.unique_id != known.file_unique_id


def _reword_blocks(
    blocks: tuple[Block, ...],
    message: IncomingMessage,
    known: MessageRow,
    replaced: tuple[Block, ...] | None = None,
) -> tuple[Block, ...]:
    """Return the blocks of a stored message after an edit.

    `replaced` are the blocks of its new file, None without. Other files stay. If no block would be left, the
    former blocks are returned.
    """
    if replaced is not None:
        place = known.files.index(message.message_id) if message.message_id in known.files else None
        # Older rows do not say which message a file belongs to, so their files stay.
        if known.files or not any(map(is_file, blocks)):
            blocks = replace_file_blocks(blocks, replaced, place=place)
    text = reword_prompt(typed_text_of(blocks), message, former=known.own_text)
    return with_typed_text(blocks, text) or blocks


def _is_readable(block: Block) -> bool:
    """Return whether a block is anything but a note about an unreadable file."""
    return not (isinstance(block, Text) and is_unread_file(block.text))


async def is_batch(_: Message, batch: MessageBatch | None = None) -> bool:
    """Return whether an update is a batch of messages; False for updates about the chat itself."""
    return batch is not None


async def _is_edit(_: Message, batch: MessageBatch) -> bool:
    return batch.first.is_edited


async def _is_stored(_: Message, stored: MessageRow | None) -> bool:
    return stored is not None


async def _is_late_part(_: Message, batch: MessageBatch, chat: ChatRow, stored: MessageRow | None) -> bool:
    return stored is not None and stored.session_id == chat.session_id and not batch.first.is_edited


async def _is_only_stickers(_: Message, batch: MessageBatch) -> bool:
    return all(
        one.media is not None and one.media.kind == "sticker" and not one.text.strip()
        for one in batch.messages
    )
