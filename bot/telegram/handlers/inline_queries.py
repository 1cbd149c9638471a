"""Handles inline queries: each becomes a turn in the person's private chat, and its answer is offered as
result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from aiogram import Router
from aiogram.types import InlineQuery, Update

from bot.telegram.client.calls import CallDone
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import Allowed, ChatAccessPolicy
from bot.telegram.inbound.updates import ChatRef
from bot.telegram.markup.entity_text import build_messages
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import escape_markdown, get_chat_texts, get_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.deliveries import EndedTurn
from shared.core.session.turns import Inbound
from shared.core.values.errors import EvertalkError
from shared.core.values.messages import Text
from shared.services.turns.session_service import SessionService

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
"""Seconds without a further query before one is answered: Telegram sends a query with every few letters."""
LEAST_CHARS = 3
"""Minimum characters of a query that is answered."""
ANSWER_SECONDS = 9.0
"""Seconds from query to result; Telegram waits only a little longer."""
LOOK_SECONDS = 0.1
"""Seconds between two checks whether the turn has ended."""
SHORT = "(Asked from another chat, to be shown there: answer in three sentences at most.)"
"""Instruction that the model gets with an inline query; stored with the question, but not part of its text.
"""
_TITLE_CHARS = 60


class InlineQueryHandler:
    """Router of one bot for inline queries; question and answer also appear in the person's private chat."""

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        notifier: Notifier,
        sessions: SessionService,
        answer: Callable[[ChatRow], None],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._start = start
        self._context = context
        self._access_policy = access_policy
        self._notifier = notifier
        self._sessions = sessions
        self._answer = answer
        self._newest: dict[int, str] = {}
        """Id of each person's newest query, by user id, while they type."""

    def build_router(self) -> Router:
        """Build the router for inline queries."""
        router = Router(name="inline_queries")
        router.inline_query.register(self._start_query)
        return router

    async def _start_query(self, query: InlineQuery, event_update: Update) -> None:
        """Answer a query in the background, so that no other update waits for it."""
        self._start(self._run(query, event_update.update_id))

    async def _run(self, query: InlineQuery, update_id: int) -> None:
        """Answer a query if no newer one follows within `PAUSE_SECONDS`; errors are logged only."""
        person = query.from_user.id
        self._newest[person] = query.id
        try:
            await asyncio.sleep(PAUSE_SECONDS)
            if self._newest.get(person) == query.id:
                await self._handle(query, update_id)
        except (EvertalkError, TimeoutError) as error:
            log.warning("inline_query_failed", reason=str(error) or type(error).__name__)
        finally:
            if self._newest.get(person) == query.id:
                del self._newest[person]

    async def _handle(self, query: InlineQuery, update_id: int) -> None:
        """Store the query as a turn, and send its answer, or a button if there is no answer in time."""
        chat = await self._find_private_chat(query)
        if chat is None:
            await self._send_results(
                query, [], button=get_texts(query.from_user.language_code or "").say("inline_start")
            )
            return
        text = " ".join(query.query.split())
        if len(text) < LEAST_CHARS:
            await self._send_results(query, [])
            return
        texts = get_chat_texts(chat)
        asked = f"🔎 {escape_markdown(text, most=256)}"
        await self._notifier.send(get_chat_target(chat), asked, silent=True)
        accepted = await self._sessions.accept(
            Inbound(
                session_id=chat.session_id,
                address_id=chat.address_id,
                text=text,
                dedupe_key=f"tg:{self._context.identity.bot_id}:{update_id}",
                more=(Text(text=SHORT),),
            )
        )
        self._answer(chat)
        ended = await self._wait_for_answer(chat.session_id, accepted.turn)
        if ended is None or ended.state != "answered":
            await self._send_results(query, [], button=texts.say("inline_later"))
        else:
            await self._send_results(query, [_build_article(ended, query.id)])

    async def _find_private_chat(self, query: InlineQuery) -> ChatRow | None:
        """Return the private chat of the person; None without access or if they have no chat with the bot."""
        chat_ref = ChatRef(chat_id=query.from_user.id)
        if not isinstance(await self._access_policy.check(chat_ref), Allowed):
            return None
        chats = await self._context.stores.telegram_chats.list_threads(
            self._context.identity.bot_id, chat_ref.chat_id
        )
        return next((one for one in chats if not one.thread_id and not one.unreachable), None)

    async def _wait_for_answer(self, session_id: int, turn: int) -> EndedTurn | None:
        """Return the ended turn; None if it is not ended after `ANSWER_SECONDS - PAUSE_SECONDS`."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS - PAUSE_SECONDS):
                while True:
                    ended = await self._context.stores.deliveries.load_ended_turn(session_id, turn)
                    if ended is not None:
                        return ended
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return None

    async def _send_results(
        self, query: InlineQuery, results: list[dict[str, Any]], *, button: str = ""
    ) -> None:
        outcome = await self._context.sender.answer_inline(query.id, results, button=button)
        if not isinstance(outcome, CallDone):
            log.info("inline_answer_failed", outcome=str(outcome))


def _build_article(ended: EndedTurn, query_id: str) -> dict[str, Any]:
    part = build_messages(ended.text).parts[0]
    first, _, rest = part.text.partition("\n")
    content: dict[str, Any] = {"message_text": part.text}
    if part.entities:
        content["entities"] = [entity.to_api() for entity in part.entities]
    return {
        "type": "article",
        "id": query_id[:64],
        "title": first[:_TITLE_CHARS],
        "description": (first[_TITLE_CHARS:] + rest)[:120],
        "input_message_content": content,
    }
