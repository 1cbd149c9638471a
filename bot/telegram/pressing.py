"""What happens when a button is pressed; nothing that a button says is believed unchecked."""

from __future__ import annotations

from typing import Protocol

import structlog

from bot.telegram.access import Doorkeeper
from bot.telegram.admins import Admins
from bot.telegram.arrivals import Pressed
from bot.telegram.buttons import SWITCHES, under_settings
from bot.telegram.commanding import RunsCommands
from bot.telegram.desk import Desk, texts_of
from bot.telegram.keyboards import Action, Press, read_press
from bot.telegram.remembered import Remembered
from bot.telegram.texts import texts_for
from bot.telegram.uncertain import UncertainNotices
from bot.telegram.voice import Voice, spot
from bot.telegram.wishes import GO_ON, SHORTER, Wishes
from shared.adapters.postgres.telegram.chats import PlaceRow

log = structlog.get_logger(__name__)

_ADMINS_ONLY = frozenset(
    {
        Action.UNDO_SUMMARY,
        Action.SETTING,
        Action.FORGET_NOTE,
        Action.BRING_BACK,
        Action.FORGET_ALL,
        Action.KEEP_ALL,
    }
)
_OF_MEMORY = frozenset({Action.FORGET_NOTE, Action.BRING_BACK, Action.PAGE})
"""Nobody is told of a memory where strangers are served."""


_UNDER_ANSWERS = frozenset({Action.REGENERATE, Action.CONTINUE, Action.SHORTER})


class Stops(Protocol):
    async def stop(self, session_id: int) -> bool: ...


class Forgets(Protocol):
    async def confirmed(self, session_id: int) -> bool: ...


class BringsAnswers(Protocol):
    """`Delivery`."""

    @property
    def uncertain(self) -> UncertainNotices: ...
    def bring(self, session_id: int, turn: int) -> None: ...


