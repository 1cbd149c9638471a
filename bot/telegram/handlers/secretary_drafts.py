"""Handles owners' decisions about drafts: button presses, and an own text in place of a draft."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

import structlog
from aiogram import F, Router
from aiogram.types import CallbackQuery, Message

from bot.telegram.client.sender import ChatTarget
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import Allowed, ChatAccessPolicy
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.inbound.updates import ChatRef
from bot.telegram.outbound.buttons import ButtonAction, ButtonPress, build_draft_buttons
from bot.telegram.outbound.notifier import Notifier
from bot.telegram.outbound.secretary_delivery import DRAFT_UNITS, SecretaryDelivery
from bot.telegram.texts import escape_markdown
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.secretary import CustomerDraft, Decision
from shared.core.session.turns import utf16_units
from shared.locales import Catalogue
from shared.runtime import CrashPoint

log = structlog.get_logger(__name__)

_ACTIONS = frozenset(
    {
        ButtonAction.SEND_DRAFT, ButtonAction.CHANGE_DRAFT, ButtonAction.KEEP_DRAFT, ButtonAction.DROP_DRAFT,
    }
)  # fmt: skip
_SAID = {"unknown": "unknown_button", "no_right": "secretary_no_right", "sending": "draft_approved"}
"""Keys of the texts that answer a press, by decision.

