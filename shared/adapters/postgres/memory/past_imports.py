"""Store of other programs' messages, each import as an archived conversation of its person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.memory.past import PastImport, PastSource, PastTurn
from shared.core.values.errors import BadInput, UnknownSession

MOST_IMPORTS = 20
"""Maximum imports of one person; recall searches 32 archived conversations."""
CHARS_PER_TOKEN = 4
"""Characters that are estimated as one token of an imported message."""


class PostgresPastImports(PoolStore):
    """Store of imported conversations; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def begin(self, session_id: int, *, source: PastSource, digest: bytes) -> PastImport:
        """Return the import of the file with this digest for the session's person; begin it if there is none.

        A new one gets an archived session. Raises UnknownSession, also for a person without an address, and
        BadInput if the person has MOST_IMPORTS imports.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            person = await connection.fetchrow(*_PERSON(session_id=session_id))
            if person is None:
                raise UnknownSession(f"session {session_id}")
            contact_id = person["contact_id"]
            row = await connection.fetchrow(*_FIND(contact_id=contact_id, digest=digest))
            if row is None:
                if await connection.fetchval(*_COUNT(contact_id=contact_id)) >= MOST_IMPORTS:
                    raise BadInput(
                        f"this person has {MOST_IMPORTS} imports",
                        advice="Undo an import before the next one.",
                    )
                new = await connection.fetchval(
                    *_NEW_SESSION(contact_id=contact_id, agent_id=person["agent_id"])
                )
                await connection.execute(
                    *_NEW(session_id=new, contact_id=contact_id, source=source, digest=digest)
                )
                row = await connection.fetchrow(*_FIND(contact_id=contact_id, digest=digest))
            return _import(row)

    @store_method
    async def add(self, session_id: int, turns: Sequence[PastTurn], *, after: int) -> bool:
        """Append turns to an import that has exactly `after` messages; return True if they were stored.

        False if the import was undone, or another process has stored more.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            place = await connection.fetchrow(*_LOCK(session_id=session_id, after=after))
            if place is None:
                return False
            rows = _rows(turns, turn=place["next_turn"], seq=place["next_seq"])
            await connection.execute(*_ADD(session_id=session_id, address_id=place["address_id"], rows=rows))
            messages = sum(turn.messages for turn in turns)
            await connection.execute(
                *_ADVANCE(session_id=session_id, entries=len(rows), turns=len(turns), messages=messages)
            )
        return True

    @store_method
    async def end(self, session_id: int) -> None:
        """Mark an import as complete, so that the worker summarises it; repeating it has no effect."""
        await self._pool.execute(*_END(session_id=session_id))

    @store_method
    async def list_imports(self, session_id: int) -> tuple[PastImport, ...]:
        """Return the imports of a session's person that were not undone, newest first."""
        return tuple(map(_import, await self._pool.fetch(*_LIST(session_id=session_id))))


def _import(row: Any) -> PastImport:
    return PastImport(
        id=str(row["public_id"]), session_id=row["session_id"], source=row["source"],
        messages=row["messages"], began_at=row["began_at"], is_whole=row["ended_at"] is not None,
        first_at=row["first_at"], last_at=row["last_at"], summaries=row["summaries"],
        summarised_turns=row["summarised_turns"], turns=row["turns"], cost_micro=row["cost_micro"],
    )  # fmt: skip


