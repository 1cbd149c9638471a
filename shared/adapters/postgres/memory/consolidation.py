"""Store for the nightly tidying of notes: requests due jobs, reads notes, and applies plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from shared.adapters.postgres.compaction.jobs import still_mine
from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.adapters.postgres.memory.notes import erase_notes
from shared.adapters.postgres.memory.notes_sql import SESSION_OWNER
from shared.core.context.memory import core_line, gist_of, note_hash, words_of_line
from shared.core.context.prompts import NOTES_OPENED
from shared.core.memory.consolidation import LiveNote, TidyPlan
from shared.core.memory.recall import LATER_NOTE_MARK, NOTE_MARK
from shared.core.session.session_state import JobClaim

NOTES_AT_MOST = 5_000
"""Maximum notes of one person that are tidied, the newest."""

_ASK = Named("""
WITH day AS (
  SELECT (now() AT TIME ZONE :timezone)::date AS today,
         extract(hour FROM now() AT TIME ZONE :timezone) >= :hour::int AS has_come
), chosen AS (
  SELECT DISTINCT contact_id
    FROM (SELECT contact_id FROM due_tidyings WHERE due_at <= now() AND (SELECT has_come FROM day)
           ORDER BY due_at LIMIT :limit) d
), done AS (
  DELETE FROM due_tidyings WHERE contact_id IN (SELECT contact_id FROM chosen) AND due_at <= now()
  RETURNING contact_id, new_note
), wanted AS (
  SELECT d.contact_id, d.new_note, 'tidy:' || w.person || ':' || day.today AS key,
         (SELECT min(id) FROM sessions WHERE contact_id = w.person) AS session_id
    FROM (SELECT contact_id, bool_or(new_note) AS new_note FROM done GROUP BY contact_id) d
    JOIN contacts p ON p.id = d.contact_id
   CROSS JOIN LATERAL (SELECT coalesce(p.merged_into, p.id) AS person) w
   CROSS JOIN day
   WHERE EXISTS (SELECT FROM notes n WHERE n.contact_id = d.contact_id AND (
             d.new_note OR n.created_at > now() - interval '25 hours' OR n.undo_until <= now()
             OR n.durability = 'ephemeral' AND n.expired_at IS NULL AND n.superseded_by IS NULL
                AND n.forgotten_at IS NULL))
), asked AS (
  INSERT INTO jobs (kind, session_id, key, trigger)
  SELECT DISTINCT 'tidy', w.session_id, w.key, 'nightly' FROM wanted w
   WHERE w.session_id IS NOT NULL
     AND NOT EXISTS (SELECT FROM jobs j WHERE j.session_id = w.session_id AND j.key = w.key)
   ORDER BY w.session_id
  ON CONFLICT (key) WHERE state IN ('due', 'running') DO NOTHING RETURNING id, key
), later AS (
  INSERT INTO due_tidyings (contact_id, due_at, new_note)
  SELECT w.contact_id, (day.today + 1 + make_interval(hours => :hour)) AT TIME ZONE :timezone,
         w.new_note AND w.key NOT IN (SELECT key FROM asked)
    FROM wanted w, day
)
SELECT id FROM asked
""")
"""Insert one tidy job per person and day if notes are new, past their undo time, or dated.

Each listed person is examined again the next night, until no such note is left. A note that comes after the
day's job is marked as new until a job is requested.
"""

_LIVE = Named("""
SELECT id, scope, text, gist, authority, durability, event_date, observed_at::date AS observed,
       expired_at IS NOT NULL AS expired
  FROM notes
 WHERE contact_id IN (SELECT contact_family((SELECT contact_id FROM sessions WHERE id = :session_id)))
   AND superseded_by IS NULL AND forgotten_at IS NULL
 ORDER BY id DESC LIMIT :notes_at_most
""")

_DUE = Named("""
SELECT * FROM notes
 WHERE contact_id IN (SELECT contact_family((SELECT contact_id FROM sessions WHERE id = :session_id)))
   AND undo_until <= now() AND contact_id NOT IN (SELECT held_contacts())
""")

_SUPERSEDE = Named("""
WITH o AS (
  UPDATE notes o SET superseded_by = x.heir, superseded_reason = 'duplicate'
    FROM unnest(:olds::bigint[], :heirs::bigint[]) AS x(id, heir)
   WHERE o.id = x.id AND o.superseded_by IS NULL AND o.forgotten_at IS NULL
     AND EXISTS (SELECT FROM notes h
                  WHERE h.id = x.heir AND h.superseded_by IS NULL AND h.forgotten_at IS NULL)
  RETURNING o.id, o.contact_id, x.heir
)
INSERT INTO note_changes (contact_id, old_id, new_id, cause) SELECT contact_id, id, heir, 'tidy' FROM o
RETURNING old_id
""")
"""Replace notes by a merged one, with a row in the history of changes for each."""

_EXPIRE = Named("""
UPDATE notes SET expired_at = now()
 WHERE id = ANY (:expired::bigint[]) AND expired_at IS NULL AND superseded_by IS NULL AND forgotten_at IS NULL
