"""REST for the panel “What I remember”: a visitor's own notes, to be read, corrected and put away."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from shared.core.context.memory import as_new, note_from, search_stems
from shared.core.context.notes import KeptNote, NoteResult, NoteSource
from shared.core.session.client_payloads import iso
from web.api.responses import caller, check_rate, json_reply
from web.auth.api_key_auth import KEY, record
from web.auth.visitors import Known
from web.parts import PARTS
from web.security import HttpRefusal, read_json

NOTES = "/api/v1/memory"
NOTE = f"{NOTES}/{{id:n[0-9a-f]{{8}}}}"
RESTORE = f"{NOTE}/restore"
SHOWN_AT_MOST = 200
_WORDS_CHARS = 300


async def list_notes(request: web.Request) -> web.StreamResponse:
    """`?q=words` searches; else the newest. `{"notes": […], "total": N}`"""
    known = await _person(request)
    notes = request.app[PARTS].notes
    words = request.query.get("q", "")[:_WORDS_CHARS].strip()
    found = await notes.find(
        await notes.load_owner(known.row.session_id),
        search_stems(words) if words else [],
        limit=SHOWN_AT_MOST,
    )
    return await json_reply(request, {"notes": list(map(_shown, found.notes)), "total": found.total})


async def change_note(request: web.Request) -> web.StreamResponse:
    """`{"text", "importance"?, "event_date"?}` → the newer note, with an id of its own; 409 when too late."""
    known = await _person(request)
    notes, short_id = request.app[PARTS].notes, request.match_info["id"]
    body = await read_json(request)
    source = await _by_person(request, known)
    old = await notes.find_note(short_id, source)
    if old is None or old.state == "put_away":
        raise _unknown()
    note = note_from(body, like=as_new(old))
    return await _answered(request, known, await notes.change(short_id, note, source))


async def put_note_away(request: web.Request) -> web.StreamResponse:
    """Out of sight at once; `{"undo_until"}` says how long it can come back."""
    known = await _person(request)
    source = await _by_person(request, known)
    result = await request.app[PARTS].notes.archive(request.match_info["id"], source)
    return await _answered(request, known, result)


async def restore_note(request: web.Request) -> web.StreamResponse:
    known = await _person(request)
    source = await _by_person(request, known)
    result = await request.app[PARTS].notes.bring_back(request.match_info["id"], source)
    return await _answered(request, known, result)


async def _person(request: web.Request) -> Known:
    """On public pages nobody is told of a memory, as with commands that are not offered; a scope tells."""
    known = await caller(request)
    if known.audience == "public" and KEY not in request:
        raise HttpRefusal(404, "not_found", "Not found.")
    check_rate(request, request.app[PARTS], known)
    return known


async def _by_person(request: web.Request, known: Known) -> NoteSource:
    about = f"session:{known.row.session_public_id}"
    await record(request, "memory.write", about=about, note=request.match_info["id"])
    whose = await request.app[PARTS].notes.load_owner(known.row.session_id)
    return NoteSource(session_id=whose.session_id, party_id=whose.party_id, scope=whose.scope, by_person=True)


async def _answered(request: web.Request, known: Known, result: NoteResult) -> web.StreamResponse:
    match result.outcome:
        case "unknown":
            raise _unknown()
        case "gone":
            raise HttpRefusal(410, "gone", "This note was erased and cannot come back.")
        case "replaced":
            newer = {} if result.note is None else {"note": _shown(result.note)}
            raise HttpRefusal(409, "replaced", "There are newer words for this note.", **newer)
        case _:
            pass
    if result.event_seq is not None and result.payload is not None:
        request.app[PARTS].hub.durable(known.row.session_id, result.event_seq, "memory", result.payload)
    note = result.note
    if result.outcome == "forgotten":
        undo_until = iso(note.undo_until) if note and note.undo_until else None
        return await json_reply(request, {"undo_until": undo_until})
    return await json_reply(request, {"note": None if note is None else _shown(note)})


def _unknown() -> HttpRefusal:
    return HttpRefusal(404, "unknown_note", "There is no such note.")


def _shown(note: KeptNote) -> dict[str, Any]:
    return {
        "id": note.short_id,
        "text": note.text,
        "kind": note.kind,
        "subject": note.subject,
        "importance": note.importance,
        "authority": note.authority,
        "observed_at": iso(note.observed_at),
        "event_date": note.event_date,
        "from_turn": note.from_turn,
    }
