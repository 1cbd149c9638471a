"""REST of the panel *Memory*: visitors read, correct and archive their own notes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.core.context.memory import note_from, search_stems, to_new_note
from shared.core.context.notes import KeptNote, NoteCause, NoteResult, NoteSource, NoteVersion
from shared.services.memory.answer_memory import AnswerMemoryReader, MemoryOfAnswer
from web.rest.api_key_auth import KEY, record
from web.rest.arguments import Json, Shape
from web.rest.calls import Call
from web.rest.kinds import Cut, NamedMid, describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal
from web.server.hub import Hub

router = OperationRouter("memory", visitor=True, rate="commands", refusals=(404, 409, 410))
answers = OperationRouter("memory", visitor=True, scope="memory:read", rate="reads", refusals=(404, 410))
"""Router of the operation that shows what an answer was based on; the others use `router`."""
SHOWN_AT_MOST = 200
"""Maximum notes in a list."""
NOTE = "/memory/{id:n[0-9a-f]{8}}"
NoteId = Annotated[str, describe("short id of a note", json_schema_extra={"pattern": "^n[0-9a-f]{8}$"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteShown:
    """Note about the person, as the person may see it."""

    id: str
    text: str
    kind: str
    subject: str
    importance: int
    authority: str
    observed_at: datetime
    event_date: str | None
    from_turn: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Notes that match the query, and the number of all that match."""

    notes: list[NoteShown]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedNote:
    note: NoteShown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenNote:
    undo_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersionShown:
    """Text that a note has, or had until it was replaced."""

    id: str
    text: str
    at: Annotated[datetime, describe("when the note got this text")]
    cause: Annotated[
        NoteCause,
        describe(
            "origin of the change: the `person`, an `operator`, the assistant by a `tool` or before a "
            "summary (`flush`), an `edit` of the message, or `tidy` for two notes with one text"
        ),
    ]
    replaced: Annotated[str | None, describe("text that it replaced; null for a first text")]
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersions:
    versions: list[NoteVersionShown]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledNote(NoteShown):
    """A note that the request of an answer held."""

    state: Annotated[str, describe("`kept`, `replaced` by a newer text, or `put_away`")]
    mid: Annotated[str | None, describe("message of this conversation that the note was taken from")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledMessage:
    """Earlier message that was part of an answer's request."""

    mid: str
    role: str
    at: datetime
    text: Annotated[str, describe("the part of the message that was recalled")]
    here: Annotated[bool, describe("false for a message of an earlier conversation")]
    forgettable: Annotated[bool, describe("true for messages that the person can delete")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMemory:
    """Notes, recalled messages, files and tools in the request of an answer."""

    notes: list[RecalledNote]
    messages: list[RecalledMessage]
    files: list[str]
    tools: list[str]
    summary: Annotated[bool, describe("true if a summary of earlier messages was sent, too")]
    whole: Annotated[bool, describe("false if a part was deleted since, or does not fit")]


NoteChange = TypedDict("NoteChange", {
    "text": NotRequired[Annotated[str, Field(min_length=1, max_length=500)]],
    "importance": NotRequired[Annotated[int, Field(ge=1, le=10)]],
    "event_date": NotRequired[Annotated[str | None, Field(json_schema_extra={"format": "date"})]],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHandlers:
    """Handlers of notes about the person, and of what an answer was based on."""

    notes: PostgresNotes
    answer_memory: AnswerMemoryReader
    hub: Hub

    @router.on("GET /memory", scope="memory:read", refusals=(404,))
    async def list_notes(
        self, call: Call, *, q: Annotated[str, Cut(300, "text to search for", change=str.strip)] = ""
    ) -> Notes:
        """List or search notes about the person.

        Newest first.
        """
        _check_audience(call)
        notes = self.notes
        whose, stems = await notes.load_owner(call.session_id), search_stems(q) if q else []
        found = await notes.find(whose, stems, limit=SHOWN_AT_MOST)
        return Notes(notes=list(map(_note, found.notes)), total=found.total)

    @router.on(f"PUT {NOTE}", scope="memory:write")
    async def change_note(
        self, call: Call, short_id: NoteId, *, body: Annotated[Json, Shape(NoteChange)]
    ) -> ChangedNote:
        """Correct a note.

        The corrected note has a new id.
        """
        source = await self._load_source(call, short_id)
        old = await self.notes.find_note(short_id, source)
        if old is None or old.state == "put_away":
            raise _unknown()
        note = note_from(body, like=to_new_note(old))
        return self._announce(call, await self.notes.change(short_id, note, source))

    @router.on(f"DELETE {NOTE}", scope="memory:write")
    async def put_note_away(self, call: Call, short_id: NoteId) -> ForgottenNote:
        """Archive a note.

        It can be restored for a limited time.
        """
        result = await self.notes.archive(short_id, await self._load_source(call, short_id))
        self._announce(call, result)
        return ForgottenNote(undo_until=result.note.undo_until if result.note else None)

    @router.on(f"POST {NOTE}/restore", scope="memory:write")
    async def restore_note(self, call: Call, short_id: NoteId) -> ChangedNote:
        """Restore an archived note."""
        source = await self._load_source(call, short_id)
        return self._announce(call, await self.notes.restore(short_id, source))

    @router.on(f"GET {NOTE}/versions", scope="memory:read", refusals=(404,))
    async def list_note_versions(self, call: Call, short_id: NoteId) -> NoteVersions:
        """List the texts that a note had.

        Newest first, with who changed it and when.
        """
        _check_audience(call)
        notes = self.notes
        found = await notes.list_versions(short_id, await notes.load_owner(call.session_id))
        if found is None:
            raise _unknown()
        return NoteVersions(versions=list(map(_version, found)))

    @router.on(f"POST {NOTE}/versions/{{version}}/restore", scope="memory:write")
    async def restore_note_version(self, call: Call, short_id: NoteId, version: NoteId) -> ChangedNote:
        """Restore a former text of a note.

        The restored note has the id of the version. Repeating the call has no effect.
        """
        source = await self._load_source(call, short_id)
        return self._announce(call, await self.notes.restore_version(short_id, version, source))

    @answers.on(
        "GET /sessions/{id}/messages/{mid}/memory",
        missing="There is no such message in this conversation.",
    )  # fmt: skip
    async def show_answer_memory(
        self,
        call: Call,
        session: Annotated[
            str, describe("public id of a conversation", json_schema_extra={"format": "uuid"})
        ],
        mid: NamedMid,
    ) -> AnswerMemory | None:
        """Show what an answer was based on.

        Returns the notes, recalled messages, files and tools of the answer's last request, without those that
        were deleted since. Requests are stored for a limited time; 410 is returned after that.
        """
        _check_audience(call)
        reader = self.answer_memory
        turn = await reader.find_turn(call.session_id, mid)
        if turn is None:
            return None
        memory = await reader.read(call.session_id, turn)
        if memory is None:
            raise HttpRefusal(410, "gone", "The request of this answer is no longer stored.")
        return _build_answer_memory(memory)

    async def _load_source(self, call: Call, short_id: str) -> NoteSource:
        _check_audience(call)
        about = f"session:{call.person.row.session_public_id}"
        await record(call.request, "memory.write", about=about, note=short_id)
        whose = await self.notes.load_owner(call.session_id)
        return NoteSource(
            session_id=whose.session_id, contact_id=whose.contact_id, scope=whose.scope, by_person=True
        )

    def _announce(self, call: Call, result: NoteResult) -> ChangedNote:
        """Send a change to the open screens and return its answer. Raises HttpRefusal if nothing was done."""
        match result.outcome:
            case "unknown":
                raise _unknown()
            case "gone":
                raise HttpRefusal(410, "gone", "This note was erased and cannot come back.")
            case "replaced":
                newer: dict[str, Any] = {} if result.note is None else {"note": _note(result.note)}
                raise HttpRefusal(409, "replaced", "There is a newer text for this note.", **newer)
            case _:
                pass
        if result.event_seq is not None and result.payload is not None:
            self.hub.publish(call.session_id, result.event_seq, "memory", result.payload)
        return ChangedNote(note=None if result.note is None else _note(result.note))


def _version(version: NoteVersion) -> NoteVersionShown:
    note = version.note
    return NoteVersionShown(
        id=note.short_id,
        text=note.text,
        at=version.at,
        cause=version.cause,
        replaced=version.old_text,
        current=note.state == "kept",
    )


def _build_answer_memory(memory: MemoryOfAnswer) -> AnswerMemory:
    return AnswerMemory(
        notes=[_recalled(note, memory.sources.get(note.id)) for note in memory.notes],
        messages=[
            RecalledMessage(
                mid=f"m{one.seq}",
                role=one.author,
                at=one.at,
                text=one.text,
                here=one.is_here,
                forgettable=one.is_here and one.author == "person",
            )
            for one in memory.passages
        ],
        files=list(memory.files),
        tools=list(memory.tools),
        summary=memory.has_summary,
        whole=memory.is_whole,
    )


def _check_audience(call: Call) -> None:
    """Refuse memory on public pages, unless an API key with the scope asks. Raises HttpRefusal."""
    if call.person.audience == "public" and KEY not in call.request:
        raise HttpRefusal(404, "not_found", "Not found.")


def _unknown() -> HttpRefusal:
    return HttpRefusal(404, "unknown_note", "There is no such note.")


def _note(note: KeptNote) -> NoteShown:
    return NoteShown(**_fields(note))


def _recalled(note: KeptNote, seq: int | None) -> RecalledNote:
    """Return a note with the message that it was taken from; `seq` is None if that is unknown."""
    return RecalledNote(**_fields(note), state=note.state, mid=None if seq is None else f"m{seq}")


def _fields(note: KeptNote) -> dict[str, Any]:
    """Return the fields of `Note`."""
    return {
        "id": note.short_id,
        "text": note.text,
        "kind": note.kind,
        "subject": note.subject,
        "importance": note.importance,
        "authority": note.authority,
        "observed_at": note.observed_at,
        "event_date": note.event_date,
        "from_turn": note.from_turn,
    }
