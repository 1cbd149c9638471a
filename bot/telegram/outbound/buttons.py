"""Builds inline keyboards, and formats and parses the callback data of their buttons.

Callback data can be forged: the handler of a press checks that it came from the chat of `address_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Self

from aiogram.filters.callback_data import CallbackData
from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

from bot.telegram.texts import get_chat_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.memory.search import MessagesFound
from shared.core.tools.reminders import Reminder
from shared.locales import Catalogue, list_languages, name_language
from shared.services.commands.command_call import Choice, Place

VERSION = "v1"
"""Version of the callback data, with which it begins; buttons of other versions are refused."""


class ButtonAction(StrEnum):
    """Action of a button; a value must never change, because buttons of old messages contain it."""

    STOP = "stop"
    REGENERATE = "again"
    CONTINUE = "more"
    SHORTER = "short"
    ANSWER_EDITED = "redo"
    VIEW_SUMMARY = "sum"
    UNDO_SUMMARY = "undo"
    ARCHIVE_NOTE = "note"
    RESTORE_NOTE = "back"
    ERASE_ALL = "all"
    CANCEL_ERASURE = "keep"
    PAGE = "page"
    SETTING = "set"
    CLOSE = "close"
    RESEND = "bring"
    OPEN_RESULT = "found"
    OLDER_RESULTS = "older"
    REMINDER = "remind"
    CHOOSE = "choose"
    ALLOW_ACCESS = "letin"
    DENY_ACCESS = "keepout"
    RATE = "rate"
    SEND_DRAFT = "send"
    CHANGE_DRAFT = "change"
    KEEP_DRAFT = "unchange"
    DROP_DRAFT = "drop"


_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_DATA = re.compile(rf"{VERSION}:[a-z]{{1,8}}:{_NUMBER}:{_NUMBER}(?P<word>:[a-z0-9_=-]{{1,20}})?")


class ButtonPress(CallbackData, prefix=VERSION, frozen=True):
    """Content of callback data.

    `address_id` is the chat that the button was made for, 0 for a question to an owner. `subject` is the id
    or number of what the action is about, such as a turn, summary, note, page or reminder.
    """

    action: ButtonAction
    address_id: int
    subject: int = 0
    word: str = ""
    """Argument of the action, such as `name=value` of a setting or the verb for a reminder.

    Empty if it has none.
    """

    def pack(self) -> str:
        """Return the callback data of a button; an empty word is left out, as in buttons of older versions.

        Raises ValueError if the data does not fit the format of a button.
        """
        data = super().pack().removesuffix(self.__separator__)
        if _DATA.fullmatch(data) is None:
            raise ValueError(f"no button can say {data!r}")
        return data

    @classmethod
    def unpack(cls, value: str) -> Self:
        """Return the press that callback data describes.

        Raises ValueError for data of another program or version.
        """
        found = _DATA.fullmatch(value)
        if found is None:
            raise ValueError("not of a button of this version")
        return super().unpack(value if found["word"] else f"{value}{cls.__separator__}")


def build_keyboard(rows: Iterable[Sequence[InlineKeyboardButton]]) -> InlineKeyboardMarkup | None:
    """Return an inline keyboard without empty rows.

    None if no button is left, since Telegram refuses that.
    """
    filled = [list(row) for row in rows if row]
    return InlineKeyboardMarkup(inline_keyboard=filled) if filled else None


def build_button(
    address_id: int, subject: int, label: str, action: ButtonAction, word: str = ""
) -> InlineKeyboardButton:
    """Return a button; `subject` and `word` are the fields of `ButtonPress`.

    Raises ValueError if they do not fit in callback data.
    """
    press = ButtonPress(action=action, address_id=address_id, subject=subject, word=word)
    return InlineKeyboardButton(text=label, callback_data=press.pack())


SWITCH_SETTINGS = ("notices", "announce", "drafts", "rich")
"""Names of the settings of a chat that are on or off."""
BUTTONS_PER_ROW = 4
"""Buttons with a number in one row."""
CHOOSE = "choose"
"""Value of the language setting in a button that shows the list of languages."""
CHOSEN_BY_BUTTON = frozenset({"mode", "model", "voice"})
"""Commands whose choices are shown as buttons below their result.

