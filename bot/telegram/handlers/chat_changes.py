"""Handles updates about a chat itself: membership of the bot, migrations, pins, reactions, stopped drafts."""

from __future__ import annotations

from aiogram import F, Router
from aiogram.filters import IS_MEMBER, JOIN_TRANSITION, LEAVE_TRANSITION, ChatMemberUpdatedFilter
from aiogram.types import (
    ChatMemberUpdated,
    Message,
    MessageGenerationStopped,
    MessageReactionUpdated,
    ReactionTypeEmoji,
    ReactionTypeUnion,
)

from bot.telegram.handlers.chat_admission import ChatAdmission
from bot.telegram.handlers.command_handlers import CommandHandlers
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import Allowed
from bot.telegram.inbound.update_parser import build_author, build_chat_ref, parse_author, parse_chat_ref
from shared.services.turns.session_service import SessionService

POSITIVE_REACTIONS = frozenset("👍❤🔥👏🎉🤩💯🙏🥰😍😁👌🏆⚡🤗🫡😎")
"""Reactions to an answer that are stored as a good rating."""
NEGATIVE_REACTIONS = frozenset("👎💩🤮😢🤬😱🤯🖕😡")
"""Reactions to an answer that are stored as a bad rating."""


class ChatChanges:
    """Router of one bot for updates about a chat itself, such as its membership, pins and reactions."""

    def __init__(
        self,
        context: BotContext,
        *,
        admission: ChatAdmission,
        command_handlers: CommandHandlers,
        sessions: SessionService,
    ) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._chats = context.stores.telegram_chats
        self._admission = admission
        self._command_handlers = command_handlers
        self._sessions = sessions

    def build_router(self) -> Router:
        """Build the router for membership, migrations, pins, reactions and stopped drafts."""
        router = Router(name="chat_changes")
        router.my_chat_member.register(self._join, ChatMemberUpdatedFilter(JOIN_TRANSITION))
        router.my_chat_member.register(self._leave, ChatMemberUpdatedFilter(LEAVE_TRANSITION))
        router.my_chat_member.register(self._mark_reachable, ChatMemberUpdatedFilter(IS_MEMBER >> IS_MEMBER))
        router.message.register(self._migrate_to, F.migrate_to_chat_id)
        router.message.register(self._migrate_from, F.migrate_from_chat_id)
        for observer in (router.message, router.channel_post):
            observer.register(self._pin, F.pinned_message)
        router.message_reaction.register(self._rate)
        router.stopped_message_generation.register(self._stop_answer)
        return router

    async def _join(self, change: ChatMemberUpdated) -> None:
        """Mark a chat as reachable after the bot was added or unblocked.

        In a group or channel, also decide whether it has access, and reply.
        """
        await self._mark_reachable(change)
        if change.chat.type != "private":
            chat_ref, by = build_chat_ref(change.chat), build_author(change.from_user)
            decision = await self._admission.policy.handle_added(chat_ref, by)
            await self._admission.reply_to_stranger(decision, chat_ref, by)

    async def _leave(self, change: ChatMemberUpdated) -> None:
        """Mark a chat as unreachable after the bot was removed or blocked."""
        await self._chats.set_reachable(self._bot_id, change.chat.id, reachable=False)

    async def _mark_reachable(self, change: ChatMemberUpdated) -> None:
        """Mark a chat as reachable after the bot's rights changed, since calls refused before may now
        succeed.
        """
        await self._chats.set_reachable(self._bot_id, change.chat.id, reachable=True)
        self._context.sender.mark_reachable(change.chat.id)

    async def _migrate_to(self, message: Message) -> None:
        """Store the new id of a group that became a supergroup.

        Telegram reports the change in the old and in the new chat; both handlers store the same.
        """
        assert message.migrate_to_chat_id is not None
        await self._chats.migrate(self._bot_id, old_chat=message.chat.id, new_chat=message.migrate_to_chat_id)

    async def _migrate_from(self, message: Message) -> None:
        assert message.migrate_from_chat_id is not None
        await self._chats.migrate(
            self._bot_id, old_chat=message.migrate_from_chat_id, new_chat=message.chat.id
        )

    async def _pin(self, message: Message) -> None:
        """Pin the message in the conversation too, if the chat has access."""
        chat_ref, sender = parse_chat_ref(message), parse_author(message)
        assert message.pinned_message is not None
        if sender is None or not isinstance(await self._admission.policy.check(chat_ref), Allowed):
            return
        chat = await self._admission.open_chat(chat_ref, sender)
        await self._command_handlers.pin(chat, message.pinned_message.message_id)

    async def _rate(self, reaction: MessageReactionUpdated) -> None:
        """Store a reaction to an answer as a good or bad rating.

        Clear the rating if the reaction was removed. Reactions to other messages, and emoji without an
        opinion, are ignored.
        """
        chat_ref = build_chat_ref(reaction.chat)
        if not isinstance(await self._admission.policy.check(chat_ref), Allowed):
            return
        found = await self._chats.find_message(self._bot_id, reaction.chat.id, reaction.message_id)
        if found is None or found.part is None:
            return
        before, after = _list_emoji(reaction.old_reaction), _list_emoji(reaction.new_reaction)
        opinion = _rate_emoji(after - before)
        if opinion is None and _rate_emoji(before - after) is None:
            return
        source = f"telegram:{reaction.user.id if reaction.user is not None else 0}"
        await self._chats.record_opinion(found.session_id, found.turn, opinion, source=source)

    async def _stop_answer(self, stopped: MessageGenerationStopped) -> None:
        """Stop the answers of the topic in which a person stopped the native draft."""
        chat_ref = build_chat_ref(stopped.chat, thread_id=stopped.message_thread_id or 0)
        for chat in await self._chats.list_threads(self._bot_id, chat_ref.chat_id):
            if chat.thread_id == chat_ref.thread_id:
                await self._sessions.stop(chat.session_id)


def _list_emoji(reactions: list[ReactionTypeUnion]) -> frozenset[str]:
    return frozenset(one.emoji.rstrip("\ufe0f") for one in reactions if isinstance(one, ReactionTypeEmoji))


def _rate_emoji(emojis: frozenset[str]) -> str | None:
    """Return `good` or `bad` if an emoji has that meaning, else None; `good` wins."""
    if emojis & POSITIVE_REACTIONS:
        return "good"
    return "bad" if emojis & NEGATIVE_REACTIONS else None
