"""Handles button presses; callback data can be forged, so all of it is checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import structlog
from aiogram import BaseMiddleware, F, Router
from aiogram.types import CallbackQuery, TelegramObject

from bot.telegram.client.group_admins import GroupAdmins, GroupRole
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS
from bot.telegram.handlers.command_handlers import list_reminders
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import Allowed, ChatAccessPolicy
from bot.telegram.inbound.update_parser import build_chat_ref
from bot.telegram.outbound.buttons import (
    CHOOSE,
    CHOSEN_BY_BUTTON,
    SWITCH_SETTINGS,
    ButtonAction,
    ButtonPress,
    build_choice_buttons,
    build_language_buttons,
    build_reminder_buttons,
    build_settings_buttons,
    hash_choice,
)
from bot.telegram.outbound.delivery import AnswerDelivery
from bot.telegram.outbound.notifier import Notifier, get_chat_target, get_pressed_id, get_shown_id
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from bot.telegram.texts import get_chat_texts, get_command_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.commands import commands_for
from shared.core.session.summary import translate_headings
from shared.locales import Catalogue, list_languages
from shared.services.commands.command_service import CommandResult, CommandService
from shared.services.privacy.erasure import ErasureService
from shared.services.turns.session_service import SessionService

log = structlog.get_logger(__name__)

_ADMINS_ONLY = frozenset({
    ButtonAction.UNDO_SUMMARY, ButtonAction.SETTING, ButtonAction.ARCHIVE_NOTE, ButtonAction.RESTORE_NOTE,
    ButtonAction.ERASE_ALL, ButtonAction.CANCEL_ERASURE, ButtonAction.CHOOSE,
})  # fmt: skip
_MEMORY_ACTIONS = frozenset({ButtonAction.ARCHIVE_NOTE, ButtonAction.RESTORE_NOTE, ButtonAction.PAGE})
"""Actions that a public bot refuses."""
_ANSWER_ACTIONS = frozenset({ButtonAction.REGENERATE, ButtonAction.CONTINUE, ButtonAction.SHORTER})


class ButtonAccess(BaseMiddleware):
    """Middleware that refuses presses from other chats and from people without the needed role.

    Passes `chat`, `press`, `texts` and `update_id` on to the handler.
    """

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        admins: GroupAdmins,
        notifier: Notifier,
        uncertain: UncertainNotices,
    ) -> None:
        self._context = context
        self._access_policy = access_policy
        self._admins = admins
        self._notifier = notifier
        self._uncertain = uncertain

    async def __call__(
        self,
        handler: Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]],
        event: TelegramObject,
        data: dict[str, Any],
    ) -> Any:
        query, press = cast("CallbackQuery", event), cast("ButtonPress", data["callback_data"])
        texts: Catalogue = data["texts"]
        chat = await self._context.stores.telegram_chats.find_chat(press.address_id)
        if chat is None or not await self._is_from_chat(query, chat):
            await self._notifier.answer_callback(query.id, texts.say("others_button"))
            return None
        role = await self._find_role(query, chat, press)
        if role != "admin":
            key = "others_button" if role == "member" else "not_now"
            await self._notifier.answer_callback(query.id, texts.say(key))
            return None
        pressed_id = get_pressed_id(query)
        if press.action in _ANSWER_ACTIONS and pressed_id is not None:
            await self._uncertain.handle_answer_press(chat, press.subject, pressed_id)
        data |= {"chat": chat, "press": press, "texts": get_chat_texts(chat)}
        return await handler(event, {**data, "update_id": data["event_update"].update_id})

    async def _find_role(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> GroupRole:
        """Return `admin` if the press is allowed, `member` if not, `unknown` if Telegram did not tell the
        role.
        """
        if self._context.public and press.action in _MEMORY_ACTIONS:
            return "member"
        if chat.chat_id > 0 or press.action not in _ADMINS_ONLY:
            return "admin"
        user_id = query.from_user.id
        return await self._admins.find_role(chat.chat_id, user_id, patience=EDIT_PATIENCE_SECONDS)

    async def _is_from_chat(self, query: CallbackQuery, chat: ChatRow) -> bool:
        """Return whether the button was pressed in its own chat and that chat has access to the bot."""
        if query.message is None:
            return False
        pressed = query.message.chat
        if (chat.bot_id, chat.chat_id) != (self._context.identity.bot_id, pressed.id):
            return False
        return isinstance(await self._access_policy.check(build_chat_ref(pressed)), Allowed)


class ButtonHandlers:
    """Router of one bot for button presses, except those about access requests and drafts."""

    def __init__(
        self,
        context: BotContext,
        *,
        access: ButtonAccess,
        notifier: Notifier,
        commands: CommandService,
        sessions: SessionService,
        quick_actions: QuickActions,
        memory_list: MemoryList,
        search_results: SearchResults,
        erasure: ErasureService,
        delivery: AnswerDelivery,
        offered: frozenset[str],
    ) -> None:
        self._context = context
        self._access = access
        self._notifier = notifier
        self._commands = commands
        self._sessions = sessions
        self._quick_actions = quick_actions
        self._memory_list = memory_list
        self._search_results = search_results
        self._erasure = erasure
        self._delivery = delivery
        self._offered = offered

    def build_router(self) -> Router:
        """Build the router: one handler for each action, and one that calls all other buttons outdated."""
        known, unknown = Router(name="known_buttons"), Router(name="unknown_buttons")
        known.callback_query.middleware(self._access)
        handlers: dict[ButtonAction, Callable[..., Awaitable[None]]] = {
            ButtonAction.STOP: self._stop,
            ButtonAction.RESEND: self._resend,
            ButtonAction.REGENERATE: self._retry,
            ButtonAction.ANSWER_EDITED: self._retry,
            ButtonAction.CONTINUE: self._go_on,
            ButtonAction.SHORTER: self._shorten,
            ButtonAction.VIEW_SUMMARY: self._send_summary,
            ButtonAction.UNDO_SUMMARY: self._undo_summary,
            ButtonAction.SETTING: self._change_setting,
            ButtonAction.CLOSE: self._close,
            ButtonAction.PAGE: self._memory_list.show_page,
            ButtonAction.ARCHIVE_NOTE: self._memory_list.archive,
            ButtonAction.RESTORE_NOTE: self._memory_list.restore,
            ButtonAction.REMINDER: self._change_reminder,
            ButtonAction.CHOOSE: self._apply_choice,
            ButtonAction.OPEN_RESULT: self._search_results.open_result,
            ButtonAction.OLDER_RESULTS: self._search_results.show_page,
            ButtonAction.ERASE_ALL: self._erase_all,
            ButtonAction.CANCEL_ERASURE: self._cancel_erasure,
            ButtonAction.RATE: self._record_rating,
        }
        for action, handler in handlers.items():
            known.callback_query.register(handler, ButtonPress.filter(F.action == action))
        unknown.callback_query.register(self._answer_unknown)
        router = Router(name="buttons")
        router.include_routers(known, unknown)
        return router

    async def _answer_unknown(self, query: CallbackQuery, texts: Catalogue) -> None:
        await self._notifier.answer_callback(query.id, texts.say("unknown_button"))

    async def _close(self, query: CallbackQuery, chat: ChatRow) -> None:
        """Delete the message with the pressed button."""
        if (pressed_id := get_pressed_id(query)) is not None:
            await self._notifier.delete(get_chat_target(chat), pressed_id)
        await self._notifier.answer_callback(query.id)

    async def _stop(self, query: CallbackQuery, chat: ChatRow) -> None:
        texts = get_chat_texts(chat)
        stopping = await self._sessions.stop(chat.session_id)
        await self._notifier.answer_callback(
            query.id, texts.say("stopping" if stopping else "nothing_to_stop")
        )

    async def _resend(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Send an answer again that may not have arrived; a second press only says that it was sent again."""
        texts = get_chat_texts(chat)
        found = await self._delivery.uncertain.handle_press(
            chat,
            press.subject,
            round_number=int(press.word) if press.word.isdecimal() else 0,
            message_id=get_shown_id(query),
        )
        if found.what == "brought":
            self._delivery.deliver_soon(found.session_id, found.turn)
        keys = {"brought": "bringing", "before": "brought_before", "gone": "unknown_button"}
        await self._notifier.answer_callback(query.id, texts.say(keys[found.what]))

    async def _go_on(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress, update_id: int) -> None:
        """Ask for a longer form or the rest of an answer."""
        text = get_chat_texts(chat).say("prompt_longer")
        asked = await self._quick_actions.go_on(chat, text, turn=press.subject, update_id=update_id)
        await self._answer_quick_action(query, chat, asked=asked)

    async def _shorten(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress, update_id: int) -> None:
        text = get_chat_texts(chat).say("prompt_shorter")
        asked = await self._quick_actions.shorten(chat, text, turn=press.subject, update_id=update_id)
        await self._answer_quick_action(query, chat, asked=asked)

    async def _answer_quick_action(self, query: CallbackQuery, chat: ChatRow, *, asked: bool) -> None:
        """Answer the press.

        If `asked` is False, call the button outdated and remove the keyboard of its message.
        """
        if asked:
            await self._notifier.answer_callback(query.id)
            return
        await self._answer_outdated(query, chat)
        if (shown_id := get_shown_id(query)) is not None:
            await self._context.sender.edit_keyboard(chat.chat_id, shown_id, None)

    async def _retry(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress, update_id: int) -> None:
        """Request a new answer to a question; after an edit, also delete the message that offered it."""
        texts = get_chat_texts(chat)
        asked = await self._quick_actions.retry(chat, update_id=update_id, turn=press.subject or None)
        await self._notifier.answer_callback(
            query.id, texts.say("answering_again" if asked else "unknown_button")
        )
        pressed_id = get_pressed_id(query)
        if press.action is ButtonAction.ANSWER_EDITED and pressed_id is not None:
            await self._notifier.delete(get_chat_target(chat), pressed_id)

    async def _send_summary(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Send the text of the newest summary.

        A press on an older summary's button is answered as outdated.
        """
        summary = await self._context.stores.telegram_chats.load_newest_summary(chat.session_id)
        if summary is None or summary.compaction_id != press.subject:
            await self._answer_outdated(query, chat)
            return
        await self._notifier.answer_callback(query.id)
        text = translate_headings(summary.text, get_command_texts(chat))
        await self._notifier.send(
            get_chat_target(chat), f"{get_chat_texts(chat).say('summary_title')}\n\n{text}", silent=True
        )

    async def _undo_summary(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Undo the newest summary; a press on an older summary's button is answered as outdated."""
        summary = await self._context.stores.telegram_chats.load_newest_summary(chat.session_id)
        if summary is None or summary.compaction_id != press.subject:
            await self._answer_outdated(query, chat)
            return
        outcome = await self._run_command(chat, "undo")
        text = outcome.result
        await self._notifier.answer_callback(query.id)
        if outcome.success:
            await self._notifier.send_or_edit(chat, query, text)
        else:
            await self._notifier.send(get_chat_target(chat), text, silent=True)

    async def _change_reminder(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Cancel, pause or resume a pending reminder and show the list.

        Any other press is answered as outdated.
        """
        ids = [one.id for one in await list_reminders(self._context, chat)]
        if press.subject not in ids or press.word not in ("cancel", "pause", "resume"):
            await self._answer_outdated(query, chat)
            return
        outcome = await self._run_command(chat, "reminders", f"{press.word} #{press.subject}")
        await self._notifier.answer_callback(query.id)
        buttons = build_reminder_buttons(chat, await list_reminders(self._context, chat))
        await self._notifier.send_or_edit(chat, query, outcome.result, keyboard=buttons)

    async def _apply_choice(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Run a command with one of its current choices.

        A press on another choice is answered as outdated.
        """
        name, _, mark = press.word.partition("=")
        table = commands_for(
            channel="telegram", audience=self._context.config.audience, speaks=self._context.can_speak
        )
        if name not in CHOSEN_BY_BUTTON.intersection(command.name for command in table):
            await self._answer_outdated(query, chat)
            return
        offered = {hash_choice(one.args): one.args for one in (await self._run_command(chat, name)).choices}
        if mark not in offered:
            await self._answer_outdated(query, chat)
            return
        outcome = await self._run_command(chat, name, offered[mark])
        await self._notifier.answer_callback(query.id)
        buttons = build_choice_buttons(chat, name, outcome.choices)
        await self._notifier.send_or_edit(chat, query, outcome.result, keyboard=buttons)

    async def _erase_all(self, query: CallbackQuery, chat: ChatRow) -> None:
        """Run `/forget everything yes`.

        If the command fails, as without a recent preview, answer the press as outdated.
        """
        outcome = await self._run_command(chat, "forget", "everything yes")
        if not outcome.success:
            await self._answer_outdated(query, chat)
            return
        await self._notifier.answer_callback(query.id)
        await self._notifier.send_or_edit(chat, query, outcome.result)

    async def _cancel_erasure(self, query: CallbackQuery, chat: ChatRow) -> None:
        """Drop the pending confirmation of `/forget everything`."""
        await self._erasure.take_confirmation(chat.session_id)
        await self._notifier.answer_callback(query.id)
        await self._notifier.send_or_edit(chat, query, get_chat_texts(chat).say("nothing_erased"))

    async def _record_rating(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Store a rating of 1 to 5 stars and show it.

        After the first rating, later presses show the first.
        """
        rating = int(press.word) if press.word in ("1", "2", "3", "4", "5") else 0
        stored = rating and await self._context.stores.inbox.record_rating(
            chat.session_id, press.subject, rating
        )
        if not stored:
            await self._answer_outdated(query, chat)
            return
        await self._notifier.answer_callback(query.id)
        stars = "★" * stored + "☆" * (5 - stored)
        await self._notifier.send_or_edit(chat, query, get_chat_texts(chat).say("rated", stars=stars))

    async def _answer_outdated(self, query: CallbackQuery, chat: ChatRow) -> None:
        await self._notifier.answer_callback(query.id, get_chat_texts(chat).say("unknown_button"))

    async def _run_command(self, chat: ChatRow, name: str, args: str = "") -> CommandResult:
        return await self._commands.run(
            session_id=chat.session_id, address_id=chat.address_id, name=name, args=args,
            channel="telegram", audience=self._context.config.audience,
            language=get_chat_texts(chat).language,
        )  # fmt: skip

    async def _change_setting(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Switch a setting of the chat, choose its language, or show the list of languages."""
        name, _, value = press.word.partition("=")
        known = (name in SWITCH_SETTINGS and name in self._offered) or (
            name == "language" and value in (CHOOSE, *list_languages())
        )
        if not known:
            await self._answer_outdated(query, chat)
            return
        if value == CHOOSE:
            await self._notifier.answer_callback(query.id)
            title = get_chat_texts(chat).say("settings_title")
            await self._notifier.send_or_edit(chat, query, title, keyboard=build_language_buttons(chat))
            return
        change: dict[str, object] = {name: value if name == "language" else value == "on"}
        await self._context.stores.telegram_chats.change_settings(chat.address_id, change)
        changed = await self._context.stores.telegram_chats.find_chat(chat.address_id) or chat
        texts = get_chat_texts(changed)
        await self._notifier.answer_callback(query.id, texts.say("saved"))
        if (shown_id := get_shown_id(query)) is not None:
            buttons = build_settings_buttons(changed, offered=self._offered)
            await self._notifier.edit(
                get_chat_target(chat), shown_id, texts.say("settings_title"), keyboard=buttons
            )
