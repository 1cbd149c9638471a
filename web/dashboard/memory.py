"""Memory for operators: notes with their sources, added, corrected, archived and restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, NotRequired, cast
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.memory_queries import (
    AUTHORITIES,
    STATES,
    FoundNote,
    MemoryInsights,
    NoteQuery,
)
from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.core.context.memory import NOTE_KINDS, BadNote, note_from, to_new_note
from shared.core.context.notes import NoteResult, NoteSource
from shared.services.privacy.erasure import ErasureAnnouncer
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import Seen, add_total, build_stale_refusal, parse_etag
from web.rest.kinds import Counted, Cursor, Cut, Limit, Total, choice, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter(refusals=(404, 409, 410), missing="There is no such note.")
_OWN_IMPORTANCE = 8
"""Importance of an operator's note, equal to that of a person's request to remember."""
NoteId = Annotated[UUID, describe("id of a note")]
Words = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 600})]

NoteFlush = TypedDict("NoteFlush", {
    "id": int, "from_turn": int, "through_turn": int, "threshold": str,
})  # fmt: skip
NotesPerson = TypedDict("NotesPerson", {
    "id": UUID, "name": str | None, "kind": str, "anonymous": bool,
})  # fmt: skip
FoundNoteShown = TypedDict("FoundNoteShown", {
    "id": UUID, "short_id": str, "etag": str, "text": str, "kind": str, "subject": str, "importance": int,
    "authority": str, "durability": str, "state": str, "agent": str | None, "observed_at": datetime,
    "event_date": date | None, "from_turn": int | None, "through_turn": int | None,
    "session": UUID | None, "flush": NoteFlush | None, "superseded_by": UUID | None,
    "superseded_reason": str | None, "undo_until": datetime | None, "expired_at": datetime | None,
    "person": NotesPerson,
})  # fmt: skip
FoundNotes = TypedDict("FoundNotes", {
    "notes": list[FoundNoteShown], "person": NotesPerson | None, "next": str | None,
    "total": NotRequired[Total | None],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedNote:
    """Note after a change; null if it cannot be shown."""

    note: FoundNoteShown | None
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersionFound:
    id: UUID
    text: str
    at: Annotated[datetime, describe("when the note got this text")]
    cause: Annotated[str, describe("origin of the change, as in `GET /memory/{id}/versions`")]
    by: Annotated[str | None, describe("name of the operator, where one changed the note")]
    replaced: Annotated[str | None, describe("text that it replaced; null for a first text")]
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersionsFound:
    versions: list[NoteVersionFound]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNote:
    """Result of adding a note: the note, null if it cannot be shown.

    `changed` is false if it was stored already; `redacted` is true if a secret was removed from the text.
    """

    note: FoundNoteShown | None
    changed: bool
    redacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteHandlers:
    """Handlers of notes about people."""

    memory_insights: MemoryInsights
    notes: PostgresNotes
    announcer: ErasureAnnouncer | None

    @router.on("GET /notes", FoundNotes, role="viewer", refusals=())
    async def list_all_notes(
        self,
        authed: AuthedRequest,
        *,
        q: Annotated[str, Cut(200, "part of the text or of the id", change=str.strip)] = "",
        person: Annotated[UUID | None, describe("public id of the person")] = None,
        kind: Annotated[str, choice("kind of the note", *NOTE_KINDS)] = "",
        state: Annotated[str, choice("state of the note", *STATES)] = "",
        authority: Annotated[str, choice("source of the note", *AUTHORITIES)] = "",
        cursor: Cursor = "",
        limit: Limit = 50,
        total: Counted = False,
    ) -> Reply:
        """List notes of all people, newest first."""
        asked = NoteQuery(
            search=q, person=person, kind=kind, state=state, authority=authority, cursor=cursor, limit=limit
        )
        insights = self.memory_insights
        count = insights.count_notes(asked) if total else None
        page = await add_total(insights.load_notes(asked), count)
        await authed.record_reading("notes", f"person:{person}" if person else "")
        return page

    @router.on("POST /notes", role="operator", body="NoteWish", strict=True)
    async def add_note(
        self,
        authed: AuthedRequest,
        *,
        person: Annotated[str, Field(json_schema_extra={"format": "uuid"})],
        text: Words,
        agent: Annotated[str, Field(json_schema_extra={"maxLength": 40})] = "",
        kind: Annotated[str, Field(json_schema_extra={"enum": [*NOTE_KINDS, ""]})] = "",
        importance: Annotated[
            Any, Field(json_schema_extra={"type": "integer", "minimum": 1, "maximum": 9})
        ] = (_OWN_IMPORTANCE),
        event_date: Annotated[str, Field(json_schema_extra={"maxLength": 10})] = "",
    ) -> AddedNote:
        """Add an operator's note about a person.

        Without `agent`, the note belongs to the agent of the person's last conversation. Secrets are removed
        from the text.
        """
        if kind and kind not in NOTE_KINDS:
            raise HttpRefusal(400, BadNote.code, f"kind is one of {', '.join(NOTE_KINDS)}.")
        if type(importance) is not int or not 1 <= importance <= 9:
            raise HttpRefusal(400, BadNote.code, "importance is a number from 1 to 9.")
        fields = {"text": text, "kind": kind, "event_date": event_date, "importance": importance}
        try:
            whose, note = UUID(person), note_from(fields)
        except ValueError:
            raise HttpRefusal(404, "unknown_person", "There is no such person.") from None
        source = await self.memory_insights.find_note_source(whose, agent)
        if source is None:
            words = "There is no such person, or they never spoke to that agent."
            raise HttpRefusal(404, "unknown_person", words)
        await authed.record("note.added", f"person:{whose}", agent=source.scope, kind=note.kind)
        result = await self.notes.save(note, source)
        corrected = await self._announce(source, result)
        return AddedNote(note=corrected.note, changed=corrected.changed, redacted=note.redacted)

    @router.on(
        "PATCH /notes/{id}", role="operator", body="NoteCorrection", strict=True,
        refusals=(404, 409, 410, 428),
    )  # fmt: skip
    async def correct_note(
        self, authed: AuthedRequest, id_: NoteId, *, text: Words, if_match: Seen = ""
    ) -> CorrectedNote:
        """Correct a note.

        The corrected note has a new id.

        If another operator has changed the note, 409 returns both versions.
        """
        found = await self._note(id_)
        if parse_etag(if_match) != found.shown["etag"]:
            raise build_stale_refusal(yours={"text": text}, theirs=await self._load_standing(found))
        store = self.notes
        old = await store.find_note(found.short_id, found.source)
        if old is None:
            raise _unknown()
        note = note_from({"text": text}, like=to_new_note(old))
        await _record(authed, "note.changed", found)
        result = await store.change(found.short_id, note, found.source)
        if result.outcome in ("replaced", "unknown"):
            raise build_stale_refusal(yours={"text": text}, theirs=await self._load_standing(found))
        return await self._announce(found.source, result)

    @router.on("DELETE /notes/{id}", role="operator")
    async def put_any_note_away(self, authed: AuthedRequest, id_: NoteId) -> CorrectedNote:
        """Archive a note.

        It can be restored for a limited time.
        """
        found = await self._note(id_)
        if found.shown["state"] == "replaced":
            raise HttpRefusal(409, "replaced", "A newer note replaces this one: archive that one.")
        if found.shown["state"] == "kept":
            await _record(authed, "note.put_away", found)
        result = await self.notes.archive(found.short_id, found.source)
        return await self._announce(found.source, result)

    @router.on("POST /notes/{id}/restore", role="operator")
    async def restore_any_note(self, authed: AuthedRequest, id_: NoteId) -> CorrectedNote:
        """Restore a note that an operator archived.

        A note that the person has deleted can only be restored by the person.
        """
        found = await self._note(id_)
        if found.shown["state"] == "put_away" and not await self.memory_insights.was_archived_by_operator(
            id_
        ):
            raise HttpRefusal(409, "not_yours", "The person archived this note: only they can restore it.")
        await _record(authed, "note.restored", found)
        result = await self.notes.restore(found.short_id, found.source)
        return await self._announce(found.source, result)

    @router.on("GET /notes/{id}/versions", role="viewer", refusals=(404,))
    async def list_any_note_versions(self, authed: AuthedRequest, id_: NoteId) -> NoteVersionsFound:
        """List the texts that a note had.

        Newest first, with who changed it and when.
        """
        found = await self._note(id_)
        versions = await self.notes.list_versions(found.short_id, found.source) or ()
        ids = await self.memory_insights.find_versions([one.note.id for one in versions])
        await _record(authed, "read.notes", found)
        return NoteVersionsFound(
            versions=[
                NoteVersionFound(
                    id=ids[one.note.id].public_id,
                    text=one.note.text,
                    at=one.at,
                    cause=one.cause,
                    by=ids[one.note.id].changed_by if one.cause == "operator" else None,
                    replaced=one.old_text,
                    current=one.note.state == "kept",
                )
                for one in versions
                if one.note.id in ids
            ]
        )

    @router.on("POST /notes/{id}/versions/{version}/restore", role="operator")
    async def restore_any_note_version(
        self, authed: AuthedRequest, id_: NoteId, version: Annotated[UUID, describe("id of a former version")]
    ) -> CorrectedNote:
        """Restore a former text of a note.

        The restored note has the id of the version.
        """
        found, former = await self._note(id_), await self._note(version)
        if former.person != found.person:
            raise _unknown()
        await _record(authed, "note.changed", former)
        result = await self.notes.restore_version(found.short_id, former.short_id, found.source)
        return await self._announce(found.source, result)

    async def _note(self, note: UUID) -> FoundNote:
        found = await self.memory_insights.find_note(note)
        if found is None:
            raise _unknown()
        return found

    async def _load_standing(self, found: FoundNote) -> Mapping[str, Any] | None:
        """Return the newest version of a note, found by following its replacements."""
        insights, heir = self.memory_insights, found
        for _ in range(50):
            following = heir.shown["superseded_by"]
            later = await insights.find_note(UUID(following)) if following else None
            if later is None:
                break
            heir = later
        return heir.shown

    async def _announce(self, source: NoteSource, result: NoteResult) -> CorrectedNote:
        """Tell the person's open screens of a change. Raises HttpRefusal if nothing was done."""
        match result.outcome:
            case "unknown":
                raise _unknown()
            case "gone":
                raise HttpRefusal(410, "gone", "This note was erased and cannot come back.")
            case "replaced":
                raise HttpRefusal(409, "replaced", "There is a newer text for this note.")
            case "blocked":
                words = "The person had this erased: only they can restore it."
                raise HttpRefusal(409, "blocked", words)
            case _:
                pass
        if result.event_seq is not None and self.announcer is not None:
            # Open screens of the person read the stored event themselves.
            await self.announcer.announce(source.session_id, {"event_seq": result.event_seq})
        insights = self.memory_insights
        kept = None if result.note is None else await insights.find_note_by_row(source, result.note.id)
        shown = None if kept is None else cast("FoundNoteShown", kept.shown)
        return CorrectedNote(note=shown, changed=result.event_seq is not None)


async def _record(authed: AuthedRequest, action: str, found: FoundNote) -> None:
    await authed.record(action, f"note:{found.shown['id']}", person=str(found.person))


def _unknown() -> HttpRefusal:
    return HttpRefusal(404, "unknown_note", "There is no such note.")