A decision missing here has the key `draft_` plus its name.
"""


class SecretaryDrafts:
    """Router of one bot for decisions about drafts.

    Only the owner of the business account can decide, in the owner's private chat.
    """

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        notifier: Notifier,
        delivery: SecretaryDelivery,
        crash_point: CrashPoint,
    ) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._access_policy = access_policy
        self._notifier = notifier
        self._delivery = delivery
        self._crash_point = crash_point
        self._store = context.stores.secretary
        # Chats in which a question is being asked: its owner may answer before its number is stored.
        self._questions: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def build_router(self) -> Router:
        """Build the router for presses on buttons of drafts, and for replies with the owner's own text."""
        router = Router(name="secretary_drafts")
        router.callback_query.register(self._handle_press, ButtonPress.filter(F.action.in_(_ACTIONS)))
        if self._context.identity.is_secretary:
            router.message.register(self._handle_own_text, self._is_own_text)
        return router

    async def _handle_press(self, query: CallbackQuery, callback_data: ButtonPress, texts: Catalogue) -> None:
        """Carry out a press on a draft's button: send it, drop it, or ask for the owner's own text."""
        draft = await self._store.find_draft(self._bot_id, callback_data.subject)
        chat_id = query.message.chat.id if query.message is not None else 0
        if draft is None:
            await self._notifier.answer_callback(query.id, texts.say("unknown_button"))
            return
        if (query.from_user.id, chat_id) != (draft.owner_id, draft.owner_chat_id):
            await self._notifier.answer_callback(query.id, texts.say("others_button"))
            return
        texts = await self._delivery.load_texts(self._bot_id, draft.owner_chat_id, draft.language)
        if not isinstance(await self._access_policy.check(ChatRef(chat_id=draft.owner_id)), Allowed):
            await self._notifier.answer_callback(query.id, texts.say("refused"))
            return
        match callback_data.action:
            case ButtonAction.SEND_DRAFT:
                await self._answer(query, texts, await self._store.approve(draft))
                self._crash_point("telegram_after_approval")
            case ButtonAction.DROP_DRAFT:
                await self._answer(query, texts, await self._store.drop(draft))
            case ButtonAction.CHANGE_DRAFT:
                await self._ask_for_text(query, draft, texts)
            case _:
                await self._cancel_change(query, draft, texts)
        self._delivery.wake()

    async def _answer(self, query: CallbackQuery, texts: Catalogue, decision: Decision) -> None:
        await self._notifier.answer_callback(query.id, _explain(texts, decision))

    async def _ask_for_text(self, query: CallbackQuery, draft: CustomerDraft, texts: Catalogue) -> None:
        """Ask the owner for their own text; only a reply to this question is sent to the customer."""
        if draft.state not in ("due", "showing", "shown"):
            await self._answer(query, texts, draft.state)
            return
        await self._notifier.answer_callback(query.id)
        question = texts.say("draft_ask", name=escape_markdown(draft.customer))
        async with self._question_lock(draft.owner_chat_id):
            change_id = await self._notifier.send(
                ChatTarget(chat_id=draft.owner_chat_id), question,
                keyboard=build_draft_buttons(texts, draft.draft_id, "changing"), reply_to=draft.prompt_id,
            )  # fmt: skip
            if change_id is not None:
                await self._store.record_change(draft, change_id)

    def _question_lock(self, chat_id: int) -> asyncio.Lock:
        """Return the lock that is held from a question in this chat until its message id is stored."""
        return self._questions.setdefault(chat_id, asyncio.Lock())

    async def _cancel_change(self, query: CallbackQuery, draft: CustomerDraft, texts: Catalogue) -> None:
        """Withdraw the question below which the owner pressed Cancel, but no other one of the draft."""
        question = draft.change_id if query.message is None else query.message.message_id
        if question is not None:
            async with self._question_lock(draft.owner_chat_id):
                await self._store.withdraw_change(draft, question)
        await self._notifier.answer_callback(query.id, texts.say("draft_cancelled"))
        if question is not None:
            target = ChatTarget(chat_id=draft.owner_chat_id)
            await self._notifier.edit(target, question, texts.say("draft_cancelled"))

    async def _close_question(self, draft: CustomerDraft, text: str) -> None:
        """Replace the question for the owner's own text, if there is one, by `text`."""
        if draft.change_id is not None:
            await self._notifier.edit(ChatTarget(chat_id=draft.owner_chat_id), draft.change_id, text)

    # -- the owner's own text -------------------------------------------------------------------------

    async def _is_own_text(
        self, message: Message, batch: MessageBatch | None = None, chat: ChatRow | None = None
    ) -> bool | dict[str, Any]:
        """Return `{"draft": …}` if an owner replies to the question for their own text, else False.

        A filter of aiogram, which passes the dict to the handler as arguments.
        """
        if batch is None or chat is None or chat.chat_id < 0 or batch.first.is_edited:
            return False
        replied = batch.first.reply_to_message_id
        if replied is None or not batch.first.replies_to_bot:
            return False
        async with self._question_lock(chat.chat_id):
            draft = await self._store.find_draft_to_change(
                self._bot_id, owner_id=batch.first.sender.user_id, change_id=replied
            )
        return False if draft is None else {"draft": draft}

    async def _handle_own_text(self, message: Message, batch: MessageBatch, draft: CustomerDraft) -> None:
        """Approve the owner's own text in place of the draft, or say that only a single short text is
        accepted.
        """
        texts = await self._delivery.load_texts(self._bot_id, draft.owner_chat_id, draft.language)
        text = batch.first.text.strip()
        is_alone = len(batch.messages) == 1 and batch.first.media is None
        if not is_alone or not text or utf16_units(text) > DRAFT_UNITS:
            said = texts.say("draft_only_text", count=DRAFT_UNITS)
        else:
            decision = await self._store.approve(draft, own_text=text)
            self._crash_point("telegram_after_approval")
            said = _explain(texts, decision)
            await self._close_question(draft, said)
        await self._notifier.send(ChatTarget(chat_id=draft.owner_chat_id), said, silent=True)
        await self._finish(batch)

    async def _finish(self, batch: MessageBatch) -> None:
        """Wake the delivery, and mark the batch as handled."""
        self._delivery.wake()
        await self._context.stores.telegram_inbox.mark_handled(self._bot_id, batch.update_ids)


def _explain(texts: Catalogue, decision: Decision) -> str:
    return texts.say(_SAID.get(decision, f"draft_{decision}"), reason="")
