"""Audits are stored in the shortest form that reads the same, by whichever version of the program."""

from __future__ import annotations

import json

import asyncpg
import pytest

from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.turns.replays import PostgresReplays
from tests.integration.adapters.postgres.db.schemas import downgrade
from tests.kit.app_driver import Visit, running_app, settings_for, visit

BEFORE = "0045"
WHOLE = "SELECT * FROM turn_context_audit ORDER BY id"
WRITTEN = """
INSERT INTO turn_context_audit (session_id, turn_id, model_alias, model_context_limit, input_budget,
         hard_limit, estimated_input_tokens_before, estimated_input_tokens_after_summary,
         estimated_input_tokens_after_prune, context_tokens, parts, part_hashes, entry_from, entry_through,
         prune_seqs, recipe, created_at)
VALUES (1, 1, 'm', 9, 8, 7, 6, 5, 4, 3, '{"tools": 2}', '["ab", "cd"]', 1, 2, '[2]', '{"max": 5}',
        '2024-02-03'),
       (1, 2, 'm', 9, 8, 7, 6, 5, 4, 3, '{}', '[]', 1, 2, '[]', '{}', '2024-02-04')
"""
LEFT_OUT = """
INSERT INTO turn_context_audit (session_id, turn_id, model_alias, model_context_limit, input_budget,
         hard_limit, estimated_input_tokens_before, estimated_input_tokens_after_summary,
         estimated_input_tokens_after_prune, context_tokens)
VALUES (1, 3, 'm', 9, 8, 7, 6, 5, 4, 3)
"""
IS_SHORT = """
SELECT num_nonnulls(parts, part_hashes, prune_seqs, recipe) = 0 AND plan IS NOT NULL
  FROM audit_rows ORDER BY id DESC LIMIT 1
"""


async def read(connection: asyncpg.Connection[asyncpg.Record], but: str = "") -> list[dict[str, object]]:
    await connection.reload_schema_state()
    return [
        {name: value for name, value in row.items() if name != but} for row in await connection.fetch(WHOLE)
    ]


@pytest.mark.row("F52")
async def test_former_and_current_audits_read_the_same_in_both_versions(
    empty_database_url: str,
) -> None:
    connection = await asyncpg.connect(empty_database_url)
    await migrate(empty_database_url, revision=BEFORE)
    await connection.execute(WRITTEN)
    await connection.execute(LEFT_OUT)
    before = await read(connection)
    await migrate(empty_database_url)
    assert await read(connection) == before
    await connection.execute("DELETE FROM turn_context_audit")
    assert await connection.fetchval("SELECT count(*) FROM audit_rows") == 0
    await connection.execute(WRITTEN)
    await connection.execute(LEFT_OUT)
    again = await read(connection)
    assert [row["id"] for row in again] == [4, 5, 6], "numbers go on"
    kept = ("id", "created_at")
    assert [{**row, **dict.fromkeys(kept)} for row in again] == [
        {**row, **dict.fromkeys(kept)} for row in before
    ]
    await downgrade(empty_database_url, BEFORE)
    assert await read(connection) == again
    await connection.close()


async def answered(guest: Visit) -> list[dict[str, object]]:
    await guest.ask("My cat is called Miso.")
    await guest.ask("What is my cat called?")
    rows = await guest.app.pool.fetch(WHOLE)
    return [dict(row) for row in rows]


async def test_an_answer_is_short_and_reads_as_it_was_written_before(
    database_url: str, redis_url: str
) -> None:
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        rows = await answered(guest)
        assert await guest.one(IS_SHORT)
        stored = await PostgresReplays(app.pool).load_turn(guest.session_id, 2)
        assert stored is not None
        assert set(stored.audit.recipe) >= {"open", "seqs", "system", "tools", "max", "facts"}
        assert (stored.audit.recipe["open"], stored.audit.recipe["seqs"]) == (2, [[1, 3]])
        assert set(stored.audit.parts) == {"system", "memory", "summary", "history", "tools"}
        assert set(stored.parts) == set(stored.audit.part_hashes), "each names a part that is there"
        assert all(len(key) == 64 for key in stored.audit.part_hashes)
    await downgrade(database_url, BEFORE)
    connection = await asyncpg.connect(database_url)
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    assert [dict(row) for row in await connection.fetch(WHOLE)] == rows
    await connection.close()


async def test_what_a_version_before_forgets_is_gone_from_a_short_row(
    database_url: str, redis_url: str
) -> None:
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        await answered(guest)
        await app.pool.execute("UPDATE turn_context_audit SET part_hashes = '[]', recipe = '{}'")
        left = "SELECT count(*) FROM audit_rows WHERE hashes IS NOT NULL OR plan IS NOT NULL"
        assert await guest.one(left) == 0
        rows = [dict(row) for row in await app.pool.fetch(WHOLE)]
        assert [(row["part_hashes"], row["recipe"]) for row in rows] == [([], {})] * 2
        assert all(row["parts"]["system"] > 0 for row in rows), "its numbers stay"


async def test_forgetting_leaves_an_audit_its_numbers(database_url: str, redis_url: str) -> None:
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        await answered(guest)
        await app.erasure.erase_messages(guest.session_id, [1], "person")
        rows = [dict(row) for row in await app.pool.fetch(WHOLE)]
        assert [(row["part_hashes"], row["recipe"]) for row in rows] == [([], {})] * 2
    connection = await asyncpg.connect(database_url)
    assert [str(line) for line in await check_invariants(connection)] == []
    await connection.close()
