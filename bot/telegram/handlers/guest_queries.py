"""Handles guest queries: questions from chats in which the bot is no member, each answered by one turn."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from aiogram import Router
from aiogram.types import Message, Update

from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import Allowed, ChatAccessPolicy, NoReply
from bot.telegram.inbound.update_parser import parse_guest_message
from bot.telegram.inbound.updates import ChatRef, IncomingMessage, build_prompt
from bot.telegram.outbound.guest_delivery import LIMIT_NOTICE, REFUSED_NOTICE
from shared.adapters.postgres.telegram.guest_queries import GuestChat, NewGuestQuery
from shared.config.fields.kinds import TelegramGuests
from shared.core.session.turns import Inbound
from shared.core.values.errors import BadInput
from shared.services.turns.session_service import SessionService

log = structlog.get_logger(__name__)

EXPIRED_SECONDS = 60.0
"""Age in seconds from which a question gets no answer, because Telegram no longer waits for it."""


class GuestQueryHandler:
    """Stores the questions of one bot's guests as turns; `GuestDelivery` sends the answers."""

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        sessions: SessionService,
        answer: Callable[[GuestChat], None],
        on_stored: Callable[[], None],
        seconds_since: Callable[[IncomingMessage], float],
        guests: TelegramGuests,
        most_per_hour: int,
    ) -> None:
        """Create the handler.

        `answer` starts the turns of a chat. `seconds_since` returns the age of a message. `most_per_hour`
        limits the questions of one caller.
        """
        self._context = context
        self._access_policy = access_policy
        self._sessions = sessions
        self._answer = answer
        self._on_stored = on_stored
        self._seconds_since = seconds_since
        self._guests = guests
        self._most_per_hour = most_per_hour
        self._store = context.stores.guest_queries

    def build_router(self) -> Router:
        """Build the router for guest queries."""
        router = Router(name="guest_queries")
        router.guest_message.register(self._handle_question)
        return router

    async def _handle_question(self, asked: Message, event_update: Update) -> None:
        message = parse_guest_message(event_update, self._context.identity)
        if not isinstance(message, IncomingMessage) or not asked.guest_query_id:
            log.debug("guest_query_ignored", reason=getattr(message, "reason", "no id"))
            return
        age = max(0.0, self._seconds_since(message))
        if age > EXPIRED_SECONDS:
            log.info("guest_query_expired", bot=self._context.identity.bot_id, seconds=round(age))
            return
        query = NewGuestQuery(
            bot_id=self._context.identity.bot_id,
            update_id=event_update.update_id,
            query_id=asked.guest_query_id,
            caller_id=message.sender.user_id,
            chat_id=message.chat.chat_id,
            language=message.sender.language_code[:10],
            age_seconds=age,
        )
        notice = await self._find_refusal(query)
        if notice == "":
            notice = await self._ask(query, message)
        if notice:
            await self._store.record_notice(query, notice)
        self._on_stored()

    async def _find_refusal(self, query: NewGuestQuery) -> str | None:
        """Return the key of the notice for a caller without access.

        Empty with access, None for no reply at all.
        """
        decision = await self._access_policy.check(ChatRef(chat_id=query.caller_id))
        if isinstance(decision, NoReply):
            return None
        return "" if isinstance(decision, Allowed) or self._guests == "anyone" else REFUSED_NOTICE

    async def _ask(self, query: NewGuestQuery, message: IncomingMessage) -> str:
        """Store the question and start its turn.

        Return the key of a notice if the hourly limit is reached, else empty.
        """
        if not await self._store.record(query, most_per_hour=self._most_per_hour):
            return LIMIT_NOTICE
        chat = await self._store.open_chat(
            query.bot_id,
            chat_id=query.chat_id,
            thread_id=message.chat.thread_id,
            caller_id=query.caller_id,
            name=message.sender.name[:128],
        )
        inbound = Inbound(
            session_id=chat.session_id,
            address_id=chat.address_id,
            text=build_prompt((message,)),
            dedupe_key=f"tg:{query.bot_id}:{query.update_id}",
        )
        try:
            accepted = await self._sessions.accept(inbound)
        except BadInput as refusal:
            await self._store.refuse(query.bot_id, query.update_id, notice=f"notice_{refusal.code}")
            return ""
        await self._store.bind_turn(
            query.bot_id, query.update_id, session_id=chat.session_id, turn=accepted.turn
        )
        self._answer(chat)
        return ""
