"""Reader of the notes, messages, files and tools that the request of an answer contained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from typing import Protocol

from shared.core.context.notes import KeptNote, NoteSource
from shared.core.memory.past_summaries import SUMMARY
from shared.core.memory.search import MessageHit, MessagesFound, SaidMessage, SearchKey
from shared.core.memory.sent_memory import SentPassage, parse_note_lines, parse_recalled
from shared.core.session.turns import StoredTurn
from shared.core.values.local_time import resolve_zone
from shared.services.turns.request_replay import StoredMemory, read_stored_memory

MOST_PASSAGES = 20
"""Most messages in one reply, so that it fits into a Telegram message."""
MOST_NOTES = 20
"""Most notes in one reply."""


class StoredTurnStore(Protocol):
    """Store of turns with what their requests contained; returns None if no request of the turn is stored."""

    async def load_turn(self, session_id: int, turn: int) -> StoredTurn | None: ...


class SaidMessageStore(Protocol):
    """Store of a session's messages and summaries, without erased ones.

    `load_messages` returns messages by `seq`. `find_summary` returns the key of the message that a summary's
    item cites, None if it was erased; `day` is in the person's time zone.
    """

    async def load_messages(self, session_id: int, seqs: Sequence[int]) -> Mapping[int, SaidMessage]: ...
    async def search(self, session_id: int, text: str, *, linked: bool = True) -> MessagesFound: ...
    async def find_summary(self, session_id: int, text: str, *, day: date) -> SearchKey | None: ...


class SentNoteStore(Protocol):
    """Store of notes as they were when a request contained them, without erased ones.

    `load_sent` finds notes by id or by text. `find_sources` returns the `seq` of the message from which a
    note was taken, by the note's id; notes without one are left out.
    """

    async def load_owner(self, session_id: int) -> NoteSource: ...
    async def load_sent(
        self, whose: NoteSource, note_ids: Sequence[int], texts: Sequence[str], *, limit: int
    ) -> tuple[KeptNote, ...]: ...
    async def find_sources(self, session_id: int, note_ids: Sequence[int]) -> Mapping[int, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """Recalled message that is still stored; `is_here` is False for one of another conversation of the
    person.
    """

    session_id: int
    seq: int
    is_here: bool
    at: datetime
    author: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOfAnswer:
    """Memory in the request of an answer, without what was erased later; `files` and `tools` are names."""

    notes: tuple[KeptNote, ...] = ()
    passages: tuple[ShownPassage, ...] = ()
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    has_summary: bool = False
    is_whole: bool = True
    """False if something was erased or left out."""
    zone: tzinfo = UTC
    """Time zone of the person."""
    sources: Mapping[int, int] = field(default_factory=dict)
    """`seq` of the message from which a note was taken, by the note's id."""


class AnswerMemoryReader:
    """Reader of an answer's memory, without what was erased later."""

    def __init__(
        self, replays: StoredTurnStore, messages: SaidMessageStore, notes: SentNoteStore, *, timezone: str
    ) -> None:
        """Set up the reader; `timezone` applies to people whose time zone is unknown."""
        self._replays = replays
        self._messages = messages
        self._notes = notes
        self._timezone = timezone

    async def find_turn(self, session_id: int, seq: int) -> int | None:
        """Return the number of the turn of a message, for `read`.

        None if the session has no such message, or if it was erased or is one of a tool.
        """
        found = (await self._messages.load_messages(session_id, [seq])).get(seq)
        return None if found is None else found.turn

    async def read(self, session_id: int, turn: int) -> MemoryOfAnswer | None:
        """Return the memory of the answer to a turn, at most `MOST_NOTES` notes and `MOST_PASSAGES` messages.

        Returns None if the record of its request was deleted.
        """
        stored = await self._replays.load_turn(session_id, turn)
        if stored is None or not stored.audit.recipe:
            return None
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
            zone=resolve_zone(timezone, self._timezone),
            sources=await self._find_sources(session_id, notes),
        )

    async def _find_sources(self, session_id: int, notes: Sequence[KeptNote]) -> Mapping[int, int]:
        return await self._notes.find_sources(session_id, [note.id for note in notes]) if notes else {}

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
        """Return the messages of recalled passages that still exist, and the person's time zone (None if
        unknown).
        """
        said = await self._messages.load_messages(session_id, [one.seq for one in passages if one.seq])
        shown: list[ShownPassage] = []
        for passage in passages:
            if passage.author == SUMMARY:
                cited = await self._messages.find_summary(
                    session_id, passage.text, day=date.fromisoformat(passage.day)
                )
                if cited is not None:
                    shown.append(
                        ShownPassage(
                            session_id=cited.session_id, seq=cited.seq, is_here=False, at=cited.at,
                            author=SUMMARY, text=passage.text,
                        )
                    )  # fmt: skip
            elif passage.seq == 0:
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
        """Return a message of an earlier conversation with the passage's words and day; None if it was
        erased.
        """
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