RETURNING id
""")

_SHOWN = Named("""
SELECT DISTINCT p.sha256, p.body FROM sessions s
  JOIN turn_context_audit a ON a.session_id = s.id
 CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) h(hash)
  JOIN prompt_parts p ON p.sha256 = decode(h.hash, 'hex')
 WHERE s.contact_id IN (SELECT contact_family((SELECT contact_id FROM sessions WHERE id = :session_id)))
   AND (p.body LIKE :notes_opened || '%'
        OR strpos(p.body, :note_mark) > 0 OR strpos(p.body, :later_mark) > 0)
   AND EXISTS (
       SELECT FROM notes
        WHERE contact_id IN (SELECT contact_family((SELECT contact_id FROM sessions WHERE id = :session_id)))
          AND forgotten_at IS NOT NULL AND undo_until IS NULL)
""")
"""Select stored parts of the person's requests that may contain an erased note.

The program compares the lines.
"""

_ERASED = Named("""
SELECT hash FROM notes
 WHERE contact_id IN (SELECT contact_family((SELECT contact_id FROM sessions WHERE id = :session_id)))
   AND forgotten_at IS NOT NULL AND undo_until IS NULL
""")


class PostgresConsolidation(PoolStore):
    """Store for tidying; only `apply_plan` needs one transaction, other methods can be repeated.

    Each method raises StorageUnavailable.
    """

    @store_method
    async def request_due(self, *, timezone: str, hour: int, limit: int = 100) -> list[int]:
        """Insert tidy jobs of at most `limit` people that are due today; return the jobs' ids.

        None before `hour` in `timezone`. Also deletes expired lists of notes.
        """
        await self._pool.execute("DELETE FROM note_lists WHERE expires_at < now()")
        return [row["id"] for row in await self._pool.fetch(*_ASK(timezone=timezone, hour=hour, limit=limit))]

    @store_method
    async def load_live_notes(self, session_id: int) -> tuple[LiveNote, ...]:
        """Return the live notes of the session's person with all agents, newest first, at most NOTES_AT_MOST.

        Missing gists, by which similar notes are found, are computed and stored.
        """
        rows = await self._pool.fetch(*_LIVE(session_id=session_id, notes_at_most=NOTES_AT_MOST))
        missing = {row["id"]: list(gist_of(row["text"])) for row in rows if not row["gist"]}
        for note_id, gist in missing.items():
            await self._pool.execute(*_SET_GIST(note_id=note_id, gist=gist))
        return tuple(
            build_value(LiveNote, row, gist=tuple(missing.get(row["id"]) or row["gist"])) for row in rows
        )

    @store_method
    async def load_today(self, timezone: str) -> date:
        """Return the current date in a time zone by the database's clock."""
        today: date = await self._pool.fetchval(*_TODAY(timezone=timezone))
        return today

    @store_method
    async def apply_plan(self, job: JobClaim, plan: TidyPlan) -> Mapping[str, int]:
        """Apply the steps of a plan that are still possible, and erase notes past their undo time.

        Returns the numbers `{doubles, expired, let_go, parts}`: replaced notes, expired notes, erased notes,
        and deleted parts of stored requests. Notes of a person on legal hold are not erased. Raises LeaseLost
        if another worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await still_mine(connection, job)
            session = job.session_id
            await connection.execute(
                *_LOCK_CONTACT(session_id=session),
            )
            olds, heirs = [old for old, _ in plan.doubles], [heir for _, heir in plan.doubles]
            doubles = await connection.fetch(*_SUPERSEDE(olds=olds, heirs=heirs))
            expired = await connection.fetch(*_EXPIRE(expired=list(plan.expired)))
            let_go = await connection.fetch(*_DUE(session_id=session))
            if let_go:
                whose = await connection.fetchrow(*SESSION_OWNER(session_id=session))
                assert whose is not None
                await erase_notes(connection, whose["contact_id"], let_go)
            erased = {row["hash"] for row in await connection.fetch(*_ERASED(session_id=session))}
            shown = await connection.fetch(
                *_SHOWN(
                    session_id=session,
                    notes_opened=NOTES_OPENED,
                    note_mark=NOTE_MARK,
                    later_mark=LATER_NOTE_MARK,
                )
            )  # fmt: skip
            parts = [row["sha256"] for row in shown if _mentions(row["body"], erased)]
            await connection.execute(*_DELETE_PARTS(sha256s=parts))
        return {
            "doubles": len(doubles),
            "expired": len(expired),
            "let_go": len(let_go),
            "parts": len(parts),
        }


def _mentions(body: str, erased: set[bytes]) -> bool:
    """Return whether a stored part of a request has a line with an erased note, recognised by its hash."""
    lines: Sequence[str] = body.splitlines()
    marks = (core_line("")[:2], NOTE_MARK, LATER_NOTE_MARK)
    return any(
        note_hash(words) in erased
        for line in lines
        for mark in marks
        if line.startswith(mark)
        for words in (line.removeprefix(mark), words_of_line(line))
    )


_SET_GIST = Named("UPDATE notes SET gist = :gist WHERE id = :note_id")
_TODAY = Named("SELECT (now() AT TIME ZONE :timezone)::date")
_LOCK_CONTACT = Named("""
SELECT id FROM contacts WHERE id = (SELECT contact_id FROM sessions WHERE id = :session_id)
   FOR NO KEY UPDATE
""")
_DELETE_PARTS = Named("DELETE FROM prompt_parts WHERE sha256 = ANY (:sha256s::bytea[])")
