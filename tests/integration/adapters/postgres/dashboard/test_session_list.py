"""The list of conversations follows them by seconds, whoever dies or waits meanwhile; turns stay light."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.job_queries import JobInsights
from shared.adapters.postgres.dashboard.metrics_sql import GAUGES
from shared.adapters.postgres.dashboard.people_queries import PeopleInsights, PeopleQuery
from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery
from shared.adapters.postgres.db import listing
from shared.adapters.postgres.db.listing import PostgresSessionList
from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.identities import NAME
from shared.core.values.errors import StorageUnavailable
from tests.kit.app_driver import Visit, visit
from tests.kit.canaries import dumped
from tests.kit.dashboard import seed
from tests.kit.dashboard.listing import COLUMNS, LIST_ALL

Pool = asyncpg.Pool
STALE = """
SELECT count(*) FROM session_list_now x JOIN session_list l ON l.id = x.id
 WHERE NOT to_jsonb(l) @> to_jsonb(x)
"""
CHANGES = "SELECT count(*) FROM session_list_changes"
CHANGED_BY_TURNS = (
    "next_seq", "next_event_seq", "next_turn", "open_turn", "open_address", "answered_turn", "turn_epoch",
    "leased_by", "leased_at", "context_tokens", "context_limit", "context_reserved", "token_ratio",
    "token_scale", "last_active_at",
)  # fmt: skip


@pytest.fixture
def rows_by_hand() -> bool:
    return True


@pytest.fixture(autouse=True)
async def list_stays_right(guest: Visit, database_url: str) -> AsyncIterator[None]:
    """Check at the end what invariants say of the session list."""
    yield
    connection = await asyncpg.connect(database_url)
    assert [one for one in await check_invariants(connection) if "list" in one.what] == []
    await connection.close()


async def caught_up(guest: Visit) -> None:
    while await guest.app.stores.session_list.catch_up():
        pass


async def test_no_index_is_over_what_a_turn_changes(guest: Visit) -> None:
    """One that were, or had it in its condition, would make each update of a session write to all of them."""
    rows = await guest.app.pool.fetch(
        """SELECT pg_get_indexdef(indexrelid) FROM pg_index
            WHERE indrelid IN ('sessions'::regclass, 'session_totals'::regclass)"""
    )
    totals = [name for name in re.findall(r"\w+", COLUMNS) if "tokens" in name or "cost" in name]
    for (index,) in rows:
        assert not {*CHANGED_BY_TURNS, *totals} & set(re.findall(r"\w+", index)), index


async def test_turn_is_one_change_of_the_session_list(guest: Visit) -> None:
    await guest.ask("What does a word cost?")
    await caught_up(guest)
    for _ in range(3):
        await guest.app.sessions.accept_and_claim(guest.inbound("Hello"))
        assert await guest.one(CHANGES) == 0
        await guest.answered()
        assert await guest.one(CHANGES) == 1
        assert await guest.one(STALE) == 1
        await caught_up(guest)
        assert (await guest.one(CHANGES), await guest.one(STALE)) == (0, 0)
    assert await guest.one("SELECT next_turn FROM session_list") == 5


async def test_a_conversation_is_listed_from_its_beginning(guest: Visit) -> None:
    found = await Insights(guest.app.pool).load_sessions(SessionQuery())
    assert [row["turns"] for row in found["sessions"]] == [0]
    people = await PeopleInsights(guest.app.pool).load_people(PeopleQuery())
    assert len(people["people"]) == 1


async def test_what_is_shown_is_the_truth_however_far_the_list_is_behind(guest: Visit) -> None:
    await guest.ask("Hello")
    found = await Insights(guest.app.pool).load_sessions(SessionQuery(sort="turns"))
    assert [row["turns"] for row in found["sessions"]] == [1]
    assert await guest.one("SELECT next_turn FROM session_list") == 1


async def test_waiting_message_is_listed_at_once_and_long_answer_later(guest: Visit) -> None:
    await caught_up(guest)
    await guest.say("Hello")
    assert await guest.one(CHANGES) == 1
    await caught_up(guest)
    await guest.answered()
    await caught_up(guest)
    await guest.app.sessions.accept_and_claim(guest.inbound("And now?"))
    await caught_up(guest)
    assert await guest.one(STALE) == 1
    for aged in ("turns SET opened_at = opened_at", "session_list SET last_active_at = last_active_at"):
        await guest.app.pool.execute(f"UPDATE {aged} - interval '3 s'")
    await caught_up(guest)
    assert await guest.one(STALE) == 0
    await guest.answered()
    await caught_up(guest)


async def test_released_turn_updates_the_session_list(guest: Visit) -> None:
    await guest.ask("Hello")
    await caught_up(guest)
    await guest.app.sessions.accept_and_claim(guest.inbound("Hello"))
    await guest.app.pool.execute("UPDATE sessions SET leased_by = NULL, retry_at = now() + interval '1 hour'")
    assert await guest.one(CHANGES) == 1
    await guest.app.pool.execute("UPDATE sessions SET retry_at = NULL")
    await guest.answered()
    await caught_up(guest)


async def test_job_cost_updates_the_session_list(guest: Visit) -> None:
    await guest.ask("Hello")
    await caught_up(guest)
    await guest.app.pool.execute("UPDATE session_totals SET output_tokens = output_tokens")
    assert await guest.one(CHANGES) == 1
    await caught_up(guest)


async def test_session_list_catches_up_in_bounded_portions(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guest.app.pool.acquire() as connection:
        for number in range(7):
            await seed.a_session(connection, person=f"Person {number}")
    await caught_up(guest)
    await guest.app.pool.execute("UPDATE sessions SET context_tokens = 5")
    monkeypatch.setattr(listing, "AT_ONCE", 3)
    monkeypatch.setattr(listing, "_TAKE", Named(listing._TAKE.text, limit=3, slow_seconds=2))
    left = []
    while await guest.app.stores.session_list.catch_up():
        left.append(await guest.one(CHANGES))
    assert left == [5, 2]
    assert (await guest.one(CHANGES), await guest.one(STALE)) == (0, 0)


async def test_a_process_that_dies_while_it_tells_the_list_leaves_the_changes(guest: Visit) -> None:
    def dies(_: str) -> None:
        raise ConnectionResetError

    await guest.ask("Hello")
    before = await guest.one(CHANGES)
    with pytest.raises((ConnectionResetError, StorageUnavailable)):
        await PostgresSessionList(guest.app.pool, crash_point=dies).catch_up()
    assert await guest.one(CHANGES) == before > 0
    await caught_up(guest)
    assert await guest.one(STALE) == 0


async def test_of_two_workers_one_tells_the_list(guest: Visit) -> None:
    await guest.ask("Hello")
    async with guest.app.pool.acquire() as connection, connection.transaction():
        assert await connection.fetchval(listing._ALONE)
        assert not await guest.app.stores.session_list.catch_up()
        assert await guest.one(CHANGES) > 0
    await caught_up(guest)
    assert await guest.one(CHANGES) == 0


async def test_workers_and_turns_at_once_leave_nothing_untold(guest: Visit) -> None:
    visits = [guest, *[await visit(guest.app) for _ in range(3)]]
    talking = True

    async def tell() -> None:
        while talking:
            await PostgresSessionList(guest.app.pool).catch_up()

    workers = [asyncio.create_task(tell()) for _ in range(2)]
    for _ in range(4):
        await asyncio.gather(*(one.ask("Hello") for one in visits))
    talking = False
    await asyncio.gather(*workers)
    await caught_up(guest)
    assert (await guest.one(CHANGES), await guest.one(STALE)) == (0, 0)


async def test_person_being_renamed_is_updated_in_the_next_round(guest: Visit) -> None:
    await guest.ask("Hello")
    async with guest.app.pool.acquire() as connection, connection.transaction():
        await connection.execute(*NAME(address_id=guest.address_id, name="Zoë"))
        await guest.app.stores.session_list.catch_up()
        assert (await guest.one(CHANGES), await guest.one(STALE)) == (1, 1)
    await caught_up(guest)
    assert (await guest.one(CHANGES), await guest.one(STALE)) == (0, 0)
    assert await guest.one("SELECT person FROM session_list") == "zoë"


async def test_a_forgotten_name_is_nowhere_at_once(guest: Visit) -> None:
    canary = "Kanarienvogel-77"
    await guest.app.pool.execute(*NAME(address_id=guest.address_id, name=canary))
    assert canary.lower() in await guest.one("SELECT person FROM session_list")
    await guest.ask("Hello")
    for args in ("everything", "everything yes"):
        await guest.app.commands.run(
            session_id=guest.session_id, address_id=guest.address_id, name="forget", args=args
        )
    assert canary.lower() not in (await dumped(guest.app.settings)).lower()


async def test_pages_hold_while_the_conversations_go_on(guest: Visit) -> None:
    """A page follows the list, and none is skipped that the list did not move."""
    async with guest.app.pool.acquire() as connection:
        for number in range(12):
            await seed.a_session(connection, person=f"Person {number}", minutes_ago=number + 1)
    await caught_up(guest)
    insights, seen, cursor = Insights(guest.app.pool), [], ""
    while True:
        page = await insights.load_sessions(SessionQuery(limit=3, cursor=cursor))
        seen += [row["id"] for row in page["sessions"]]
        if not (cursor := page["next"] or ""):
            break
        await guest.app.pool.execute("UPDATE sessions SET last_active_at = now(), next_turn = next_turn")
    assert len(seen) == len(set(seen)) == 13
    await caught_up(guest)


async def test_operators_hear_that_the_list_has_moved(guest: Visit) -> None:
    insights = JobInsights(guest.app.pool)
    await guest.ask("Hello")
    before = await insights.load_pulse()
    await caught_up(guest)
    after = await insights.load_pulse()
    assert before["sessions"] != after["sessions"]


async def test_what_is_asked_each_second_walks_through_no_idle_conversations(guest: Visit) -> None:
    """Neither by a beat, a look for the unanswered, a page that is followed, nor a scrape."""
    await guest.ask("Hello")
    for statement in (
        "INSERT INTO contacts (display_name) SELECT 'Person ' || n FROM generate_series(1, 4000) n",
        """INSERT INTO sessions (contact_id, agent_id, last_active_at)
           SELECT p.id, (SELECT min(id) FROM agents), now() - interval '30 days'
             FROM contacts p WHERE display_name LIKE 'Person%'""",
    ):
        await guest.app.pool.execute(statement)
    await caught_up(guest)
    await guest.app.pool.execute("ANALYZE")
    before = await _walked(guest)
    app, pool = guest.app, guest.app.pool
    await app.sessions.check_leases()
    assert await app.stores.turns.list_unanswered("web") == []
    assert await app.stores.turns.load_held_turns(app.worker_id) == {}
    await JobInsights(pool).load_pulse()
    await read_page(pool, GAUGES)
    await Insights(pool).load_overview()
    for state in ("answering", "waiting", "tidying", "problem"):
        for sort in ("-active", "state"):
            await Insights(pool).load_sessions(SessionQuery(state=state, sort=sort))
    await caught_up(guest)
    assert await _walked(guest) == before


async def _walked(guest: Visit) -> int:
    """Rows of conversations that were read one after the other, as all connections of the pool tell."""
    pool = guest.app.pool
    held = [await pool.acquire() for _ in range(pool.get_size())]
    for connection in held:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await pool.release(connection)
    return int(
        await guest.one(
            """SELECT sum(seq_tup_read) FROM pg_stat_user_tables
                WHERE relname IN ('sessions', 'session_list', 'session_totals')"""
        )
    )


async def test_without_a_change_one_look_is_all(guest: Visit) -> None:
    await caught_up(guest)
    async with guest.app.pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE session_list_changes IN EXCLUSIVE MODE")
        async with asyncio.timeout(5):
            assert not await guest.app.stores.session_list.catch_up()


MINUTES = """
SELECT count(*) FILTER (WHERE NOT is_folded) AS unfolded, coalesce(sum(sessions), 0) AS sessions,
       coalesce(sum(nearly_full), 0) AS nearly_full FROM listed_minutes
