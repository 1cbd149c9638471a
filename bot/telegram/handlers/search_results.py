"""Handles `/search`: lists hits with their dates, and a button for each hit that shows the message."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aiogram.types import CallbackQuery, InlineKeyboardMarkup, Message

from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.outbound.buttons import ButtonPress, build_search_buttons
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import Markdown, get_chat_texts, get_command_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.texts import excerpt
from shared.core.memory.search import MessageHit, SearchKey
from shared.services.commands.search import render_found, render_said

HITS_PER_LIST = 8
"""Hits on one page."""
_ASKED = re.compile(r"/\w+(?:@\w+)?\s++(.+)", re.DOTALL)
_SUPERGROUPS = -1_000_000_000_000
"""Chat ids below this number are supergroups, whose messages have links."""


class SearchResults:
    """Search results in one bot's chats; the caller has checked that a press came from the given chat.

    The list replies to the command, so a press on the list also brings the query.
    """

    def __init__(self, context: BotContext, *, notifier: Notifier, timezone: str) -> None:
        self._context = context
        self._notifier = notifier
        self._timezone = timezone

    async def show(self, message: Message, chat: ChatRow, args: str) -> None:
        """Send the first page of results for `/search`; without a query, explain the command."""
        texts, query_text = get_command_texts(chat), args.strip()
        if not query_text:
            await self._notifier.send(
                get_chat_target(chat), texts.say("search_what"), reply_to=message.message_id
            )
            return
        body, keyboard = await self._build_list(chat, query_text, None)
        await self._notifier.send(get_chat_target(chat), body, keyboard=keyboard, reply_to=message.message_id)

    async def show_page(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Show the page of results that follows the key in the button, or the first page without a key."""
        shown = query.message if isinstance(query.message, Message) else None
        replied = shown.reply_to_message if shown is not None else None
        asked = _ASKED.fullmatch((replied.text or "").strip() if replied is not None else "")
        key = SearchKey.parse(f"{press.subject}-{press.word.replace('_', '-')}") if press.word else None
        if asked is None or shown is None:
            await self._notifier.answer_callback(query.id, get_chat_texts(chat).say("unknown_button"))
            return
        await self._notifier.answer_callback(query.id)
        body, keyboard = await self._build_list(chat, asked[1], key)
        await self._notifier.edit(get_chat_target(chat), shown.message_id, body, keyboard=keyboard)

    async def open_result(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Send an excerpt as a reply to the found message, so that the person can jump to it.

        If the message is not in this chat, send its whole text without a reply.
        """
        search, texts = self._context.stores.message_search, get_chat_texts(chat)
        session_id = int(press.word) if press.word.isdecimal() else 0
        said = await search.load_message(
            chat.session_id, session_id, press.subject, linked=not self._context.public
        )
        if said is None:
            await self._notifier.answer_callback(query.id, texts.say("unknown_button"))
            return
        await self._notifier.answer_callback(query.id)
        found = await self._context.stores.telegram_chats.find_messages(
            chat.bot_id, chat.chat_id, [(session_id, press.subject, said.turn)]
        )
        text = render_said(said, get_command_texts(chat), self._timezone, whole=not found)
        await self._notifier.send(
            get_chat_target(chat), text, reply_to=next(iter(found.values()), None), silent=True
        )

    async def _build_list(
        self, chat: ChatRow, query_text: str, before: SearchKey | None
    ) -> tuple[Markdown, InlineKeyboardMarkup | None]:
        """Return the text and buttons of one page of results.

        `before` is the key of the last hit shown, None at first.
        """
        texts = get_command_texts(chat)
        found = await self._context.stores.message_search.search(
            chat.session_id, query_text, linked=not self._context.public, before=before, limit=HITS_PER_LIST
        )
        if not found.hits and found.next is None:
            return texts.say("nothing_found", words=excerpt(query_text)), None
        links = await self._build_links(chat, found.hits)
        body = render_found(found, texts, self._timezone, links=links, more=False)
        return body, build_search_buttons(chat, found, linked=bool(links), is_first_page=before is None)

    async def _build_links(self, chat: ChatRow, hits: Sequence[MessageHit]) -> dict[str, str]:
        """Return links to the found messages, by the key of each hit.

        Empty unless the chat is a supergroup.
        """
        if chat.chat_id > _SUPERGROUPS:
            return {}
        asked = [(hit.key.session_id, int(hit.mid[1:]), hit.turn) for hit in hits]
        found = await self._context.stores.telegram_chats.find_messages(chat.bot_id, chat.chat_id, asked)
        thread = f"{chat.thread_id}/" if chat.thread_id else ""
        link_chat_id = _SUPERGROUPS - chat.chat_id
        return {
            str(hit.key): f"https://t.me/c/{link_chat_id}/{thread}{found[key[:2]]}"
            for hit, key in zip(hits, asked, strict=True)
            if key[:2] in found
        }
