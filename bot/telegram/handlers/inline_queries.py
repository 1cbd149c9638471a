"""Questions that people ask from other chats: turns of their own conversation, offered there as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from bot.telegram.client.bot_api import CallRefused, InvalidBotToken, TelegramUnavailable
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.inbound.chat_access import Allowed, ChatAccessPolicy
from bot.telegram.inbound.updates import ChatRef, InlineQuery
from bot.telegram.markup import build_messages
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import escape_markdown, get_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.turns.deliveries import EndedTurn
from shared.core.session.events import Accepted, Inbound
from shared.core.values.errors import EvertalkError
from shared.core.values.messages import Text

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
"""A query comes with every few letters: only where somebody stops to type, something is asked."""
LEAST_CHARS = 3
ANSWER_SECONDS = 9.0
"""Telegram waits little longer."""
LOOK_SECONDS = 0.1
SHORT = "(Asked from another chat, to be shown there: answer in three sentences at most.)"
_TITLE_CHARS = 60


class InlineSessions(Protocol):
    async def accept(self, inbound: Inbound) -> Accepted: ...


class InlineQueryHandler:
    """For one bot. Question and answer stand in the person's own chat as well."""

    def __init__(
        self,
        desk: BotContext,
        *,
        door: ChatAccessPolicy,
        voice: Notifier,
        conversation: InlineSessions,
        answer: Callable[[ChatRow], None],
    ) -> None:
        self._desk = desk
        self._door = door
        self._voice = voice
        self._conversation = conversation
        self._answer = answer
        self._newest: dict[int, str] = {}
        """By person, while they type."""

    async def handle(self, query: InlineQuery) -> None:
        """Never raises: whoever types on asks anew."""
        person = query.sender.user_id
        self._newest[person] = query.query_id
        try:
            await asyncio.sleep(PAUSE_SECONDS)
            if self._newest.get(person) == query.query_id:
                await self._handle(query)
        except InvalidBotToken:
            log.warning("inline_query_failed", reason="token")
        except (EvertalkError, TimeoutError) as error:
            log.warning("inline_query_failed", reason=str(error) or type(error).__name__)
        finally:
            if self._newest.get(person) == query.query_id:
                del self._newest[person]

    async def _handle(self, query: InlineQuery) -> None:
        place = await self._place_of(query)
        if place is None:
            await self._offer(query, [], button=get_texts(query.sender.language_code).say("inline_start"))
            return
        words = " ".join(query.text.split())
        if len(words) < LEAST_CHARS:
            await self._offer(query, [])
            return
        texts = get_chat_texts(place)
        asked = f"🔎 {escape_markdown(words, most=256)}"
        await self._voice.send(get_chat_target(place), asked, silent=True)
        accepted = await self._conversation.accept(
            Inbound(
                session_id=place.session_id,
                address_id=place.address_id,
                text=words,
                dedupe_key=f"tg:{self._desk.bot_id}:{query.update_id}",
                more=(Text(text=SHORT),),
            )
        )
        self._answer(place)
        ended = await self._wait(place.session_id, accepted.turn)
        if ended is None or ended.state != "answered":
            await self._offer(query, [], button=texts.say("inline_later"))
        else:
            await self._offer(query, [_article(ended, query.query_id)])

    async def _place_of(self, query: InlineQuery) -> ChatRow | None:
        """The private chat of somebody who may write; it must have begun, so that answers can go there."""
        where = ChatRef(chat_id=query.sender.user_id)
        if not isinstance(await self._door.check(where), Allowed):
            return None
        places = await self._desk.stores.telegram_chats.places_of_chat(self._desk.bot_id, where.chat_id)
        return next((one for one in places if not one.thread_id and not one.unreachable), None)

    async def _wait(self, session_id: int, turn: int) -> EndedTurn | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS - PAUSE_SECONDS):
                while True:
                    ended = await self._desk.stores.deliveries.ended_turn(session_id, turn)
                    if ended is not None:
                        return ended
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return None

    async def _offer(self, query: InlineQuery, results: list[dict[str, Any]], *, button: str = "") -> None:
        wish: dict[str, Any] = {
            "inline_query_id": query.query_id, "results": results, "cache_time": 0, "is_personal": True,
        }  # fmt: skip
        if button:
            wish["button"] = {"text": button, "start_parameter": "inline"}
        try:
            await self._desk.api.call("answerInlineQuery", wish)
        except (CallRefused, TelegramUnavailable) as error:
            log.info("inline_answer_refused", reason=str(error))


def _article(ended: EndedTurn, query_id: str) -> dict[str, Any]:
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
