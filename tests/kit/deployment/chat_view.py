"""Compares a person's chat with the answers: complete, once each, in order, or reported as missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.telegram.outbound.buttons import ButtonAction, ButtonPress
from bot.telegram.texts import get_texts
from tests.kit.fakes.bot_api import Line, Screen

RESEND = get_texts("en").say("bring")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Part of an answer that must be in the chat, below the message `asked`."""

    turn: int
    text: str
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    missing: Sequence[Wanted]
    """Parts that are not where they should be."""
    notices: Sequence[Line]
    """Notices that an answer may be missing."""
    others: Sequence[Line]
    """All other lines of the bot."""


def look(screen: Screen, wanted: Sequence[Wanted]) -> Sight:
    """Compare a screen with the wanted parts, from the last one up.

    No part may be above the one before it.
    """
    notices = [line for line in screen.answers if notice_of(line)]
    lines = [line for line in screen.answers if not notice_of(line)]
    missing, taken, below = [], set(), len(lines)
    for part in reversed(wanted):
        place = _place(part, lines[:below])
        if place is None:
            missing.append(part)
        else:
            below = place
            taken.add(place)
    others = [line for number, line in enumerate(lines) if number not in taken]
    return Sight(missing=missing[::-1], notices=notices, others=others)


def notice_of(line: Line) -> int | None:
    """Return the id of the notice whose button is below this line; None if it is no notice."""
    rows = (line.raw.get("reply_markup") or {}).get("inline_keyboard") or []
    for row in rows:
        for button in row:
            try:
                press = ButtonPress.unpack(button.get("callback_data", ""))
            except ValueError:
                continue
            if press.action is ButtonAction.RESEND:
                return press.subject
    return None


def _place(part: Wanted, lines: Sequence[Line]) -> int | None:
    fitting = (
        number for number, line in enumerate(lines) if line.text == part.text and line.message_id > part.asked
    )
    return max(fitting, default=None)