`/forget` is not one of them: a number below an old preview could erase another note.
"""
ON_BY_DEFAULT = frozenset({"notices", "drafts", "rich"})
"""Names of the settings of a chat that are on unless it has switched them off."""


def build_answer_buttons(chat: ChatRow, turn: int, state: str) -> InlineKeyboardMarkup | None:
    """Return the buttons of an answer: Stop while the model writes it, later actions such as Regenerate.

    `state` is that of the turn, or `cut` for an answer at its length limit. A group only gets Stop and
    Continue; None if no button is left.
    """
    if state == "running":
        return _build_row(chat, turn, ("stop", ButtonAction.STOP))
    if state == "cut" and chat.chat_id < 0:
        return _build_row(chat, turn, ("longer", ButtonAction.CONTINUE))
    if chat.chat_id < 0:
        return None
    if state == "cut":
        return _build_row(
            chat, turn, ("longer", ButtonAction.CONTINUE), ("regenerate", ButtonAction.REGENERATE)
        )
    if state == "answered":
        return _build_row(
            chat, turn,
            ("regenerate", ButtonAction.REGENERATE),
            ("shorter", ButtonAction.SHORTER),
            ("longer", ButtonAction.CONTINUE),
        )  # fmt: skip
    return _build_row(chat, turn, ("regenerate", ButtonAction.REGENERATE))


def build_rating_buttons(chat: ChatRow, handover_id: int) -> InlineKeyboardMarkup | None:
    """Return a row of buttons with one to five stars, to rate an operator's help; None for a group."""
    if chat.chat_id < 0:
        return None
    stars = range(1, 6)
    return build_keyboard(
        [[_build_button(chat, handover_id, f"{n} ★", ButtonAction.RATE, str(n)) for n in stars]]
    )


def build_summary_buttons(chat: ChatRow, compaction_id: int) -> InlineKeyboardMarkup | None:
    """Return the buttons below a notice about a summary: view it, and undo it."""
    return _build_row(
        chat, compaction_id, ("view", ButtonAction.VIEW_SUMMARY), ("undo", ButtonAction.UNDO_SUMMARY)
    )


def build_note_buttons(
    chat: ChatRow,
    notes: Sequence[tuple[int, int]],
    *,
    mark: str,
    undo: int | None = None,
    back: int | None = None,
    on: int | None = None,
    all_notes: bool = False,
) -> InlineKeyboardMarkup | None:
    """Return a delete button for each note, and buttons to undo and to turn pages; None if there are none.

    `notes` are pairs of a note's shown number and its id. `mark` names the list, so that a press can show it
    again. `undo` is the id of an archived note, `back` and `on` are page numbers; None leaves out that
    button.
    """
    texts = get_chat_texts(chat)
    bins = [
        _build_button(chat, note_id, f"🗑 {number}", ButtonAction.ARCHIVE_NOTE, mark)
        for number, note_id in notes
    ]
    rows = _arrange_rows(bins)
    if undo is not None:
        rows.append([_build_button(chat, undo, texts.say("undo"), ButtonAction.RESTORE_NOTE, mark)])
    paging = [("previous", back), ("following", on), ("all_notes", 0 if all_notes else None)]
    rows.append(
        [_build_button(chat, at, texts.say(key), ButtonAction.PAGE) for key, at in paging if at is not None]
    )
    return build_keyboard(rows)


def build_search_buttons(
    chat: ChatRow, found: MessagesFound, *, linked: bool, is_first_page: bool
) -> InlineKeyboardMarkup | None:
    """Return a button for each hit, and buttons to turn pages; None if there are none.

    With `linked` the hits are links in the text, and get no buttons.
    """
    texts = get_chat_texts(chat)
    numbers = [
        _build_button(
            chat, int(hit.mid[1:]), f"→ {number}", ButtonAction.OPEN_RESULT, str(hit.key.session_id)
        )
        for number, hit in enumerate(() if linked else found.hits, 1)
    ]
    paging = (
        [] if is_first_page else [_build_button(chat, 0, texts.say("previous"), ButtonAction.OLDER_RESULTS)]
    )
    if found.next is not None:
        at, _, rest = str(found.next).partition("-")
        word = rest.replace("-", "_")
        paging.append(_build_button(chat, int(at), texts.say("following"), ButtonAction.OLDER_RESULTS, word))
    return build_keyboard([*_arrange_rows(numbers), paging])


def build_place_buttons(chat: ChatRow, places: Sequence[Place]) -> InlineKeyboardMarkup | None:
    """Return one button for each cited message of a text, one below the other.

    Pressing it shows the message.
    """
    rows = []
    for place in places:
        label = f"→ {place.number}  {place.label}".rstrip()
        rows.append([_build_button(chat, place.seq, label, ButtonAction.OPEN_RESULT, str(place.session_id))])
    return build_keyboard(rows)


def build_reminder_buttons(chat: ChatRow, waiting: Sequence[Reminder]) -> InlineKeyboardMarkup | None:
    """Return one row of buttons for each reminder: cancel, and pause or resume if it repeats."""
    rows = []
    for number, one in enumerate(waiting, 1):
        pause = ("▶", "resume") if one.paused else ("⏸", "pause")
        actions = [pause, ("🗑", "cancel")] if one.repeat else [("🗑", "cancel")]
        rows.append(
            [
                _build_button(chat, one.id, f"{sign} {number}", ButtonAction.REMINDER, verb)
                for sign, verb in actions
            ]
        )
    return build_keyboard(rows)


def build_choice_buttons(
    chat: ChatRow, command: str, choices: Sequence[Choice]
) -> InlineKeyboardMarkup | None:
    """Return one button for each choice of a command, one below the other."""
    return build_keyboard(
        [
            [_build_button(chat, 0, one.label, ButtonAction.CHOOSE, f"{command}={hash_choice(one.args)}")]
            for one in choices
        ]
    )


