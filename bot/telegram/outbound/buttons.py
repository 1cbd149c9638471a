"""Which buttons stand under which message."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from bot.telegram.inbound.bot_context import get_chat_texts
from bot.telegram.outbound.keyboards import Button, ButtonAction, ButtonPress, build_keyboard
from bot.telegram.texts import Texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.memory.search import MessagesFound
from shared.core.tools.reminders import Reminder
from shared.services.commands.command_call import Choice

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

SWITCH_SETTINGS = ("notices", "drafts", "rich")
"""Settings of a chat that are on or off."""
BUTTONS_PER_ROW = 4
CHOSEN_BY_BUTTON = frozenset({"mode", "model"})
"""Commands whose choices stand as buttons below what they say. Notes have buttons by id in the list of
`/memory`: a number below an old preview would erase another note for good."""
ON_BY_DEFAULT = frozenset({"notices"})


def build_answer_buttons(place: ChatRow, turn: int, state: str) -> InlineKeyboardMarkup | None:
    """Stop while it is written; then what can be wished about it. Groups have no buttons to quarrel about."""
    texts = get_chat_texts(place)
    if state == "running":
        return _row(place, turn, (texts.stop, ButtonAction.STOP))
    if place.chat_id < 0:
        return None
    if state == "answered":
        return _row(
            place, turn,
            (texts.regenerate, ButtonAction.REGENERATE),
            (texts.shorter, ButtonAction.SHORTER),
            (texts.longer, ButtonAction.CONTINUE),
        )  # fmt: skip
    return _row(place, turn, (texts.regenerate, ButtonAction.REGENERATE))


def build_summary_buttons(place: ChatRow, link_id: int) -> InlineKeyboardMarkup | None:
    texts = get_chat_texts(place)
    return _row(
        place, link_id, (texts.view, ButtonAction.VIEW_SUMMARY), (texts.undo, ButtonAction.UNDO_SUMMARY)
    )


def build_note_buttons(
    place: ChatRow,
    notes: Sequence[tuple[int, int]],
    *,
    mark: str,
    undo: int | None = None,
    back: int | None = None,
    on: int | None = None,
    all_notes: bool = False,
) -> InlineKeyboardMarkup | None:
    """`notes` are numbers and ids; `mark` tells a press which list it came from."""
    texts = get_chat_texts(place)
    bins = [
        _button(place, note_id, f"🗑 {number}", ButtonAction.FORGET_NOTE, mark) for number, note_id in notes
    ]
    rows = [bins[start : start + BUTTONS_PER_ROW] for start in range(0, len(bins), BUTTONS_PER_ROW)]
    if undo is not None:
        rows.append([_button(place, undo, texts.undo, ButtonAction.BRING_BACK, mark)])
    ways = [(texts.previous, back), (texts.following, on), (texts.all_notes, 0 if all_notes else None)]
    rows.append([_button(place, page, label, ButtonAction.PAGE) for label, page in ways if page is not None])
    return build_keyboard(rows)


def build_search_buttons(
    place: ChatRow, found: MessagesFound, *, linked: bool, begun: bool
) -> InlineKeyboardMarkup | None:
    """A number for each result, unless they are links; and ways to older ones and back to the newest."""
    texts = get_chat_texts(place)
    numbers = [
        _button(place, int(hit.mid[1:]), f"→ {number}", ButtonAction.LEAD_TO, str(hit.key.session_id))
        for number, hit in enumerate(() if linked else found.hits, 1)
    ]
    rows = [numbers[start : start + BUTTONS_PER_ROW] for start in range(0, len(numbers), BUTTONS_PER_ROW)]
    ways = [] if begun else [_button(place, 0, texts.previous, ButtonAction.SEARCH_ON)]
    if found.next is not None:
        at, _, rest = str(found.next).partition("-")
        word = rest.replace("-", "_")
        ways.append(_button(place, int(at), texts.following, ButtonAction.SEARCH_ON, word))
    return build_keyboard([*rows, ways])


def build_reminder_buttons(place: ChatRow, waiting: Sequence[Reminder]) -> InlineKeyboardMarkup | None:
    """A row for each, in the order of their numbers: what repeats can pause, and all can be cancelled."""
    rows = []
    for number, one in enumerate(waiting, 1):
        pause = ("▶", "resume") if one.paused else ("⏸", "pause")
        ways = [pause, ("🗑", "cancel")] if one.repeat else [("🗑", "cancel")]
        rows.append(
            [_button(place, one.id, f"{sign} {number}", ButtonAction.REMINDER, verb) for sign, verb in ways]
        )
    return build_keyboard(rows)


def build_choice_buttons(
    place: ChatRow, command: str, choices: Sequence[Choice]
) -> InlineKeyboardMarkup | None:
    """The names that a command offers, below each other."""
    return build_keyboard(
        [
            [_button(place, 0, one.label, ButtonAction.CHOOSE, f"{command}={choice_mark(one.args)}")]
            for one in choices
        ]
    )


def choice_mark(name: str) -> str:
    """Names may be longer than a button can say, and in any script."""
    return sha256(name.encode()).hexdigest()[:12]


def build_erase_buttons(place: ChatRow) -> InlineKeyboardMarkup | None:
    """Before everything is forgotten."""
    texts = get_chat_texts(place)
    return build_keyboard(
        [
            [_button(place, 0, texts.forget_all, ButtonAction.FORGET_ALL)],
            [_button(place, 0, texts.cancel, ButtonAction.KEEP_ALL)],
        ]
    )


def build_edit_buttons(place: ChatRow, turn: int) -> InlineKeyboardMarkup | None:
    texts = get_chat_texts(place)
    return _row(place, turn, (texts.yes, ButtonAction.ANSWER_EDITED), (texts.no, ButtonAction.CLOSE))


def build_uncertain_buttons(place: ChatRow, notice_id: int, round_number: int) -> InlineKeyboardMarkup | None:
    """Below the word that an answer may not have arrived."""
    button = _button(place, notice_id, get_chat_texts(place).bring, ButtonAction.BRING, str(round_number))
    return build_keyboard([[button]])


def build_access_buttons(texts: Texts, chat_id: int) -> InlineKeyboardMarkup | None:
    """Below the word to an owner that somebody wants in."""
    rows = [(texts.allow, ButtonAction.LET_IN), (texts.deny, ButtonAction.KEEP_OUT)]
    word = "group" if chat_id < 0 else ""
    return build_keyboard(
        [
            [
                Button(
                    label=label,
                    press=ButtonPress(action=action, address_id=0, subject=abs(chat_id), word=word),
                )
                for label, action in rows
            ]
        ]
    )


def build_settings_buttons(place: ChatRow, *, offered: frozenset[str]) -> InlineKeyboardMarkup | None:
    """One button for each setting, saying what it is now; pressing it changes it."""
    texts = get_chat_texts(place)
    rows = [
        [
            _switch_button(
                place,
                name,
                texts.setting(name=name, value=texts.on if is_setting_on(place, name) else texts.off),
            )
        ]
        for name in SWITCH_SETTINGS
        if name in offered
    ]
    other = "en" if texts.language == "de" else "de"
    language = texts.setting(name="language", value="Deutsch" if texts.language == "de" else "English")
    rows.append([_button(place, 0, language, ButtonAction.SETTING, f"language={other}")])
    rows.append([_button(place, 0, texts.close, ButtonAction.CLOSE)])
    return build_keyboard(rows)


def is_setting_on(place: ChatRow, name: str) -> bool:
    return bool(place.settings.get(name, name in ON_BY_DEFAULT))


def _switch_button(place: ChatRow, name: str, label: str) -> Button:
    return _button(
        place, 0, label, ButtonAction.SETTING, f"{name}={'off' if is_setting_on(place, name) else 'on'}"
    )


def _row(place: ChatRow, subject: int, *buttons: tuple[str, ButtonAction]) -> InlineKeyboardMarkup | None:
    return build_keyboard([[_button(place, subject, label, action) for label, action in buttons]])


def _button(place: ChatRow, subject: int, label: str, action: ButtonAction, word: str = "") -> Button:
    press = ButtonPress(action=action, address_id=place.address_id, subject=subject, word=word)
    return Button(label=label, press=press)
