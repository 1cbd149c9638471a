"""What an agent's files say, passage by passage, where recall finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.core.memory.knowledge import Passage
from shared.core.values.searching import dictionary_of, prevailing_dictionary, searchable
from shared.core.values.storable import storable


class PostgresKnowledge:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def files(self, agent_id: int) -> Mapping[str, bytes]:
        """What is stored of an agent: path → sha256 of the file that it was read from."""
        rows = await self._pool.fetch(
            "SELECT path, sha256 FROM knowledge WHERE agent_id = $1 AND place = 0", agent_id
        )
        return {row["path"]: row["sha256"] for row in rows}

    @store_method
    async def replace(self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage]) -> None:
        """Everything a file says now, instead of what it said before; a file may say nothing."""
        said = passages or (Passage(heading="", text=""),)
        fallback = prevailing_dictionary(passage.text for passage in said)
        rows = [
            {
                "heading": storable(passage.heading),
                "text": storable(passage.text),
                "dictionary": dictionary_of(passage.text, otherwise=fallback),
                "words": searchable(passage.heading, passage.text),
            }
            for passage in said
        ]
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, agent_id, path)
            await connection.execute(
                "DELETE FROM knowledge WHERE agent_id = $1 AND path = $2", agent_id, path
            )
            await connection.execute(_ADD, agent_id, path, sha256, rows)

    @store_method
    async def remove(self, agent_id: int, paths: Sequence[str]) -> None:
        await self._pool.execute(
            "DELETE FROM knowledge WHERE agent_id = $1 AND path = ANY ($2::text[])", agent_id, list(paths)
        )


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('knowledge:' || $1::bigint || ':' || $2::text, 0))"
_ADD = """
INSERT INTO knowledge (agent_id, path, sha256, place, heading, text, terms, vector)
SELECT $1, $2, $3, x.place - 1, x.item ->> 'heading', x.item ->> 'text',
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v
  FROM jsonb_array_elements($4::jsonb) WITH ORDINALITY AS x(item, place)
 CROSS JOIN LATERAL to_tsvector((x.item ->> 'dictionary')::regconfig, x.item ->> 'words') AS v
"""
