"""`/search` in a chat: results with their days, and a button each that leads to the message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.telegram.inbound.bot_context import BotContext, get_chat_texts, get_command_texts
from bot.telegram.inbound.updates import CallbackQuery, IncomingMessage
from bot.telegram.outbound.buttons import ButtonPress, build_search_buttons
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import Markdown
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.texts import excerpt
from shared.core.memory.search import MessageHit, SearchKey
from shared.services.commands.search import render_found, render_said

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

HITS_PER_LIST = 8
_ASKED = re.compile(r"/\w+(?:@\w+)?\s+(.+)", re.DOTALL)
_SUPERGROUPS = -1_000_000_000_000
"""Ids of chats whose messages have links lie below."""


class SearchResults:
    """For one bot. Whoever calls has checked that the place is in the chat which the press came from.

    The list replies to the command, so that a press on it brings the words that were searched for.
    """

    def __init__(self, desk: BotContext, *, voice: Notifier, timezone: str) -> None:
        self._desk = desk
        self._voice = voice
        self._timezone = timezone

    async def show(self, place: ChatRow, spoken: IncomingMessage) -> None:
        assert spoken.command is not None
        texts, words = get_command_texts(place), spoken.command.args.strip()
        if not words:
            await self._voice.send(
                get_chat_target(place), texts.say("search_what"), reply_to=spoken.message_id
            )
            return
        body, keyboard = await self._list(place, words, None)
        await self._voice.send(get_chat_target(place), body, keyboard=keyboard, reply_to=spoken.message_id)

    async def show_page(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """The list goes on after the key that the button holds; without one it begins again."""
        asked = _ASKED.fullmatch(pressed.replied_text.strip())
        key = SearchKey.parse(f"{press.subject}-{press.word.replace('_', '-')}") if press.word else None
        if asked is None or pressed.message_id is None:
            await self._voice.answer_callback(
                pressed.callback_id, get_chat_texts(place).say("unknown_button")
            )
            return
        await self._voice.answer_callback(pressed.callback_id)
        body, keyboard = await self._list(place, asked[1], key)
        await self._voice.edit(get_chat_target(place), pressed.message_id, body, keyboard=keyboard)

    async def lead(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """Reply to the message, for Telegram to jump there; one that is not in this chat is shown in full."""
        search, texts = self._desk.stores.message_search, get_chat_texts(place)
        session_id = int(press.word) if press.word.isdecimal() else 0
        said = await search.load_message(
            place.session_id, session_id, press.subject, linked=not self._desk.public
        )
        if said is None:
            await self._voice.answer_callback(pressed.callback_id, texts.say("unknown_button"))
            return
        await self._voice.answer_callback(pressed.callback_id)
        found = await self._desk.stores.telegram_chats.find_messages(
            place.bot_id, place.chat_id, [(session_id, press.subject, said.turn)]
        )
        words = render_said(said, get_command_texts(place), self._timezone, whole=not found)
        await self._voice.send(
            get_chat_target(place), words, reply_to=next(iter(found.values()), None), silent=True
        )

    async def _list(
        self, place: ChatRow, words: str, before: SearchKey | None
    ) -> tuple[Markdown, InlineKeyboardMarkup | None]:
        texts = get_command_texts(place)
        found = await self._desk.stores.message_search.search(
            place.session_id, words, linked=not self._desk.public, before=before, limit=HITS_PER_LIST
        )
        if not found.hits and found.next is None:
            return texts.say("nothing_found", words=excerpt(words)), None
        links = await self._links(place, found.hits)
        body = render_found(found, texts, self._timezone, links=links, more=False)
        return body, build_search_buttons(place, found, linked=bool(links), begun=before is None)

    async def _links(self, place: ChatRow, hits: Sequence[MessageHit]) -> dict[str, str]:
        """By the place of a hit; only messages of supergroups have links."""
        if place.chat_id > _SUPERGROUPS:
            return {}
        asked = [(hit.key.session_id, int(hit.mid[1:]), hit.turn) for hit in hits]
        there = await self._desk.stores.telegram_chats.find_messages(place.bot_id, place.chat_id, asked)
        thread = f"{place.thread_id}/" if place.thread_id else ""
        chat = _SUPERGROUPS - place.chat_id
        return {
            str(hit.key): f"https://t.me/c/{chat}/{thread}{there[where[:2]]}"
            for hit, where in zip(hits, asked, strict=True)
            if where[:2] in there
        }
