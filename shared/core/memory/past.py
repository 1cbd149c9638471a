"""Messages exported from other programs, which become an archived conversation of a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from shared.core.values.errors import BadInput

PastSource = Literal["telegram", "chatgpt", "claude", "whatsapp"]
"""Programs whose exports can be imported."""

SummariesState = Literal["off", "due", "done", "capped", "stopped"]
"""State of an import's summaries.

`off`: not before the import is complete; `due`, `done`; `capped`: its budget is used up; `stopped`: by its
person.
"""

MOST_MESSAGES = 1_000_000
"""Most messages of one import; a busy chat of ten years has about 300,000."""
MOST_CHARS = 20_000
"""Most characters of a message that are stored; the rest is cut."""
MOST_LINES = 20
"""Most messages of one turn; the index reads about a hundred turns at once."""
PAUSE = timedelta(hours=1)
"""Pause after which a message begins a new turn."""
MOST_CHATS = 10_000
"""Most conversations of an export that are counted."""
CUT = "…"
"""Sign at the end of a shortened text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage:
    """Message of an exported chat; `speaker` is empty for the person and for an assistant.

    Others are named, as in a group.
    """

    text: str
    at: datetime
    is_assistant: bool = False
    speaker: str = ""
    thread: str = ""
    """Title of the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLine:
    """Line of an imported conversation, written by `author` at the time `at`."""

    author: Literal["person", "assistant"]
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """Turn of an imported conversation: its lines, and the number of exported messages that they were made
    from.
    """

    lines: tuple[PastLine, ...]
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastImport:
    """Import of one export file; `id` is the public id of the archived conversation that it fills.

    `is_whole` is True once all messages are stored.
    """

    id: str
    session_id: int
    source: str
    messages: int
    """Number of the file's messages that are stored."""
    began_at: datetime
    is_whole: bool = False
    first_at: datetime | None = None
    last_at: datetime | None = None
    summaries: SummariesState = "off"
    summarised_turns: int = 0
    """Number of turns that summaries cover."""
    turns: int = 0
    cost_micro: int = 0
    """Micro-dollars that the summaries have cost."""

    @property
    def summarised_percent(self) -> int:
        """Share of turns that have a summary, 0 to 100, rounded down; 0 without turns."""
        return 100 * self.summarised_turns // self.turns if self.turns else 0


def group_turns(messages: Iterable[PastMessage]) -> Iterator[PastTurn]:
    """Yield the messages, which are in order of time, grouped into turns, each as soon as it is complete.

    A turn ends with the assistant's answer, with a pause of an hour, or after 20 messages. Starting again at
    the first message of any turn gives the same turns.
    """
    waiting: list[PastMessage] = []
    for message in messages:
        if waiting and _begins_turn(message, waiting):
            yield _turn(waiting)
            waiting = []
        waiting.append(message)
    if waiting:
        yield _turn(waiting)


def _begins_turn(message: PastMessage, before: list[PastMessage]) -> bool:
    last = before[-1]
    if message.thread != last.thread or len(before) >= MOST_LINES:
        return True
    if last.is_assistant != message.is_assistant:
        return last.is_assistant
    return not message.is_assistant and abs(message.at - last.at) > PAUSE


def _turn(messages: list[PastMessage]) -> PastTurn:
    """Return one turn: a line for each message of the person, then the assistant's messages as one answer.

    Without a message of the person, the title of the conversation takes its place.
    """
    said = [message for message in messages if not message.is_assistant]
    answers = [message for message in messages if message.is_assistant]
    lines = [PastLine(author="person", text=_line(message), at=message.at) for message in said]
    if not lines:
        lines.append(PastLine(author="person", text=cut(answers[0].thread) or CUT, at=answers[0].at))
    if answers:
        text = cut("\n\n".join(message.text for message in answers))
        lines.append(PastLine(author="assistant", text=text, at=answers[0].at))
    return PastTurn(lines=tuple(lines), messages=len(messages))


def _line(message: PastMessage) -> str:
    return cut(f"{message.speaker}: {message.text}" if message.speaker else message.text)


def cut(text: str) -> str:
    """Return a text as the database accepts it, without outer blanks, at most 20,000 characters.

    NUL is removed, and lone surrogates become question marks; a shortened text ends with an ellipsis.
    """
    plain = text[: MOST_CHARS + 1].replace("\0", "").encode("utf-8", "replace").decode().strip()
    return plain if len(plain) <= MOST_CHARS else f"{plain[: MOST_CHARS - 1]}{CUT}"


FileState = Literal["receiving", "looking", "ready", "importing", "done", "failed"]
"""States of an uploaded export.

`receiving`: the upload runs; `looking`: a worker counts its messages; `ready`: waits for the person's start;
`importing`, `done` and `failed`.
"""
FileError = Literal["unknown_kind", "unreadable", "packed_too_large", "locked", "empty"]
"""Reasons why an uploaded export cannot be imported."""
MOST_FILE_BYTES = 256 * 2**20
"""Most bytes of an uploaded export; a chat of ten years without media has about 100 MB."""
MOST_UNPACKED_BYTES = 2**30
"""Most bytes to which the messages of a compressed export may expand."""
PIECE_BYTES = 2**19
"""Bytes of one piece of an upload; an interrupted upload repeats at most one piece."""
MOST_FILES = 16
"""Most uploads at the same time in a deployment, which together hold at most 4 GiB."""


class ImportRefused(BadInput):
    """Uploaded export that cannot be imported; `error` is the reason as a key."""

    sentence = "The uploaded export cannot be imported."

    def __init__(self, error: FileError) -> None:
        super().__init__(f"the file is refused: {error}")
        self.error: FileError = error


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPast:
    """Content of an export before its import: numbers of messages and conversations, and first and last time.

    Times are None if there is no message.
    """

    source: PastSource
    messages: int
    chats: int
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFile:
    """Uploaded export of a person, with the progress of its upload and import.

    `size` and `received` are bytes. `me` is the person's name in the export, empty until it is chosen;
    `error` is empty unless it failed.
    """

    id: int
    public_id: str
    session_id: int
    size: int
    received: int
    state: FileState
    source: PastSource | None = None
    found: FoundPast | None = None
    me: str = ""
    error: str = ""
    stored: int = 0
    """Number of messages imported so far."""
    epoch: int = 0
    """Number of the claim; it grows each time a worker claims the file."""


def look_through(source: PastSource, messages: Iterable[PastMessage]) -> FoundPast:
    """Return the number of messages and conversations in an export, and its time span, without storing
    anything.

    Stops after a million messages and counts at most 10,000 conversations.
    """
    number, threads = 0, set[str]()
    first: datetime | None = None
    last: datetime | None = None
    for message in messages:
        number += 1
        if len(threads) < MOST_CHATS:
            threads.add(message.thread)
        first = message.at if first is None or message.at < first else first
        last = message.at if last is None or message.at > last else last
        if number >= MOST_MESSAGES:
            break
    return FoundPast(source=source, messages=number, chats=len(threads), first_at=first, last_at=last)
