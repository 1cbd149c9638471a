"""Buttons under messages and what they say when pressed: compact, versioned, strictly read.

What is in a button can be forged: whoever hears a press checks that the chat it came from has that place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiogram.types import InlineKeyboardMarkup

DATA_BYTES = 64
VERSION = "v1"


class ButtonAction(StrEnum):
    """What a button does; the values are on the wire, for as long as old messages have buttons."""

    STOP = "stop"
    REGENERATE = "again"
    CONTINUE = "more"
    SHORTER = "short"
    ANSWER_EDITED = "redo"
    VIEW_SUMMARY = "sum"
    UNDO_SUMMARY = "undo"
    FORGET_NOTE = "note"
    BRING_BACK = "back"
    FORGET_ALL = "all"
    KEEP_ALL = "keep"
    PAGE = "page"
    SETTING = "set"
    CLOSE = "close"
    BRING = "bring"
    LEAD_TO = "found"
    SEARCH_ON = "older"
    REMINDER = "remind"
    CHOOSE = "choose"
    LET_IN = "letin"
    KEEP_OUT = "keepout"
    RATE = "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress:
    """`address_id` is the place the button was made for, 0 for a question to an owner; `subject` a turn,
    summary, note, page, notice, chat, reminder, message, handover, or the time of one."""

    action: ButtonAction
    address_id: int
    subject: int = 0
    word: str = ""
    """Of a setting its name and value, of a notice its round, of a chat whether it is a group, of a
    reminder what to do, of a message its session, of a time that and the message, and of a choice its
    command and what tells it from the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    label: str
    press: ButtonPress


_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_DATA = re.compile(
    rf"{VERSION}:(?P<action>[a-z]{{1,8}}):(?P<address>{_NUMBER}):(?P<subject>{_NUMBER})(?::(?P<word>[a-z0-9_=-]{{1,20}}))?"
)
_ACTIONS = frozenset(action.value for action in ButtonAction)


def format_callback_data(press: ButtonPress) -> str:
    data = f"{VERSION}:{press.action}:{press.address_id}:{press.subject}"
    if press.word:
        data += f":{press.word}"
    if _DATA.fullmatch(data) is None or len(data) > DATA_BYTES:
        raise ValueError(f"no button can say {data!r}")
    return data


def parse_callback_data(data: str | None) -> ButtonPress | None:
    """None for whatever we have not written, or not in this version."""
    found = _DATA.fullmatch(data or "")
    if found is None or found["action"] not in _ACTIONS:
        return None
    return ButtonPress(
        action=ButtonAction(found["action"]),
        address_id=int(found["address"]),
        subject=int(found["subject"]),
        word=found["word"] or "",
    )


def build_keyboard(rows: Sequence[Sequence[Button]]) -> InlineKeyboardMarkup | None:
    """None without buttons: Telegram refuses an empty keyboard with some calls."""
    from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

    made = [
        [
            InlineKeyboardButton(text=button.label, callback_data=format_callback_data(button.press))
            for button in row
        ]
        for row in rows
        if row
    ]
    return InlineKeyboardMarkup(inline_keyboard=made) if made else None
