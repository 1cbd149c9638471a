"""Who wants in: owners are asked in their chat, and whoever asked is told what was decided."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import structlog

from bot.telegram.client.bot_api import CallRefused, InvalidBotToken, TelegramUnavailable
from bot.telegram.client.sender import ChatTarget
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.inbound.chat_access import StrangerReply
from bot.telegram.inbound.updates import CallbackQuery, ChatRef, MessageAuthor
from bot.telegram.outbound.buttons import ButtonAction, ButtonPress, build_access_buttons
from bot.telegram.outbound.notifier import Notifier
from bot.telegram.texts import escape_markdown, get_texts, say_hello_to_group
from shared.adapters.postgres.telegram.access import AccessRow
from shared.core.values.errors import StorageUnavailable
from shared.locales import Catalogue

log = structlog.get_logger(__name__)

MOST_WAITING_TOLD = 10
"""Of those who asked within an hour: strangers must not fill an owner's chat; `pairing list` has the rest."""
_MAX_REMEMBERED = 1_000


class AccessRequests:
    """For one bot. `alert_chats` are asked where nobody owns it: the people among them."""

    def __init__(self, desk: BotContext, *, voice: Notifier, alert_chats: Sequence[int]) -> None:
        self._desk = desk
        self._access = desk.stores.telegram_access
        self._voice = voice
        self._alert_chats = tuple(chat for chat in alert_chats if chat > 0)
        self._languages: OrderedDict[int, str] = OrderedDict()
        """Of chats that asked: nothing else is stored of them."""

    async def ask_owners(self, decision: StrangerReply, where: ChatRef, sender: MessageAuthor) -> None:
        """Once for each guest; what does not get there is in the list of requests all the same."""
        self._remember_language(where.chat_id, sender.language_code)
        try:
            if await self._access.count_waiting(self._desk.bot_id) > MOST_WAITING_TOLD:
                log.warning("access_request_not_told", bot=self._desk.bot_id, limit=MOST_WAITING_TOLD)
                return
            name = sender.name if where.is_private else where.title
            username = sender.username if where.is_private else ""
            for owner in await self._list_deciders():
                texts = await self._texts_of(owner)
                who = escape_markdown(name) + (f" (@{escape_markdown(username)})" if username else "")
                words = texts.say("asks_for_access", who=who, code=decision.args["code"])
                buttons = build_access_buttons(texts, where.chat_id)
                await self._voice.send(ChatTarget(chat_id=owner), words, keyboard=buttons)
        except StorageUnavailable as error:
            log.warning("access_request_not_told", bot=self._desk.bot_id, reason=str(error))

    async def handle_press(self, press: ButtonPress, pressed: CallbackQuery) -> None:
        """An owner's in their own chat only; pressed twice, the second press finds it decided."""
        texts, owner = get_texts(pressed.sender.language_code), pressed.sender.user_id
        theirs = pressed.chat is not None and pressed.chat.chat_id == owner
        if not theirs or owner not in await self._list_deciders():
            await self._voice.answer_callback(pressed.callback_id, texts.say("others_button"))
            return
        texts = await self._texts_of(owner)
        guest = -press.subject if press.word == "group" else press.subject
        row = await self._access.decide_waiting(
            self._desk.bot_id, guest, allowed=press.action is ButtonAction.LET_IN,
            by=f"owner {owner}", actor=f"telegram:{owner}",
        )  # fmt: skip
        words = ""
        if row is None:
            row = await self._access.find(self._desk.bot_id, guest)
            words = texts.say("decided_before" if row is not None else "unknown_button")
        await self._voice.answer_callback(pressed.callback_id, words)
        if row is not None and pressed.message_id is not None and pressed.accessible:
            key = "let_in" if row.state == "allowed" else "kept_out"
            told = texts.say(key, name=escape_markdown(row.name))
            await self._voice.edit(ChatTarget(chat_id=owner), pressed.message_id, told)

    async def tell_decision(self, row: AccessRow) -> None:
        """However it was decided: here, on the dashboard or in a shell. A crash in between tells it again."""
        texts, where = await self._texts_of(row.chat_id), ChatTarget(chat_id=row.chat_id)
        if await self._is_channel(row.chat_id):  # its readers have nothing to do with that
            if row.state != "allowed":
                await self._leave(row.chat_id)
        elif row.chat_id > 0:
            await self._voice.send(where, texts.say("allowed" if row.state == "allowed" else "refused"))
        elif row.state == "allowed":
            identity = self._desk.identity
            await self._voice.send(
                where, say_hello_to_group(texts, username=identity.username, hears_all=identity.hears_all)
            )
        else:
            await self._voice.send(where, texts.say("left_group"))
            await self._leave(row.chat_id)
        await self._access.decision_told(row.bot_id, row.chat_id)

    async def _is_channel(self, chat_id: int) -> bool:
        if chat_id > 0 or not self._desk.identity.reads_channels:
            return False
        try:
            chat = await self._desk.api.call("getChat", {"chat_id": chat_id})
        except (CallRefused, TelegramUnavailable, InvalidBotToken):
            return False
        return isinstance(chat, dict) and chat.get("type") == "channel"

    async def _leave(self, chat_id: int) -> None:
        try:
            await self._desk.api.call("leaveChat", {"chat_id": chat_id})
        except (CallRefused, TelegramUnavailable, InvalidBotToken) as error:
            log.warning("group_not_left", bot=self._desk.bot_id, reason=str(error))

    async def _list_deciders(self) -> list[int]:
        owners = [chat for chat in await self._access.owners(self._desk.bot_id) if chat > 0]
        return owners or list(self._alert_chats)

    async def _texts_of(self, chat_id: int) -> Catalogue:
        for place in await self._desk.stores.telegram_chats.places_of_chat(self._desk.bot_id, chat_id):
            return get_chat_texts(place)
        return get_texts(self._languages.get(chat_id, "en"))

    def _remember_language(self, chat_id: int, language: str) -> None:
        self._languages[chat_id] = language
        self._languages.move_to_end(chat_id)
        while len(self._languages) > _MAX_REMEMBERED:
            self._languages.popitem(last=False)
