"""What becomes of everything that comes in: let in or told why not, carried out, or stored as a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from bot.telegram.client.bot_api import CallRefused, TelegramUnavailable
from bot.telegram.client.call_queue import ScaledClock
from bot.telegram.client.sender import ChatTarget as Spot
from bot.telegram.handlers.access_requests import AccessRequests
from bot.telegram.handlers.callback_queries import CallbackQueryHandler
from bot.telegram.handlers.command_handler import TelegramCommandHandler
from bot.telegram.handlers.inline_queries import InlineQueryHandler
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.inbound.chat_access import (
    AccessDecision,
    Allowed,
    ChatAccessPolicy,
    NoReply,
    StrangerReply,
    UnknownChat,
)
from bot.telegram.inbound.media_files import CannotRead, FileReader
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.inbound.updates import (
    CallbackQuery,
    ChatMigration,
    ChatRef,
    DraftStopped,
    IgnoredUpdate,
    IncomingMessage,
    IncomingUpdate,
    InlineQuery,
    MembershipChange,
    MessageAuthor,
    PinChange,
    ReactionChange,
)
from bot.telegram.outbound.buttons import build_edit_buttons
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.typing_indicator import TypingIndicator
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from bot.telegram.texts import (
    escape_markdown,
    explain_failure,
    explain_unreadable,
    get_texts,
    say_hello_to_group,
)
from shared.adapters.postgres.telegram.chats import ChatRow, MessageRow
from shared.core.context.untrusted_text import file_words
from shared.core.session.events import Accepted, Inbound, InboxReceipt
from shared.core.values.errors import BadInput, CapHeld, CapReached, EvertalkError, SessionMoved
from shared.core.values.files import MOST_FILE_CHARS, Document, Picture
from shared.core.values.messages import Block, Image, Text
from shared.core.values.recordings import (
    RECORDING_NOTE,
    Recording,
    guess_language,
    heard_text,
    name_recording,
)
from shared.locales import Catalogue
from shared.ports import TokenCounter
from shared.runtime.tasks import BackgroundTasks
from shared.services.voice.hearing import HearingService, NotHeard, RecordingEmpty, RecordingTooLong

log = structlog.get_logger(__name__)

RUN_ONCE_COMMANDS = frozenset({"undo", "new", "separator", "compact", "unlink"})
"""Commands whose second time would do more than the first: after a crash rather not at all than twice."""
MAX_FILES = 10
"""Of one message; an album has at most ten."""
STICKER_REACTION = "👍"
LATE_LOOKS = 50
LATE_LOOK_SECONDS = 0.1
MIB = 1024 * 1024
MOST_UNHEARD = 20
"""Updates that wait for `/retry`."""
SHOWN_CHARS = 1_000
"""Of what was heard."""
EDIT_MINUTES = 15
"""So long after it was written, a changed message may be answered again."""
POSITIVE_REACTIONS = frozenset("👍❤🔥👏🎉🤩💯🙏🥰😍😁👌🏆⚡🤗🫡😎")
NEGATIVE_REACTIONS = frozenset("👎💩🤮😢🤬😱🤯🖕😡")


class SessionControl(Protocol):
    async def accept(self, inbound: Inbound) -> Accepted: ...
    async def stop(self, session_id: int) -> bool: ...
    async def hold_for_rest(self, session_id: int, *, turn: int) -> bool: ...


class UpdateHandler:
    """For one bot. `gathered` and `failed` end their updates; all may raise StorageUnavailable.

    `gathered` also raises Fenced: another holder of the bot has taken some of these updates.
    """

    def __init__(
        self,
        desk: BotContext,
        *,
        door: ChatAccessPolicy,
        voice: Notifier,
        files: FileReader,
        commanding: TelegramCommandHandler,
        pressing: CallbackQueryHandler,
        conversation: SessionControl,
        answer: Callable[[ChatRow], None],
        counter: TokenCounter,
        now: Callable[[], datetime],
        start: Callable[[Coroutine[Any, Any, None]], object],
        uncertain: UncertainNotices,
        requests: AccessRequests,
        inline: InlineQueryHandler,
        hearing: HearingService | None,
    ) -> None:
        self._hearing = hearing
        self._inline = inline
        self._uncertain = uncertain
        self._requests = requests
        self._start = start
        self._now = now
        self._desk = desk
        self._stores = desk.stores
        self._door = door
        self._voice = voice
        self._files = files
        self._commanding = commanding
        self._pressing = pressing
        self._conversation = conversation
        self._answer = answer
        self._counter = counter

    async def handle_batch(self, gathered: MessageBatch) -> None:
        """One turn of messages, or one command."""
        spoken = gathered.addressed_message
        begun = await self._find_begun(gathered)
        # Only one part of a message mentions the bot: the rest of one that was stored is meant, too.
        decision = await (self._door.admit(spoken) if begun is None else self._door.check(spoken.chat))
        if isinstance(decision, UnknownChat):
            decision = NoReply(reason="the rest of what a stranger said")
        if not isinstance(decision, Allowed):
            await self._turned_away(decision, spoken.chat, spoken.sender)
            await self._end(*gathered.update_ids)
            return
        gathered = _keep_addressed(gathered) if begun is None else gathered
        place = await self._place_of(spoken.chat, spoken.sender)
        await self._heed_quotes(place, gathered)
        if spoken.is_edited:
            await self._edited(place, gathered)
        elif self._commanding.is_command(spoken):
            await self._command(place, gathered)
        elif begun is not None and begun.session_id == place.session_id:
            await self._join(place, gathered, begun.turn)
        elif _is_only_stickers(gathered):
            await self._react_to_sticker(place, gathered)
        else:
            await self._accept(place, gathered)

    async def handle_late(self, spoken: IncomingMessage, late_for: int) -> None:
        """The rest of a message has begun to come: its turn waits until all of it is there."""
        for _ in range(LATE_LOOKS):
            begun = await self._stores.telegram_chats.message(
                self._desk.bot_id, spoken.chat.chat_id, late_for
            )
            if begun is not None:
                if begun.seq is not None:
                    await self._conversation.hold_for_rest(begun.session_id, turn=begun.turn)
                return
            await asyncio.sleep(LATE_LOOK_SECONDS)  # the beginning is being stored just now

    async def handle_failed_batch(self, gathered: MessageBatch, error: Exception) -> None:
        """Our own fault: said in one line, told to operators, and not tried for ever."""
        reason = f"{type(error).__name__}: {error}"[:500]
        await self._stores.telegram_inbox.handled(self._desk.bot_id, gathered.update_ids, error=reason)
        spoken = gathered.first
        texts = get_texts(spoken.sender.language_code)
        await self._voice.send(_reply_target(spoken.chat), texts.say("not_now"))

    async def handle_update(self, incoming: IncomingUpdate) -> None:
        """Everything that is not a message. The reader ends the update when this returns, so that a crash
        carries it out again: each of these does no harm a second time."""
        match incoming:
            case CallbackQuery():
                await self._pressing.handle(incoming)
            case ReactionChange():
                await self._reacted(incoming)
            case MembershipChange():
                await self._membership(incoming)
            case ChatMigration(old_chat=old, new_chat=new):
                await self._stores.telegram_chats.migrate(self._desk.bot_id, old_chat=old, new_chat=new)
            case PinChange():
                await self._pinned(incoming)
            case DraftStopped():
                await self._stopped_draft(incoming)
            case InlineQuery():
                self._start(self._inline.handle(incoming))  # nothing waits behind it
            case IgnoredUpdate() | IncomingMessage():
                raise TypeError("the reader keeps these to itself")

    async def _command(self, place: ChatRow, gathered: MessageBatch) -> None:
        spoken = gathered.first
        name = spoken.command.name if spoken.command else ""
        if name not in RUN_ONCE_COMMANDS:
            await self._commanding.handle(place, spoken)
            await self._end(*gathered.update_ids)
            return
        if not await self._end(*gathered.update_ids):
            return  # another holder of this bot has carried it out
        if name == "compact":
            # A summary takes as long as its model does, and delays no message of its chat.
            self._start(self._carry_out_once(place, spoken, name))
        else:
            await self._carry_out_once(place, spoken, name)

    async def _carry_out_once(self, place: ChatRow, spoken: IncomingMessage, name: str) -> None:
        """Its update has ended: nobody would try again, and its person would wait in vain."""
        try:
            await self._commanding.handle(place, spoken)
        except EvertalkError as error:
            log.warning("command_failed", command=name, code=error.code, reason=str(error))
            await self._voice.send(get_chat_target(place), get_chat_texts(place).say("not_now"))

    # -- messages -------------------------------------------------------------------------------------

    async def _heed_quotes(self, place: ChatRow, gathered: MessageBatch) -> None:
        """Whoever answers a message of ours has it, though we may not know that it arrived."""
        for spoken in gathered.messages:
            quoted, message_id = spoken.quoted, spoken.reply_to_message_id
            if quoted is not None and quoted.by_bot and message_id is not None:
                await self._uncertain.handle_quote(place, message_id, quoted)

    async def _react_to_sticker(self, place: ChatRow, gathered: MessageBatch) -> None:
        """As people do: there is nothing in it to answer. In words where the chat forbids reactions."""
        last = gathered.messages[-1]
        emoji = last.media.note.rstrip("\ufe0f") if last.media is not None else ""
        mark = emoji if emoji in POSITIVE_REACTIONS else STICKER_REACTION
        wish = {
            "chat_id": place.chat_id,
            "message_id": last.message_id,
            "reaction": [{"type": "emoji", "emoji": mark}],
        }
        try:
            await self._desk.api.call("setMessageReaction", wish)
        except (CallRefused, TelegramUnavailable) as error:
            log.info("sticker_reaction_failed", reason=str(error))
            await self._voice.send(
                get_chat_target(place), explain_unreadable(get_chat_texts(place), "sticker")
            )
        await self._end(*gathered.update_ids)

    async def _find_begun(self, gathered: MessageBatch) -> MessageRow | None:
        """The stored beginning of what comes late."""
        if gathered.late_for is None or gathered.first.is_edited:
            return None
        chat_id = gathered.first.chat.chat_id
        begun = await self._stores.telegram_chats.message(self._desk.bot_id, chat_id, gathered.late_for)
        return begun if begun is not None and begun.seq is not None else None

    async def _join(self, place: ChatRow, gathered: MessageBatch, turn: int) -> None:
        """Into the turn of its beginning while that is unanswered, else into one of its own."""
        held = await self._conversation.hold_for_rest(place.session_id, turn=turn)
        try:
            await self._accept(place, gathered)
        finally:
            if held and await self._stores.edits.wake(place.session_id):
                self._answer(place)

    async def _accept(self, place: ChatRow, gathered: MessageBatch) -> None:
        texts = get_chat_texts(place)
        heard: dict[int, str] = {}
        try:
            more = await self._read_files(place, gathered, texts, heard)
        except (NotHeard, CapReached, CapHeld) as error:
            await self._put_aside(place, gathered, texts, error)
            return
        text = _with_heard(gathered, heard).text
        if not text.strip() and not more:
            await self._end(*gathered.update_ids)
            return
        first = gathered.first
        inbound = Inbound(
            session_id=place.session_id,
            address_id=place.address_id,
            text=text if text.strip() else "",
            dedupe_key=f"tg:{self._desk.bot_id}:{first.update_id}",
            more=more,
            receipt=InboxReceipt(
                bot_id=self._desk.bot_id,
                update_ids=gathered.update_ids,
                chat_id=place.chat_id,
                message_ids=gathered.message_ids,
                late_for=gathered.late_for,
            ),
        )
        try:
            await self._conversation.accept(inbound)
        except SessionMoved:
            await self._accept(await self._where_it_goes_on(place), gathered)
            return
        except BadInput as error:
            words = explain_failure(texts, code=error.code, advice=error.advice, public=self._desk.public)
            await self._voice.send(get_chat_target(place), words)
            await self._end(*gathered.update_ids)
            return
        await self._tell_heard(place, texts, heard)
        self._answer(place)

    async def _put_aside(
        self, place: ChatRow, gathered: MessageBatch, texts: Catalogue, error: EvertalkError
    ) -> None:
        """What could not be heard just now is said, and waits for `/retry`: its updates are kept."""
        words = explain_failure(texts, code=error.code, advice=error.advice, public=self._desk.public)
        await self._voice.send(get_chat_target(place), words, reply_to=gathered.first.message_id)
        waiting = [*place.settings.get("unheard", ()), *gathered.update_ids][-MOST_UNHEARD:]
        await self._stores.telegram_chats.change_settings(place.address_id, {"unheard": waiting})
        await self._end(*gathered.update_ids)

    async def _tell_heard(self, place: ChatRow, texts: Catalogue, heard: Mapping[int, str]) -> None:
        """So that whoever was misheard can correct it; a new message takes the place of what waits."""
        for message_id, words in heard.items():
            shown = texts.say("heard", words=escape_markdown(words, most=SHOWN_CHARS))
            await self._voice.send(get_chat_target(place), shown, reply_to=message_id, silent=True)
        if place.settings.get("unheard"):
            await self._stores.telegram_chats.change_settings(place.address_id, {"unheard": None})

    async def _where_it_goes_on(self, place: ChatRow) -> ChatRow:
        """Its person has joined another channel, or parted from it, since the place was looked up."""
        now = await self._stores.telegram_chats.place(place.address_id)
        if now is None or now.session_id == place.session_id:
            raise SessionMoved(f"session {place.session_id}")
        return now

    async def _read_files(
        self, place: ChatRow, gathered: MessageBatch, texts: Catalogue, heard: dict[int, str]
    ) -> tuple[Block, ...]:
        """Pictures and texts for the model, and what was `heard`, by message; what cannot be read is said in
        one line each. Raises NotHeard, CapReached, CapHeld.
        """
        blocks: list[Block] = []
        room = MOST_FILE_CHARS
        files = [(one.message_id, one.media) for one in gathered.messages if one.media and one.media.file_id]
        if len(files) > MAX_FILES:
            await self._voice.send(get_chat_target(place), texts.say("too_many_files"))
        for message_id, media in files[:MAX_FILES]:
            match await self._files.read(media, sender=f"session:{place.session_id}"):
                case Picture(bytes=body, mime=mime):
                    blocks.append(await self._picture(place, body, mime))
                case Document(name=name, text=text, truncated=truncated):
                    if truncated or len(text) > room:
                        words = texts.say("file_shortened", name=escape_markdown(name))
                        await self._voice.send(get_chat_target(place), words)
                    blocks.append(Text(text=file_words(name, text[:room])))
                    room = max(0, room - len(text))
                case Recording() as recording:
                    block = await self._listen(place, recording, message_id, texts, heard)
                    blocks += () if block is None else (block,)
                case CannotRead(reason=reason, name=name):
                    await self._voice.send(
                        get_chat_target(place), self._unreadable_text(texts, reason, name, media.kind)
                    )
        return tuple(blocks)

    async def _listen(
        self,
        place: ChatRow,
        recording: Recording,
        message_id: int,
        texts: Catalogue,
        heard: dict[int, str],
    ) -> Block | None:
        """Stored before it is heard, so that it is heard once; None where no words are in it."""
        assert self._hearing is not None
        kept = await self._stores.attachments.store(
            place.session_id, body=recording.body, mime=recording.mime, name=name_recording(recording.mime)
        )
        told = (str(place.settings.get(name) or "") for name in ("app_language", "language"))
        language = guess_language(*told)
        typing = TypingIndicator(
            self._desk.sender, get_chat_target(place), tasks=BackgroundTasks(), clock=ScaledClock()
        )
        try:
            heard[message_id] = await self._hearing.hear(place.session_id, kept, recording, language=language)
        except (RecordingTooLong, RecordingEmpty) as error:
            words = self._unreadable_text(texts, error.code, "", "voice")
            await self._voice.send(get_chat_target(place), words, reply_to=message_id)
            return None
        finally:
            await typing.stop()
        return Text(text=RECORDING_NOTE, attachment_id=kept)

    def _unreadable_text(self, texts: Catalogue, reason: str, name: str, kind: str) -> str:
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
        most = self._files.most_bytes(kind) / MIB
        return texts.say(key, name=escape_markdown(name), megabytes=f"{most:g}")

    async def _picture(self, place: ChatRow, body: bytes, mime: str) -> Image:
        attachment_id = await self._stores.attachments.store(place.session_id, body=body, mime=mime)
        return Image(attachment_id=attachment_id, mime=mime)

    async def _edited(self, place: ChatRow, gathered: MessageBatch) -> None:
        """The new words are kept; of the last turn they may be answered, if its person wants it."""
        spoken = gathered.first
        known = await self._stores.telegram_chats.message(place.bot_id, place.chat_id, spoken.message_id)
        if known is None or known.seq is None or known.session_id != place.session_id:
            await self._end(*gathered.update_ids)
            return
        text = gathered.text
        result = await self._stores.edits.edit(
            place.session_id,
            known.seq,
            text=text,
            tokens=self._counter.count_tokens(text),
            dedupe_key=f"tg:{self._desk.bot_id}:{spoken.update_id}",
        )
        await self._end(*gathered.update_ids)
        if result == "last" and not self._is_old(spoken) and text.strip():
            await self._voice.send(
                get_chat_target(place),
                get_chat_texts(place).say("edited"),
                keyboard=build_edit_buttons(place, known.turn),
                silent=True,
                reply_to=spoken.message_id,
            )

    def _is_old(self, spoken: IncomingMessage) -> bool:
        return self._now() - spoken.sent_at > timedelta(minutes=EDIT_MINUTES)

    # -- what is not a message --------------------------------------------------------------------------

    async def _reacted(self, reacted: ReactionChange) -> None:
        if not isinstance(await self._door.check(reacted.chat), Allowed):
            return
        found = await self._stores.telegram_chats.message(
            self._desk.bot_id, reacted.chat.chat_id, reacted.message_id
        )
        if found is None or found.part is None:
            return
        opinion = _rate_reaction(reacted.added)
        if opinion is None and _rate_reaction(reacted.removed) is None:
            return
        await self._stores.telegram_chats.record_opinion(
            found.session_id, found.turn, opinion, source=f"telegram:{reacted.user_id or 0}"
        )

    async def _membership(self, membership: MembershipChange) -> None:
        chat_id = membership.chat.chat_id
        reachable = membership.change not in ("blocked", "removed")
        await self._stores.telegram_chats.set_reachable(self._desk.bot_id, chat_id, reachable=reachable)
        if membership.change == "added":
            await self._turned_away(await self._door.handle_added(membership), membership.chat, membership.by)

    async def _pinned(self, changed: PinChange) -> None:
        if not isinstance(await self._door.check(changed.chat), Allowed):
            return
        place = await self._place_of(changed.chat, changed.sender)
        await self._commanding.pin(place, changed.message_id)

    async def _stopped_draft(self, stopped: DraftStopped) -> None:
        for place in await self._stores.telegram_chats.places_of_chat(
            self._desk.bot_id, stopped.chat.chat_id
        ):
            if place.thread_id == stopped.chat.thread_id:
                await self._conversation.stop(place.session_id)

    # -- who and where ----------------------------------------------------------------------------------

    async def _turned_away(self, decision: AccessDecision, where: ChatRef, sender: MessageAuthor) -> None:
        match decision:
            case StrangerReply(key=key, args=args):
                if where.kind != "channel":  # its readers have nothing to do with that
                    words = self._told(get_texts(sender.language_code), key, args)
                    await self._voice.send(_reply_target(where), words)
                if key == "access_owner":
                    log.info("owner_claimed", bot=self._desk.bot_id)
                if decision.is_new:
                    self._start(self._requests.ask_owners(decision, where, sender))
            case NoReply(reason=reason):
                log.debug("message_ignored", reason=reason)
            case Allowed():
                return

    def _told(self, texts: Catalogue, key: str, args: object) -> str:
        given = dict(args) if isinstance(args, dict) else {}
        match key:
            case "access_code" | "access_group_code":
                return texts.say("pairing_code", code=str(given.get("code", "")))
            case "access_too_many_waiting":
                return texts.say("pairing_full")
            case "access_owner":
                return texts.say("owner_now")
            case "access_group_welcome":
                return say_hello_to_group(
                    texts, username=self._desk.identity.username, hears_all=self._desk.identity.hears_all
                )
            case _:
                return texts.say("refused")

    async def _place_of(self, where: ChatRef, sender: MessageAuthor) -> ChatRow:
        place = await self._stores.telegram_chats.open(
            self._desk.bot_id,
            chat_id=where.chat_id,
            thread_id=where.thread_id,
            kind="person" if where.is_private else "group",
            title=where.title[:128],
        )
        if place.unreachable:
            await self._stores.telegram_chats.set_reachable(self._desk.bot_id, where.chat_id, reachable=True)
        language = sender.language_code[:10]
        if where.is_private and language and place.settings.get("app_language") != language:
            await self._stores.telegram_chats.change_settings(place.address_id, {"app_language": language})
            place = await self._stores.telegram_chats.place(place.address_id) or place
        return place

    async def _end(self, *update_ids: int) -> bool:
        """Whether they had not ended before."""
        return await self._stores.telegram_inbox.handled(self._desk.bot_id, update_ids) > 0


def _keep_addressed(gathered: MessageBatch) -> MessageBatch:
    """In a group, the words of people who did not turn to the bot are none of its business."""
    if gathered.addressed_message.chat.is_private:
        return gathered
    asked = {one.sender.user_id for one in gathered.messages if one.is_addressed}
    kept = tuple(one for one in gathered.messages if one.sender.user_id in asked)
    left = tuple(one.update_id for one in gathered.messages if one.sender.user_id not in asked)
    return replace(gathered, messages=kept, superseded=(*gathered.superseded, *left)) if left else gathered


def _with_heard(gathered: MessageBatch, heard: Mapping[int, str]) -> MessageBatch:
    """What was said aloud is what its message says, whoever quotes or forwards it."""
    messages = (
        replace(one, text="\n\n".join(filter(None, (one.text, heard_text(heard[one.message_id])))))
        if one.message_id in heard
        else one
        for one in gathered.messages
    )
    return replace(gathered, messages=tuple(messages)) if heard else gathered


def _is_only_stickers(gathered: MessageBatch) -> bool:
    return all(
        one.media is not None and one.media.kind == "sticker" and not one.text.strip()
        for one in gathered.messages
    )


def _reply_target(where: ChatRef) -> Spot:
    return Spot(chat_id=where.chat_id, thread_id=where.thread_id)


def _rate_reaction(emojis: tuple[str, ...]) -> str | None:
    plain = {emoji.rstrip("\ufe0f") for emoji in emojis}
    if plain & POSITIVE_REACTIONS:
        return "good"
    return "bad" if plain & NEGATIVE_REACTIONS else None
