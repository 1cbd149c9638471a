"""Memory for operators: notes with where they came from, added, corrected, put away and brought back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.dashboard.memory_queries import FoundNote, NoteQuery
from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery
from shared.core.context.memory import NOTE_KINDS, BadNote, as_new, note_from
from shared.core.context.notes import NewNote, NoteResult, NoteSource
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer
from web.dashboard.requests.etag import if_match, public_id, stale, tell_screens
from web.dashboard.requests.request_json import read_json

NOTES = "/api/v1/notes"
NOTE = f"{NOTES}/{{id}}"
_OWN_IMPORTANCE = 8
"""As of what a person asks to remember: it is in the next prompts."""


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path=NOTES, need="viewer", handler=notes),
        Route(method="POST", path=NOTES, need="operator", handler=add),
        Route(method="PATCH", path=NOTE, need="operator", handler=change),
        Route(method="DELETE", path=NOTE, need="operator", handler=put_away),
        Route(method="POST", path=f"{NOTE}/restore", need="operator", handler=restore),
    )


async def notes(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    limit = query.get("limit", "")
    if limit and not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_LIMIT):
        raise BadQuery(f"limit is a number from 1 to {MAX_LIMIT}")
    person = _person(query.get("person", ""))
    page = await visit.desk.admin.memory.notes(
        NoteQuery(
            search=query.get("q", "").strip()[:200], person=person, kind=query.get("kind", ""),
            state=query.get("state", ""), authority=query.get("authority", ""),
            cursor=query.get("cursor", ""), limit=int(limit) if limit else 50,
        )
    )  # fmt: skip
    if not visit.refresh:
        about = f"person:{person}" if person else ""
        await visit.desk.admin.operators.record(actor=visit.operator.name, action="read.notes", about=about)
    return answer(page)


async def add(visit: AuthedRequest) -> web.StreamResponse:
    """`{"person", "text"}`, maybe `agent`, `kind`, `importance`, `event_date` → the note that is kept now."""
    wish = _wish(await read_json(visit))
    insights = visit.desk.admin.memory
    source = await insights.known_to(wish.person, wish.agent)
    if source is None:
        raise DashboardRefusal(
            404, "unknown_person", "There is no such person, or they never spoke to that agent."
        )
    await visit.desk.admin.operators.record(
        actor=visit.operator.name, action="note.added", about=f"person:{wish.person}",
        detail={"agent": source.scope, "kind": wish.note.kind},
    )  # fmt: skip
    result = await visit.desk.stores.notes.save(wish.note, source)
    return await _answered(visit, source, result, redacted=wish.note.redacted)


async def change(visit: AuthedRequest) -> web.StreamResponse:
    """`{"text"}` with `If-Match` → the newer note, which has an id of its own."""
    body, found = await read_json(visit), await _note(visit)
    text = body.get("text")
    if not isinstance(text, str) or set(body) != {"text"}:
        raise DashboardRefusal(400, "bad_input", "Send `text`, and nothing else.")
    seen = if_match(visit)
    if seen != found.shown["etag"]:
        return stale(visit, yours={"text": text}, theirs=await _standing(visit, found))
    store = visit.desk.stores.notes
    old = await store.find_note(found.short_id, found.source)
    if old is None:
        raise _unknown()
    try:
        note = note_from({"text": text}, like=as_new(old))
    except BadNote as error:
        raise DashboardRefusal(400, error.code, error.advice) from None
    await _record(visit, "note.changed", found)
    result = await store.change(found.short_id, note, found.source)
    if result.outcome in ("replaced", "unknown"):
        return stale(visit, yours={"text": text}, theirs=await _standing(visit, found))
    return await _answered(visit, found.source, result)


async def put_away(visit: AuthedRequest) -> web.StreamResponse:
    found = await _note(visit)
    if found.shown["state"] == "replaced":
        raise DashboardRefusal(409, "replaced", "Newer words stand for this note: put those away.")
    if found.shown["state"] == "kept":
        await _record(visit, "note.put_away", found)
    return await _answered(
        visit, found.source, await visit.desk.stores.notes.archive(found.short_id, found.source)
    )


async def restore(visit: AuthedRequest) -> web.StreamResponse:
    """Only what an operator put away: what its person had forgotten is theirs to bring back."""
    found = await _note(visit)
    if found.shown["state"] == "put_away" and not await visit.desk.admin.memory.put_away_by_operator(
        public_id(visit, "note")
    ):
        raise DashboardRefusal(409, "not_yours", "Its person put this away: only they can bring it back.")
    await _record(visit, "note.restored", found)
    return await _answered(
        visit, found.source, await visit.desk.stores.notes.bring_back(found.short_id, found.source)
    )


async def _note(visit: AuthedRequest) -> FoundNote:
    found = await visit.desk.admin.memory.note(public_id(visit, "note"))
    if found is None:
        raise _unknown()
    return found


async def _standing(visit: AuthedRequest, found: FoundNote) -> Mapping[str, Any] | None:
    """What stands for the note now; None when that was put away."""
    insights, heir = visit.desk.admin.memory, found
    for _ in range(50):
        following = heir.shown["superseded_by"]
        later = await insights.note(UUID(following)) if following else None
        if later is None:
            break
        heir = later
    return heir.shown


async def _record(visit: AuthedRequest, action: str, found: FoundNote) -> None:
    await visit.desk.admin.operators.record(
        actor=visit.operator.name, action=action, about=f"note:{found.shown['id']}",
        detail={"person": str(found.person)},
    )  # fmt: skip


async def _answered(
    visit: AuthedRequest, source: NoteSource, result: NoteResult, **more: bool
) -> web.StreamResponse:
    match result.outcome:
        case "unknown":
            raise _unknown()
        case "gone":
            raise DashboardRefusal(410, "gone", "This note was erased and cannot come back.")
        case "replaced":
            raise DashboardRefusal(409, "replaced", "There are newer words for this note.")
        case "blocked":
            raise DashboardRefusal(
                409, "blocked", "The person had this forgotten: only they can bring it back."
            )
        case _:
            pass
    await tell_screens(visit, source.session_id, result.event_seq)
    insights = visit.desk.admin.memory
    kept = None if result.note is None else await insights.kept(source, result.note.id)
    return answer({"note": kept and kept.shown, "changed": result.event_seq is not None, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    person: UUID
    agent: str
    note: NewNote


def _wish(body: Mapping[str, Any]) -> _Wish:
    """A note as an operator words it, every field of its own kind; raises Refusal."""
    words = {name: body.get(name, "") for name in ("person", "text", "agent", "kind", "event_date")}
    importance = body.get("importance", _OWN_IMPORTANCE)
    if set(body) - {*words, "importance"} or not all(isinstance(each, str) for each in words.values()):
        raise DashboardRefusal(
            400, "bad_input", f"Send {', '.join(words)} as texts, and importance; nothing else."
        )
    if words["kind"] and words["kind"] not in NOTE_KINDS:
        raise DashboardRefusal(400, BadNote.code, f"kind is one of {', '.join(NOTE_KINDS)}.")
    if type(importance) is not int or not 1 <= importance <= 9:
        raise DashboardRefusal(400, BadNote.code, "importance is a number from 1 to 9.")
    try:
        person = UUID(words["person"])
    except ValueError:
        raise DashboardRefusal(404, "unknown_person", "There is no such person.") from None
    try:
        note = note_from({**words, "importance": importance})
    except BadNote as error:
        raise DashboardRefusal(400, error.code, error.advice) from None
    return _Wish(person=person, agent=words["agent"], note=note)


def _person(raw: str) -> UUID | None:
    try:
        return UUID(raw) if raw else None
    except ValueError:
        raise BadQuery("person is the id of a person") from None


def _unknown() -> DashboardRefusal:
    return DashboardRefusal(404, "unknown_note", "There is no such note.")