class Pressing:
    """For one bot."""

    def __init__(
        self,
        desk: Desk,
        *,
        door: Doorkeeper,
        voice: Voice,
        commands: RunsCommands,
        conversation: Stops,
        wishes: Wishes,
        admins: Admins,
        remembered: Remembered,
        forgetting: Forgets,
        delivery: BringsAnswers,
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
        self._forgetting = forgetting
        self._delivery = delivery
        self._offered = offered

    async def pressed(self, pressed: Pressed) -> None:
        texts = texts_for(pressed.sender.language_code)
        press = read_press(pressed.data)
        if press is None:
            await self._voice.nod(pressed.callback_id, texts.unknown_button)
            return
        place = await self._desk.stores.places.place(press.address_id)
        if place is None or not self._is_theirs(place, pressed) or not await self._door.may_press(pressed):
            await self._voice.nod(pressed.callback_id, texts.others_button)
            return
        if not await self._may(place, press, pressed):
            await self._voice.nod(pressed.callback_id, texts.others_button)
            return
        if press.action in _UNDER_ANSWERS and pressed.message_id is not None:
            await self._delivery.uncertain.was_pressed(place, press.subject, pressed.message_id)
        await self._do(place, press, pressed)

    async def _may(self, place: PlaceRow, press: Press, pressed: Pressed) -> bool:
        if self._desk.public and press.action in _OF_MEMORY:
            return False
        if place.chat_id > 0 or press.action not in _ADMINS_ONLY:
            return True
        return await self._admins.is_admin(place.chat_id, pressed.sender.user_id)

    def _is_theirs(self, place: PlaceRow, pressed: Pressed) -> bool:
        """What is in a button can be forged: the place must be in the chat that the press came from."""
        where = pressed.where
        return where is not None and (place.bot_id, place.chat_id) == (self._desk.bot_id, where.chat_id)

    async def _do(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        match press.action:
            case Action.STOP:
                await self._stop(place, pressed)
            case Action.BRING:
                await self._bring(place, press, pressed)
            case Action.REGENERATE | Action.ANSWER_EDITED:
                await self._again(place, press, pressed)
            case Action.CONTINUE | Action.SHORTER:
                words = GO_ON if press.action is Action.CONTINUE else SHORTER
                await self._wishes.say(place, words, update_id=pressed.update_id)
                await self._voice.nod(pressed.callback_id)
            case Action.VIEW_SUMMARY:
                await self._view(place, press, pressed)
            case Action.UNDO_SUMMARY:
                await self._undo(place, press, pressed)
            case Action.SETTING:
                await self._set(place, press, pressed)
            case Action.CLOSE:
                if pressed.message_id is not None:
                    await self._voice.take_away(spot(place), pressed.message_id)
                await self._voice.nod(pressed.callback_id)
            case _:
                await self._do_with_memory(place, press, pressed)

    async def _do_with_memory(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        match press.action:
            case Action.PAGE:
                await self._remembered.turn_to(place, press, pressed)
            case Action.FORGET_NOTE:
                await self._remembered.put_away(place, press, pressed)
            case Action.BRING_BACK:
                await self._remembered.bring_back(place, press, pressed)
            case Action.FORGET_ALL:
                await self._forget_all(place, pressed)
            case Action.KEEP_ALL:
                await self._keep_all(place, pressed)
            case _:
                await self._voice.nod(pressed.callback_id, texts_of(place).unknown_button)

    async def _stop(self, place: PlaceRow, pressed: Pressed) -> None:
        texts = texts_of(place)
        stopping = await self._conversation.stop(place.session_id)
        await self._voice.nod(pressed.callback_id, texts.stopping if stopping else texts.nothing_to_stop)

    async def _bring(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        """Of an answer that may not have arrived; pressed twice, the second press finds it under way."""
        texts = texts_of(place)
        found = await self._delivery.uncertain.press(
            place,
            press.subject,
            round_number=int(press.word) if press.word.isdecimal() else 0,
            message_id=pressed.message_id if pressed.accessible else None,
        )
        if found.what == "brought":
            self._delivery.bring(found.session_id, found.turn)
        words = {"brought": texts.bringing, "before": texts.brought_before, "gone": texts.unknown_button}
        await self._voice.nod(pressed.callback_id, words[found.what])

    async def _again(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        texts = texts_of(place)
        asked = await self._wishes.again(place, update_id=pressed.update_id, turn=press.subject or None)
        await self._voice.nod(pressed.callback_id, texts.answering_again if asked else texts.unknown_button)
        if press.action is Action.ANSWER_EDITED and pressed.message_id is not None:
            await self._voice.take_away(spot(place), pressed.message_id)

    async def _view(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        texts = texts_of(place)
        summary = await self._desk.stores.places.newest_summary(place.session_id)
        if summary is None or summary.link_id != press.subject:
            await self._voice.nod(pressed.callback_id, texts.unknown_button)
            return
        await self._voice.nod(pressed.callback_id)
        await self._voice.say(spot(place), f"{texts.summary_title}\n\n{summary.text}", silent=True)

    async def _undo(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        """Of the newest summary only; pressed twice, the second press finds nothing left to undo."""
        texts = texts_of(place)
        summary = await self._desk.stores.places.newest_summary(place.session_id)
        if summary is None or summary.link_id != press.subject:
            await self._voice.nod(pressed.callback_id, texts.unknown_button)
            return
        outcome = await self._commands.run(
            session_id=place.session_id, address_id=place.address_id, name="undo",
            channel="telegram", audience=self._desk.audience, language=texts.language,
        )  # fmt: skip
        words = outcome.result
        await self._voice.nod(pressed.callback_id)
        if outcome.success:
            await self._put(place, pressed, words)
        else:
            await self._voice.say(spot(place), words, silent=True)

    async def _forget_all(self, place: PlaceRow, pressed: Pressed) -> None:
        """Only after a preview a short while ago; pressed twice, nothing is asked any more."""
        texts = texts_of(place)
        outcome = await self._commands.run(
            session_id=place.session_id, address_id=place.address_id, name="forget", args="everything yes",
            channel="telegram", audience=self._desk.audience, language=texts.language,
        )  # fmt: skip
        await self._voice.nod(pressed.callback_id, "" if outcome.success else texts.unknown_button)
        if outcome.success:
            await self._put(place, pressed, outcome.result)

    async def _keep_all(self, place: PlaceRow, pressed: Pressed) -> None:
        await self._forgetting.confirmed(place.session_id)
        await self._voice.nod(pressed.callback_id)
        await self._put(place, pressed, texts_of(place).nothing_erased)

    async def _put(self, place: PlaceRow, pressed: Pressed, words: str) -> None:
        if pressed.message_id is not None and pressed.accessible:
            await self._voice.change(spot(place), pressed.message_id, words)
        else:
            await self._voice.say(spot(place), words, silent=True)

    async def _set(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        name, _, value = press.word.partition("=")
        known = (name in SWITCHES and name in self._offered) or (name == "language" and value in ("en", "de"))
        if not known:
            await self._voice.nod(pressed.callback_id, texts_of(place).unknown_button)
            return
        change: dict[str, object] = {name: value if name == "language" else value == "on"}
        await self._desk.stores.places.change_settings(place.address_id, change)
        changed = await self._desk.stores.places.place(place.address_id) or place
        texts = texts_of(changed)
        await self._voice.nod(pressed.callback_id, texts.saved)
        if pressed.message_id is not None and pressed.accessible:
            buttons = under_settings(changed, offered=self._offered)
            await self._voice.change(spot(place), pressed.message_id, texts.settings_title, keyboard=buttons)
