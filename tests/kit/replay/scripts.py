"""Reads recorded conversations of two people; the words of one of them become the person's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FORMAT = (
    "It must be JSON: a list of conversations, each with `sample_id` and `conversation`, which holds "
    "`speaker_a`, `session_1`, `session_1_date_time` and so on; every line has `speaker` and `text`."
)


class BadScript(Exception):
    """The recording cannot be played; `advice` says what to do."""

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationScript:
    """The messages of one person over several sessions, in order."""

    id: str
    person: str
    messages: tuple[str, ...]
    sessions: int


def read_scripts(
    path: Path, *, only: str | None = None, limit: int | None = None
) -> tuple[ConversationScript, ...]:
    """Return every conversation of the file, or the one with the id `only`, cut to `limit` messages.

    Raises BadScript if the file cannot be read or has no such conversation.
    """
    found = [_script(value, number) for number, value in enumerate(_conversations(path), start=1)]
    chosen = [script for script in found if only in (None, script.id)]
    if not chosen:
        ids = ", ".join(script.id for script in found) or "none"
        raise BadScript(f"{path} has no conversation {only!r}", advice=f"It has: {ids}.")
    return tuple(_cut(script, limit) for script in chosen)


def _conversations(path: Path) -> Sequence[Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadScript(f"there is no file {path}", advice="Name a recording that exists.") from None
    except OSError as error:
        raise BadScript(f"{path} cannot be read: {error.strerror}", advice="Name a readable file.") from None
    except (ValueError, RecursionError):
        raise BadScript(f"{path} is not JSON", advice=_FORMAT) from None
    whole = [value] if isinstance(value, dict) else value
    if not isinstance(whole, list) or not whole:
        raise BadScript(f"{path} holds no conversations", advice=_FORMAT)
    return whole


def _script(value: Any, number: int) -> ConversationScript:
    talk = value.get("conversation") if isinstance(value, dict) else None
    if not isinstance(talk, dict):
        raise BadScript(f"conversation {number} has no `conversation`", advice=_FORMAT)
    name = str(value.get("sample_id") or f"conversation-{number}")
    person = talk.get("speaker_a")
    if not isinstance(person, str):
        raise BadScript(f"{name} has no `speaker_a`", advice=_FORMAT)
    sessions = list(_sessions(talk, name))
    messages = [text for date, lines in sessions for text in _words(lines, person, date, name)]
    if not messages:
        raise BadScript(f"{name} has no words of {person}", advice=_FORMAT)
    return ConversationScript(id=name, person=person, messages=tuple(messages), sessions=len(sessions))


def _sessions(talk: Mapping[str, Any], name: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the name and lines of each session in order; dates without lines are left out."""
    numbers = sorted(
        int(key.removeprefix("session_")) for key in talk if key.removeprefix("session_").isdecimal()
    )
    for number in numbers:
        lines = talk[f"session_{number}"]
        if not isinstance(lines, list):
            raise BadScript(f"{name} session_{number} is not a list", advice=_FORMAT)
        yield str(talk.get(f"session_{number}_date_time", "")), lines


def _words(lines: Sequence[Any], person: str, date: str, name: str) -> Iterator[str]:
    """Yield the person's words.

    The first message of a session also says its date, which may be days later.
    """
    begun = False
    for line in lines:
        if not isinstance(line, dict) or not isinstance(line.get("text"), str) or "speaker" not in line:
            raise BadScript(f"{name} has a line without `speaker` and `text`", advice=_FORMAT)
        if line["speaker"] != person:
            continue
        text = str(line["text"]).strip()
        if caption := line.get("blip_caption"):
            text = f"{text} (shows a picture: {caption})".strip()
        if not text:
            continue
        yield text if begun or not date else f"[{date}] {text}"
        begun = True


def _cut(script: ConversationScript, limit: int | None) -> ConversationScript:
    messages = script.messages[:limit]
    return ConversationScript(id=script.id, person=script.person, messages=messages, sessions=script.sessions)
