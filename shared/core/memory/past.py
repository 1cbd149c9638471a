"""Messages of other programs that become an archived conversation of a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from shared.core.values.errors import BadInput

PastSource = Literal["telegram", "chatgpt", "claude", "whatsapp"]

SummariesState = Literal["off", "due", "done", "capped", "stopped"]
"""`off` until the import is whole; `capped` once its budget is used up; `stopped` by its person."""

MOST_MESSAGES = 1_000_000
"""Messages of one import; a busy chat of ten years has some 300,000."""
MOST_CHARS = 20_000
"""Characters of a message that are kept; messages of a chat are shorter."""
MOST_LINES = 20
"""Messages of a turn; indexing reads some hundred turns at once."""
PAUSE = timedelta(hours=1)
"""Pause after which a message begins a new turn."""
MOST_CHATS = 10_000
"""Conversations of an export that are counted apart."""
CUT = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage:
    """Message of an exported chat; `speaker` is empty for the person and for an assistant."""

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
    """Turn of an imported conversation: its lines, and the number of messages they were made from."""

    lines: tuple[PastLine, ...]
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastImport:
    """Import of one export file; `id` is the public id of the conversation it fills."""

    id: str
    session_id: int
    source: str
    messages: int
    """Messages of the file that are stored."""
    began_at: datetime
    is_whole: bool = False
    first_at: datetime | None = None
    last_at: datetime | None = None
    summaries: SummariesState = "off"
    summarised_turns: int = 0
    """Turns that summaries cover."""
    turns: int = 0
    cost_micro: int = 0
    """Micro-dollars that the summaries have cost."""

    @property
    def summarised_percent(self) -> int:
        return 100 * self.summarised_turns // self.turns if self.turns else 0


def group_turns(messages: Iterable[PastMessage]) -> Iterator[PastTurn]:
    """Group messages into turns, and yield each turn as soon as it is complete.

    Reading again from the beginning of any turn gives the same turns.
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
    """Build one turn from messages: a line for each of the person's, then at most one answer.

    The answer joins the assistant's messages. Without a message of the person, the title of the conversation
    stands in for it.
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
    """Return a text that the database accepts: no NUL or lone surrogates, at most `MOST_CHARS` characters."""
    plain = text[: MOST_CHARS + 1].replace("\0", "").encode("utf-8", "replace").decode().strip()
    return plain if len(plain) <= MOST_CHARS else f"{plain[: MOST_CHARS - 1]}{CUT}"


FileState = Literal["receiving", "looking", "ready", "importing", "done", "failed"]
FileError = Literal["unknown_kind", "unreadable", "packed_too_large", "locked", "empty"]
MOST_FILE_BYTES = 256 * 2**20
"""Bytes of an uploaded export; a chat of ten years without media has some 100 MB."""
MOST_UNPACKED_BYTES = 2**30
"""Bytes that the messages of a packed export may unpack to."""
PIECE_BYTES = 2**19
"""Bytes of a piece; an interrupted upload repeats at most one."""
MOST_FILES = 16
"""Uploads at once in a deployment: together they hold at most 4 GiB."""


class ImportRefused(BadInput):
    """An uploaded export cannot be imported; `error` says why to programs."""

    def __init__(self, error: FileError) -> None:
        super().__init__(f"the file is refused: {error}")
        self.error: FileError = error


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPast:
    """Number of messages and conversations in an export, and their time span, before it is imported."""

    source: PastSource
    messages: int
    chats: int
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFile:
    """Export that a person uploads, with the progress of its upload and import."""

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
    """Messages that are imported."""
    epoch: int = 0
    """Number of the claim by a worker."""


def look_through(source: PastSource, messages: Iterable[PastMessage]) -> FoundPast:
    """Count the messages and conversations of an export, and find its first and last time; store nothing.

    Stops at `MOST_MESSAGES` messages, and counts at most `MOST_CHATS` conversations.
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
