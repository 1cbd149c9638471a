"""Command `/why`: shows which memory the request of an answer held."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import NOTE_SHOWN, Markdown, bullets, excerpt, note_list, number_lines
from shared.core.context.notes import KeptNote, NoteSource
from shared.core.memory.search import MessageHit, MessagesFound, SaidMessage
from shared.core.memory.sent_memory import SentPassage, parse_note_lines, parse_recalled
from shared.core.session.session_state import SessionState
from shared.core.session.turns import StoredTurn
from shared.core.tools.reminders import format_moment
from shared.core.values.local_time import resolve_zone
from shared.locales import Catalogue
from shared.services.commands.command_call import (
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Ephemeral,
    Guide,
    Place,
)
from shared.services.turns.request_replay import StoredMemory, read_stored_memory

MOST_PASSAGES = 20
"""Messages that one reply shows, so that it fits a Telegram message."""
MOST_NOTES = 20
MOST_NAMES = 5
"""Files and tools that one reply names."""
_MID = re.compile(r"m([1-9][0-9]{0,17})")


class AnsweredStateStore(Protocol):
    async def load_state(self, session_id: int) -> SessionState: ...


class StoredTurnStore(Protocol):
    async def load_turn(self, session_id: int, turn: int) -> StoredTurn | None: ...


class SaidMessageStore(Protocol):
    async def load_messages(self, session_id: int, seqs: Sequence[int]) -> Mapping[int, SaidMessage]: ...
    async def search(self, session_id: int, text: str, *, linked: bool = True) -> MessagesFound: ...


class SentNoteStore(Protocol):
    async def load_owner(self, session_id: int) -> NoteSource: ...
    async def load_sent(
        self, whose: NoteSource, note_ids: Sequence[int], texts: Sequence[str], *, limit: int
    ) -> tuple[KeptNote, ...]: ...
    async def store_list(
        self, session_id: int, address_id: int, purpose: str, note_ids: Sequence[int]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """A recalled message that is still stored."""

    session_id: int
    seq: int
    is_here: bool
    at: datetime
    author: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOfAnswer:
    """Memory in the request of an answer, without what was erased since."""

    notes: tuple[KeptNote, ...] = ()
    passages: tuple[ShownPassage, ...] = ()
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    has_summary: bool = False
    is_whole: bool = True
    """False if something is missing."""


class WhyCommand:
    def __init__(
        self,
        states: AnsweredStateStore,
        replays: StoredTurnStore,
        messages: SaidMessageStore,
        notes: SentNoteStore,
        *,
        timezone: str,
    ) -> None:
        """`timezone` is for people whose timezone is unknown."""
        self._states = states
        self._replays = replays
        self._messages = messages
        self._notes = notes
        self._timezone = timezone

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"why": self._why}

    async def _why(self, call: CommandInvocation) -> CommandReply:
        """Not stored: what is shown may be erased later, and must not stand here then."""
        turn = await self._find_turn(call)
        if turn is None:
            return False, Ephemeral(call.texts.say("why_unknown" if call.args else "why_none"))
        stored = await self._replays.load_turn(call.session_id, turn)
        if stored is None or not stored.audit.recipe:
            return False, Ephemeral(call.texts.say("why_gone"))
        shown, zone = await self._read(call.session_id, stored)
        if shown.notes:
            await self._notes.store_list(
                call.session_id, call.address_id or 0, "list", [note.id for note in shown.notes]
            )
        return True, render_memory(shown, call.texts, zone)

    async def _find_turn(self, call: CommandInvocation) -> int | None:
        """Return the turn of the message that is named, or of the newest answer; None if there is none."""
        if not call.args:
            return (await self._states.load_state(call.session_id)).answered_turn or None
        meant = _MID.fullmatch(call.args)
        if meant is None:
            raise BadArguments.from_key("bad_why")
        seq = int(meant[1])
        found = (await self._messages.load_messages(call.session_id, [seq])).get(seq)
        return None if found is None else found.turn

    async def _read(self, session_id: int, stored: StoredTurn) -> tuple[MemoryOfAnswer, tzinfo]:
        memory = read_stored_memory(stored)
        sent = parse_recalled(memory.recalled)
        passages, timezone = await self._load_passages(session_id, sent.passages)
        notes = await self._load_notes(session_id, memory, sent.notes)
        wanted = len({*memory.note_ids}) or len(sent.notes)
        is_whole = memory.is_whole and len(passages) == len(sent.passages) and len(notes) >= wanted
        return MemoryOfAnswer(
            notes=notes,
            passages=passages[:MOST_PASSAGES],
            files=sent.files,
            tools=memory.tools,
            has_summary=memory.has_summary,
            is_whole=is_whole and len(passages) <= MOST_PASSAGES,
        ), resolve_zone(timezone, self._timezone)

    async def _load_notes(
        self, session_id: int, memory: StoredMemory, recalled: Sequence[str]
    ) -> tuple[KeptNote, ...]:
        texts = (*parse_note_lines(memory.newer_notes), *recalled)
        if not memory.note_ids and not texts:
            return ()
        whose = await self._notes.load_owner(session_id)
        return await self._notes.load_sent(whose, memory.note_ids, texts, limit=MOST_NOTES)

    async def _load_passages(
        self, session_id: int, passages: Sequence[SentPassage]
    ) -> tuple[tuple[ShownPassage, ...], str | None]:
        """Load the messages of passages, and the person's timezone if it is known."""
        said = await self._messages.load_messages(session_id, [one.seq for one in passages if one.seq])
        shown: list[ShownPassage] = []
        for passage in passages:
            if passage.seq == 0:
                hit = await self._find_earlier(session_id, passage)
                if hit is not None:
                    shown.append(
                        ShownPassage(
                            session_id=hit.key.session_id, seq=hit.key.seq, is_here=False, at=hit.at,
                            author=hit.author, text=passage.text,
                        )
                    )  # fmt: skip
            elif (found := said.get(passage.seq)) is not None:
                shown.append(
                    ShownPassage(
                        session_id=session_id, seq=passage.seq, is_here=True, at=found.at,
                        author=found.author, text=passage.text,
                    )
                )  # fmt: skip
        timezone = next((one.timezone for one in said.values()), None)
        return tuple(shown), timezone

    async def _find_earlier(self, session_id: int, passage: SentPassage) -> MessageHit | None:
        """Find a message of an earlier conversation by its words; None if it was erased."""
        found = await self._messages.search(session_id, passage.text)
        zone = resolve_zone(found.timezone, self._timezone)
        return next(
            (
                hit
                for hit in found.hits
                if not hit.here and hit.at.astimezone(zone).date().isoformat() == passage.day
            ),
            None,
        )


def render_memory(memory: MemoryOfAnswer, texts: Catalogue, zone: tzinfo) -> Guide:
    """Render notes before messages, numbered in one sequence: `/forget` takes the numbers of notes."""
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
        Place(number=number, session_id=passage.session_id, seq=passage.seq)
        for number, passage in enumerate(memory.passages, first)
    ]
    return Guide("\n\n".join(parts), places)


def _render_passage(passage: ShownPassage, texts: Catalogue, zone: tzinfo) -> Markdown:
    speaker = texts.say(f"speaker_{passage.author}")
    row = f"{format_moment(passage.at, zone)}, {speaker}: {excerpt(passage.text, most=NOTE_SHOWN)}"
    return f"{row} (`m{passage.seq}`)" if passage.is_here else row