"""
LISTED = """
SELECT count(*) AS sessions,
       count(*) FILTER (WHERE context_limit > 0 AND context_tokens * 100.0 / nullif(context_limit, 0) >= 90)
         AS nearly_full
  FROM session_list
"""


async def count_minutes(guest: Visit) -> Any:
    return await guest.app.pool.fetchrow(MINUTES)


async def check_minutes(guest: Visit) -> Any:
    """Return what is counted by the minute; raises if the list says otherwise."""
    counted, listed = await count_minutes(guest), await guest.app.pool.fetchrow(LISTED)
    assert listed is not None
    assert (counted["sessions"], counted["nearly_full"]) == (listed["sessions"], listed["nearly_full"])
    return counted


async def test_overview_counts_active_and_nearly_full_conversations(guest: Visit) -> None:
    pool, overview = guest.app.pool, Insights(guest.app.pool).load_overview
    await guest.ask("Hello")
    await caught_up(guest)
    assert ((await overview())["active"], (await overview())["near_limit"]) == (1, 0)
    await pool.execute("UPDATE sessions SET context_limit = 100, context_tokens = 95")
    await caught_up(guest)
    assert ((await overview())["active"], (await overview())["near_limit"]) == (1, 1)
    await pool.execute("UPDATE sessions SET last_active_at = now() - interval '2 hours'")
    await guest.app.pool.execute("INSERT INTO session_list_changes SELECT id FROM sessions")
    await caught_up(guest)
    assert ((await overview())["active"], (await overview())["near_limit"]) == (0, 1)
    assert (await check_minutes(guest))["unfolded"] == 0
    await pool.execute("DELETE FROM session_list")
    assert ((await overview())["active"], (await overview())["near_limit"]) == (0, 0)
    await caught_up(guest)
    assert (await check_minutes(guest))["unfolded"] == 0
    await pool.execute(LIST_ALL)


async def test_conversation_older_than_a_day_is_not_counted(guest: Visit) -> None:
    await guest.ask("Hello")
    await caught_up(guest)
    await guest.app.pool.execute("UPDATE session_list SET last_active_at = now() - interval '3 days'")
    await caught_up(guest)
    assert (await count_minutes(guest))["sessions"] == 0
    await guest.app.pool.execute("UPDATE session_list SET last_active_at = now()")
    await caught_up(guest)
    await check_minutes(guest)
    await guest.app.pool.execute("UPDATE listed_minutes SET minute = minute - interval '26 hours'")
    await guest.app.pool.execute("UPDATE session_list SET context_limit = 100, context_tokens = 95")
    await caught_up(guest)
    assert (await count_minutes(guest))["sessions"] == 0
    await guest.app.pool.execute("DELETE FROM listed_minutes")
    await guest.app.pool.execute("DELETE FROM session_list")
    await guest.app.pool.execute("DELETE FROM listed_minutes")
    await guest.app.pool.execute(LIST_ALL)


async def test_changes_of_the_list_wait_for_no_other_change(guest: Visit) -> None:
    """Two transactions count the same minute."""
    async with guest.app.pool.acquire() as one, one.transaction():
        await one.execute("UPDATE session_list SET last_active_at = now() - interval '5 minutes'")
        await guest.app.pool.execute(
            """INSERT INTO listed_minutes
               SELECT date_trunc('minute', now()), n, 0 FROM (VALUES (1), (-1)) x(n)"""
        )
        await caught_up(guest)
    await caught_up(guest)
    assert (await check_minutes(guest))["unfolded"] == 0
