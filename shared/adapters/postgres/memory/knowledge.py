"""Passages of agents' files, indexed for recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.core.memory.knowledge import KnowledgeHit, Passage
from shared.core.values.messages import storable
from shared.core.values.searching import DICTIONARIES, dictionary_of, prevailing_dictionary, searchable

HITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """`uploaded_by` is None for a file of the agent's folder."""

    path: str
    passages: int
    uploaded_by: str | None
    at: datetime


class PostgresKnowledge:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def load_hashes(self, agent_id: int) -> Mapping[str, bytes]:
        """Return the sha256 of an agent's stored files by path."""
        rows = await self._pool.fetch(_FOLDER, agent_id)
        return {row["path"]: row["sha256"] for row in rows}

    @store_method
    async def replace(self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage]) -> None:
        """Everything a file says now, instead of what it said before; a file may say nothing."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, agent_id, path)
            await _write(connection, agent_id, path, sha256, passages, by=None)

    @store_method
    async def upload(
        self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage], by: str, most: int
    ) -> Literal["kept", "full", "taken"]:
        """Keep a file that is in no folder, unless all together would have more than `most` passages, or the
        agent's folder has one of this name: that one would take its place with the next look at the folder.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, agent_id, "")
            await connection.execute(_LOCK, agent_id, path)
            row = await connection.fetchrow(_BESIDE, agent_id, path)
            assert row is not None
            if row["taken"]:
                return "taken"
            if row["passages"] + len(passages) > most:
                return "full"
            await _write(connection, agent_id, path, sha256, passages, by=by)
        return "kept"

    @store_method
    async def list_files(self, agent_id: int) -> list[KnownFile]:
        return [KnownFile(**row) for row in await self._pool.fetch(_FILES, agent_id)]

    @store_method
    async def search(self, agent_id: int, text: str) -> list[KnowledgeHit]:
        """Passages that have any of the words, the best first."""
        rows = await self._pool.fetch(_SEARCH, agent_id, searchable(text).split(), list(DICTIONARIES), HITS)
        return [KnowledgeHit(**row) for row in rows]

    @store_method
    async def discard(self, agent_id: int, path: str) -> bool:
        """Take an uploaded file away; False where there is none of this name."""
        return bool(await self._pool.fetch(_DISCARD, agent_id, path))

    @store_method
    async def remove(self, agent_id: int, paths: Sequence[str]) -> None:
        """Files that the folder has no more."""
        await self._pool.execute(_REMOVE, agent_id, list(paths))


async def _write(
    connection: Any, agent_id: int, path: str, sha256: bytes, passages: Sequence[Passage], *,
    by: str | None,
) -> None:  # fmt: skip
    rows = _rows(passages)
    await connection.execute("DELETE FROM knowledge WHERE agent_id = $1 AND path = $2", agent_id, path)
    await connection.execute(_ADD, agent_id, path, sha256, rows, by)


def _rows(passages: Sequence[Passage]) -> list[dict[str, str]]:
    said = passages or (Passage(heading="", text=""),)
    fallback = prevailing_dictionary(passage.text for passage in said)
    return [
        {
            "heading": storable(passage.heading),
            "text": storable(passage.text),
            "dictionary": dictionary_of(passage.text, otherwise=fallback),
            "words": searchable(passage.heading, passage.text),
        }
        for passage in said
    ]


_FOLDER = """
SELECT path, sha256 FROM knowledge WHERE agent_id = $1 AND place = 0 AND uploaded_by IS NULL
"""
_REMOVE = """
DELETE FROM knowledge WHERE agent_id = $1 AND path = ANY ($2::text[]) AND uploaded_by IS NULL
"""
_DISCARD = """
DELETE FROM knowledge WHERE agent_id = $1 AND path = $2 AND uploaded_by IS NOT NULL RETURNING 1
"""
_BESIDE = """
SELECT count(*) FILTER (WHERE path <> $2 AND text <> '') AS passages,
       coalesce(bool_or(path = $2 AND uploaded_by IS NULL), false) AS taken
  FROM knowledge WHERE agent_id = $1
"""
_FILES = """
SELECT path, count(*) FILTER (WHERE text <> '') AS passages, max(uploaded_by) AS uploaded_by,
       min(indexed_at) AS at
  FROM knowledge WHERE agent_id = $1 GROUP BY path ORDER BY path
"""
_SEARCH = """
WITH q AS (
  SELECT string_agg(DISTINCT '''' || f || '''', ' | ')::tsquery AS any_word
    FROM unnest($2::text[]) AS w, unnest($3::text[]) AS d,
         unnest(tsvector_to_array(to_tsvector(d::regconfig, w))) AS f)
SELECT path, place, heading, text FROM knowledge, q
 WHERE agent_id = $1 AND vector @@ q.any_word ORDER BY ts_rank(vector, q.any_word) DESC, path, place LIMIT $4
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('knowledge:' || $1::bigint || ':' || $2::text, 0))"
_ADD = """
INSERT INTO knowledge (agent_id, path, sha256, place, heading, text, terms, vector, uploaded_by)
SELECT $1, $2, $3, x.place - 1, x.item ->> 'heading', x.item ->> 'text',
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v, $5
  FROM jsonb_array_elements($4::jsonb) WITH ORDINALITY AS x(item, place)
 CROSS JOIN LATERAL to_tsvector((x.item ->> 'dictionary')::regconfig, x.item ->> 'words') AS v
"""
