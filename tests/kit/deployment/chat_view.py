"""What a person sees in a chat, held against what was answered: whole, once, in order, or told as missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.telegram.outbound.buttons import ButtonAction, ButtonPress
from bot.telegram.texts import get_texts
from tests.kit.fakes.bot_api import Line, Screen

RESEND = get_texts("en").say("bring")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A part of an answer, and the message that asked: the answer is below it."""

    turn: int
    text: str
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    missing: Sequence[Wanted]
    """What was answered and is not where it should be."""
    notices: Sequence[Line]
    """What tells that an answer may be missing."""
    others: Sequence[Line]
    """Whatever else the bot has said."""


def look(screen: Screen, wanted: Sequence[Wanted]) -> Sight:
    """From the last answer up: each line is one part's, and no part stands above the one before it."""
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
    """The number of the notice whose button stands under this line."""
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
