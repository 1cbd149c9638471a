"""What a plain turn writes: `python -m tests.bench.writes [--json] [--sessions N] [--turns N]`.

Bytes and records of the write-ahead log, and of the tables' updates the share that no index had to hear of
(HOT). Turns go round all conversations; after each round the dashboard's list is told, as a worker does
within seconds, which is counted apart. So are pages that are written whole after a checkpoint: how many there
are depends on when the last one was.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg

from shared.bootstrap.app import App
from tests.bench.ground import ground, run, settings_of
from tests.bench.turn import ANSWER, QUESTION
from tests.bench.whole import WholeTurns, all_were_answered, app_with_instant_model
from web.app import build_web_process
from web.ports import ModelInfo

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
WARM_UP = 2
"""Turns of each conversation that are not counted: the first makes rows that later ones change."""
_PLACE = "SELECT pg_current_wal_insert_lsn()::text"
_AT = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
_WRITTEN = """
SELECT coalesce(sum(count), 0)::bigint AS records, coalesce(sum(record_size), 0)::bigint AS bytes,
       coalesce(sum(fpi_size), 0)::bigint AS page_bytes
  FROM pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn, true)
"""
_BY_TABLE = """
SELECT coalesce(t.relname, c.relname, 'other') AS name, count(*) AS records,
       sum(b.record_length - b.block_fpi_length)::bigint AS bytes
  FROM (SELECT DISTINCT ON (start_lsn) * FROM pg_get_wal_block_info($1::text::pg_lsn, $2::text::pg_lsn, false)
         ORDER BY start_lsn, block_id) b
  LEFT JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
  LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
 GROUP BY 1 ORDER BY 3 DESC
"""
_UPDATES = """
SELECT relname, n_tup_upd AS updates, n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE n_tup_upd > 0
"""


async def measure(*, sessions: int, turns: int) -> dict[str, Any]:
    async with ground(durable=False) as (servers, folder):
        app = await app_with_instant_model(settings_of(servers, folder), answer=ANSWER)
        process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
        process.hub.start()
        admin = await asyncpg.connect(servers.database_url)
        try:
            await admin.execute("CREATE EXTENSION pg_walinspect")
            people = [WholeTurns(app, process.hub) for _ in range(sessions)]
            for person in people:
                await person.begin()
            await _talk(app, people, admin, WARM_UP)
            await _settle(admin)
            before, began = await _updates(app.pool, admin), await _place(admin)
            by_turns, by_list = await _talk(app, people, admin, turns)
            ended, after = await _place(admin), await _updates(app.pool, admin)
            await all_were_answered(app)
            return {
                "wal_bytes_per_turn": round(by_turns / sessions / turns),
                "wal_bytes_of_list_per_turn": round(by_list / sessions / turns),
                **await _written(admin, began, ended, sessions * turns),
                **_hot(before, after),
                "turns": sessions * turns,
            }
        finally:
            await admin.close()
            await process.tasks.drain(2.0)
            await app.close()


async def _talk(app: App, people: list[WholeTurns], admin: Connection, rounds: int) -> tuple[int, int]:
    """Bytes of the log by turns, and by what the dashboard's list is told after each round of them."""
    by_turns = by_list = 0
    for _ in range(rounds):
        await app.sessions.check_leases()
        began = await admin.fetchval(_AT)
        for person in people:
            await person.turn(QUESTION)
        told = await admin.fetchval(_AT)
        while await app.stores.session_list.catch_up():
            pass
        by_turns, by_list = by_turns + told - began, by_list + await admin.fetchval(_AT) - told
    return by_turns, by_list


async def _settle(admin: Connection) -> None:
    await admin.execute("ANALYZE")
    await admin.execute("CHECKPOINT")


async def _place(admin: Connection) -> str:
    """Where the log has come to, all of it readable: a commit after it is waited for."""
    place: str = await admin.fetchval(_PLACE)
    await admin.execute("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'bench', '')")
    return place


async def _updates(pool: Pool, admin: Connection) -> dict[str, tuple[int, int]]:
    """Each server process tells its counts when it is idle, at the latest with this question."""
    connections = [await pool.acquire() for _ in range(pool.get_size())]
    for connection in connections:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await pool.release(connection)
    return {row["relname"]: (row["updates"], row["hot"]) for row in await admin.fetch(_UPDATES)}


async def _written(admin: Connection, began: str, ended: str, turns: int) -> dict[str, Any]:
    found = await admin.fetchrow(_WRITTEN, began, ended)
    tables = await admin.fetch(_BY_TABLE, began, ended)
    assert found is not None
    return {
        "wal_bytes_of_both_per_turn": round(found["bytes"] / turns),
        "wal_records_per_turn": round(found["records"] / turns, 1),
        "wal_page_bytes_per_turn": round(found["page_bytes"] / turns),
        "wal_bytes_per_turn_by_table": {
            row["name"]: [round(row["bytes"] / turns), round(row["records"] / turns, 1)] for row in tables
        },
    }


def _hot(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, Any]:
    grown = {
        name: (updates - before.get(name, (0, 0))[0], hot - before.get(name, (0, 0))[1])
        for name, (updates, hot) in after.items()
    }
    return {
        "hot_share": {name: round(hot / updates, 3) for name, (updates, hot) in grown.items() if updates},
        "updates": {name: updates for name, (updates, _) in grown.items() if updates},
    }


if __name__ == "__main__":
    raise SystemExit(run("writes", __doc__, measure, sessions=20, turns=20))
