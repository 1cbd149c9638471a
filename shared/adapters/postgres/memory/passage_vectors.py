"""Store of vectors that represent the meaning of passages and notes, and of the list of those without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.memory.vectors import EncodedPassage, UnencodedPassages, signs_of

SESSIONS_AT_ONCE, NOTES_LISTED_AT_ONCE = 200, 1_000
"""Maximum conversations, and notes, with vectors of another model that are listed at once."""


class PostgresPassageVectors(PoolStore):
    """Store of vectors of passages and notes, and of the lists of those without one.

    Each method can be repeated, and raises StorageUnavailable. Each statement is its own transaction.
    """

    @store_method
    async def load_unencoded(self, encoder: str, *, after: int, limit: int) -> UnencodedPassages | None:
        """Return at most `limit` passages without a vector of the model `encoder`, of one session.

        It is the listed session with the lowest id above `after`; its passages may be none. Returns None if
        no later session is listed.
        """
        async with self._pool.acquire() as connection:
            listed = await connection.fetchrow(*_LISTED(after=after))
            if listed is None:
                return None
            rows = await connection.fetch(
                *_UNENCODED(session_id=listed["session_id"], encoder=encoder, limit=limit)
            )
        return UnencodedPassages(
            session_id=listed["session_id"],
            listings=listed["listings"],
            texts=tuple((row["number"], row["text"]) for row in rows),
        )

    @store_method
    async def is_listed(self, session_id: int) -> bool:
        """Return whether a session is listed as one that may have passages without a vector."""
        return bool(await self._pool.fetchval(*_IS_LISTED(session_id=session_id)))

    @store_method
    async def delist(self, passages: UnencodedPassages) -> None:
        """Remove a session from the list, unless a passage was added since `passages` was read."""
        await self._pool.execute(*_DELIST(session_id=passages.session_id, listings=passages.listings))

    @store_method
    async def store(self, session_id: int, encoder: str, encoded: Sequence[EncodedPassage]) -> int:
        """Store vectors of passages whose text is still the encoded one; return their number.

        A vector None is stored too: that text has none.
        """
        return len(
            await self._pool.fetch(*_STORE(session_id=session_id, encoder=encoder, **_columns(encoded)))
        )

    @store_method
    async def list_other_encoders(self, encoder: str) -> int:
        """List sessions and notes that have vectors of another model, to be encoded again.

        At most 200 sessions and 1,000 notes at once. Returns how many were added to the lists.
        """
        sessions = await self._pool.fetch(*_LIST_OTHERS(encoder=encoder, limit=SESSIONS_AT_ONCE))
        notes = await self._pool.fetch(*_LIST_OTHER_NOTES(encoder=encoder, limit=NOTES_LISTED_AT_ONCE))
        return len(sessions) + len(notes)

    @store_method
    async def load_unencoded_notes(self, limit: int) -> tuple[tuple[int, str], ...]:
        """Return (id, text) of at most `limit` notes that are listed for encoding, newest first."""
        rows = await self._pool.fetch(*_UNENCODED_NOTES(limit=limit))
        return tuple((row["id"], row["text"]) for row in rows)

    @store_method
    async def store_notes(self, encoder: str, encoded: Sequence[EncodedPassage]) -> int:
        """Store vectors of notes whose text is still the encoded one, and remove them from the list.

        Returns their number.
        """
        stored = await self._pool.fetch(*_STORE_NOTES(encoder=encoder, **_columns(encoded)))
        return len(stored)


def _columns(encoded: Sequence[EncodedPassage]) -> dict[str, list[Any]]:
    return {
        "numbers": [one.number for one in encoded],
        "texts": [one.text for one in encoded],
        "signs": [None if one.vector is None else bits_of(one.vector) for one in encoded],
        "vectors": [one.vector for one in encoded],
    }


def bits_of(packed: bytes) -> asyncpg.BitString:
    """Return the signs of a packed vector's numbers as a bit string for PostgreSQL."""
    return asyncpg.BitString.frombytes(signs_of(packed), bitlength=len(packed))


_LISTED = Named("""
SELECT session_id, listings FROM unencoded_sessions WHERE session_id > :after ORDER BY session_id LIMIT 1
""")
_IS_LISTED = Named("SELECT EXISTS (SELECT FROM unencoded_sessions WHERE session_id = :session_id)")
_UNENCODED = Named("""
SELECT p.number, p.text FROM passages p
 WHERE p.session_id = :session_id
   AND NOT EXISTS (SELECT FROM passage_vectors v
                    WHERE v.session_id = p.session_id AND v.number = p.number AND v.encoder = :encoder)
 ORDER BY p.number DESC LIMIT :limit
""")
_DELIST = Named("DELETE FROM unencoded_sessions WHERE session_id = :session_id AND listings = :listings")
_STORE = Named("""
INSERT INTO passage_vectors (session_id, number, encoder, signs, vector)
SELECT :session_id, x.number, :encoder, x.signs, x.vector
  FROM unnest(:numbers::bigint[], :texts::text[], :signs::varbit[], :vectors::bytea[])
       AS x(number, text, signs, vector)
  JOIN passages p ON p.session_id = :session_id AND p.number = x.number AND p.text = x.text
   FOR KEY SHARE OF p
ON CONFLICT (session_id, number) DO UPDATE
   SET encoder = excluded.encoder, signs = excluded.signs, vector = excluded.vector, encoded_at = now()
RETURNING number
""")
"""Store vectors; a passage that was erased or changed while it was encoded gets none."""
_LIST_OTHERS = Named("""
INSERT INTO unencoded_sessions (session_id)
SELECT x.session_id FROM (SELECT DISTINCT session_id FROM passage_vectors WHERE encoder <> :encoder) x
 WHERE NOT EXISTS (SELECT FROM unencoded_sessions u WHERE u.session_id = x.session_id)
 ORDER BY 1 LIMIT :limit
ON CONFLICT DO NOTHING
RETURNING session_id
""")
_LIST_OTHER_NOTES = Named("""
INSERT INTO unencoded_notes (note_id)
SELECT v.note_id FROM note_vectors v
 WHERE v.encoder <> :encoder AND NOT EXISTS (SELECT FROM unencoded_notes u WHERE u.note_id = v.note_id)
 ORDER BY 1 LIMIT :limit
ON CONFLICT DO NOTHING
RETURNING note_id
""")
_UNENCODED_NOTES = Named("""
SELECT n.id, n.text FROM unencoded_notes u JOIN notes n ON n.id = u.note_id ORDER BY n.id DESC LIMIT :limit
""")
_STORE_NOTES = Named("""
WITH stored AS (
  INSERT INTO note_vectors (note_id, contact_id, encoder, signs, vector)
  SELECT x.number, n.contact_id, :encoder, x.signs, x.vector
    FROM unnest(:numbers::bigint[], :texts::text[], :signs::varbit[], :vectors::bytea[])
         AS x(number, text, signs, vector)
    JOIN notes n ON n.id = x.number AND n.text = x.text
    JOIN note_words w ON w.note_id = n.id
     FOR KEY SHARE OF w
  ON CONFLICT (note_id) DO UPDATE
     SET encoder = excluded.encoder, signs = excluded.signs, vector = excluded.vector, encoded_at = now()
  RETURNING note_id
)
DELETE FROM unencoded_notes u USING stored s WHERE u.note_id = s.note_id RETURNING u.note_id
""")
"""Store vectors of notes; a note that was forgotten or changed while it was encoded gets none."""
