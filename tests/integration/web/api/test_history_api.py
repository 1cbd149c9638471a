"""A conversation is read from its end to its beginning, page by page, and never more than may be seen."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.adapters.postgres.people.visitors import VisitorRow
from shared.core.session.turns import HEAD_CHARS
from tests.integration.web.api.past_talks import page, talked
from tests.kit.web.callers import bearer, make_visitor
from tests.kit.web.fixtures import Frame, Server, Starter
from tests.kit.web.long_talk import BEGAN
from tests.kit.web.rest_calls import call
from web.server.rate_limits import ClientLimits


def numbers(told: Frame) -> list[int]:
    return [event["event_seq"] for event in told["events"]]


async def summarised(server: Server, row: VisitorRow, through: int, *, active: bool, state: str) -> str:
    public_id = await server.services.pool.fetchval(
        """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger,
                              active)
           VALUES ($1, 'summary', 1, $2::bigint, 1, 2 * $2::bigint, 'manual', $3) RETURNING public_id""",
        row.session_id,
        through,
        active,
    )
    event = {"id": str(public_id), "state": state, "kind": "summary", "through_turn": through, "summary": "S"}
    await server.conversation.store_event(row.session_id, "compaction", event)
    return str(public_id)


async def test_the_whole_is_read_backwards_and_forwards(server: Server) -> None:
    row, token = await talked(server)
    found: list[int] = []
    before: int | None = None
    while True:
        told = await page(server, row, token, limit=3, **({} if before is None else {"before": before}))
        found = numbers(told) + found
        if (before := told["before"]) is None:
            break
    assert found == list(range(1, 21))
    found, after = [], 0
    while True:
        told = await page(server, row, token, limit=3, after=after)
        found += numbers(told)
        if (after := told["after"]) is None:
            break
    assert found == list(range(1, 21))


async def test_a_page_stays_where_it_is_while_new_words_come(server: Server) -> None:
    row, token = await talked(server)
    first = await page(server, row, token, limit=4, before=9)
    await server.conversation.store_event(row.session_id, "command.result", {"command": "help"})
    assert await page(server, row, token, limit=4, before=9) == first
    assert numbers(first) == [5, 6, 7, 8]
    assert (first["before"], first["after"]) == (5, 8)


@pytest.mark.parametrize(("days", "first"), [(-400, 1), (0, 1), (3, 5), (3.5, 7), (10, 19)])
async def test_a_day_is_found(server: Server, days: float, first: int) -> None:
    row, token = await talked(server)
    since = (BEGAN + timedelta(days=days)).isoformat()
    told = await page(server, row, token, since=since, limit=5)
    assert numbers(told) == list(range(first, min(first + 5, 21)))
    assert told["before"] == (first if first > 1 else None)


async def test_a_day_to_come_leads_to_the_end(server: Server) -> None:
    row, token = await talked(server)
    told = await page(server, row, token, since="2030-01-01T00:00:00Z", limit=5)
    assert numbers(told) == [16, 17, 18, 19, 20]
    empty, its_token = await make_visitor(server.services.pool)
    told = await page(server, empty, its_token, since="2030-01-01T00:00:00Z")
    assert told == {"events": [], "before": None, "after": None}


async def test_a_message_is_found_by_its_id(server: Server) -> None:
    row, token = await talked(server)
    told = await page(server, row, token, around="m9", limit=4)
    assert "m9" in [event["mid"] for event in told["events"]]
    path = f"/sessions/{row.session_public_id}/history?around=m99"
    assert (await call(server, "GET", path, bearer(token)))[0] == 404


async def test_summaries_in_force_are_shown_and_undone_ones_are_not(server: Server) -> None:
    row, token = await talked(server)
    await summarised(server, row, 2, active=False, state="done")
    await summarised(server, row, 2, active=False, state="undone")
    stands = await summarised(server, row, 4, active=True, state="done")
    cards = [one for one in (await page(server, row, token))["events"] if one["t"] == "compaction"]
    assert [card["id"] for card in cards] == [stands]


async def test_a_shops_visitor_sees_nothing_of_the_machinery(starter: Starter) -> None:
    server = await starter.start(profile="public")
    row, token = await talked(server)
    await summarised(server, row, 4, active=True, state="done")
    await server.conversation.store_event(row.session_id, "memory", {"text": "secret"})
    told = await page(server, row, token)
    assert {event["t"] for event in told["events"]} == {"msg"}


async def test_what_was_erased_never_comes_back(server: Server) -> None:
    row, token = await talked(server)
    pool = server.services.pool
    await pool.execute(
        """UPDATE events SET kind = 'erased', seq = NULL, turn_no = NULL, payload = '{}'
            WHERE session_id = $1 AND event_seq <= 19""",
        row.session_id,
    )
    assert numbers(await page(server, row, token)) == [20]
    assert await page(server, row, token, before=20) == {"events": [], "before": None, "after": None}
    assert numbers(await page(server, row, token, since=BEGAN.isoformat())) == [20]
    assert numbers(await page(server, row, token, around="m3")) == [20]


async def test_history_of_another_person_is_refused(server: Server) -> None:
    row, _ = await talked(server)
    _, stranger = await make_visitor(server.services.pool)
    path = f"/sessions/{row.session_public_id}/history"
    assert (await call(server, "GET", path, bearer(stranger)))[0] == 404
    assert (await call(server, "GET", path, {}))[0] == 401


async def test_pages_are_limited_like_other_reads(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(reads=2))
    row, token = await talked(server)
    path = f"/sessions/{row.session_public_id}/history"
    told = [await call(server, "GET", path, bearer(token)) for _ in range(3)]
    assert [status for status, _ in told] == [200, 200, 429]


@pytest.mark.parametrize(
    "query",
    ["before=0", "before=x", "after=-1", "since=yesterday", "since=2026-01-01", "around=t1", "around=m",
     "limit=0", "limit=201", "before=3&after=1"],
)  # fmt: skip
async def test_what_no_page_is_named_by_is_refused(server: Server, query: str) -> None:
    row, token = await talked(server, turns=1)
    path = f"/sessions/{row.session_public_id}/history?{query}"
    status, told = await call(server, "GET", path, bearer(token))
    assert (status, told["code"]) == (400, "bad_field")


async def test_originals_of_a_long_summary_come_page_by_page(server: Server) -> None:
    row, token = await talked(server)
    ident = await summarised(server, row, 8, active=True, state="done")
    found: list[str] = []
    before: str | None = None
    while True:
        query = "?limit=5" + (f"&before={before}" if before else "")
        status, told = await call(server, "GET", f"/compactions/{ident}/messages{query}", bearer(token))
        assert status == 200
        found = [message["mid"] for message in told["messages"]] + found
        if (before := told["before"]) is None:
            break
    assert found == [f"m{seq}" for seq in range(1, 17)]


async def test_long_original_of_a_person_comes_cut_with_its_full_length(server: Server) -> None:
    row, token = await talked(server)
    ident = await summarised(server, row, 8, active=True, state="done")
    async with server.services.pool.acquire() as connection, connection.transaction():
        # The log is only ever added to: its trigger stands aside for a message that was long from the start.
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            "UPDATE entry_rows SET words = $2 WHERE session_id = $1 AND seq = 15",
            row.session_id,
            "w" * 20_000,
        )
    status, told = await call(server, "GET", f"/compactions/{ident}/messages?limit=2", bearer(token))
    assert status == 200
    long, answer = told["messages"]
    assert (long["mid"], long["chars"], len(long["text"])) == ("m15", 20_000, HEAD_CHARS)
    assert "chars" not in answer


async def test_a_hundred_thousand_messages_are_read_by_their_numbers(server: Server) -> None:
    row, token = await talked(server, turns=50_000)
    pool = server.services.pool
    await pool.execute("ANALYZE events")
    for query in ({"before": 50_000}, {"after": 0}, {"since": "2090-01-01T00:00:00Z"}):
        told = await page(server, row, token, limit=100, **query)
        assert len(told["events"]) == 100
    plan = await pool.fetch(
        """EXPLAIN SELECT * FROM events WHERE session_id = $1 AND event_seq < 50000
            ORDER BY event_seq DESC LIMIT 101""",
        row.session_id,
    )
    assert "Index Scan" in str(plan)
