"""Tools with which a model saves, searches, changes and archives notes about its person."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Protocol

from shared.core.compaction.note_requests import FROM_A_TOOL
from shared.core.compaction.summary_filters import holds_injection
from shared.core.context.memory import (
    FOUND_AT_MOST,
    SAVES_PER_TURN,
    UNDO_DAYS,
    BadNote,
    note_from,
    search_stems,
    to_new_note,
)
from shared.core.context.memory_tools import FORGET_MEMORY, SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY
from shared.core.context.notes import SHORT_ID, KeptNote, NewNote, NoteResult, NotesFound, NoteSource
from shared.core.values.errors import LeaseLost
from shared.core.values.local_time import resolve_zone
from shared.ports import Tool, ToolContext, ToolFailed, ToolSpec
from shared.runtime import CrashPoint

_REFUSED = {
    "too_many": f"Not saved: {SAVES_PER_TURN} notes were kept for this message, which is the most.",
    "blocked": "Not saved: the person had this forgotten. Only they can bring it back, with /remember.",
    "unknown": "There is no such note. search_memory shows the ids.",
}


class NoteToolStore(Protocol):
    """Store of notes, as the model's tools change and find them; writing raises LeaseLost.

    The `outcome` of a result says what happened, also a refusal, such as `too_many` or `unknown`. A repeated
    call with the same key has no effect. `find_note` returns None for an unknown or ambiguous id.
    """

    async def save(self, note: NewNote, source: NoteSource) -> NoteResult: ...
    async def change(self, short_id: str, note: NewNote, source: NoteSource) -> NoteResult: ...
    async def archive(self, short_id: str, source: NoteSource) -> NoteResult: ...
    async def find_note(self, short_id: str, whose: NoteSource) -> KeptNote | None: ...
    async def find(
        self, whose: NoteSource, stems: Sequence[str], *, limit: int, everything: bool = False
    ) -> NotesFound: ...


def build_memory_tools(store: NoteToolStore, crash_point: CrashPoint, *, home: str) -> tuple[Tool, ...]:
    """Return the four tools that save, search, change and forget notes.

    A repeated call is recognised by its key, so that each tool may run again after a crash. `home` is the
    deployment's time zone, for people whose time zone is unknown. If the claim is lost, a call of a turn
    raises ToolFailed, and one of a flush LeaseLost, since its worker must stop.
    """
    return (
        SaveMemoryTool(store, crash_point),
        SearchMemoryTool(store, home),
        UpdateMemoryTool(store, crash_point),
        ForgetMemoryTool(store),
    )


class SaveMemoryTool:
    """Tool that stores one note about the person; an equal note is stored once."""

    spec: ToolSpec = SAVE_MEMORY
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, store: NoteToolStore, crash_point: CrashPoint) -> None:
        self._store = store
        self._crash_point = crash_point

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        note = _check_note(arguments)
        try:
            result = await self._store.save(note, _source(context))
        except LeaseLost as error:
            if context.flush_id is not None:
                raise
            raise ToolFailed("Not saved: this turn is answered elsewhere now.") from error
        self._crash_point("after_note")
        return _render_result(result, f"Saved without the secret: {note.text}" if note.redacted else "Saved.")


class UpdateMemoryTool:
    """Tool that replaces a note with a changed one; arguments that are missing keep the note's value."""

    spec: ToolSpec = UPDATE_MEMORY
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, store: NoteToolStore, crash_point: CrashPoint) -> None:
        self._store = store
        self._crash_point = crash_point

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        source, short_id = _source(context), _id(arguments)
        old = await self._store.find_note(short_id, source)
        if old is None:
            raise ToolFailed(_REFUSED["unknown"])
        note = _check_note(arguments, like=to_new_note(old))
        try:
            result = await self._store.change(short_id, note, source)
        except LeaseLost as error:
            if context.flush_id is not None:
                raise
            raise ToolFailed("Not changed: this turn is answered elsewhere now.") from error
        self._crash_point("after_note")
        if result.outcome == "replaced" and result.note is not None and result.note.text == note.text:
            return "Changed."
        return _render_result(result, "Changed.")