def hash_choice(name: str) -> str:
    """Return the first 12 hex digits of the SHA-256 of a choice, whose name may not fit in callback data."""
    return sha256(name.encode()).hexdigest()[:12]


def build_erase_buttons(chat: ChatRow) -> InlineKeyboardMarkup | None:
    """Return the two buttons that confirm or cancel the erasure of everything."""
    texts = get_chat_texts(chat)
    return build_keyboard(
        [
            [_build_button(chat, 0, texts.say("forget_all"), ButtonAction.ERASE_ALL)],
            [_build_button(chat, 0, texts.say("cancel"), ButtonAction.CANCEL_ERASURE)],
        ]
    )


def build_edit_buttons(chat: ChatRow, turn: int) -> InlineKeyboardMarkup | None:
    """Return the buttons below an offer to answer an edited question again."""
    return _build_row(
        chat, turn, ("edited_yes", ButtonAction.ANSWER_EDITED), ("edited_no", ButtonAction.CLOSE)
    )


def build_uncertain_buttons(chat: ChatRow, notice_id: int, round_number: int) -> InlineKeyboardMarkup | None:
    """Return the button that sends an uncertain answer again; `round_number` makes older buttons outdated."""
    label = get_chat_texts(chat).say("bring")
    return build_keyboard([[_build_button(chat, notice_id, label, ButtonAction.RESEND, str(round_number))]])


def build_access_buttons(texts: Catalogue, chat_id: int) -> InlineKeyboardMarkup | None:
    """Return the two buttons for an owner that allow or deny access to a chat."""
    rows = [(texts.say("allow"), ButtonAction.ALLOW_ACCESS), (texts.say("deny"), ButtonAction.DENY_ACCESS)]
    word = "group" if chat_id < 0 else ""
    return build_keyboard([[build_button(0, abs(chat_id), label, action, word) for label, action in rows]])


def build_draft_buttons(texts: Catalogue, draft_id: int, state: str) -> InlineKeyboardMarkup | None:
    """Return the buttons below a draft by its state: `shown`, `changing` or `uncertain`.

    None for other states.
    """
    keys = {
        "shown": (
            ("draft_send", ButtonAction.SEND_DRAFT), ("draft_change", ButtonAction.CHANGE_DRAFT),
            ("draft_drop", ButtonAction.DROP_DRAFT),
        ),
        "changing": (("cancel", ButtonAction.KEEP_DRAFT),),
        "uncertain": (("draft_again", ButtonAction.SEND_DRAFT),),
    }  # fmt: skip
    return build_keyboard(
        [[build_button(0, draft_id, texts.say(key), action) for key, action in keys.get(state, ())]]
    )


def build_settings_buttons(chat: ChatRow, *, offered: frozenset[str]) -> InlineKeyboardMarkup | None:
    """Return one button per setting with its current value; pressing it changes the setting."""
    texts = get_chat_texts(chat)
    rows = []
    for name in SWITCH_SETTINGS:
        if name in offered:
            now, then = ("on", "off") if is_setting_on(chat, name) else ("off", "on")
            label = texts.say(f"setting_{name}", value=texts.say(now))
            rows.append([_build_button(chat, 0, label, ButtonAction.SETTING, f"{name}={then}")])
    language = texts.say("setting_language", value=name_language(texts.language))
    rows.append([_build_button(chat, 0, language, ButtonAction.SETTING, f"language={CHOOSE}")])
    rows.append([_build_button(chat, 0, texts.say("close"), ButtonAction.CLOSE)])
    return build_keyboard(rows)


def build_language_buttons(chat: ChatRow) -> InlineKeyboardMarkup | None:
    """Return one button per language with its own name, two in a row."""
    buttons = [
        _build_button(chat, 0, name_language(language), ButtonAction.SETTING, f"language={language}")
        for language in list_languages()
    ]
    return build_keyboard([buttons[at : at + 2] for at in range(0, len(buttons), 2)])


def is_setting_on(chat: ChatRow, name: str) -> bool:
    """Return whether a setting of the chat is on; a chat that did not choose has the default."""
    return bool(chat.settings.get(name, name in ON_BY_DEFAULT))


def _build_row(
    chat: ChatRow, subject: int, *buttons: tuple[str, ButtonAction]
) -> InlineKeyboardMarkup | None:
    """Return a keyboard of one row; each button is a pair of the key of its label and its action."""
    say = get_chat_texts(chat).say
    return build_keyboard([[_build_button(chat, subject, say(key), action) for key, action in buttons]])


def _build_button(
    chat: ChatRow, subject: int, label: str, action: ButtonAction, word: str = ""
) -> InlineKeyboardButton:
    return build_button(chat.address_id, subject, label, action, word)


def _arrange_rows(buttons: Sequence[InlineKeyboardButton]) -> list[Sequence[InlineKeyboardButton]]:
    """Return the buttons in rows of `BUTTONS_PER_ROW`."""
    return [buttons[at : at + BUTTONS_PER_ROW] for at in range(0, len(buttons), BUTTONS_PER_ROW)]
