"""Handles pressed buttons; callback data can be forged, so everything in it is checked."""

from __future__ import annotations

import structlog

from bot.telegram.client.group_admins import GroupAdmins, GroupRole
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS
from bot.telegram.handlers.access_requests import AccessRequests
from bot.telegram.handlers.command_handler import list_reminders
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import ChatAccessPolicy
from bot.telegram.inbound.updates import CallbackQuery
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
    parse_callback_data,
)
from bot.telegram.outbound.delivery import AnswerDelivery
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import get_chat_texts, get_command_texts, get_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.commands import commands_for
from shared.core.session.summary import translate_headings
from shared.locales import list_languages
from shared.services.commands.command_service import CommandResult, CommandService
from shared.services.privacy.erasure import ErasureService
from shared.services.turns.session_service import SessionService

log = structlog.get_logger(__name__)

_ADMINS_ONLY = frozenset({
    ButtonAction.UNDO_SUMMARY, ButtonAction.SETTING, ButtonAction.ARCHIVE_NOTE, ButtonAction.RESTORE_NOTE,
    ButtonAction.ERASE_ALL, ButtonAction.CANCEL_ERASURE, ButtonAction.CHOOSE,
})  # fmt: skip
_MEMORY_ACTIONS = frozenset({ButtonAction.ARCHIVE_NOTE, ButtonAction.RESTORE_NOTE, ButtonAction.PAGE})
"""Not available on public bots."""
_ACCESS_ACTIONS = frozenset({ButtonAction.ALLOW_ACCESS, ButtonAction.DENY_ACCESS})
_ANSWER_ACTIONS = frozenset({ButtonAction.REGENERATE, ButtonAction.CONTINUE, ButtonAction.SHORTER})


