"""Reading of the text file that WhatsApp exports of a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import NamedTuple, TextIO

from shared.core.memory.past import MOST_CHARS, PastMessage
from shared.core.values.errors import BadInput

MOST_LINE_CHARS = 2**16
"""Maximum characters of a line; a longer line is read as several."""
_BEGIN = re.compile(
    r"\[?(\d{1,4})[./-](\d{1,2})[./-](\d{1,4}),? (\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?"
    r"(?: ?([AaPp])\.?[Mm]\.?)?(?:\]| -) "
)
_MARKS = dict.fromkeys(map(ord, "\u200e\u200f\u202a\u202c\ufeff")) | {0x202F: " ", 0xA0: " "}
_OMITTED = re.compile(r"<[^<>\n]{1,60}>$|[\w ]{1,30} omitted$")
_ADVICE = "Export the chat in WhatsApp without media, and name the file _chat.txt."


class _Stamp(NamedTuple):
    numbers: tuple[int, int, int]
    hour: int
    minute: int
    second: int


def read_whatsapp(path: Path, *, zone: tzinfo, me: str = "") -> Iterator[PastMessage]:
    """Yield the messages of a chat; those written by `me` have "" as speaker.

    `zone` is the time zone of the file's times. Raises BadInput for a file of another form.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        order = _find_order(_stamps(file))
    if order is None:
        raise BadInput("there are no messages of WhatsApp in the file", advice=_ADVICE)
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        yield from _messages(file, order, zone, me)


def _messages(file: TextIO, order: str, zone: tzinfo, me: str) -> Iterator[PastMessage]:
    at: datetime | None = None
    speaker, lines, length = "", [""], 0
    for line in _lines(file):
        stamp, rest = _read_stamp(line)
        if stamp is None:
            if at is not None and length < MOST_CHARS:
                lines.append(line)
                length += len(line)
            continue
        if at is not None:
            yield from _message(speaker, lines, at, me)
        at = _time(stamp, order, zone)
        speaker, colon, text = rest.partition(": ")
        if not colon or len(speaker) > 100:
            at = None  # a line of the program itself
        lines, length = [text], len(text)
    if at is not None:
        yield from _message(speaker, lines, at, me)


def _message(speaker: str, lines: list[str], at: datetime, me: str) -> Iterator[PastMessage]:
    text = "\n".join(lines).strip()
    if text and not _OMITTED.match(text):
        yield PastMessage(text=text, at=at, speaker="" if speaker == me else speaker)


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(MOST_LINE_CHARS):
        yield line.rstrip("\r\n").translate(_MARKS)


def _read_stamp(line: str) -> tuple[_Stamp | None, str]:
    match = _BEGIN.match(line)
    if match is None:
        return None, line
    one, two, three, hour, minute, second, half = match.groups()
    hours = int(hour) % 12 + 12 * (half in "Pp") if half else int(hour)
    stamp = _Stamp((int(one), int(two), int(three)), hours, int(minute), int(second or 0))
    return stamp, line[match.end() :]


def _stamps(file: TextIO) -> Iterator[_Stamp]:
    for line in _lines(file):
        stamp, _ = _read_stamp(line)
        if stamp is not None:
            yield stamp


def _find_order(stamps: Iterable[_Stamp]) -> str | None:
    """Return the order of day, month and year, such as "dmy", judged by all dates; None without any."""
    first = second = 0
    for stamp in stamps:
        first, second = max(first, stamp.numbers[0]), max(second, stamp.numbers[1])
    if not first:
        return None
    if first > 31:
        return "ymd"
    return "mdy" if second > 12 else "dmy"


def _time(stamp: _Stamp, order: str, zone: tzinfo) -> datetime | None:
    by_place = dict(zip(order, stamp.numbers, strict=True))
    year = by_place["y"] + (2000 if by_place["y"] < 100 else 0)
    day, clock = (by_place["m"], by_place["d"]), (stamp.hour, stamp.minute, stamp.second)
    try:
        return datetime(year, *day, *clock, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
