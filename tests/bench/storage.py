"""Bytes on disk for each byte of text: `python -m tests.bench.storage [--json]`.

Turns are made by the house itself; messages are as long as those of the floor were on average
(392 bytes).
"""

from __future__ import annotations

from typing import Any

import asyncpg

from tests.bench.ground import ground, run, settings_of
from tests.bench.whole import WholeTurns, app_with_instant_model
from web.app import build_web_process
from web.ports import ModelInfo

SENTENCE = (
    "We met by the river near the old bridge and talked about sardines, weather and the late train home. "
)
LENGTHS = (196, 294, 392, 490, 588)
TEXT = SENTENCE * 6
_SIZES = """
SELECT coalesce(parent.relname, c.relname) AS name, sum(pg_total_relation_size(c.oid))::bigint AS size
  FROM pg_class c
  LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = i.inhparent
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY 1
"""
_AGAIN = """
INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, cid, at)
SELECT session_id, seq + 10000 * n, role, author, blocks, tokens, dedupe_key || '-' || n, cid || '-' || n, at
  FROM entries CROSS JOIN generate_series(1, 40) n ORDER BY n, seq, session_id
"""
"""The same messages again and again, conversations among each other: as a table is that has grown."""
_MESSAGES = """
SELECT count(*) AS messages, pg_relation_size('entry_rows') AS rows,
       pg_relation_size('entry_rows_pkey') AS key,
       pg_indexes_size('entry_rows') - pg_relation_size('entry_rows_pkey') AS other_indexes,
       pg_total_relation_size('entry_rows') AS all, sum(octet_length(blocks->0->>'text'))::bigint AS text
  FROM entries
"""
_TEXT = "SELECT sum(octet_length(blocks->0->>'text'))::bigint FROM entries"


async def measure(*, sessions: int, turns: int) -> dict[str, Any]:
    async with ground(durable=False) as (servers, folder):
        app = await app_with_instant_model(settings_of(servers, folder), answer=TEXT[:392])
        process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
        process.hub.start()
        try:
            before = await _sizes(app.pool)
            for _ in range(sessions):
                whole = WholeTurns(app, process.hub)
                await whole.begin()
                for number in range(turns):
                    await whole.turn(TEXT[: LENGTHS[number % len(LENGTHS)]])
            await _settle(app.pool)
            after = await _sizes(app.pool)
            written = int(await app.pool.fetchval(_TEXT))
            await app.pool.execute(_AGAIN, timeout=120)
            await _settle(app.pool)
            found = dict(await app.pool.fetchrow(_MESSAGES) or {})
        finally:
            await process.tasks.drain(2.0)
            await app.close()
    grown = {name: size - before.get(name, 0) for name, size in after.items()}
    return _of_messages(found) | _of_turns(grown, written, sessions * turns)


async def _settle(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    async with pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("VACUUM ANALYZE", timeout=120)
        await connection.execute("RESET statement_timeout")


async def _sizes(pool: asyncpg.Pool[asyncpg.Record]) -> dict[str, int]:
    return {row["name"]: row["size"] for row in await pool.fetch(_SIZES)}


def _of_messages(found: dict[str, int]) -> dict[str, Any]:
    messages = found.pop("messages")
    return {
        "bytes_per_text_byte": round(found["all"] / found["text"], 2),
        "bytes_per_message": {name: round(size / messages) for name, size in found.items()},
        "messages": messages,
    }


def _of_turns(grown: dict[str, int], text: int, turns: int) -> dict[str, Any]:
    whole = sum(grown.values())
    most = sorted(grown.items(), key=lambda item: -item[1])[:8]
    return {
        "bytes_per_text_byte_of_all_tables": round(whole / text, 2),
        "bytes_per_turn": round(whole / turns),
        "bytes_per_turn_by_table": {name: round(size / turns) for name, size in most if size},
        "turns": turns,
    }


if __name__ == "__main__":
    raise SystemExit(run("storage", __doc__, measure, sessions=20, turns=20))
