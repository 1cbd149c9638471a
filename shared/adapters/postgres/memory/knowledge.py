"""Store of the passages of agents' knowledge files, indexed for recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.memory.knowledge import KnowledgeHit, Passage
from shared.core.values.messages import storable
from shared.core.values.searching import DICTIONARIES, dictionary_of, prevailing_dictionary, searchable

HITS = 10
"""Maximum passages of a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """Stored knowledge file with its number of passages.

    `uploaded_by` is the operator who uploaded it, None for a file of the agent's folder.
    """

    path: str
    passages: int
    uploaded_by: str | None
    at: datetime


class PostgresKnowledge(PoolStore):
    """Store of knowledge; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def load_hashes(self, agent_id: int) -> Mapping[str, bytes]:
        """Return the SHA-256 of an agent's stored folder files by path; uploads are not among them."""
        rows = await self._pool.fetch(*_FOLDER(agent_id=agent_id))
        return {row["path"]: row["sha256"] for row in rows}

    @store_method
    async def replace(self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage]) -> None:
        """Store a file of the agent's folder in place of all its former passages.

        A file without passages is stored too, so that it is not read again.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(agent_id=agent_id, path=path))
            await _write(connection, agent_id, path, sha256, passages, by=None)

    @store_method
    async def upload(
        self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage], by: str, most: int
    ) -> Literal["kept", "full", "taken"]:
        """Store an uploaded file, in place of one with the same name; return "kept", or why it is refused.

        "full" means that the agent would have over `most` passages, "taken" that its folder has a file of
        this name. `by` is the operator.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(agent_id=agent_id, path=""))
            await connection.execute(*_LOCK(agent_id=agent_id, path=path))
            row = await connection.fetchrow(*_BESIDE(agent_id=agent_id, path=path))
            assert row is not None
            if row["taken"]:
                return "taken"
            if row["passages"] + len(passages) > most:
                return "full"
            await _write(connection, agent_id, path, sha256, passages, by=by)
        return "kept"

    @store_method
    async def list_files(self, agent_id: int) -> list[KnownFile]:
        """Return an agent's knowledge files, ordered by path."""
        return [KnownFile(**row) for row in await self._pool.fetch(*_FILES(agent_id=agent_id))]

    @store_method
    async def search(self, agent_id: int, text: str) -> list[KnowledgeHit]:
        """Return at most HITS passages of an agent that have any word of the text, best first."""
        rows = await self._pool.fetch(
            *_SEARCH(
                agent_id=agent_id, words=searchable(text).split(), dictionaries=list(DICTIONARIES), limit=HITS
            )
        )
        return [KnowledgeHit(**row) for row in rows]

    @store_method
    async def discard(self, agent_id: int, path: str) -> bool:
        """Delete an uploaded file; return False if there is none of this name. Folder files stay."""
        return bool(await self._pool.fetch(*_DISCARD(agent_id=agent_id, path=path)))

    @store_method
    async def remove(self, agent_id: int, paths: Sequence[str]) -> None:
        """Delete the stored passages of these folder files; uploaded files stay."""
        await self._pool.execute(*_REMOVE(agent_id=agent_id, paths=list(paths)))


async def _write(
    connection: Any, agent_id: int, path: str, sha256: bytes, passages: Sequence[Passage], *,
    by: str | None,
) -> None:  # fmt: skip
    rows = _rows(passages)
    await connection.execute(*_DELETE(agent_id=agent_id, path=path))
    await connection.execute(*_ADD(agent_id=agent_id, path=path, sha256=sha256, rows=rows, by=by))


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


_FOLDER = Named("""
SELECT path, sha256 FROM knowledge WHERE agent_id = :agent_id AND place = 0 AND uploaded_by IS NULL
""")
_REMOVE = Named("""
DELETE FROM knowledge WHERE agent_id = :agent_id AND path = ANY (:paths::text[]) AND uploaded_by IS NULL
""")
_DISCARD = Named("""
DELETE FROM knowledge WHERE agent_id = :agent_id AND path = :path AND uploaded_by IS NOT NULL RETURNING 1
""")
_BESIDE = Named("""
SELECT count(*) FILTER (WHERE path <> :path AND text <> '') AS passages,
       coalesce(bool_or(path = :path AND uploaded_by IS NULL), false) AS taken
  FROM knowledge WHERE agent_id = :agent_id
""")
_FILES = Named("""
SELECT path, count(*) FILTER (WHERE text <> '') AS passages, max(uploaded_by) AS uploaded_by,
       min(indexed_at) AS at
  FROM knowledge WHERE agent_id = :agent_id GROUP BY path ORDER BY path
""")
_SEARCH = Named("""
WITH q AS (
  SELECT string_agg(DISTINCT '''' || f || '''', ' | ')::tsquery AS any_word
    FROM unnest(:words::text[]) AS w, unnest(:dictionaries::text[]) AS d,
         unnest(tsvector_to_array(to_tsvector(d::regconfig, w))) AS f)
SELECT path, place, heading, text FROM knowledge, q
 WHERE agent_id = :agent_id AND vector @@ q.any_word
    ORDER BY ts_rank(vector, q.any_word) DESC, path, place LIMIT :limit
""")
"""Passages of an agent that share a word with the question, best first."""
_LOCK = Named("""
SELECT pg_advisory_xact_lock(hashtextextended('knowledge:' || :agent_id::bigint || ':' || :path::text, 0))
""")
_ADD = Named("""
INSERT INTO knowledge (agent_id, path, sha256, place, heading, text, terms, vector, uploaded_by)
SELECT :agent_id, :path, :sha256, x.place - 1, x.item ->> 'heading', x.item ->> 'text',
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v, :by
  FROM jsonb_array_elements(:rows::jsonb) WITH ORDINALITY AS x(item, place)
 CROSS JOIN LATERAL to_tsvector((x.item ->> 'dictionary')::regconfig, x.item ->> 'words') AS v
""")
_DELETE = Named("DELETE FROM knowledge WHERE agent_id = :agent_id AND path = :path")
