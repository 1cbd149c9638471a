"""Asks the owners of a bot about access requests, and sends their decisions to the people who asked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import structlog
from aiogram import F, Router
from aiogram.types import CallbackQuery

from bot.telegram.client.calls import CallDone, CallNotSent, is_undecided
from bot.telegram.client.sender import ChatTarget
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import StrangerReply
from bot.telegram.inbound.updates import ChatRef, MessageAuthor
from bot.telegram.outbound.buttons import ButtonAction, ButtonPress, build_access_buttons
from bot.telegram.outbound.notifier import Notifier, get_shown_id
from bot.telegram.texts import escape_markdown, get_chat_texts, get_texts, say_hello_to_group
from shared.core.values.errors import StorageUnavailable
from shared.locales import Catalogue
from shared.ports import AccessRow

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

MAX_PENDING_NOTICES = 10
"""Maximum pending requests about which owners get a notice, so that strangers cannot fill an owner's chat.

`pairing list` shows all.
"""
_MAX_REMEMBERED = 1_000
"""Maximum entries of each dictionary below."""


class AccessRequests:
    """Access requests of one bot.

    Owners get the notices; if the bot has none, the private chats among `alert_chats` do.
    """

    def __init__(self, context: BotContext, *, notifier: Notifier, alert_chats: Sequence[int]) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._access = context.stores.telegram_access
        self._notifier = notifier
        self._alert_chats = tuple(chat for chat in alert_chats if chat > 0)
        self._languages: OrderedDict[int, str] = OrderedDict()
        """Language tags of people with a request, by chat id; nothing else of them is kept."""
        self._decisions_sent: OrderedDict[tuple[int, str], None] = OrderedDict()
        """Decisions that were sent but not yet marked as sent in the database, by chat id and state."""

    async def ask_owners(self, decision: StrangerReply, chat_ref: ChatRef, sender: MessageAuthor) -> None:
        """Send each owner a notice about a new request, with buttons to allow or deny it.

        Beyond `MAX_PENDING_NOTICES` pending requests no notice is sent. An unavailable database is logged
        only; the request stays in the list.
        """
        self._remember_language(chat_ref.chat_id, sender.language_code)
        try:
            # Requests after this one are not counted, so of many at the same time the first get a notice.
            waiting = await self._access.count_waiting(self._bot_id, up_to=chat_ref.chat_id)
            if waiting > MAX_PENDING_NOTICES:
                log.warning("access_request_notice_failed", bot=self._bot_id, limit=MAX_PENDING_NOTICES)
                return
            name = sender.name if chat_ref.is_private else chat_ref.title
            username = sender.username if chat_ref.is_private else ""
            for owner in await self._list_owners():
                texts = await self._load_texts(owner)
                who = escape_markdown(name) + (f" (@{escape_markdown(username)})" if username else "")
                text = texts.say("asks_for_access", who=who, code=decision.args["code"])
                buttons = build_access_buttons(texts, chat_ref.chat_id)
                await self._notifier.send(ChatTarget(chat_id=owner), text, keyboard=buttons)
        except StorageUnavailable as error:
            log.warning("access_request_notice_failed", bot=self._bot_id, reason=str(error))

    def build_router(self) -> Router:
        """Build the router for presses on the buttons that allow or deny access."""
        router = Router(name="access_requests")
        decides = F.action.in_({ButtonAction.ALLOW_ACCESS, ButtonAction.DENY_ACCESS})
        router.callback_query.register(self._handle_press, ButtonPress.filter(decides))
        return router

    async def _handle_press(self, query: CallbackQuery, callback_data: ButtonPress, texts: Catalogue) -> None:
        """Store an owner's decision and show it in place of the notice.

        A press outside the owner's chat is refused.
        """
        press, owner = callback_data, query.from_user.id
        is_own_chat = query.message is not None and query.message.chat.id == owner
        if not is_own_chat or owner not in await self._list_owners():
            await self._notifier.answer_callback(query.id, texts.say("others_button"))
            return
        texts = await self._load_texts(owner)
        guest = -press.subject if press.word == "group" else press.subject
        row = await self._access.decide_waiting(
            self._bot_id, guest, allowed=press.action is ButtonAction.ALLOW_ACCESS,
            by=f"owner {owner}", actor=f"telegram:{owner}",
        )  # fmt: skip
        text = ""
        if row is None:
            row = await self._access.find(self._bot_id, guest)
            text = texts.say("decided_before" if row is not None else "unknown_button")
        await self._notifier.answer_callback(query.id, text)
        if row is not None and (shown_id := get_shown_id(query)) is not None:
            key = "let_in" if row.state == "allowed" else "kept_out"
            decision_text = texts.say(key, name=escape_markdown(row.name))
            await self._notifier.edit(ChatTarget(chat_id=owner), shown_id, decision_text)

    async def send_decision(self, row: AccessRow) -> None:
        """Send a decision to the chat that asked, and leave the chat if it is a refused group.

        Channels get no message. If Telegram postpones a call, the decision stays unsent and the next round
        tries again. After a crash the message may be sent twice.
        """
        is_channel = await self._is_channel(row.chat_id)
        if is_channel is None:
            return  # Telegram did not answer: the next round asks again
        if (
            not is_channel and (row.chat_id, row.state) not in self._decisions_sent
        ):  # readers of a channel did not ask
            outcome = await self._notifier.attempt(
                ChatTarget(chat_id=row.chat_id),
                self._format_decision(row, await self._load_texts(row.chat_id)),
            )
            if isinstance(outcome, CallNotSent):
                return
            _remember(self._decisions_sent, (row.chat_id, row.state), None)
        if row.chat_id > 0 or row.state == "allowed" or await self._leave(row.chat_id):
            await self._access.mark_decision_sent(row.bot_id, row.chat_id)
            self._decisions_sent.pop((row.chat_id, row.state), None)

    def _format_decision(self, row: AccessRow, texts: Catalogue) -> str:
        if row.chat_id > 0:
            return texts.say("allowed" if row.state == "allowed" else "refused")
        if row.state != "allowed":
            return texts.say("left_group")
        identity = self._context.identity
        return say_hello_to_group(
            texts, username=identity.username, reads_all_messages=identity.reads_all_messages
        )

    async def _is_channel(self, chat_id: int) -> bool | None:
        """Return whether a chat is a channel; None if Telegram postponed the call or did not answer.

        False without a call for a private chat or if the bot reads no channels; False if Telegram refuses.
        """
        if chat_id > 0 or not self._context.identity.reads_channels:
            return False
        outcome = await self._context.sender.get_chat(chat_id, patience=0.0)
        if is_undecided(outcome):
            return None
        return isinstance(outcome, CallDone) and getattr(outcome.result, "type", "") == "channel"

    async def _leave(self, chat_id: int) -> bool:
        """Leave a group.

        Return False if that has to be repeated because Telegram postponed or did not answer it.
        """
        outcome = await self._context.sender.leave_chat(chat_id, patience=0.0)
        if not isinstance(outcome, CallDone):
            log.warning("group_leave_failed", bot=self._bot_id, outcome=str(outcome))
        return not is_undecided(outcome)

    async def _list_owners(self) -> list[int]:
        """Return the private chat ids of the bot's owners; without an owner, those of the alert chats."""
        owners = [chat for chat in await self._access.list_owners(self._bot_id) if chat > 0]
        return owners or list(self._alert_chats)

    async def _load_texts(self, chat_id: int) -> Catalogue:
        """Return the bot's texts in the language of a chat; English if it is unknown."""
        for chat in await self._context.stores.telegram_chats.list_threads(self._bot_id, chat_id):
            return get_chat_texts(chat)
        return get_texts(self._languages.get(chat_id, "en"))

    def _remember_language(self, chat_id: int, language: str) -> None:
        _remember(self._languages, chat_id, language)


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Store an entry as the newest one, and drop the oldest ones beyond `_MAX_REMEMBERED`."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > _MAX_REMEMBERED:
        known.popitem(last=False)