class CallbackQueryHandler:
    """For one bot."""

    def __init__(
        self,
        context: BotContext,
        *,
        access_policy: ChatAccessPolicy,
        notifier: Notifier,
        commands: CommandService,
        sessions: SessionService,
        quick_actions: QuickActions,
        admins: GroupAdmins,
        memory_list: MemoryList,
        search_results: SearchResults,
        erasure: ErasureService,
        delivery: AnswerDelivery,
        access_requests: AccessRequests,
        offered: frozenset[str],
    ) -> None:
        self._context = context
        self._access_policy = access_policy
        self._notifier = notifier
        self._commands = commands
        self._sessions = sessions
        self._quick_actions = quick_actions
        self._admins = admins
        self._memory_list = memory_list
        self._search_results = search_results
        self._erasure = erasure
        self._delivery = delivery
        self._access_requests = access_requests
        self._offered = offered

    async def handle(self, query: CallbackQuery) -> None:
        texts = get_texts(query.sender.language_code)
        press = parse_callback_data(query.data)
        if press is None:
            await self._notifier.answer_callback(query.callback_id, texts.say("unknown_button"))
            return
        if press.action in _ACCESS_ACTIONS:
            await self._access_requests.handle_press(press, query)
            return
        chat = await self._context.stores.telegram_chats.find_chat(press.address_id)
        if (
            chat is None
            or not self._is_from_chat(chat, query)
            or not await self._access_policy.can_press(query)
        ):
            await self._notifier.answer_callback(query.callback_id, texts.say("others_button"))
            return
        role = await self._find_role(chat, press, query)
        if role != "admin":
            key = "others_button" if role == "member" else "not_now"
            await self._notifier.answer_callback(query.callback_id, texts.say(key))
            return
        if press.action in _ANSWER_ACTIONS and query.message_id is not None:
            await self._delivery.uncertain.handle_answer_press(chat, press.subject, query.message_id)
        await self._dispatch(chat, press, query)

    async def _find_role(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> GroupRole:
        if self._context.public and press.action in _MEMORY_ACTIONS:
            return "member"
        if chat.chat_id > 0 or press.action not in _ADMINS_ONLY:
            return "admin"
        user_id = query.sender.user_id
        return await self._admins.find_role(chat.chat_id, user_id, patience=EDIT_PATIENCE_SECONDS)

    def _is_from_chat(self, chat: ChatRow, query: CallbackQuery) -> bool:
        """Callback data can be forged: the press must come from the chat that the button was made for."""
        chat_ref = query.chat
        return chat_ref is not None and (chat.bot_id, chat.chat_id) == (
            self._context.identity.bot_id,
            chat_ref.chat_id,
        )

    async def _dispatch(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        match press.action:
            case ButtonAction.STOP:
                await self._stop(chat, query)
            case ButtonAction.RESEND:
                await self._resend(chat, press, query)
            case ButtonAction.REGENERATE | ButtonAction.ANSWER_EDITED:
                await self._retry(chat, press, query)
            case ButtonAction.CONTINUE:
                await self._go_on(chat, press, query)
            case ButtonAction.SHORTER:
                await self._shorten(chat, press, query)
            case ButtonAction.VIEW_SUMMARY:
                await self._view_summary(chat, press, query)
            case ButtonAction.UNDO_SUMMARY:
                await self._undo_summary(chat, press, query)
            case ButtonAction.SETTING:
                await self._change_setting(chat, press, query)
            case ButtonAction.CLOSE:
                if query.message_id is not None:
                    await self._notifier.delete(get_chat_target(chat), query.message_id)
                await self._notifier.answer_callback(query.callback_id)
            case _:
                await self._dispatch_other(chat, press, query)

    async def _dispatch_other(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        match press.action:
            case ButtonAction.PAGE:
                await self._memory_list.show_page(chat, press, query)
            case ButtonAction.ARCHIVE_NOTE:
                await self._memory_list.archive(chat, press, query)
            case ButtonAction.RESTORE_NOTE:
                await self._memory_list.restore(chat, press, query)
            case ButtonAction.REMINDER:
                await self._change_reminder(chat, press, query)
            case ButtonAction.CHOOSE:
                await self._apply_choice(chat, press, query)
            case ButtonAction.OPEN_RESULT:
                await self._search_results.open_result(chat, press, query)
            case ButtonAction.OLDER_RESULTS:
                await self._search_results.show_page(chat, press, query)
            case ButtonAction.ERASE_ALL:
                await self._erase_all(chat, query)
            case ButtonAction.CANCEL_ERASURE:
                await self._cancel_erasure(chat, query)
            case ButtonAction.RATE:
                await self._record_rating(chat, press, query)
            case _:
                await self._answer_outdated(chat, query)

    async def _stop(self, chat: ChatRow, query: CallbackQuery) -> None:
        texts = get_chat_texts(chat)
        stopping = await self._sessions.stop(chat.session_id)
        await self._notifier.answer_callback(
            query.callback_id, texts.say("stopping" if stopping else "nothing_to_stop")
        )

    async def _resend(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        """Send an answer again that may not have arrived; a second press finds it under way."""
        texts = get_chat_texts(chat)
        found = await self._delivery.uncertain.handle_press(
            chat,
            press.subject,
            round_number=int(press.word) if press.word.isdecimal() else 0,
            message_id=query.message_id if query.accessible else None,
        )
        if found.what == "brought":
            self._delivery.deliver_soon(found.session_id, found.turn)
        keys = {"brought": "bringing", "before": "brought_before", "gone": "unknown_button"}
        await self._notifier.answer_callback(query.callback_id, texts.say(keys[found.what]))

    async def _go_on(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        text = get_chat_texts(chat).say("prompt_longer")
        asked = await self._quick_actions.go_on(chat, text, turn=press.subject, update_id=query.update_id)
        await self._answer_quick_action(chat, query, asked=asked)

    async def _shorten(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        text = get_chat_texts(chat).say("prompt_shorter")
        asked = await self._quick_actions.shorten(chat, text, turn=press.subject, update_id=query.update_id)
        await self._answer_quick_action(chat, query, asked=asked)

    async def _answer_quick_action(self, chat: ChatRow, query: CallbackQuery, *, asked: bool) -> None:
        """Take the buttons of an older answer away when one is pressed: they speak of the newest answer."""
        if asked:
            await self._notifier.answer_callback(query.callback_id)
            return
        await self._answer_outdated(chat, query)
        if query.message_id is not None and query.accessible:
            await self._context.sender.edit_keyboard(chat.chat_id, query.message_id, None)

    async def _retry(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        texts = get_chat_texts(chat)
        asked = await self._quick_actions.retry(chat, update_id=query.update_id, turn=press.subject or None)
        await self._notifier.answer_callback(
            query.callback_id, texts.say("answering_again" if asked else "unknown_button")
        )
        if press.action is ButtonAction.ANSWER_EDITED and query.message_id is not None:
            await self._notifier.delete(get_chat_target(chat), query.message_id)

    async def _view_summary(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        summary = await self._context.stores.telegram_chats.load_newest_summary(chat.session_id)
        if summary is None or summary.link_id != press.subject:
            await self._answer_outdated(chat, query)
            return
        await self._notifier.answer_callback(query.callback_id)
        text = translate_headings(summary.text, get_command_texts(chat))
        await self._notifier.send(
            get_chat_target(chat), f"{get_chat_texts(chat).say('summary_title')}\n\n{text}", silent=True
        )

    async def _undo_summary(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        """Only the newest summary can be undone; a second press finds nothing to undo."""
        summary = await self._context.stores.telegram_chats.load_newest_summary(chat.session_id)
        if summary is None or summary.link_id != press.subject:
            await self._answer_outdated(chat, query)
            return
        outcome = await self._run_command(chat, "undo")
        text = outcome.result
        await self._notifier.answer_callback(query.callback_id)
        if outcome.success:
            await self._notifier.send_or_edit(chat, query, text)
        else:
            await self._notifier.send(get_chat_target(chat), text, silent=True)

    async def _change_reminder(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        """Change a reminder that is still pending."""
        ids = [one.id for one in await list_reminders(self._context, chat)]
        if press.subject not in ids or press.word not in ("cancel", "pause", "resume"):
            await self._answer_outdated(chat, query)
            return
        outcome = await self._run_command(chat, "reminders", f"{press.word} #{press.subject}")
        await self._notifier.answer_callback(query.callback_id)
        buttons = build_reminder_buttons(chat, await list_reminders(self._context, chat))
        await self._notifier.send_or_edit(chat, query, outcome.result, keyboard=buttons)

    async def _apply_choice(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        """Run a command with one of its current choices; an outdated choice does nothing."""
        name, _, mark = press.word.partition("=")
        table = commands_for(
            channel="telegram", audience=self._context.config.audience, speaks=self._context.can_speak
        )
        if name not in CHOSEN_BY_BUTTON.intersection(command.name for command in table):
            await self._answer_outdated(chat, query)
            return
        offered = {hash_choice(one.args): one.args for one in (await self._run_command(chat, name)).choices}
        if mark not in offered:
            await self._answer_outdated(chat, query)
            return
        outcome = await self._run_command(chat, name, offered[mark])
        await self._notifier.answer_callback(query.callback_id)
        buttons = build_choice_buttons(chat, name, outcome.choices)
        await self._notifier.send_or_edit(chat, query, outcome.result, keyboard=buttons)

    async def _erase_all(self, chat: ChatRow, query: CallbackQuery) -> None:
        """Only after a recent preview; a second press does nothing."""
        outcome = await self._run_command(chat, "forget", "everything yes")
        if not outcome.success:
            await self._answer_outdated(chat, query)
            return
        await self._notifier.answer_callback(query.callback_id)
        await self._notifier.send_or_edit(chat, query, outcome.result)

    async def _cancel_erasure(self, chat: ChatRow, query: CallbackQuery) -> None:
        await self._erasure.take_confirmation(chat.session_id)
        await self._notifier.answer_callback(query.callback_id)
        await self._notifier.send_or_edit(chat, query, get_chat_texts(chat).say("nothing_erased"))

    async def _record_rating(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        """The first rating counts; later presses show it."""
        rating = int(press.word) if press.word in ("1", "2", "3", "4", "5") else 0
        stored = rating and await self._context.stores.inbox.record_rating(
            chat.session_id, press.subject, rating
        )
        if not stored:
            await self._answer_outdated(chat, query)
            return
        await self._notifier.answer_callback(query.callback_id)
        stars = "★" * stored + "☆" * (5 - stored)
        await self._notifier.send_or_edit(chat, query, get_chat_texts(chat).say("rated", stars=stars))

    async def _answer_outdated(self, chat: ChatRow, query: CallbackQuery) -> None:
        await self._notifier.answer_callback(query.callback_id, get_chat_texts(chat).say("unknown_button"))

    async def _run_command(self, chat: ChatRow, name: str, args: str = "") -> CommandResult:
        return await self._commands.run(
            session_id=chat.session_id, address_id=chat.address_id, name=name, args=args,
            channel="telegram", audience=self._context.config.audience,
            language=get_chat_texts(chat).language,
        )  # fmt: skip

    async def _change_setting(self, chat: ChatRow, press: ButtonPress, query: CallbackQuery) -> None:
        name, _, value = press.word.partition("=")
        known = (name in SWITCH_SETTINGS and name in self._offered) or (
            name == "language" and value in (CHOOSE, *list_languages())
        )
        if not known:
            await self._answer_outdated(chat, query)
            return
        if value == CHOOSE:
            await self._notifier.answer_callback(query.callback_id)
            title = get_chat_texts(chat).say("settings_title")
            await self._notifier.send_or_edit(chat, query, title, keyboard=build_language_buttons(chat))
            return
        change: dict[str, object] = {name: value if name == "language" else value == "on"}
        await self._context.stores.telegram_chats.change_settings(chat.address_id, change)
        changed = await self._context.stores.telegram_chats.find_chat(chat.address_id) or chat
        texts = get_chat_texts(changed)
        await self._notifier.answer_callback(query.callback_id, texts.say("saved"))
        if query.message_id is not None and query.accessible:
            buttons = build_settings_buttons(changed, offered=self._offered)
            await self._notifier.edit(
                get_chat_target(chat), query.message_id, texts.say("settings_title"), keyboard=buttons
            )
