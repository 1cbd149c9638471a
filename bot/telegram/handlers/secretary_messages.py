"""Handles updates of business accounts: connections, messages, edits and deletions."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from aiogram import Router
from aiogram.methods import GetBusinessConnection
from aiogram.types import BusinessConnection, BusinessMessagesDeleted, Message, Update

from bot.telegram.client.calls import CallDone, is_undecided
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS, ChatTarget
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import Allowed, ChatAccessPolicy
from bot.telegram.inbound.media_files import CannotRead, FileReader
from bot.telegram.inbound.secretary_rules import SecretaryRules
from bot.telegram.inbound.update_parser import parse_business_message
from bot.telegram.inbound.updates import ChatRef, IncomingMessage, Media, build_prompt, sanitize_name
from bot.telegram.outbound.notifier import Notifier
from bot.telegram.outbound.secretary_delivery import SecretaryDelivery
from bot.telegram.texts import escape_markdown
from shared.adapters.postgres.telegram.receipts import CustomerReceipt
from shared.adapters.postgres.telegram.secretary import BusinessLink, CustomerChat
from shared.core.context.untrusted_text import file_text, unread_file_text
from shared.core.session.turns import Inbound
from shared.core.values.errors import BadInput, CapHeld, CapReached, StorageUnavailable
from shared.core.values.files import MOST_FILE_CHARS, Document, Picture
from shared.core.values.messages import Block, Image, Text, with_typed_text
from shared.core.values.recordings import Recording, name_recording, transcript_text
from shared.services.privacy.erasure import ErasureService
from shared.services.turns.session_service import SessionService
from shared.services.voice.hearing import HearingService, NotHeard, RecordingEmpty, RecordingTooLong

log = structlog.get_logger(__name__)

MIB = 1024 * 1024
"""Bytes of a mebibyte."""
MOST_DELETED = 100
"""Maximum messages erased for one update; Telegram deletes at most 100 at once."""
SECRETARY_RULES = (
    "(You write for {owner}, to whom {customer} sent this message. {customer} reads your answer as a message "
    "of {owner}: answer in one message of at most 2,000 characters, without files. Agree to nothing that "
    "{owner} has not said in this chat.)"
)
"""Instruction that the model gets with each message of a customer."""


class SecretaryMessages:
    """Stores the messages in chats of business accounts as turns; `SecretaryDelivery` delivers the drafts."""

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        notifier: Notifier,
        files: FileReader,
        hearing: HearingService | None,
        sessions: SessionService,
        erasure: ErasureService,
        delivery: SecretaryDelivery,
        rules: SecretaryRules,
        answer: Callable[[CustomerChat], None],
    ) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._access_policy = access_policy
        self._notifier = notifier
        self._files = files
        self._hearing = hearing
        self._sessions = sessions
        self._erasure = erasure
        self._delivery = delivery
        self._rules = rules
        self._answer = answer
        self._store = context.stores.secretary

    def build_router(self) -> Router:
        """Build the router for updates of business accounts."""
        router = Router(name="secretary_messages")
        router.business_connection.register(self._handle_connection)
        router.business_message.register(self._handle_message)
        router.edited_business_message.register(self._handle_edit)
        router.deleted_business_messages.register(self._handle_deletion)
        return router

    # -- connections ----------------------------------------------------------------------------------

    async def _handle_connection(self, connection: BusinessConnection) -> None:
        """Store the state of a business connection, and tell its owner what has changed."""
        link = self._build_link(connection)
        before = await self._store.find_link(self._bot_id, link.connection_id)
        if not await self._store.record_link(link):
            return
        if not link.is_enabled:
            await self._store.end_overdue([self._bot_id])
        self._delivery.wake()
        log.info("business_connection_changed", bot=self._bot_id, enabled=link.is_enabled)
        is_known = before is not None and (before.is_enabled, before.can_reply) == (
            link.is_enabled, link.can_reply,
        )  # fmt: skip
        if not is_known:
            await self._tell(link, await self._find_connection_text(link))

    async def _find_connection_text(self, link: BusinessLink) -> str:
        if not link.is_enabled:
            return "secretary_ended"
        if not await self._is_allowed(link):
            return "refused"
        if not link.can_reply:
            return "secretary_no_right"
        return "secretary_connected_auto" if self._rules.mode == "auto" else "secretary_connected"

    async def _find_link(self, connection_id: str) -> BusinessLink | None:
        """Return the connection with this id, from the database or from Telegram.

        None if Telegram does not know it. Raises StorageUnavailable if Telegram does not answer, so that the
        update is tried again.
        """
        link = await self._store.find_link(self._bot_id, connection_id)
        if link is None:
            outcome = await self._context.sender.call(
                GetBusinessConnection(business_connection_id=connection_id),
                chat_id=None, patience=EDIT_PATIENCE_SECONDS, repeatable=True,
            )  # fmt: skip
            if is_undecided(outcome):
                raise StorageUnavailable(
                    "Telegram did not name the connection"
                )  # the update is handled again
            if isinstance(outcome, CallDone) and isinstance(outcome.result, BusinessConnection):
                link = self._build_link(outcome.result)
                await self._store.record_link(link)
        return link

    def _build_link(self, connection: BusinessConnection) -> BusinessLink:
        rights = connection.rights
        can_reply = rights.can_reply if rights is not None else connection.can_reply
        return BusinessLink(
            bot_id=self._bot_id,
            connection_id=connection.id,
            owner_id=connection.user.id,
            owner_chat_id=connection.user_chat_id,
            owner_name=connection.user.full_name,
            language=connection.user.language_code or "",
            can_reply=bool(can_reply),
            is_enabled=connection.is_enabled,
            established_at=connection.date,
        )

    async def _is_allowed(self, link: BusinessLink) -> bool:
        return isinstance(await self._access_policy.check(ChatRef(chat_id=link.owner_id)), Allowed)

    async def _tell(self, link: BusinessLink, key: str, **values: str) -> None:
        """Send the owner of a connection the text with the given key."""
        texts = await self._delivery.load_texts(self._bot_id, link.owner_chat_id, link.language)
        await self._notifier.send(ChatTarget(chat_id=link.owner_chat_id), texts.say(key, **values))

    # -- messages -------------------------------------------------------------------------------------

    async def _handle_message(self, message: Message, event_update: Update) -> None:
        found = await self._open(message)
        if found is None:
            return
        link, chat = found
        parsed = parse_business_message(event_update, self._context.identity)
        if not isinstance(parsed, IncomingMessage):
            log.debug("business_message_ignored", reason=parsed.reason)
        elif parsed.sender.user_id == link.owner_id:
            await self._store_owners_words(link, chat, parsed)
        else:
            await self._accept(link, chat, parsed)

    async def _open(self, message: Message) -> tuple[BusinessLink, CustomerChat] | None:
        """Return the connection and conversation of a message; None if the bot must not read the message."""
        link = await self._find_link(message.business_connection_id or "")
        customer = message.chat
        if link is None or not link.is_enabled or customer.type != "private":
            return None
        if customer.id == link.owner_id or not self._rules.serves(customer.id):
            return None
        if message.sender_business_bot is not None and message.sender_business_bot.id == self._bot_id:
            return None  # a message that this bot sent for the owner
        if not await self._is_allowed(link):
            return None
        chat = await self._store.open_chat(
            self._bot_id, owner_id=link.owner_id, chat_id=customer.id, name=customer.full_name
        )
        return link, chat

    async def _store_owners_words(
        self, link: BusinessLink, chat: CustomerChat, message: IncomingMessage
    ) -> None:
        """Store a message that the owner wrote, stop the running turn, and mark open drafts as outdated.

        After a message that is stored already, the turn continues.
        """
        if (running := await self._store.find_running_turn(chat.session_id)) is not None:
            await self._sessions.break_off(chat.session_id, turn=running)
        media = message.media
        text = build_prompt((message,)).strip() or f"({media.kind.replace('_', ' ') if media else 'message'})"
        await self._store.record_owners_words(
            chat, message_id=message.message_id, text=text, name=link.owner_name, at=message.sent_at
        )
        # A message that was stored before ends no turn, so the interrupted one must continue.
        if running is not None and await self._context.stores.edits.wake(chat.session_id):
            self._answer(chat)
        await self._delivery.settle(chat.session_id)

    async def _accept(self, link: BusinessLink, chat: CustomerChat, message: IncomingMessage) -> None:
        """Store a customer's message and start the turn that writes a draft; commands are treated as text."""
        rules = SECRETARY_RULES.format(
            owner=sanitize_name(link.owner_name), customer=sanitize_name(message.sender.name)
        )
        text = build_prompt((message,))
        files = await self._read_file(link, chat, message) if message.media else ()
        if not text.strip() and not files:
            return
        inbound = Inbound(
            session_id=chat.session_id,
            address_id=chat.address_id,
            text=text if text.strip() else "",
            dedupe_key=f"tgb:{self._bot_id}:{message.message_id}",
            more=(*files, Text(text=rules)),
            receipt=CustomerReceipt(
                bot_id=self._bot_id, owner_id=chat.owner_id, chat_id=chat.chat_id,
                message_id=message.message_id, sent_at=message.sent_at,
            ),
        )  # fmt: skip
        try:
            await self._sessions.accept(inbound)
        except BadInput as refusal:
            log.warning("business_message_refused", bot=self._bot_id, code=refusal.code)
            await self._tell(link, "draft_unread", name=escape_markdown(message.sender.name))
            return
        await self._delivery.settle(chat.session_id)
        self._answer(chat)

    async def _read_file(
        self, link: BusinessLink, chat: CustomerChat, message: IncomingMessage
    ) -> tuple[Block, ...]:
        """Return a message's file as blocks for the model; tell the owner if it cannot be read."""
        media = message.media
        assert media is not None
        if not media.file_id:
            return ()
        read, reason = await self._files.read(media, sender=f"session:{chat.session_id}"), "not_heard"
        match read:
            case Picture(bytes=body, mime=mime):
                return (await self._store_picture(chat, body, mime),)
            case Document(name=name, text=text, pages=pages):
                pictures = [await self._store_picture(chat, page.bytes, page.mime) for page in pages]
                return (Text(text=file_text(name, text[:MOST_FILE_CHARS])), *pictures)
            case Recording() as recording:
                heard = await self._transcribe_recording(chat, recording)
                if heard is not None:
                    return (Text(text=file_text(media.name or media.kind, heard)),)
            case CannotRead(reason=unreadable):
                reason = unreadable
        await self._tell(link, "draft_unread", name=escape_markdown(message.sender.name))
        return (self._build_unread(media, reason),)

    async def _transcribe_recording(self, chat: CustomerChat, recording: Recording) -> str | None:
        """Return the transcript of a recording; None if the recording could not be transcribed."""
        assert self._hearing is not None, "only then recordings are read"
        kept = await self._context.stores.attachments.store(
            chat.session_id, body=recording.body, mime=recording.mime, name=name_recording(recording.mime)
        )
        try:
            return transcript_text(await self._hearing.hear(chat.session_id, kept, recording, language=""))
        except (RecordingTooLong, RecordingEmpty, NotHeard, CapReached, CapHeld) as error:
            log.info("business_recording_unread", bot=self._bot_id, code=error.code)
            return None

    async def _store_picture(self, chat: CustomerChat, body: bytes, mime: str) -> Image:
        attachment_id = await self._context.stores.attachments.store(chat.session_id, body=body, mime=mime)
        return Image(attachment_id=attachment_id, mime=mime)

    def _build_unread(self, media: Media, reason: str) -> Text:
        most = self._files.get_max_bytes(media.kind) / MIB
        kind = media.kind.replace("_", " ")
        return Text(text=unread_file_text(media.name, kind, reason, megabytes=most))

    # -- edits and deletions --------------------------------------------------------------------------

    async def _handle_edit(self, message: Message, event_update: Update) -> None:
        """Store the edited text of a customer's message, and request a new answer if it belongs to the last
        turn.

        An edited message that is not stored is handled as new; an edit by the owner is ignored.
        """
        found = await self._open(message)
        parsed = parse_business_message(event_update, self._context.identity)
        if found is None or not isinstance(parsed, IncomingMessage):
            return
        _, chat = found
        known = await self._store.find_message(
            self._bot_id, owner_id=chat.owner_id, chat_id=chat.chat_id, message_id=parsed.message_id
        )
        if known is None:
            await self._handle_message(message, event_update)
            return
        if known.seq is None or not known.is_customers:
            return  # messages that the owner sent are not changed
        key = f"tgb:{self._bot_id}:{parsed.message_id}:{event_update.update_id}"
        await self._sessions.break_off(known.session_id, turn=known.turn)
        edited = await self._sessions.reword(
            known.session_id, known.seq,
            reword=lambda blocks: with_typed_text(blocks, build_prompt((parsed,))) or blocks,
            dedupe_key=key,
        )  # fmt: skip
        await self._context.stores.edits.wake(known.session_id)
        if edited.result == "last":
            await self._context.stores.edits.request_retry(
                known.session_id, channel="telegram", address_id=chat.address_id,
                dedupe_key=f"{key}:answer", turn=edited.turn,
            )  # fmt: skip
        await self._delivery.settle(known.session_id)
        self._answer(chat)

    async def _handle_deletion(self, deleted: BusinessMessagesDeleted) -> None:
        """Erase deleted messages and everything derived from them, and mark their drafts as outdated."""
        link = await self._find_link(deleted.business_connection_id)
        if link is None:
            return
        for message_id in deleted.message_ids[:MOST_DELETED]:
            known = await self._store.find_message(
                self._bot_id, owner_id=link.owner_id, chat_id=deleted.chat.id, message_id=message_id
            )
            if known is None or known.seq is None:
                continue
            await self._store.outdate(known.session_id, known.turn)
            await self._erasure.erase_messages(known.session_id, [known.seq], f"telegram:{link.owner_id}")
        self._delivery.wake()
