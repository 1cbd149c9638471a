"""Pages far into a long history, searches that mean many or few, and marks that turns and jobs leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.adapters.postgres.dashboard.memory_queries import MemoryInsights, NoteQuery
from shared.adapters.postgres.dashboard.people_queries import PeopleInsights, PeopleQuery
from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery
from shared.adapters.postgres.dashboard.read_models_sql import SORTS
from shared.adapters.postgres.turns.spend_sql import SUMS
from tests.kit.app_driver import Visit
from tests.kit.dashboard import seed

Pool = asyncpg.Pool


async def test_summaries_and_calls_are_read_page_by_page_to_the_end(pool: Pool) -> None:
    insights = Insights(pool)
    async with pool.acquire() as connection:
        seeded, links = await seed.a_long_session(connection, turns=200)
        await connection.execute(
            """INSERT INTO turn_context_audit (session_id, turn_id, model_alias, model_context_limit,
                 input_budget, hard_limit, estimated_input_tokens_before,
                 estimated_input_tokens_after_summary, estimated_input_tokens_after_prune, context_tokens)
               SELECT $1, n, 'm', 1, 1, 1, 1, 1, 1, 7 FROM generate_series(1, 9) n""",
            seeded.session_id,
        )
    folds, before = [], None
    while page := await insights.load_compactions(seeded.public_id, before=before, limit=1):
        folds += [row["id"] for row in page["compactions"]]
        assert bool(page["failed"]) == (before is None)
        if page["before"] is None:
            break
        before = int(page["before"])
    assert folds == [str(link) for link in reversed(links)]
    one = await insights.load_compaction(links[0])
    assert one is not None
    assert (one[0], one[1]["id"]) == (seeded.session_id, str(links[0]))
    calls, place = [], None
    while page := await insights.load_context_audit(seeded.public_id, before=place, limit=25):
        calls += [(row["turn"], row["context"]) for row in page["calls"]]
        if page["before"] is None:
            break
        turn, _, number = page["before"].partition(".")
        place = int(turn), int(number)
    assert calls == [
        tuple(row)
        for row in await pool.fetch(
            "SELECT turn_id, context_tokens FROM turn_context_audit ORDER BY turn_id DESC, id DESC"
        )
    ]


async def test_turns_without_messages_do_not_end_the_reading(pool: Pool) -> None:
    insights = Insights(pool)
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, turns=40)
        await seed.talk(connection, seeded, turns=40)
        await connection.execute("DELETE FROM turn_entries WHERE turn_no BETWEEN 11 AND 30")
    seen: list[int] = []
    before = None
    for _ in range(30):
        page = await insights.load_messages(seeded.public_id, before=before, limit=6)
        assert page is not None
        seen = [message["turn"] for message in page["messages"]] + seen
        if page["before"] is None:
            break
        turn, _, step = page["before"].partition(".")
        before = int(turn), int(step)
    assert seen == [turn for turn in (*range(1, 11), *range(31, 41)) for _ in range(2)]


async def test_a_search_for_few_letters_finds_those_beyond_the_next_rows(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.dashboard.session_list.NEAR_ROWS", 3)
    insights = Insights(pool)
    async with pool.acquire() as connection:
        for number in range(9):
            name = "Zoë" if number in (1, 7, 8) else f"Ann {number}"
            await seed.a_session(connection, person=name, minutes_ago=number, turns=number + 1)
    for sort, wanted in (("-active", [2, 8, 9]), ("turns", [2, 8, 9]), ("-output", [9, 8, 2])):
        turns, cursor = [], ""
        while True:
            page = await insights.load_sessions(SessionQuery(search="zo", sort=sort, cursor=cursor, limit=1))
            turns += [row["turns"] for row in page["sessions"]]
            if not (cursor := page["next"] or ""):
                break
        assert turns == wanted, sort


@pytest.mark.parametrize("share", [69.0, 70.0, 89.5, 90.0, 97.0])
async def test_how_full_they_are_at_least_is_what_sql_says(pool: Pool, share: float) -> None:
    async with pool.acquire() as connection:
        for number in range(20):
            await seed.a_session(connection, context=62 + number * 2, limit=100 if number % 5 else 0)
    for sort in SORTS:
        found = await Insights(pool).load_sessions(SessionQuery(min_pct=share, sort=sort))
        assert len(found["sessions"]) == await pool.fetchval(
            "SELECT count(*) FROM sessions WHERE context_limit > 0 AND context_tokens >= $1", share
        ), sort


@pytest.mark.parametrize("usual", [False, True], ids=["rare", "usual"])
async def test_notes_are_found_however_far_back_they_are(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, usual: bool
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.dashboard.memory_queries.NEAR", 5)
    monkeypatch.setattr("shared.adapters.postgres.dashboard.memory_queries.NEAR_NOTES", 5)
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, person="Maria")
        await connection.execute(
            """INSERT INTO notes (contact_id, scope, kind, text, subject, hash)
               SELECT $1, 'default', 'fact', CASE WHEN n % 7 = 0 THEN 'Likes Übergrößen 100%' ELSE 'Tea' END,
                      CASE WHEN n % 9 = 0 THEN 'Boots' ELSE '' END, sha256(n::text::bytea)
                 FROM generate_series(1, 40) n""",
            seeded.contact_id,
        )
        if usual:
            await connection.execute("ANALYZE notes")
    one = await pool.fetchval("SELECT public_id::text FROM notes ORDER BY id LIMIT 1")
    for words, where in (
        ("übergr", "text LIKE 'Likes%'"), ("0%", "text LIKE 'Likes%'"), ("boots", "subject = 'Boots'"),
        ("te", "text = 'Tea'"), ("nothing like it", "false"), ("_ea", "false"),
        (one[:9], f"public_id = '{one}'"),
    ):  # fmt: skip
        rows = await pool.fetch(f"SELECT public_id::text FROM notes WHERE {where} ORDER BY id DESC")
        assert await _all_notes(pool, words) == [row[0] for row in rows], words


async def _all_notes(pool: Pool, words: str) -> list[str]:
    seen: list[str] = []
    cursor = ""
    for _ in range(40):
        page = await MemoryInsights(pool).load_notes(NoteQuery(search=words, cursor=cursor, limit=2))
        seen += [note["id"] for note in page["notes"]]
        if not (cursor := page["next"] or ""):
            return seen
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("usual", [False, True], ids=["rare", "usual"])
async def test_people_are_found_by_name_place_and_id(pool: Pool, usual: bool) -> None:
    async with pool.acquire() as connection:
        for number, name in enumerate(("Maria Silva", "Mark", "Zoë", "")):
            place = await seed.a_session(connection, person=name, channel="telegram", minutes_ago=number)
            await connection.execute(
                "UPDATE addresses SET chat = $2, title = $3 WHERE id = $1",
                place.address_id, f"-10012345{number}", f"Room {number}",
            )  # fmt: skip
        if usual:
            # Of four people each piece is a quarter's: the indexes are known to find too many.
            await connection.execute("ANALYZE contacts, addresses")
    insights, first = PeopleInsights(pool), await pool.fetchval("SELECT min(public_id::text) FROM contacts")
    name = await pool.fetchval(
        "SELECT nullif(display_name, '') FROM contacts WHERE public_id = $1::uuid", first
    )
    for words, names in (
        ("ma", ["Maria Silva", "Mark"]), ("a sil", ["Maria Silva"]), ("ZOË", ["Zoë"]), ("il", []),
        ("room 1", ["Mark"]), ("-100123452", ["Zoë"]), ("ZO", ["Zoë"]), ("xyz", []), (first[:13], [name]),
    ):  # fmt: skip
        found = await insights.load_people(PeopleQuery(search=words))
        assert [one["name"] for one in found["people"]] == names, words


async def test_what_was_spent_is_added_up_with_the_ledger(guest: Visit) -> None:
    await guest.ask("Please remember that my cat is called Miso.")
    await guest.ask("What is 12 * 7?")
    terms = ", ".join(f"{term} AS {name}" for name, term in SUMS.items())
    kept = await guest.app.pool.fetch(
        f"SELECT purpose, model, {', '.join(SUMS)} FROM session_spend ORDER BY 1, 2"
    )
    ledger = await guest.app.pool.fetch(
        f"SELECT purpose, model, {terms} FROM usage GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [dict(row) for row in kept] == [dict(row) for row in ledger] != []


async def test_a_dead_job_marks_its_session_until_it_is_mended(guest: Visit) -> None:
    async def marked() -> Any:
        return await guest.one("SELECT troubled_at FROM sessions WHERE id = $1", guest.session_id)

    async def answered_later() -> Any:
        await guest.one("UPDATE sessions SET troubled_at = now() - interval '2 min' RETURNING id")
        await guest.ask("And now?")
        return await marked()

    await guest.ask("Hello")
    assert await marked() is None
    job = await guest.one(
        "INSERT INTO jobs (kind, session_id, key) VALUES ('tidy', $1, 'x') RETURNING id", guest.session_id
    )
    done = await PostgresJobChanges(guest.app.pool).change_jobs("cancel", [job], actor="anna")
    assert done.changed == (str(job),)
    assert await marked() is not None
    assert await answered_later() is not None
    await guest.one("UPDATE jobs SET state = 'done' WHERE id = $1 RETURNING id", job)
    assert await answered_later() is None
    await guest.one("UPDATE sessions SET troubled_at = now() RETURNING id")
    await guest.ask("So soon?")
    assert await marked() is not None


async def test_more_than_seemed_rare_are_all_found(pool: Pool) -> None:
    """Nothing is known of the names, so that each piece is taken for rare; none is among the newest."""
    async with pool.acquire() as connection:
        await seed.a_session(connection)
    for statement in (
        """INSERT INTO contacts (display_name)
           SELECT CASE WHEN n > 1100 THEN 'Maria ' ELSE 'Zoë ' END || n FROM generate_series(1, 1500) n""",
        """INSERT INTO sessions (contact_id, agent_id, last_active_at)
           SELECT p.id, (SELECT min(id) FROM agents), now() - p.id * interval '1 min' FROM contacts p""",
        """INSERT INTO notes (contact_id, scope, kind, text, hash)
           SELECT id, 'default', 'fact', 'Of ' || display_name, sha256(id::text::bytea)
             FROM contacts ORDER BY id DESC""",
    ):
        await pool.execute(statement)
    people, sessions, notes = PeopleInsights(pool), Insights(pool), MemoryInsights(pool)
    reads: dict[str, Callable[[str, str], Awaitable[dict[str, Any]]]] = {
        "people": lambda words, cursor: people.load_people(PeopleQuery(search=words, cursor=cursor)),
        "sessions": lambda words, cursor: sessions.load_sessions(SessionQuery(search=words, cursor=cursor)),
        "notes": lambda words, cursor: notes.load_notes(NoteQuery(search=words, cursor=cursor)),
    }
    for words, count in (("maria", 400), ("maria 1234", 1), ("aria 12", 100)):
        for rows, read in reads.items():
            assert len(await _all(partial(read, words), rows)) == count, (words, rows)


async def _all(read: Callable[[str], Awaitable[dict[str, Any]]], rows: str) -> set[str]:
    seen: list[str] = []
    cursor = ""
    for _ in range(40):
        page = await read(cursor)
        seen += [row["id"] for row in page[rows]]
        if not (cursor := page["next"] or ""):
            assert len(seen) == len(set(seen))
            return set(seen)
    raise AssertionError("the pages never end")
