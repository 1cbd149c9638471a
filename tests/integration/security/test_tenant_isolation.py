"""Whoever asks a store for another's rows gets none of them, and who asks for nobody's is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.memory.reminders import PostgresReminders
from shared.adapters.postgres.privacy.export import PostgresExport
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.events import PostgresEvents
from shared.adapters.postgres.turns.feedback import PostgresFeedback
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.adapters.postgres.turns.uploads import PostgresUploads
from shared.core.context.notes import NoteSource
from shared.core.values.errors import EvertalkError
from shared.core.values.files import Document
from tests.kit.app_driver import Visit, running_app, settings_for, visit

CANARY = "hidden-heron-of-the-harbour"
Ask: TypeAlias = Callable[[Any, NoteSource], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """What there is of A, and who A and B are to a store."""

    pool: asyncpg.Pool[asyncpg.Record]
    own: NoteSource
    other: NoteSource
    asks: Mapping[str, Ask]


@pytest.fixture
async def theirs(database_url: str, redis_url: str) -> AsyncIterator[Theirs]:
    async with running_app(settings_for(database_url, redis_url)) as app:
        ada, bert = await visit(app), await visit(app)
        await ada.ask(f"Please remember that my boat {CANARY} leaks.")
        await bert.ask("Hello")
        run = app.commands.run
        await run(session_id=ada.session_id, address_id=ada.address_id, name="pin", args="1")
        yield await _theirs(ada, bert)


async def _theirs(ada: Visit, bert: Visit) -> Theirs:
    pool = ada.app.pool
    note = await pool.fetchrow("SELECT id, public_id FROM notes WHERE text LIKE '%' || $1 || '%'", CANARY)
    assert note is not None
    uploads, document = PostgresUploads(pool), Document(name="a.txt", text=CANARY)
    file = await uploads.keep(ada.session_id, CANARY.encode(), document, name="a.txt", most_per_day=10_000)
    notes, pins, turns = PostgresNotes(pool), PostgresPins(pool), PostgresTurns(pool)
    events, export, edits = PostgresEvents(pool), PostgresExport(pool), PostgresEdits(pool)
    short = f"n{UUID(str(note['public_id'])).hex[:8]}"
    asks: dict[str, Ask] = {
        "a note by its number": lambda _, whose: notes.load_note(note["id"], whose),
        "a note by its name": lambda _, whose: notes.find_note(short, whose),
        "notes by words": lambda _, whose: notes.find(whose, ("boat",), limit=10, everything=True),
        "a file": lambda session, _: uploads.load_for_session(file.id, session_id=session),
        "a file in a message": lambda session, _: uploads.load_for_message(session, [file.id]),
        "a file by its bytes": lambda session, _: uploads.find_by_content(
            session, CANARY.encode(), name="a.txt"
        ),
        "notes of a request": lambda _, whose: notes.load_sent(
            whose, [note["id"]], [f"My boat {CANARY} leaks."], limit=10
        ),
        "pins": lambda session, _: pins.list_pins(session),
        "a message": lambda session, _: pins.find_message(session, 1),
        "the log": lambda session, _: turns.load(session, base_turn=0, through_turn=9),
        "events": lambda session, _: events.list_after(session, 0),
        "the newest events": lambda session, _: events.list_newest(session),
        "a copy": lambda session, _: _exported(export, session),
        "the newest words": lambda session, _: edits.load_newest_text(session),
        "reminders": lambda session, _: PostgresReminders(pool).list_for_session(session),
        "erasing notes": lambda _, whose: notes.erase(whose, [note["id"]]),
        "putting a note away": lambda _, whose: notes.archive(short, whose),
        "editing": lambda session, _: edits.edit(
            session, 1, reword=lambda blocks: blocks, count=len, dedupe_key="x"
        ),
        "unpinning": lambda session, _: pins.unpin(session, 1),
        "an opinion": lambda session, _: PostgresFeedback(pool).record_opinion(
            session, 1, "good", source="web"
        ),
        "stopping": lambda session, _: turns.request_stop(session),
    }
    return Theirs(
        pool=pool,
        own=await notes.load_owner(ada.session_id),
        other=await notes.load_owner(bert.session_id),
        asks=asks,
    )


async def _exported(export: PostgresExport, session: int) -> Any:
    head = await export.load_head(session)
    return head, [await export.load_page(one, after_seq=0) for one in head.sessions]


async def _rows(of: Theirs) -> list[str]:
    """Everything of A that any of these could change."""
    kept = []
    for table in ("entries", "notes", "attachments", "pins", "turns", "events", "feedback", "sessions"):
        column = "id" if table == "sessions" else "session_id"
        rows = await of.pool.fetch(
            f"SELECT x::text AS row FROM {table} x WHERE {column} = $1 ORDER BY 1", of.own.session_id
        )
        kept += [f"{table} {row['row']}" for row in rows]
    return kept


@pytest.mark.control("S08")
async def test_store_reads_and_changes_nothing_of_another_tenant(theirs: Theirs) -> None:
    before = await _rows(theirs)
    for name, ask in theirs.asks.items():
        try:
            told = str(await ask(theirs.other.session_id, theirs.other))
        except EvertalkError as error:
            told = str(error)
        assert CANARY not in told, name
    assert await _rows(theirs) == before
    for name in ("a note by its number", "a note by its name", "a message", "the log", "a copy", "events"):
        assert CANARY in str(await theirs.asks[name](theirs.own.session_id, theirs.own)), name


@pytest.mark.control("S08")
async def test_store_without_a_complete_owner_returns_nothing(theirs: Theirs) -> None:
    before = await _rows(theirs)
    for unset in (None, 0, -1):
        nobody: Any = replace(theirs.own, session_id=unset, contact_id=unset)  # type: ignore[arg-type]
        for name, ask in theirs.asks.items():
            try:
                told = str(await ask(unset, nobody))
            except (EvertalkError, asyncpg.PostgresError, TypeError, AssertionError) as error:
                told = str(error)
            assert CANARY not in told, name
    assert await _rows(theirs) == before
    for mixed in (
        replace(theirs.other, session_id=theirs.own.session_id),
        replace(theirs.own, scope="another agent"),
    ):
        for name in ("a note by its number", "a note by its name", "notes by words"):
            assert CANARY not in str(await theirs.asks[name](mixed.session_id, mixed)), name