def _rows(turns: Sequence[PastTurn], *, turn: int, seq: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, one in enumerate(turns, start=turn):
        for step, line in enumerate(one.lines, start=1):
            rows.append(
                {
                    "turn": number, "step": step, "seq": seq + len(rows), "author": line.author,
                    "words": line.text, "tokens": len(line.text) // CHARS_PER_TOKEN + 1,
                    "at": line.at.isoformat(),
                }
            )  # fmt: skip
    return rows


_PERSON = Named("""
SELECT r.id AS contact_id, s.agent_id FROM sessions s JOIN contacts p ON p.id = s.contact_id
  JOIN contacts r ON r.id = coalesce(p.merged_into, p.id)
 WHERE s.id = :session_id
   AND EXISTS (SELECT FROM addresses a WHERE a.contact_id IN (SELECT contact_family(r.id)))
   FOR NO KEY UPDATE OF r
""")
"""Select a session's person and agent, and lock the person, so that each file is begun only once."""
_FIND = Named("""
SELECT i.*, s.public_id, s.answered_turn AS turns,
       coalesce((SELECT t.cost_micro FROM session_totals t WHERE t.session_id = i.session_id), 0)
         AS cost_micro,
       (SELECT min(opened_at) FROM turns t WHERE t.session_id = i.session_id) AS first_at,
       (SELECT max(ended_at) FROM turns t WHERE t.session_id = i.session_id) AS last_at
  FROM past_imports i JOIN sessions s ON s.id = i.session_id
 WHERE i.contact_id IN (SELECT contact_family(:contact_id)) AND i.digest = :digest LIMIT 1
""")
"""Select a person's import of the file with this digest; no row if there is none, or it was undone."""
_COUNT = Named("""
SELECT count(*) FROM past_imports
 WHERE contact_id IN (SELECT contact_family(:contact_id)) AND digest IS NOT NULL
""")
_NEW_SESSION = Named("""
WITH s AS (
  INSERT INTO sessions (contact_id, agent_id, archived_at, last_channel)
  VALUES (:contact_id, :agent_id, now(), 'import')
  RETURNING id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
)
SELECT id FROM s
""")
"""Insert the archived session of an import; it is never answered."""
_NEW = Named("""
INSERT INTO past_imports (session_id, contact_id, source, digest)
VALUES (:session_id, :contact_id, :source, :digest)
""")
_LOCK = Named("""
SELECT s.next_turn, s.next_seq,
       (SELECT min(a.id) FROM addresses a
         WHERE a.contact_id IN (SELECT contact_family(i.contact_id))) AS address_id
  FROM past_imports i JOIN sessions s ON s.id = i.session_id
 WHERE i.session_id = :session_id AND i.messages = :after AND i.digest IS NOT NULL AND s.erased_turn = 0
   AND EXISTS (SELECT FROM addresses a WHERE a.contact_id IN (SELECT contact_family(i.contact_id)))
   FOR UPDATE OF i, s
""")
"""Lock an import that has `after` messages, with its session; no row if it was undone.

An erasure locks the session too, and marks the import as undone.
"""
_ADD = Named("""
WITH x AS (
  SELECT * FROM jsonb_to_recordset(:rows::jsonb) AS x(turn bigint, step int, seq bigint, author text,
                                                      words text, tokens int, at timestamptz)
), t AS (
  INSERT INTO turns (session_id, turn_no, state, channel, address_id, opened_at, ended_at)
  SELECT :session_id, turn, 'answered', 'import', :address_id, min(at), max(at) FROM x GROUP BY turn
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, words, tokens, at)
  SELECT :session_id, seq, author, words, tokens, at FROM x
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn, step FROM x
""")
"""Insert a batch of imported messages in answered turns."""
_ADVANCE = Named("""
WITH i AS (
  UPDATE past_imports SET messages = messages + :messages, entries = entries + :entries
   WHERE session_id = :session_id
)
UPDATE sessions
   SET next_seq = next_seq + :entries, next_turn = next_turn + :turns, answered_turn = answered_turn + :turns,
       last_active_at = now()
 WHERE id = :session_id
""")
"""Advance the import's and the session's counters in the commit of the batch."""
_END = Named("""
UPDATE past_imports
   SET ended_at = coalesce(ended_at, now()),
       summaries = CASE WHEN ended_at IS NULL THEN 'due' ELSE summaries END
 WHERE session_id = :session_id AND digest IS NOT NULL
""")
"""Mark an import as complete and due for summaries."""
_LIST = Named("""
SELECT i.*, s.public_id, s.answered_turn AS turns,
       coalesce((SELECT t.cost_micro FROM session_totals t WHERE t.session_id = i.session_id), 0)
         AS cost_micro,
       (SELECT min(opened_at) FROM turns t WHERE t.session_id = i.session_id) AS first_at,
       (SELECT max(ended_at) FROM turns t WHERE t.session_id = i.session_id) AS last_at
  FROM past_imports i JOIN sessions s ON s.id = i.session_id
  JOIN sessions me ON me.id = :session_id
 WHERE i.contact_id IN (SELECT contact_family(coalesce(p.merged_into, p.id)) FROM contacts p
                       WHERE p.id = me.contact_id)
   AND i.digest IS NOT NULL
 ORDER BY i.began_at DESC, i.session_id DESC
""")
"""Select the imports of a session's person that were not undone, newest first."""
