"""Each number of the dashboard is what SQL says; each page can be turned; what is unknown is null."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.read_models import BadQuery, Insights, SessionQuery, describe_undo
from shared.adapters.postgres.dashboard.read_models_sql import SORTS
from shared.adapters.postgres.dashboard.session_list import build_matches_query
from shared.adapters.postgres.dashboard.session_queries import SessionInsights
from shared.adapters.postgres.turns.counters import RunningSums
from tests.kit.dashboard import seed

Pool = asyncpg.Pool


@pytest.fixture
async def insights(pool: Pool) -> Insights:
    return Insights(pool)


async def some_sessions(pool: Pool, count: int = 23) -> None:
    async with pool.acquire() as connection:
        for n in range(count):
            await seed.a_session(
                connection,
                person=f"Person {n % 7}" if n % 3 else "",
                channel=("web", "telegram")[n % 2],
                turns=1 + n % 5,
                context=n * 1000,
                limit=20_000 if n % 4 else 0,
                tokens=(n * 10, n % 6, n * 100, 5),
                cost_micro=(n % 5) * 1000,
                cost_unknown_calls=1 if n % 5 == 0 else 0,
                compactions=n % 3,
                minutes_ago=n,
            )


async def every_page(insights: Insights, **query: Any) -> list[dict[str, Any]]:
    rows, cursor = [], ""
    for _ in range(40):
        page = await insights.load_sessions(SessionQuery(cursor=cursor, limit=5, **query))
        rows.extend(page["sessions"])
        if not page["next"]:
            return rows
        cursor = page["next"]
    raise AssertionError("the pages never end")


async def test_an_empty_house_has_empty_pages(insights: Insights) -> None:
    assert await insights.load_sessions(SessionQuery()) == {"sessions": [], "next": None}
    assert (await insights.load_overview())["active"] == 0
    assert await insights.load_session(uuid4()) is None
    assert await SessionInsights(insights._pool).load_timeline(uuid4()) is None
    assert await insights.load_compactions(uuid4()) is None
    assert await insights.load_messages(uuid4()) is None
    assert (await RunningSums(insights._pool).read())["calls"]["prompts"] == 0


async def test_every_order_turns_all_pages_both_ways(pool: Pool, insights: Insights) -> None:
    await some_sessions(pool)
    for column in SORTS:
        rising = [row["id"] for row in await every_page(insights, sort=column)]
        falling = [row["id"] for row in await every_page(insights, sort=f"-{column}")]
        assert len(set(rising)) == 23, column
        assert falling == rising[::-1], column


async def test_a_sheet_is_the_whole_list_in_batches(
    pool: Pool, insights: Insights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.dashboard.read_models.BATCH", 5)
    await some_sessions(pool)
    for query in (SessionQuery(), SessionQuery(search="person", sort="cost"), SessionQuery(search="nobody")):
        batches = [batch async for batch in insights.iterate_sessions(query)]
        listed = await every_page(insights, search=query.search, sort=query.sort)
        assert [row["id"] for batch in batches for row in batch] == [row["id"] for row in listed]
        assert all(len(batch) == 5 for batch in batches[:-1])


async def test_who_leaves_a_sheet_early_leaves_nothing_running(
    pool: Pool, insights: Insights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.dashboard.read_models.BATCH", 5)
    await some_sessions(pool)
    before = asyncio.all_tasks()
    async with aclosing(insights.iterate_sessions(SessionQuery())) as sheet:
        assert len(await anext(sheet)) == 5
    assert asyncio.all_tasks() == before
    assert pool.get_idle_size() == pool.get_size()


async def test_the_columns_are_what_sql_says(pool: Pool, insights: Insights) -> None:
    await some_sessions(pool)
    rows = {row["id"]: row for row in await every_page(insights)}
    facts = await pool.fetch(
        """SELECT s.*, t.*, p.display_name FROM sessions s JOIN session_totals t ON t.session_id = s.id
             JOIN contacts p ON p.id = s.contact_id"""
    )
    for fact in facts:
        row = rows[str(fact["public_id"])]
        into = fact["input_tokens"] + fact["cache_read_tokens"] + fact["cache_write_tokens"]
        known = fact["context_limit"] > 0
        assert row["turns"] == fact["next_turn"] - 1
        assert row["context_tokens"] == (fact["context_tokens"] if known else None)
        share = fact["context_tokens"] * 100 / fact["context_limit"] if known else None
        assert row["context_pct"] == pytest.approx(share) if known else row["context_pct"] is None
        assert (row["input_tokens"], row["output_tokens"]) == (into, fact["output_tokens"])
        assert row["cache_hit_pct"] == pytest.approx(fact["cache_read_tokens"] * 100 / into)
        assert row["compactions"] == fact["compaction_count"]
        unknown = fact["cost_unknown_calls"] > 0 and fact["cost_micro"] == 0
        assert row["cost_micro"] == (None if unknown else fact["cost_micro"])
        assert row["person"] == (fact["display_name"] or None)
        assert datetime.fromisoformat(row["last_active_at"]) == fact["last_active_at"]


async def test_filters_keep_what_they_name(pool: Pool, insights: Insights) -> None:
    await some_sessions(pool)
    count = pool.fetchval
    assert len(await every_page(insights, channel="telegram")) == await count(
        "SELECT count(*) FROM addresses WHERE channel = 'telegram'"
    )
    assert len(await every_page(insights, min_pct=70)) == await count(
        "SELECT count(*) FROM sessions WHERE context_limit > 0 AND context_tokens >= 0.7 * context_limit"
    )
    assert len(await every_page(insights, search="person 2")) == await count(
        "SELECT count(*) FROM contacts WHERE display_name = 'Person 2'"
    )
    lately = datetime.now(UTC) - timedelta(minutes=9.5)
    assert len(await every_page(insights, since=lately)) == 10
    assert len(await every_page(insights, until=lately)) == 13


async def test_a_percent_sign_is_searched_for_as_itself(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        await seed.a_session(connection, person="100% wool")
        await seed.a_session(connection, person="1000 sheep")
    found = await insights.load_sessions(SessionQuery(search="100%"))
    assert [row["person"] for row in found["sessions"]] == ["100% wool"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("UPDATE sessions SET next_turn = next_turn + 1, leased_by = 1", "answering"),
        ("UPDATE sessions SET next_turn = next_turn + 1", "waiting"),
        (
            "INSERT INTO jobs (kind, session_id, key, state) SELECT 'flush', id, '', 'running' FROM sessions",
            "tidying",
        ),
        (
            "INSERT INTO jobs (kind, session_id, key, state) SELECT 'flush', id, 'k', 'dead' FROM sessions",
            "problem",
        ),
        ("UPDATE turns SET state = 'failed' WHERE turn_no = 3", "problem"),
        ("UPDATE turns SET state = 'failed' WHERE turn_no = 1", "idle"),
    ],
)
async def test_the_state_of_a_session_is_derived(
    pool: Pool, insights: Insights, change: str, state: str
) -> None:
    async with pool.acquire() as connection:
        await seed.a_session(connection, turns=3)
        await connection.execute(change)
        await seed.written_along(connection)
    assert [
        row["state"] for row in (await insights.load_sessions(SessionQuery(state=state)))["sessions"]
    ] == [state]


@pytest.mark.parametrize(
    "query",
    [
        SessionQuery(sort="password"),
        SessionQuery(state="asleep"),
        SessionQuery(cursor="!!"),
        SessionQuery(cursor="bnVsbA"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(insights: Insights, query: SessionQuery) -> None:
    with pytest.raises(BadQuery):
        await insights.load_sessions(query)


async def test_a_cursor_of_another_order_is_refused(pool: Pool, insights: Insights) -> None:
    await some_sessions(pool, 4)
    page = await insights.load_sessions(SessionQuery(limit=2))
    with pytest.raises(BadQuery):
        await insights.load_sessions(SessionQuery(limit=2, sort="cost", cursor=page["next"]))


async def test_the_session_page_is_what_sql_says(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        seeded, links = await seed.a_long_session(connection)
    page = await insights.load_session(seeded.public_id)
    assert page is not None
    last = await pool.fetchrow("SELECT * FROM turn_context_audit ORDER BY turn_id DESC LIMIT 1")
    assert last is not None
    assert page["now"]["turn"] == 412
    assert page["context_tokens"] == last["context_tokens"]
    assert page["now"]["parts"] == last["parts"]
    assert [flush["note_count"] for flush in page["flushes"]] == [1] * len(links)
    assert page["flushes"][0]["notes"][0]["text"] == f"Prefers aisle seats ({len(links) - 1})"
    spend = {(row["purpose"], row["model"]): row for row in page["spend"]}
    for row in await pool.fetch(
        """SELECT purpose, model, count(*) AS calls, sum(cost_micro) AS cost, sum(cache_read_tokens) AS hits
             FROM usage GROUP BY 1, 2"""
    ):
        shown = spend[row["purpose"], row["model"]]
        assert (shown["calls"], shown["cost_micro"], shown["cache_read_tokens"]) == (
            row["calls"],
            row["cost"],
            row["hits"],
        )
    assert spend["chat", "local"]["cost_micro"] is None


async def test_the_timeline_of_a_short_session_is_every_turn(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        seeded, links = await seed.a_long_session(connection)
    timeline = await SessionInsights(insights._pool).load_timeline(seeded.public_id)
    assert timeline is not None
    rows = await pool.fetch("SELECT turn_id, context_tokens FROM turn_context_audit ORDER BY turn_id")
    assert [(p["turn"], p["context"]) for p in timeline["points"]] == [tuple(row) for row in rows]
    assert timeline["turns"] == 412
    assert [fold["id"] for fold in timeline["compactions"]] == [str(link) for link in links]
    tops = [row["turn_id"] for row in rows if row["context_tokens"] > seed.FOLD_AT]
    assert [fold["turn"] for fold in timeline["compactions"]] == tops
    assert len(timeline["flushes"]) == len(links)


async def test_a_long_timeline_keeps_every_peak_and_every_fall(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        seeded, _ = await seed.a_long_session(connection, turns=2000)
    timeline = await SessionInsights(insights._pool).load_timeline(seeded.public_id)
    assert timeline is not None
    drawn = {point["turn"]: point["context"] for point in timeline["points"]}
    facts = {
        row[0]: row[1] for row in await pool.fetch("SELECT turn_id, context_tokens FROM turn_context_audit")
    }
    peaks = {turn for turn, context in facts.items() if context > seed.FOLD_AT}
    lows = {turn + 1 for turn in peaks if turn < 2000}
    assert timeline["turns"] == 2000
    assert 400 <= len(drawn) <= 502
    assert drawn.items() <= facts.items()
    assert peaks | lows <= drawn.keys()
    assert {1, 2000} <= drawn.keys()


async def test_only_the_last_call_of_a_turn_is_drawn(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, turns=2, limit=100_000)
        await seed.audits(connection, seeded, turns=2, limit=100_000)
        await connection.execute(
            """INSERT INTO turn_context_audit (session_id, turn_id, model_alias, model_context_limit,
                 input_budget, hard_limit, estimated_input_tokens_before,
                 estimated_input_tokens_after_summary, estimated_input_tokens_after_prune, context_tokens)
               VALUES ($1, 2, 'm', 1, 1, 1, 1, 1, 1, 77)""",
            seeded.session_id,
        )
    timeline = await SessionInsights(insights._pool).load_timeline(seeded.public_id)
    assert timeline is not None
    assert [(p["turn"], p["calls"]) for p in timeline["points"]] == [(1, 1), (2, 2)]
    assert timeline["points"][1]["context"] == 77


async def test_messages_are_read_backwards_without_gap(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        seeded, links = await seed.a_long_session(connection)
    seen: list[int] = []
    dividers: list[str] = []
    before: tuple[int, int] | None = None
    for _ in range(20):
        page = await insights.load_messages(seeded.public_id, before=before, limit=60)
        assert page is not None
        seen = [message["seq"] for message in page["messages"]] + seen
        dividers = [line["id"] for line in page["dividers"] if line["id"] not in dividers] + dividers
        if page["before"] is None:
            break
        turn, _, step = page["before"].partition(".")
        before = int(turn), int(step)
    assert seen == list(range(1, 825))
    assert dividers == [str(link) for link in links]


async def test_the_originals_of_a_summary_are_its_turns_alone(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        _, links = await seed.a_long_session(connection)
    span = await pool.fetchrow(
        "SELECT from_turn, through_turn FROM compactions WHERE public_id = $1", links[1]
    )
    assert span is not None
    page = await insights.load_originals(links[1], limit=200)
    assert page is not None
    turns = [message["turn"] for message in page["messages"]]
    assert (turns[0], turns[-1]) == (span["from_turn"], span["through_turn"])
    assert len(turns) == 2 * (span["through_turn"] - span["from_turn"] + 1)
    assert page["before"] is None
    assert await insights.load_originals(uuid4()) is None


async def test_the_history_of_summaries_is_what_sql_says(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        seeded, links = await seed.a_long_session(connection)
    found = await insights.load_compactions(seeded.public_id)
    assert found is not None
    assert [row["id"] for row in found["compactions"]] == [str(link) for link in reversed(links)]
    newest = found["compactions"][0]
    assert newest["saved_pct"] == pytest.approx(100 * (1 - seed.FOLDED / (seed.FOLD_AT + 900)))
    assert (newest["cost_micro"], newest["duration_ms"], newest["model"]) == (41_000, 8200, "claude-haiku")
    assert newest["audit"]["kept_identifiers"] == 0.98
    assert (
        found["compactions"][1]["undo_reason"]
        == "A newer summary builds on this one. Undo the newer one first."
    )
    assert [job["error"] for job in found["failed"]] == ["The summary was empty."]


LINK = {"id": "a", "active": True, "tokens_before": 50_000, "tokens_after": 10_000, "undone_at": None}
STANDING = {
    "head": "a",
    "head_kind": "summary",
    "redo": None,
    "context": 12_000,
    "hard": 90_000,
    "busy": False,
}


@pytest.mark.parametrize(
    ("link", "standing", "undo", "restore"),
    [
        ({}, {}, True, False),
        ({}, {"hard": 51_999}, False, False),
        ({}, {"hard": None}, True, False),
        ({}, {"busy": True}, False, False),
        ({}, {"head": "b"}, False, False),
        ({}, {"head": "b", "head_kind": "new"}, False, False),
        ({"active": False, "undone_at": "x"}, {"head": None, "redo": "a"}, False, True),
        ({"active": False, "undone_at": "x"}, {"head": None, "redo": "a", "busy": True}, False, False),
        ({"active": False, "undone_at": "x"}, {"head": "b"}, False, False),
        ({"active": False}, {"head": "b"}, False, False),
    ],
)
def test_undo_and_restore_are_offered_only_where_they_are_possible(
    link: dict[str, Any], standing: dict[str, Any], undo: bool, restore: bool
) -> None:
    verdict = describe_undo(LINK | link, **(STANDING | standing))
    assert (verdict["can_undo"], verdict["can_restore"]) == (undo, restore)
    said = verdict["undo_reason"] or verdict["restore_reason"]
    assert bool(said) is not (undo or restore)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("new", "new conversation was started"),
        ("separator", "separator was set"),
        ("window", "left the window"),
    ],
)
def test_entry_after_a_summary_is_named_as_reason_against_undo(kind: str, words: str) -> None:
    standing: dict[str, Any] = STANDING | {"head": "b", "head_kind": kind}
    verdict = describe_undo(LINK, **standing)
    assert words in verdict["undo_reason"]


async def test_the_overview_counts_what_needs_an_eye(pool: Pool, insights: Insights) -> None:
    async with pool.acquire() as connection:
        await seed.a_long_session(connection, turns=12)
        await seed.a_session(connection, context=95_000, limit=100_000, minutes_ago=5)
        await seed.a_session(connection, context=95_000, limit=0, minutes_ago=5)
        await seed.a_session(connection, context=95_000, limit=100_000, minutes_ago=60 * 40)
        await connection.execute("UPDATE usage SET at = now() - interval '2 days' WHERE purpose = 'compact'")
    overview = await insights.load_overview()
    spent = await pool.fetchval("SELECT sum(cost_micro) FROM usage WHERE purpose <> 'compact'")
    assert overview["spend_micro"] == spent
    assert overview["spend_unknown_calls"] == 1
    assert overview["active"] == 3
    assert overview["near_limit"] == 1
    assert overview["jobs_dead"] == 1
    assert overview["workers"] == 1


async def test_counters_add_up(pool: Pool) -> None:
    async with pool.acquire() as connection:
        _, links = await seed.a_long_session(connection)
        await connection.execute(
            "UPDATE turn_context_audit SET prune_triggered = turn_id < 4, overflow_rejected = turn_id = 9"
        )
    counted = await RunningSums(pool).read()
    average = await pool.fetchval("SELECT avg(reported_input_tokens)::float8 FROM turn_context_audit")
    calls = counted["calls"]
    assert (counted["compactions"]["summaries"], calls["prunes"], calls["overflows"]) == (len(links), 3, 1)
    assert calls["prompt_tokens"] / calls["prompts"] == pytest.approx(average)
    assert {state: n for state, n in counted["turns"].items() if n} == {"answered": 412}
    assert counted["jobs"]["all"] == 4
    assert counted["spend"]["cache_read_tokens"] == 8_700_000


async def some_troubled_sessions(pool: Pool) -> None:
    await some_sessions(pool, 30)
    for statement in (
        "UPDATE sessions SET next_turn = next_turn + 1, leased_by = 1 WHERE id % 10 = 1",
        "UPDATE sessions SET next_turn = next_turn + 1 WHERE id % 10 = 2",
        """INSERT INTO jobs (kind, session_id, key, state)
           SELECT 'flush', id, id::text, 'running' FROM sessions WHERE id % 10 = 3""",
        """INSERT INTO jobs (kind, session_id, key, state, ended_at)
           SELECT 'flush', id, id::text, 'dead', now() FROM sessions WHERE id % 10 IN (1, 4)""",
        """UPDATE turns t SET state = 'failed' FROM sessions s
            WHERE s.id = t.session_id AND t.turn_no = s.answered_turn AND s.id % 10 IN (4, 5)""",
    ):
        await pool.execute(statement)
    async with pool.acquire() as connection:
        await seed.written_along(connection)


@pytest.mark.parametrize("column", ["state", "-state", "active", "person", "-agent"])
async def test_every_state_is_found_whatever_the_order(pool: Pool, insights: Insights, column: str) -> None:
    await some_troubled_sessions(pool)
    every = await every_page(insights, sort=column)
    assert len({row["id"] for row in every}) == 30
    for state in ("answering", "waiting", "tidying", "problem", "idle"):
        found = await every_page(insights, sort=column, state=state)
        assert [row["id"] for row in found] == [row["id"] for row in every if row["state"] == state]
        assert found, state
    if column.endswith("state"):
        states = [row["state"] for row in every]
        assert states == sorted(states, reverse=column.startswith("-"))


async def test_names_are_found_in_any_alphabet_and_by_their_first_letters(
    pool: Pool, insights: Insights
) -> None:
    async with pool.acquire() as connection:
        for name in ("Мария Иванова", "田中 美咲", "Zoë O'Neil", "Ann", "Joanna"):
            await seed.a_session(connection, person=name)
    wanted = {
        "иван": ["Мария Иванова"], "мАр": ["Мария Иванова"], "田": ["田中 美咲"], "ZO": ["Zoë O'Neil"],
        "ë o'n": ["Zoë O'Neil"], "an": ["Ann"], "ann": ["Ann", "Joanna"], "美咲": [], "xyz": [],
    }  # fmt: skip
    for words, names in wanted.items():
        found = await insights.load_sessions(SessionQuery(search=words, sort="person"))
        assert [row["person"] for row in found["sessions"]] == names, words


async def test_a_search_that_means_very_many_follows_the_order(
    pool: Pool, insights: Insights, monkeypatch: pytest.MonkeyPatch
) -> None:
    await some_sessions(pool)
    usual = [row["id"] for row in await every_page(insights, search="person", sort="-turns")]
    monkeypatch.setattr("shared.adapters.postgres.dashboard.session_list.FEW_PEOPLE", 3)
    assert [row["id"] for row in await every_page(insights, search="person", sort="-turns")] == usual
    monkeypatch.setattr("shared.adapters.postgres.dashboard.session_list.NEAR_ROWS", 7)
    monkeypatch.setattr("shared.adapters.postgres.dashboard.session_list.FEW_FOUND", 1)
    assert [row["id"] for row in await every_page(insights, search="person", sort="-turns")] == usual
    await pool.execute("ANALYZE contacts")
    for few in (3, 4000):
        monkeypatch.setattr("shared.adapters.postgres.dashboard.session_list.FEW_PEOPLE", few)
        assert [row["id"] for row in await every_page(insights, search="person", sort="-turns")] == usual
    assert len(usual) == await pool.fetchval("SELECT count(*) FROM contacts WHERE display_name <> ''")


async def test_an_id_is_found_by_its_beginning(pool: Pool, insights: Insights) -> None:
    await some_sessions(pool)
    wanted = str(await pool.fetchval("SELECT public_id FROM sessions ORDER BY id LIMIT 1"))
    for words in (wanted, wanted[:8], wanted[:13].upper()):
        found = await insights.load_sessions(SessionQuery(search=words))
        assert [row["id"] for row in found["sessions"]] == [wanted]


async def test_agents_and_sites_narrow_the_list(pool: Pool, insights: Insights) -> None:
    await some_sessions(pool)
    await pool.execute("INSERT INTO agents (name) VALUES ('second')")
    await pool.execute(
        "UPDATE sessions SET agent_id = (SELECT id FROM agents WHERE name = 'second') WHERE id % 4 = 1"
    )
    await pool.execute("UPDATE addresses SET account = 'shop' WHERE channel = 'web' AND session_id % 3 = 0")
    count = pool.fetchval
    assert len(await every_page(insights, agent="second", sort="agent")) == await count(
        "SELECT count(*) FROM sessions WHERE id % 4 = 1"
    )
    assert len(await every_page(insights, site="shop")) == await count(
        "SELECT count(*) FROM addresses WHERE account = 'shop'"
    )
    names = [row["agent"] for row in await every_page(insights, sort="-agent")]
    assert names == sorted(names, reverse=True)


async def test_search_uses_rare_pieces_and_common_ones_as_last_resort(
    pool: Pool,
) -> None:
    """The statistics say which pieces nearly everybody has; without any, all pieces lead."""
    await pool.execute(
        """INSERT INTO contacts (display_name)
           SELECT 'number ' || to_hex(n * 7919) FROM generate_series(1, 5000) n"""
    )
    rare = f"number {4321 * 7919:x}"
    for words, most in ((rare, 1), (rare[3:], 1), ("number", 4001), ("ber", 4001), ("nobody", 0)):
        expected = await pool.fetch(
            "SELECT id FROM contacts WHERE strpos(display_name, $1) > 0 ORDER BY id", words
        )
        for statistics in (False, True):
            if statistics:
                await pool.execute("ANALYZE contacts")
            found = json.loads(await pool.fetchval(*build_matches_query(words)))["people"]
            if most > 4000:
                assert found is None
            else:
                assert sorted(found or []) == [row["id"] for row in expected]
                assert len(expected) == most
    look = "SELECT * FROM search_pieces($1, 'contacts_by_pieces')"
    (led_by,) = await pool.fetch(look, rare)
    assert "num" not in led_by["pieces"]
    assert led_by["rare"]
    assert [tuple(row) for row in await pool.fetch(look, "number")] == [(["num", "ber"], False)]
    told = json.loads(await pool.fetchval(*build_matches_query("number", only_few=True)))
    assert told["people"] is None
