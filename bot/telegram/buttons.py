"""Which buttons stand under which message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.telegram.desk import texts_of
from bot.telegram.keyboards import Action, Button, Press, keyboard
from shared.adapters.postgres.telegram.chats import PlaceRow

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

SWITCHES = ("notices", "drafts", "rich")
"""Settings of a chat that are on or off."""
BINS_IN_A_ROW = 4
USUALLY_ON = frozenset({"notices"})


def under_answer(place: PlaceRow, turn: int, state: str) -> InlineKeyboardMarkup | None:
    """Stop while it is written; then what can be wished about it. Groups have no buttons to quarrel about."""
    texts = texts_of(place)
    if state == "running":
        return _row(place, turn, (texts.stop, Action.STOP))
    if place.chat_id < 0:
        return None
    if state == "answered":
        return _row(
            place, turn,
            (texts.regenerate, Action.REGENERATE),
            (texts.shorter, Action.SHORTER),
            (texts.longer, Action.CONTINUE),
        )  # fmt: skip
    return _row(place, turn, (texts.regenerate, Action.REGENERATE))


def under_summary(place: PlaceRow, link_id: int) -> InlineKeyboardMarkup | None:
    texts = texts_of(place)
    return _row(place, link_id, (texts.view, Action.VIEW_SUMMARY), (texts.undo, Action.UNDO_SUMMARY))


def under_notes(
    place: PlaceRow,
    notes: Sequence[tuple[int, int]],
    *,
    mark: str,
    undo: int | None = None,
    back: int | None = None,
    on: int | None = None,
    all_notes: bool = False,
) -> InlineKeyboardMarkup | None:
    """`notes` are numbers and ids; `mark` tells a press which list it came from."""
    texts = texts_of(place)
    bins = [_button(place, note_id, f"🗑 {number}", Action.FORGET_NOTE, mark) for number, note_id in notes]
    rows = [bins[start : start + BINS_IN_A_ROW] for start in range(0, len(bins), BINS_IN_A_ROW)]
    if undo is not None:
        rows.append([_button(place, undo, texts.undo, Action.BRING_BACK, mark)])
    ways = [(texts.previous, back), (texts.following, on), (texts.all_notes, 0 if all_notes else None)]
    rows.append([_button(place, page, label, Action.PAGE) for label, page in ways if page is not None])
    return keyboard(rows)


def under_last_question(place: PlaceRow) -> InlineKeyboardMarkup | None:
    """Before everything is forgotten."""
    texts = texts_of(place)
    return keyboard(
        [
            [_button(place, 0, texts.forget_all, Action.FORGET_ALL)],
            [_button(place, 0, texts.cancel, Action.KEEP_ALL)],
        ]
    )


def under_edit(place: PlaceRow, turn: int) -> InlineKeyboardMarkup | None:
    texts = texts_of(place)
    return _row(place, turn, (texts.yes, Action.ANSWER_EDITED), (texts.no, Action.CLOSE))


def under_uncertain(place: PlaceRow, notice_id: int, round_number: int) -> InlineKeyboardMarkup | None:
    """Below the word that an answer may not have arrived."""
    button = _button(place, notice_id, texts_of(place).bring, Action.BRING, str(round_number))
    return keyboard([[button]])


def under_settings(place: PlaceRow, *, offered: frozenset[str]) -> InlineKeyboardMarkup | None:
    """One button for each setting, saying what it is now; pressing it changes it."""
    texts = texts_of(place)
    rows = [
        [_switch(place, name, texts.setting(name=name, value=texts.on if is_on(place, name) else texts.off))]
        for name in SWITCHES
        if name in offered
    ]
    other = "en" if texts.language == "de" else "de"
    language = texts.setting(name="language", value="Deutsch" if texts.language == "de" else "English")
    rows.append([_button(place, 0, language, Action.SETTING, f"language={other}")])
    rows.append([_button(place, 0, texts.close, Action.CLOSE)])
    return keyboard(rows)


def is_on(place: PlaceRow, name: str) -> bool:
    return bool(place.settings.get(name, name in USUALLY_ON))


def _switch(place: PlaceRow, name: str, label: str) -> Button:
    return _button(place, 0, label, Action.SETTING, f"{name}={'off' if is_on(place, name) else 'on'}")


def _row(place: PlaceRow, subject: int, *buttons: tuple[str, Action]) -> InlineKeyboardMarkup | None:
    return keyboard([[_button(place, subject, label, action) for label, action in buttons]])


def _button(place: PlaceRow, subject: int, label: str, action: Action, word: str = "") -> Button:
    press = Press(action=action, address_id=place.address_id, subject=subject, word=word)
    return Button(label=label, press=press)