class ForgetMemoryTool:
    """Tool that archives a note; the person can restore it for `UNDO_DAYS` days, then it is erased."""

    spec: ToolSpec = FORGET_MEMORY
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, store: NoteToolStore) -> None:
        self._store = store

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        try:
            result = await self._store.archive(_id(arguments), _source(context))
        except LeaseLost as error:
            if context.flush_id is not None:
                raise
            raise ToolFailed("Not forgotten: this turn is answered elsewhere now.") from error
        return _render_result(result, f"Forgotten. The person can restore it for {UNDO_DAYS} days.")


class SearchMemoryTool:
    """Tool that finds notes by words; without words it returns the newest.

    Notes known only from a tool are marked.
    """

    spec: ToolSpec = SEARCH_MEMORY
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, store: NoteToolStore, home: str) -> None:
        self._store = store
        self._home = home

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        query = str(arguments.get("query") or "")[:300]
        stems = search_stems(query) if query.strip() else []
        found = await self._store.find(_source(context), stems, limit=FOUND_AT_MOST)
        if not found.notes:
            return "No note says anything about this." if stems else "There are no notes yet."
        more = found.total - len(found.notes)
        tail = [f"… and {more} more; other words narrow it down."] if more > 0 else []
        zone = resolve_zone(context.timezone, self._home)
        return "\n".join([*(_line(note, zone) for note in found.notes), *tail])


def _line(note: KeptNote, zone: tzinfo) -> str:
    dates = f"{note.observed_at.astimezone(zone):%Y-%m-%d}" + (
        f", about {note.event_date}" if note.event_date else ""
    )
    mark = FROM_A_TOOL if note.authority == "tool" else ""
    return f"[{note.short_id}] ({note.kind}, {dates}{mark}) {note.text}"


def _render_result(result: NoteResult, done: str) -> str:
    """Return the result as text for the model; `done` is the text of a success.

    Raises ToolFailed for a refusal.
    """
    match result.outcome:
        case "saved" | "changed" | "forgotten" | "restored":
            known = f" [{result.note.short_id}]" if result.note and result.outcome != "forgotten" else ""
            return done + known
        case "known":
            return f"This is known already{_quote_note(result.note)}."
        case "replaced":
            raise ToolFailed(f"Not saved: newer words stand for this{_quote_note(result.note)}.")
        case outcome:
            raise ToolFailed(_REFUSED.get(outcome, "It could not be done."))


def _quote_note(note: KeptNote | None) -> str:
    return "" if note is None else f": [{note.short_id}] {note.text}"


def _check_note(arguments: Mapping[str, Any], *, like: NewNote | None = None) -> NewNote:
    try:
        note = note_from(arguments, like=like)
    except BadNote as error:
        raise ToolFailed(error.advice) from error
    if holds_injection(note.text):
        raise ToolFailed("Not saved: `text` reads like an instruction to a model.")
    return note


def _id(arguments: Mapping[str, Any]) -> str:
    short_id = str(arguments.get("id", "")).strip().lower()
    if not re.fullmatch(SHORT_ID, short_id):
        raise ToolFailed(f"{short_id[:40]!r} is no note's id. search_memory shows them, such as n0123abcd.")
    return short_id


def _source(context: ToolContext) -> NoteSource:
    return NoteSource(
        session_id=context.session_id,
        contact_id=context.contact_id,
        scope=context.scope,
        from_turn=context.turn,
        through_turn=context.through_turn or context.turn,
        flush_id=context.flush_id,
        job_id=context.job_id,
        call_id=context.call_id,
        call_key=context.key,
        epoch=context.epoch,
        shown=context.shown,
    )
