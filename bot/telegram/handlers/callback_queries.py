"""What happens when a button is pressed; nothing that a button says is believed unchecked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from bot.telegram.client.group_admins import GroupAdmins
from bot.telegram.handlers.access_requests import AccessRequests
from bot.telegram.handlers.command_handler import BotCommandResult, BotCommandRunner, list_reminders
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts, get_command_texts
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
    choice_mark,
    parse_callback_data,
)
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from bot.telegram.texts import get_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.commands import commands_for
from shared.core.session.rendering import translate_headings
from shared.locales import list_languages

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

log = structlog.get_logger(__name__)

_ADMINS_ONLY = frozenset(
    {
        ButtonAction.UNDO_SUMMARY,
        ButtonAction.SETTING,
        ButtonAction.FORGET_NOTE,
        ButtonAction.BRING_BACK,
        ButtonAction.FORGET_ALL,
        ButtonAction.KEEP_ALL,
        ButtonAction.CHOOSE,
    }
)
_MEMORY_ACTIONS = frozenset({ButtonAction.FORGET_NOTE, ButtonAction.BRING_BACK, ButtonAction.PAGE})
"""Nobody is told of a memory where strangers are served."""


_ACCESS_ACTIONS = frozenset({ButtonAction.LET_IN, ButtonAction.KEEP_OUT})
_ANSWER_ACTIONS = frozenset({ButtonAction.REGENERATE, ButtonAction.CONTINUE, ButtonAction.SHORTER})


class TurnStopper(Protocol):
    async def stop(self, session_id: int) -> bool: ...


class ErasureConfirmer(Protocol):
    async def take_confirmation(self, session_id: int) -> bool: ...


class AnswerRedelivery(Protocol):
    """`Delivery`."""

    @property
    def uncertain(self) -> UncertainNotices: ...
    def deliver_soon(self, session_id: int, turn: int) -> None: ...


class CallbackQueryHandler:
    """For one bot."""

    def __init__(
        self,
        desk: BotContext,
        *,
        door: ChatAccessPolicy,
        voice: Notifier,
        commands: BotCommandRunner,
        conversation: TurnStopper,
        wishes: QuickActions,
        admins: GroupAdmins,
        remembered: MemoryList,
        searching: SearchResults,
        forgetting: ErasureConfirmer,
        delivery: AnswerRedelivery,
        requests: AccessRequests,
        offered: frozenset[str],
    ) -> None:
        self._desk = desk
        self._door = door
        self._voice = voice
        self._commands = commands
        self._conversation = conversation
        self._wishes = wishes
        self._admins = admins
        self._remembered = remembered
        self._searching = searching
        self._forgetting = forgetting
        self._delivery = delivery
        self._requests = requests
        self._offered = offered

    async def handle(self, pressed: CallbackQuery) -> None:
        texts = get_texts(pressed.sender.language_code)
        press = parse_callback_data(pressed.data)
        if press is None:
            await self._voice.answer_callback(pressed.callback_id, texts.say("unknown_button"))
            return
        if press.action in _ACCESS_ACTIONS:
            await self._requests.handle_press(press, pressed)
            return
        place = await self._desk.stores.telegram_chats.place(press.address_id)
        if place is None or not self._is_theirs(place, pressed) or not await self._door.can_press(pressed):
            await self._voice.answer_callback(pressed.callback_id, texts.say("others_button"))
            return
        if not await self._may(place, press, pressed):
            await self._voice.answer_callback(pressed.callback_id, texts.say("others_button"))
            return
        if press.action in _ANSWER_ACTIONS and pressed.message_id is not None:
            await self._delivery.uncertain.handle_answer_press(place, press.subject, pressed.message_id)
        await self._do(place, press, pressed)

    async def _may(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> bool:
        if self._desk.public and press.action in _MEMORY_ACTIONS:
            return False
        if place.chat_id > 0 or press.action not in _ADMINS_ONLY:
            return True
        return await self._admins.is_admin(place.chat_id, pressed.sender.user_id)

    def _is_theirs(self, place: ChatRow, pressed: CallbackQuery) -> bool:
        """What is in a button can be forged: the place must be in the chat that the press came from."""
        where = pressed.chat
        return where is not None and (place.bot_id, place.chat_id) == (self._desk.bot_id, where.chat_id)

    async def _do(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        match press.action:
            case ButtonAction.STOP:
                await self._stop(place, pressed)
            case ButtonAction.BRING:
                await self._bring(place, press, pressed)
            case ButtonAction.REGENERATE | ButtonAction.ANSWER_EDITED:
                await self._again(place, press, pressed)
            case ButtonAction.CONTINUE | ButtonAction.SHORTER:
                key = "prompt_longer" if press.action is ButtonAction.CONTINUE else "prompt_shorter"
                words = get_chat_texts(place).say(key)
                await self._wishes.send_message(place, words, update_id=pressed.update_id)
                await self._voice.answer_callback(pressed.callback_id)
            case ButtonAction.VIEW_SUMMARY:
                await self._view(place, press, pressed)
            case ButtonAction.UNDO_SUMMARY:
                await self._undo(place, press, pressed)
            case ButtonAction.SETTING:
                await self._set(place, press, pressed)
            case ButtonAction.CLOSE:
                if pressed.message_id is not None:
                    await self._voice.delete(get_chat_target(place), pressed.message_id)
                await self._voice.answer_callback(pressed.callback_id)
            case _:
                await self._do_with_memory(place, press, pressed)

    async def _do_with_memory(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        match press.action:
            case ButtonAction.PAGE:
                await self._remembered.show_page(place, press, pressed)
            case ButtonAction.FORGET_NOTE:
                await self._remembered.archive(place, press, pressed)
            case ButtonAction.BRING_BACK:
                await self._remembered.restore(place, press, pressed)
            case ButtonAction.REMINDER:
                await self._remind(place, press, pressed)
            case ButtonAction.CHOOSE:
                await self._choose(place, press, pressed)
            case ButtonAction.LEAD_TO:
                await self._searching.lead(place, press, pressed)
            case ButtonAction.SEARCH_ON:
                await self._searching.show_page(place, press, pressed)
            case ButtonAction.FORGET_ALL:
                await self._forget_all(place, pressed)
            case ButtonAction.KEEP_ALL:
                await self._keep_all(place, pressed)
            case ButtonAction.RATE:
                await self._rate(place, press, pressed)
            case _:
                await self._out_of_date(place, pressed)

    async def _stop(self, place: ChatRow, pressed: CallbackQuery) -> None:
        texts = get_chat_texts(place)
        stopping = await self._conversation.stop(place.session_id)
        await self._voice.answer_callback(
            pressed.callback_id, texts.say("stopping" if stopping else "nothing_to_stop")
        )

    async def _bring(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """Of an answer that may not have arrived; pressed twice, the second press finds it under way."""
        texts = get_chat_texts(place)
        found = await self._delivery.uncertain.handle_press(
            place,
            press.subject,
            round_number=int(press.word) if press.word.isdecimal() else 0,
            message_id=pressed.message_id if pressed.accessible else None,
        )
        if found.what == "brought":
            self._delivery.deliver_soon(found.session_id, found.turn)
        keys = {"brought": "bringing", "before": "brought_before", "gone": "unknown_button"}
        await self._voice.answer_callback(pressed.callback_id, texts.say(keys[found.what]))

    async def _again(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        texts = get_chat_texts(place)
        asked = await self._wishes.retry(place, update_id=pressed.update_id, turn=press.subject or None)
        await self._voice.answer_callback(
            pressed.callback_id, texts.say("answering_again" if asked else "unknown_button")
        )
        if press.action is ButtonAction.ANSWER_EDITED and pressed.message_id is not None:
            await self._voice.delete(get_chat_target(place), pressed.message_id)

    async def _view(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        summary = await self._desk.stores.telegram_chats.newest_summary(place.session_id)
        if summary is None or summary.link_id != press.subject:
            await self._out_of_date(place, pressed)
            return
        await self._voice.answer_callback(pressed.callback_id)
        text = translate_headings(summary.text, get_command_texts(place))
        await self._voice.send(
            get_chat_target(place), f"{get_chat_texts(place).say('summary_title')}\n\n{text}", silent=True
        )

    async def _undo(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """Of the newest summary only; pressed twice, the second press finds nothing left to undo."""
        summary = await self._desk.stores.telegram_chats.newest_summary(place.session_id)
        if summary is None or summary.link_id != press.subject:
            await self._out_of_date(place, pressed)
            return
        outcome = await self._run(place, "undo")
        words = outcome.result
        await self._voice.answer_callback(pressed.callback_id)
        if outcome.success:
            await self._put(place, pressed, words)
        else:
            await self._voice.send(get_chat_target(place), words, silent=True)

    async def _remind(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """Of one that waits still."""
        ids = [one.id for one in await list_reminders(self._desk, place)]
        if press.subject not in ids or press.word not in ("cancel", "pause", "resume"):
            await self._out_of_date(place, pressed)
            return
        outcome = await self._run(place, "reminders", f"{press.word} #{press.subject}")
        await self._voice.answer_callback(pressed.callback_id)
        buttons = build_reminder_buttons(place, await list_reminders(self._desk, place))
        await self._put(place, pressed, outcome.result, keyboard=buttons)

    async def _choose(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """One of what a command offers now; what it no longer offers does nothing."""
        name, _, mark = press.word.partition("=")
        table = commands_for(channel="telegram", audience=self._desk.audience, speaks=self._desk.speaks)
        if name not in CHOSEN_BY_BUTTON.intersection(command.name for command in table):
            await self._out_of_date(place, pressed)
            return
        offered = {choice_mark(one.args): one.args for one in (await self._run(place, name)).choices}
        if mark not in offered:
            await self._out_of_date(place, pressed)
            return
        outcome = await self._run(place, name, offered[mark])
        await self._voice.answer_callback(pressed.callback_id)
        buttons = build_choice_buttons(place, name, outcome.choices)
        await self._put(place, pressed, outcome.result, keyboard=buttons)

    async def _forget_all(self, place: ChatRow, pressed: CallbackQuery) -> None:
        """Only after a preview a short while ago; pressed twice, nothing is asked any more."""
        outcome = await self._run(place, "forget", "everything yes")
        if not outcome.success:
            await self._out_of_date(place, pressed)
            return
        await self._voice.answer_callback(pressed.callback_id)
        await self._put(place, pressed, outcome.result)

    async def _keep_all(self, place: ChatRow, pressed: CallbackQuery) -> None:
        await self._forgetting.take_confirmation(place.session_id)
        await self._voice.answer_callback(pressed.callback_id)
        await self._put(place, pressed, get_chat_texts(place).say("nothing_erased"))

    async def _rate(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """The first counts; pressed again, that one is shown."""
        rating = int(press.word) if press.word in ("1", "2", "3", "4", "5") else 0
        stored = rating and await self._desk.stores.inbox.rate(place.session_id, press.subject, rating)
        if not stored:
            await self._out_of_date(place, pressed)
            return
        await self._voice.answer_callback(pressed.callback_id)
        stars = "★" * stored + "☆" * (5 - stored)
        await self._put(place, pressed, get_chat_texts(place).say("rated", stars=stars))

    async def _out_of_date(self, place: ChatRow, pressed: CallbackQuery) -> None:
        await self._voice.answer_callback(pressed.callback_id, get_chat_texts(place).say("unknown_button"))

    async def _run(self, place: ChatRow, name: str, args: str = "") -> BotCommandResult:
        return await self._commands.run(
            session_id=place.session_id, address_id=place.address_id, name=name, args=args,
            channel="telegram", audience=self._desk.audience, language=get_chat_texts(place).language,
        )  # fmt: skip

    async def _put(
        self,
        place: ChatRow,
        pressed: CallbackQuery,
        words: str,
        *,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> None:
        if pressed.message_id is not None and pressed.accessible:
            await self._voice.edit(get_chat_target(place), pressed.message_id, words, keyboard=keyboard)
        else:
            await self._voice.send(get_chat_target(place), words, keyboard=keyboard, silent=True)

    async def _set(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        name, _, value = press.word.partition("=")
        known = (name in SWITCH_SETTINGS and name in self._offered) or (
            name == "language" and value in (CHOOSE, *list_languages())
        )
        if not known:
            await self._out_of_date(place, pressed)
            return
        if value == CHOOSE:
            await self._voice.answer_callback(pressed.callback_id)
            title = get_chat_texts(place).say("settings_title")
            await self._put(place, pressed, title, keyboard=build_language_buttons(place))
            return
        change: dict[str, object] = {name: value if name == "language" else value == "on"}
        await self._desk.stores.telegram_chats.change_settings(place.address_id, change)
        changed = await self._desk.stores.telegram_chats.place(place.address_id) or place
        texts = get_chat_texts(changed)
        await self._voice.answer_callback(pressed.callback_id, texts.say("saved"))
        if pressed.message_id is not None and pressed.accessible:
            buttons = build_settings_buttons(changed, offered=self._offered)
            await self._voice.edit(
                get_chat_target(place), pressed.message_id, texts.say("settings_title"), keyboard=buttons
            )
