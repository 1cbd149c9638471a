"""Store of notes: saves, replaces, archives and erases them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from shared.adapters.postgres.compaction.jobs_sql import LOCK_SESSION_AND_RUNNING
from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, Record, build_value, store_method
from shared.adapters.postgres.memory import notes_sql as sql
from shared.adapters.postgres.turns.turns import build_entry
from shared.core.compaction.note_requests import has_looked_up, own_words, split_heard_text
from shared.core.context.memory import (
    SAVES_PER_TURN,
    UNDO_DAYS,
    authority_of,
    core_line,
    gist_of,
    is_near_gist,
    likely_source,
    note_hash,
    to_new_note,
)
from shared.core.context.memory_tools import MEMORY_TOOLS, SAVE_MEMORY, SEARCH_MEMORY
from shared.core.context.notes import (
    KeptNote,
    NewNote,
    NoteResult,
    NotesFound,
    NoteSource,
    NoteState,
    NoteVersion,
)
from shared.core.context.prompts import NOTES_OPENED
from shared.core.memory.recall import note_line
from shared.core.values.errors import LeaseLost, OnHold, UnknownSession

MOST_VERSIONS = 100
"""Maximum versions of one note that a screen shows."""


class PostgresNotes(PoolStore):
    """Store of notes; each method is one transaction and raises StorageUnavailable.

    Methods that change notes wait for each other per person. A NoteSource says whose notes are meant and who
    asks; its notes are those of one person, including linked ones, with one agent.
    """

    @store_method
    async def load_owner(self, session_id: int) -> NoteSource:
        """Return the owner of a session's notes: its person and its agent. Raises UnknownSession."""
        row = await self._pool.fetchrow(*sql.SESSION_OWNER(session_id=session_id))
        if row is None:
            raise UnknownSession(f"session {session_id}")
        return NoteSource(session_id=session_id, contact_id=row["contact_id"], scope=row["scope"])

    @store_method
    async def find(
        self, whose: NoteSource, stems: Sequence[str], *, limit: int, everything: bool = False
    ) -> NotesFound:
        """Return at most `limit` notes with any of the word stems, most matches first.

        Without stems returns the newest notes. `everything` includes replaced and archived notes. The
        result's `total` also counts notes beyond `limit`; it is 0 if none is found.
        """
        given: dict[str, Any] = {
            "contact_id": whose.contact_id, "scope": whose.scope, "limit": limit, "everything": everything,
        }  # fmt: skip
        query = sql.FIND(**given, stems=list(stems)) if stems else sql.NEWEST(**given)
        rows = await self._pool.fetch(*query)
        return NotesFound(notes=tuple(_note_from(row) for row in rows), total=rows[0]["total"] if rows else 0)

    @store_method
    async def save(self, note: NewNote, source: NoteSource) -> NoteResult:
        """Save a note with an event for screens; `outcome` of the result says whether it is stored.

        It is "saved", also if the same tool call saved it before a crash. It is "known" if a note says the
        same, "replaced" if a newer one replaced that, "blocked" if the person forgot it, and "too_many" after
        SAVES_PER_TURN notes of a turn. Raises LeaseLost if the claim of the turn or the job is lost.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _begin(connection, source)
            if (done := await _find_earlier_result(connection, note, source, "saved")) is not None:
                return done
            if await _too_many(connection, source):
                return NoteResult(outcome="too_many")
            twin = await _twin(connection, note, source)
            if twin is not None and (refusal := await _find_refusal(connection, twin, source)) is not None:
                return refusal
            if twin is not None and twin["same"]:
                return await _revive(connection, twin["id"], note, source, change="saved")
            kept = await _insert(connection, note, source)
            return await _store_event(connection, source, kept, "saved")

    @store_method
    async def change(self, short_id: str, note: NewNote, source: NoteSource) -> NoteResult:
        """Replace a note by a new text, with an event for screens; `outcome` says whether that was done.

        It is "changed", "known" if the text is the same, "unknown" without such a note, "replaced" if it has
        a newer version, and "blocked" if the person forgot a note with the new text. Raises LeaseLost if the
        claim of the turn or the job is lost.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _begin(connection, source)
            if (done := await _find_earlier_result(connection, note, source, "changed")) is not None:
                return done
            old = await _find_by_short_id(connection, short_id, source)
            if old is None or old["forgotten_at"] is not None:
                return NoteResult(outcome="unknown")
            if old["superseded_by"] is not None:
                return NoteResult(outcome="replaced", note=await _heir(connection, old["id"]))
            if old["hash"] == note_hash(note.text):
                return NoteResult(outcome="known", note=_note_from(old))
            twin = await _twin(connection, note, source, besides=old["id"])
            if twin is None:
                kept = await _insert(connection, note, source, tainted=old["authority"] == "tool")
            elif twin["state"] in ("put_away", "erased") and not source.by_person:
                return NoteResult(outcome="blocked")
            elif twin["state"] == "kept":
                kept = _note_from(twin)
            elif twin["same"]:
                await connection.execute(*sql.UNSUPERSEDE(note_id=twin["id"]))
                kept = (await _revive(connection, twin["id"], note, source, change=None)).note or _note_from(
                    twin
                )
            else:
                kept = await _insert(connection, note, source)
            return await _replace(connection, source, old, kept)

    @store_method
    async def list_versions(
        self, short_id: str, whose: NoteSource, *, limit: int = MOST_VERSIONS
    ) -> tuple[NoteVersion, ...] | None:
        """Return the newest `limit` versions of a note, including the present one, newest first.

        Returns None if the note is unknown or erased, or if two notes share the short id.
        """
        async with self._pool.acquire() as connection:
            row = await _find_by_short_id(connection, short_id, whose)
            if row is None or row["state"] == "erased":
                return None
            rows = await connection.fetch(
                *sql.VERSIONS(contact_id=whose.contact_id, scope=whose.scope, note_id=row["id"], limit=limit)
            )
        return tuple(
            NoteVersion(
                note=_note_from(one), at=one["version_at"], cause=one["cause"],
                old_id=one["old_short_id"], old_text=one["old_text"],
            )
            for one in rows
        )  # fmt: skip

    @store_method
    async def restore_version(self, short_id: str, version: str, source: NoteSource) -> NoteResult:
        """Replace a note by its former version with the short id `version`, with an event for screens.

        `outcome` is "changed", "known" if it is the present text, "replaced" if the note has a newer version,
        and "unknown" without such a note or version. Raises LeaseLost if the turn was claimed again.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _begin(connection, source)
            now = await _find_by_short_id(connection, short_id, source)
            old = await _find_by_short_id(connection, version, source)
            if now is None or old is None or "erased" in (now["state"], old["state"]):
                return NoteResult(outcome="unknown")
            heir = await _heir(connection, now["id"])
            if heir is None or heir.id == old["id"]:
                return NoteResult(outcome="unknown" if heir is None else "known", note=heir)
            if now["state"] != "kept":
                return NoteResult(outcome="replaced", note=heir)
            chain = await connection.fetch(
                *sql.CLOSURE(contact_id=source.contact_id, scope=source.scope, note_ids=[now["id"]])
            )
            is_former = old["id"] in {row["id"] for row in chain} and old["contact_link_id"] is None
            if old["state"] != "replaced" or not is_former:
                return NoteResult(outcome="unknown")
            await connection.execute(*sql.UNSUPERSEDE(note_id=old["id"]))
            kept = await _revive(connection, old["id"], to_new_note(_note_from(old)), source, change=None)
            return await _replace(connection, source, now, kept.note or _note_from(old))

    @store_method
    async def find_sources(self, session_id: int, note_ids: Sequence[int]) -> Mapping[int, int]:
        """Return, by note id, the number of the session's message from which the note was taken.

        Notes of other sessions and without a message are left out.
        """
        rows = await self._pool.fetch(*sql.SOURCES(session_id=session_id, note_ids=list(note_ids)))
        return {row["id"]: row["seq"] for row in rows}

    @store_method
    async def archive(self, short_id: str, source: NoteSource) -> NoteResult:
        """Archive a note, which can be restored for UNDO_DAYS days and is then erased.

        `outcome` is "forgotten", also for an archived one, and "unknown" without such a live note. Raises
        LeaseLost if the claim of the turn or the job is lost.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _begin(connection, source)
            row = await _find_by_short_id(connection, short_id, source)
            if row is None or row["state"] in ("erased", "replaced"):
                return NoteResult(outcome="unknown")
            if row["state"] == "put_away":
                return NoteResult(outcome="forgotten", note=_note_from(row))
            row = await connection.fetchrow(*sql.ARCHIVE(note_id=row["id"], undo_days=UNDO_DAYS))
            assert row is not None
            return await _store_event(connection, source, _note_from(row), "forgotten")

    @store_method
    async def restore(self, short_id: str, source: NoteSource) -> NoteResult:
        """Restore an archived note, with an event for screens.

        `outcome` is "restored", "known" if it is not archived, "gone" if it was erased or UNDO_DAYS have
        passed, and "unknown" without such a note. Raises LeaseLost if the turn was claimed again.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _begin(connection, source)
            row = await _find_by_short_id(connection, short_id, source)
            if row is None or row["state"] == "erased":
                return NoteResult(outcome="unknown" if row is None else "gone")
            if row["state"] != "put_away":
                return NoteResult(outcome="known", note=_note_from(row))
            row = await connection.fetchrow(*sql.RESTORE(note_id=row["id"]))
            if row is None:
                return NoteResult(outcome="gone")
            return await _store_event(connection, source, _note_from(row), "restored")

    @store_method
    async def find_note(self, short_id: str, whose: NoteSource) -> KeptNote | None:
        """Return a note by its short id; None if it is unknown, ambiguous or erased."""
        async with self._pool.acquire() as connection:
            row = await _find_by_short_id(connection, short_id, whose)
        return None if row is None or row["state"] == "erased" else _note_from(row)

    @store_method
    async def load_note(self, note_id: int, whose: NoteSource) -> KeptNote | None:
        """Return a note by its row id; None if it is erased, unknown or of another person."""
        row = await self._pool.fetchrow(
            *sql.BY_ID(contact_id=whose.contact_id, scope=whose.scope, note_id=note_id)
        )
        return None if row is None or row["state"] == "erased" else _note_from(row)

    @store_method
    async def load_sent(
        self, whose: NoteSource, note_ids: Sequence[int], texts: Sequence[str], *, limit: int
    ) -> tuple[KeptNote, ...]:
        """Return at most `limit` of the owner's notes with these row ids or texts, the most important first.

        Erased notes are left out; replaced and archived ones are not.
        """
        query = sql.SENT_NOTES(
            contact_id=whose.contact_id, scope=whose.scope, note_ids=list(note_ids),
            hashes=[note_hash(text) for text in texts], limit=limit,
        )  # fmt: skip
        return tuple(_note_from(row) for row in await self._pool.fetch(*query))

    @store_method
    async def erase(self, whose: NoteSource, note_ids: Sequence[int]) -> int:
        """Erase notes, those that they replaced, and rows that contain their text; return their number.

        Notes that were erased before do not count. Their hashes stay, so that no job saves them again from
        the log. Raises LeaseLost if the turn was claimed again, and OnHold if the person is on legal hold.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await _begin(connection, whose)
            if await connection.fetchval(*_IS_HELD(contact_id=whose.contact_id)):
                raise OnHold
            rows = await connection.fetch(
                *sql.CLOSURE(contact_id=whose.contact_id, scope=whose.scope, note_ids=list(note_ids))
            )
            if not rows:
                return 0
            await erase_notes(connection, whose.contact_id, rows)
            await connection.execute(
                *sql.REQUEST_TIDY(session_id=whose.session_id, contact_id=whose.contact_id)
            )
            for row in rows:
                if row["state"] == "kept":
                    erased = {"id": _short_id(row), "text": "", "kind": row["kind"]}
                    await _event(connection, whose.session_id, {**erased, "change": "forgotten"})
            return sum(row["text"] != "" for row in rows)

    @store_method
    async def store_list(
        self, session_id: int, address_id: int, purpose: str, note_ids: Sequence[int]
    ) -> None:
        """Store for ten minutes which notes were listed for an address, in their order.

        It replaces the former list. `purpose` "forget" marks a preview of forgetting.
        """
        await self._pool.execute(
            *sql.STORE_LIST(
                session_id=session_id, address_id=address_id, purpose=purpose, note_ids=list(note_ids)
            )
        )

    @store_method
    async def take_list(
        self, session_id: int, address_id: int, *, number: int | None
    ) -> tuple[int, ...] | None:
        """Return row ids from the list of notes stored for this address, and delete the list.

        Returns the id at position `number`, from 1. With None, returns all ids if the list is a preview of
        forgetting. Returns None if there is no such list or position; the list then stays.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(*sql.LOCK_LIST(session_id=session_id, address_id=address_id))
            if row is None or (number is None and row["purpose"] != "forget"):
                return None
            ids: list[int] = row["note_ids"]
            if number is not None and not 1 <= number <= len(ids):
                return None
            await connection.execute(*sql.DELETE_LIST(session_id=session_id, address_id=address_id))
        return tuple(ids) if number is None else (ids[number - 1],)


async def erase_notes(
    connection: Connection, contact_id: int, rows: Sequence[Record], *, actor: str = "memory"
) -> None:
    """Erase the text of notes, and rows that contain it, in the caller's transaction.

    Such rows are events, texts of flushes, and parts of stored requests. `rows` are rows of notes. An entry
    of the erasure log with `actor` is stored.
    """
    ids = [row["id"] for row in rows]
    for row in rows:
        if not row["gist"]:
            await connection.execute(*sql.SET_GIST(note_id=row["id"], gist=list(gist_of(row["text"]))))
    await connection.execute(*sql.ERASE(note_ids=ids))
    about = {"notes": [str(row["public_id"]) for row in rows]}
    await connection.execute(
        *sql.LOG_ERASURE(contact_id=contact_id, about=about, number=len(rows), actor=actor)
    )
    await connection.execute(
        *sql.ERASE_EVENTS(contact_id=contact_id, short_ids=[_short_id(row) for row in rows])
    )
    await connection.execute(*sql.ERASE_STRAY(note_ids=ids))
    lines = [core_line(row["text"]) for row in rows if row["text"].strip()]
    told = [row["text"] for row in rows if row["text"].strip()]
    recalled = [note_line(text, is_later=is_later) for text in told for is_later in (False, True)]
    await connection.execute(
        *sql.ERASE_PARTS(contact_id=contact_id, lines=lines, opening=NOTES_OPENED, recalled=recalled)
    )


async def _replace(connection: Connection, source: NoteSource, old: Record, kept: KeptNote) -> NoteResult:
    """Replace a note by another, with a row in the history of changes and an event."""
    await connection.execute(
        *sql.SUPERSEDE(old_ids=[old["id"]], kept_id=kept.id, reason="changed", cause=source.cause)
    )
    return await _store_event(connection, source, kept, "changed", replaces=_short_id(old))


def _short_id(row: Record) -> str:
    return f"n{row['public_id'].hex[:8]}"


async def _begin(connection: Connection, source: NoteSource) -> None:
    """Lock the notes of a person until the transaction ends.

    Raises LeaseLost if the turn, or the job of the flush, was claimed again.
    """
    await connection.execute(*sql.LOCK_CONTACT(contact_id=source.contact_id))
    if source.epoch and not await _is_claimed(connection, source):
        raise LeaseLost(f"session {source.session_id}, job {source.job_id}, epoch {source.epoch}")


async def _is_claimed(connection: Connection, source: NoteSource) -> bool:
    """Lock the session with the claim of the source's turn, or of its flush's job; return False if the claim
    is lost.
    """
    if source.flush_id is None:
        claim = sql.STILL_MINE(session_id=source.session_id, epoch=source.epoch, turn=source.through_turn)
    else:
        claim = LOCK_SESSION_AND_RUNNING(
            session_id=source.session_id, job_id=source.job_id, epoch=source.epoch
        )
    return bool(await connection.fetchval(*claim))


async def _find_earlier_result(
    connection: Connection, note: NewNote, source: NoteSource, outcome: Any
) -> NoteResult | None:
    """Return the result of this tool call if it already stored its note, before a crash; else None.

    The result has the given `outcome`.
    """
    row = await connection.fetchrow(*sql.BY_CALL(call_key=_key(note, source)))
    return None if row is None else NoteResult(outcome=outcome, note=_note_from(row))


def _key(note: NewNote, source: NoteSource) -> str | None:
    """Return the tool call's key with a hash of the text, since some providers reuse call ids in each reply.

    Returns None or "" if the source has no key.
    """
    return source.call_key and f"{source.call_key}:{note_hash(note.text).hex()[:12]}"


async def _too_many(connection: Connection, source: NoteSource) -> bool:
    """Return whether this turn has saved `SAVES_PER_TURN` notes before this call; a flush has no limit.

    Parallel calls of one round count in the order of their ids.
    """
    if source.flush_id is not None or source.from_turn is None:
        return False
    saved: int = await connection.fetchval(
        *sql.SAVES_OF_TURN(
            session_id=source.session_id, turn=source.from_turn, call_id=source.call_id, tool=SAVE_MEMORY.name
        )
    )
    return saved >= SAVES_PER_TURN


async def _twin(
    connection: Connection, note: NewNote, source: NoteSource, *, besides: int = 0
) -> Record | None:
    """Return the stored note with the same words, else one with nearly the same; None if there is none.

    A note with the same words may be live, forgotten or replaced; one that is only similar is never a
    replaced one. `besides` is the id of a note to ignore.
    """
    gist = list(gist_of(note.text))
    rows = await connection.fetch(
        *sql.TWINS(
            contact_id=source.contact_id,
            scope=source.scope,
            hash=note_hash(note.text),
            gist=gist,
            besides=besides,
        )
    )
    same = next((row for row in rows if row["same"]), None)
    if same is not None:
        return same
    near = (row for row in rows if row["state"] != "replaced" and is_near_gist(gist, row["gist"]))
    return next(near, None)


async def _find_refusal(connection: Connection, twin: Record, source: NoteSource) -> NoteResult | None:
    """Return the result if `twin`, the same or a similar note, prevents saving; None if it does not.

    `known`: it is live; `replaced`: a newer note replaced it; `blocked`: it was forgotten. A note that the
    person asks for explicitly is refused only if it is `known`.
    """
    if twin["state"] == "kept":
        return NoteResult(outcome="known", note=_note_from(twin))
    if source.by_person:
        return None
    if twin["state"] == "replaced":
        return NoteResult(outcome="replaced", note=await _heir(connection, twin["id"]))
    return NoteResult(outcome="blocked")


async def _insert(
    connection: Connection, note: NewNote, source: NoteSource, *, tainted: bool = False
) -> KeptNote:
    authority, seqs, said_at = await _provenance(connection, note, source, tainted=tainted)
    row = await connection.fetchrow(
        *sql.INSERT(
            contact_id=source.contact_id, scope=source.scope, kind=note.kind, text=note.text,
            subject=note.subject, importance=note.importance, hash=note_hash(note.text), authority=authority,
            session_id=source.session_id, from_turn=source.from_turn, through_turn=source.through_turn,
            flush_id=source.flush_id, durability=note.durability, event_date=note.event_date,
            source_seqs=seqs, gist=list(gist_of(note.text)), call_key=_key(note, source), said_at=said_at,
        ),
    )  # fmt: skip
    if row is None:
        raise LeaseLost(f"what session {source.session_id} would keep was forgotten meanwhile")
    return _note_from(row)


async def _provenance(
    connection: Connection, note: NewNote, source: NoteSource, *, tainted: bool
) -> tuple[str, list[int], datetime | None]:
    """Return the authority of a note, the numbers of its source messages, and the time of its source message.

    A flush may save what was said days ago; the time is then that of the message.
    """
    if source.by_operator:
        return "operator", [], None
    if source.by_person or source.from_turn is None:
        return "person", [], None
    turns = {
        "session_id": source.session_id, "from_turn": source.from_turn, "through_turn": source.through_turn,
    }  # fmt: skip
    tools_used = await connection.fetchval(
        *sql.TOOLS_USED(
            **turns, memory_tools=sorted(MEMORY_TOOLS), search=SEARCH_MEMORY.name,
            contact_id=source.contact_id,
            scope=source.scope,
        )
    )  # fmt: skip
    readable = [build_entry(row) for row in await connection.fetch(*sql.READABLE(**turns))]
    mine = [entry for entry in readable if entry.turn >= source.from_turn]
    words = split_heard_text(readable)
    own = [entry for entry in mine if entry.author == "person"]
    said = [own_words(entry.blocks) for entry in own]
    authority = authority_of(
        note.text,
        said,
        tools_used=tainted or tools_used or any(has_looked_up(entry.blocks) for entry in mine),
        before=words.own,
        foreign=(*words.foreign, *source.shown),
    )
    place = likely_source(note.text, said)
    newest = mine[-1].at if mine else None
    said_at = newest if place is None else own[place].at
    if source.flush_id is None:
        return authority, [entry.seq for entry in own], said_at
    return authority, [] if place is None else [own[place].seq], said_at


async def _revive(
    connection: Connection, note_id: int, note: NewNote, source: NoteSource, *, change: str | None
) -> NoteResult:
    row = await connection.fetchrow(
        *sql.REVIVE(
            note_id=note_id, text=note.text, subject=note.subject, importance=note.importance,
            event_date=note.event_date, durability=note.durability,
            authority="person" if source.by_person else "operator" if source.by_operator else None,
            call_key=_key(note, source),
        ),
    )  # fmt: skip
    assert row is not None
    kept = _note_from(row)
    if change is None:
        return NoteResult(outcome="known", note=kept)
    return await _store_event(connection, source, kept, "saved")


async def _store_event(
    connection: Connection, source: NoteSource, note: KeptNote, change: Any, *, replaces: str = ""
) -> NoteResult:
    """Store an event about a change for screens, and return the result with the note.

    Events of a flush are `quiet`: they update open lists without an announcement. `replaces` is the short id
    of the old note.
    """
    text = "" if change == "forgotten" else note.text
    payload: dict[str, object] = {"id": note.short_id, "text": text, "kind": note.kind, "change": change}
    if replaces:
        payload["replaces"] = replaces
    if source.flush_id is not None:
        payload["quiet"] = True
    event_seq = await _event(connection, source.session_id, payload)
    return NoteResult(outcome=change, note=note, event_seq=event_seq, payload=dict(payload))


async def _event(connection: Connection, session_id: int, payload: Mapping[str, Any]) -> int:
    event_seq: int = await connection.fetchval(*sql.ADD_EVENT(session_id=session_id, payload=dict(payload)))
    return event_seq


async def _find_by_short_id(connection: Connection, short_id: str, whose: NoteSource) -> Record | None:
    """Return the note whose public id begins like `short_id`; None if no note or more than one does."""
    rows = await connection.fetch(
        *sql.BY_SHORT_ID(contact_id=whose.contact_id, scope=whose.scope, start=short_id[1:9])
    )
    return rows[0] if len(rows) == 1 else None


async def _heir(connection: Connection, note_id: int) -> KeptNote | None:
    """Return the newest version of a note; None if it was deleted."""
    row = await connection.fetchrow(*sql.NEWEST_VERSION(note_id=note_id))
    return None if row is None else _note_from(row)


def _note_from(row: Record) -> KeptNote:
    state: NoteState = row["state"]
    return build_value(KeptNote, row, short_id=_short_id(row), state=state)


_IS_HELD = Named("SELECT :contact_id::bigint IN (SELECT held_contacts())")
