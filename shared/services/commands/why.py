"""Command `/why`: shows the memory that the request of an answer contained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import NOTE_SHOWN, Markdown, bullets, excerpt, note_list, number_lines
from shared.core.session.session_state import SessionState
from shared.core.tools.reminders import format_moment
from shared.locales import Catalogue
from shared.services.commands.command_call import (
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Ephemeral,
    Guide,
    Place,
)
from shared.services.memory.answer_memory import AnswerMemoryReader, MemoryOfAnswer, ShownPassage

LABEL_CHARS = 36
"""Most characters of a message on its button, so that it fits a phone's width."""
MOST_NAMES = 5
"""Most files and tools that one reply names."""
_MID = re.compile(r"m([1-9][0-9]{0,17})")


class AnsweredStateStore(Protocol):
    """Store of session states; raises UnknownSession."""

    async def load_state(self, session_id: int) -> SessionState: ...


class NoteListStore(Protocol):
    """Store of the numbered note lists that a person was shown; `/forget` accepts their numbers for ten
    minutes.
    """

    async def store_list(
        self, session_id: int, address_id: int, purpose: str, note_ids: Sequence[int]
    ) -> None: ...


class WhyCommand:
    """Handler of `/why`."""

    def __init__(self, states: AnsweredStateStore, reader: AnswerMemoryReader, notes: NoteListStore) -> None:
        self._states = states
        self._reader = reader
        self._notes = notes

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/why` by command name."""
        return {"why": self._why}

    async def _why(self, call: CommandInvocation) -> CommandReply:
        """Reply with the memory of an answer.

        The reply is not stored, since what it shows may be erased later.
        """
        turn = await self._find_turn(call)
        if turn is None:
            return False, Ephemeral(call.texts.say("why_unknown" if call.args else "why_none"))
        shown = await self._reader.read(call.session_id, turn)
        if shown is None:
            return False, Ephemeral(call.texts.say("why_gone"))
        if shown.notes:
            await self._notes.store_list(
                call.session_id, call.address_id or 0, "list", [note.id for note in shown.notes]
            )
        return True, render_memory(shown, call.texts, shown.zone)

    async def _find_turn(self, call: CommandInvocation) -> int | None:
        """Return the turn of the named message, or of the newest answer; None if there is none.

        Raises BadArguments for another argument than an id such as `m12`.
        """
        if not call.args:
            return (await self._states.load_state(call.session_id)).answered_turn or None
        meant = _MID.fullmatch(call.args)
        if meant is None:
            raise BadArguments.from_key("bad_why")
        return await self._reader.find_turn(call.session_id, int(meant[1]))


def render_memory(memory: MemoryOfAnswer, texts: Catalogue, zone: tzinfo) -> Guide:
    """Return the memory in an answer's request as Markdown: notes, messages, files, summary and tools.

    Notes and messages are numbered in one sequence, so that `/forget` accepts the notes' numbers.
    """
    parts: list[Markdown] = []
    if memory.notes:
        parts.append(note_list(texts.say("why_notes"), memory.notes, texts))
    first = len(memory.notes) + 1
    if memory.passages:
        rows = [_render_passage(passage, texts, zone) for passage in memory.passages]
        parts += [texts.say("why_messages"), number_lines(rows, first=first)]
    if memory.files:
        parts += [texts.say("why_files"), bullets([excerpt(name) for name in memory.files[:MOST_NAMES]])]
    also = [texts.say("why_summary")] if memory.has_summary else []
    if memory.tools:
        also.append(texts.say("why_tools", names=", ".join(map(excerpt, memory.tools[:MOST_NAMES]))))
    if not parts and memory.is_whole:
        parts.append(texts.say("why_nothing"))
    if not memory.is_whole:
        also.append(texts.say("why_missing"))
    parts += [" ".join(also)] if also else []
    parts += [texts.say("why_correct")] if memory.notes else []
    places = [
        Place(
            number=number, session_id=passage.session_id, seq=passage.seq, label=_label_passage(passage, zone)
        )
        for number, passage in enumerate(memory.passages, first)
    ]
    return Guide("\n\n".join(parts), places)


def _label_passage(passage: ShownPassage, zone: tzinfo) -> str:
    words = " ".join(passage.text.split())
    shown = words if len(words) <= LABEL_CHARS else f"{words[: LABEL_CHARS - 1].rstrip()}…"
    return f"{passage.at.astimezone(zone):%Y-%m-%d}: {shown}"


def _render_passage(passage: ShownPassage, texts: Catalogue, zone: tzinfo) -> Markdown:
    speaker = texts.say(f"speaker_{passage.author}")
    row = f"{format_moment(passage.at, zone)}, {speaker}: {excerpt(passage.text, most=NOTE_SHOWN)}"
    return f"{row} (`m{passage.seq}`)" if passage.is_here else row
