"""Queries of a session's page: context over the turns, and a summary next to its predecessor."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from shared.adapters.postgres.db.page_read import SECONDS, read_page
from shared.adapters.postgres.db.pool import Named, PoolStore, store_method

EXACT_TURNS = 5_000
"""Number of turns from which a timeline reads a sample instead of every turn."""
MARKS = 2_000
"""Maximum summaries, and maximum flushes, that are read as marks of the chart, the newest."""

TIMELINE = Named(
    """
WITH s AS (
  SELECT s.*, b.low, b.high, b.high - b.low >= :exact_turns AS big,
         greatest(1, (b.high - b.low) / greatest(:points / 3, 1)) AS width
    FROM sessions s CROSS JOIN LATERAL (
      SELECT (SELECT c.turn_id FROM turn_context_audit c
               WHERE (c.session_id, c.turn_id) >= (s.id, :from_turn) AND c.session_id <= s.id
               ORDER BY c.session_id, c.turn_id LIMIT 1) AS low,
             (SELECT c.turn_id FROM newest_call(s.id) c) AS high) b
   WHERE s.public_id = :public_id
), summaries AS (
  SELECT l.*, coalesce((SELECT n.turn_no - 1 FROM turns n WHERE n.session_id = s.id
                          AND n.turn_no > l.through_turn AND n.opened_at > l.created_at
                        ORDER BY n.turn_no LIMIT 1), s.next_turn - 1) AS at_turn
    FROM s CROSS JOIN LATERAL (
      SELECT k.id, k.public_id, k.kind, k.created_at, k.tokens_before, k.tokens_after, k.undone_at,
             k.through_turn
        FROM compactions k WHERE k.session_id = s.id AND k.kind IN ('summary', 'digest')
         AND k.through_turn >= :from_turn - 1
       ORDER BY k.id DESC LIMIT :marks) l
), marked AS (
  SELECT DISTINCT ON (CASE WHEN s.big THEN (f.at_turn - s.low) / s.width ELSE f.id END) f.*
    FROM s, summaries f
   ORDER BY CASE WHEN s.big THEN (f.at_turn - s.low) / s.width ELSE f.id END, f.id DESC
), picks AS (
  SELECT DISTINCT p.turn FROM s CROSS JOIN LATERAL (
      SELECT (SELECT c.turn_id FROM turn_context_audit c
               WHERE (c.session_id, c.turn_id) >= (s.id, g.turn) AND c.session_id <= s.id
               ORDER BY c.session_id, c.turn_id LIMIT 1) AS turn
        FROM generate_series(s.low, s.high, s.width) AS g(turn)
      UNION ALL SELECT s.high
      UNION ALL SELECT f.at_turn + x.step FROM marked f, (VALUES (0), (1)) AS x(step)) p
   WHERE s.big AND p.turn IS NOT NULL
), calls AS (
  (SELECT DISTINCT ON (c.turn_id) c.*, count(*) OVER (PARTITION BY c.turn_id) AS calls
     FROM s JOIN turn_context_audit c ON c.session_id = s.id AND c.turn_id >= s.low AND NOT s.big
    ORDER BY c.turn_id, c.id DESC)
  UNION ALL
  SELECT c.*, 1 FROM s CROSS JOIN picks p CROSS JOIN LATERAL (
      SELECT * FROM turn_context_audit c WHERE c.session_id = s.id AND c.turn_id = p.turn
       ORDER BY c.id DESC LIMIT 1) c
), numbered AS (
  SELECT *, count(*) OVER () AS total, row_number() OVER (ORDER BY turn_id) AS place FROM calls
), stretched AS (
  SELECT n.*, CASE WHEN s.big OR n.total <= :points THEN n.place
     ELSE (n.place - 1) * (:points / 2 - 1) / n.total END
         AS stretch FROM s, numbered n
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY stretch ORDER BY context_tokens, turn_id) AS low,
         row_number() OVER (PARTITION BY stretch ORDER BY context_tokens DESC, turn_id DESC) AS high
    FROM stretched
), kept AS (SELECT * FROM ranked WHERE low = 1 OR high = 1 OR place IN (1, total))
SELECT json_build_object(
  'turns', CASE WHEN s.big THEN s.high - s.low + 1 ELSE coalesce((SELECT max(total) FROM kept), 0) END,
  'sampled', coalesce(s.big, false),
  'limit', nullif(s.context_limit, 0),
  'summaries', (SELECT count(*) FROM summaries),
  'points', coalesce((SELECT json_agg(json_build_object('turn', k.turn_id, 'at', k.created_at,
      'context', k.context_tokens, 'reported', k.reported_input_tokens, 'budget', k.input_budget,
      'hard', k.hard_limit, 'parts', k.parts, 'calls', k.calls, 'summary', k.summary_triggered,
      'prune', k.prune_triggered, 'overflow', k.overflow_rejected) ORDER BY k.turn_id)
    FROM kept k), '[]'::json),
  'compactions', coalesce((SELECT json_agg(json_build_object('id', f.public_id, 'kind', f.kind,
      'at', f.created_at, 'before', f.tokens_before, 'after', f.tokens_after,
      'undone', f.undone_at IS NOT NULL,
      'through_turn', f.through_turn, 'turn', f.at_turn) ORDER BY f.id) FROM marked f), '[]'::json),
  'flushes', coalesce((SELECT json_agg(json_build_object('id', f.public_id, 'at', f.created_at,
      'outcome', f.outcome, 'notes', f.note_count, 'turn', f.through_turn) ORDER BY f.id)
    FROM (SELECT DISTINCT ON (CASE WHEN s.big THEN (x.through_turn - s.low) / s.width ELSE x.id END) x.*
            FROM (SELECT * FROM flushes k WHERE k.session_id = s.id AND k.through_turn >= :from_turn
                   ORDER BY k.id DESC LIMIT :marks) x
           ORDER BY CASE WHEN s.big THEN (x.through_turn - s.low) / s.width ELSE x.id END, x.id DESC) f),
    '[]'::json)
)::text FROM s
""",
    exact_turns=EXACT_TURNS,
    marks=MARKS,
)
"""Select points of the chart of tokens by turn as JSON, with summaries and flushes.

It has every turn from `from_turn` on, or about `points` of them with highest, lowest, first and last. No row
if the session is unknown.
"""

DIFF = Named("""
SELECT json_build_object('id', l.public_id, 'summary', l.summary_text, 'ledger', l.ledger,
  'from_turn', l.from_turn, 'through_turn', l.through_turn,
  'former', (SELECT json_build_object('id', p.public_id, 'summary', p.summary_text, 'ledger', p.ledger,
                'through_turn', p.through_turn) FROM compactions p
              WHERE p.id = l.parent AND p.kind IN ('summary', 'digest')),
  'pins', coalesce((SELECT json_agg(json_build_object('seq', e.seq, 'turn', te.turn_no, 'author', e.author,
                'blocks', e.blocks) ORDER BY te.turn_no, te.step)
              FROM pins x JOIN turn_entries te USING (session_id, seq) JOIN entries e USING (session_id, seq)
             WHERE x.session_id = l.session_id AND te.turn_no <= l.through_turn), '[]'::json),
  'notes', coalesce((SELECT json_agg(n.text ORDER BY n.id)
              FROM notes n JOIN sessions s ON s.id = l.session_id
             WHERE n.contact_id = s.contact_id AND n.flush_id = l.flush_id
               AND n.forgotten_at IS NULL), '[]'::json)
)::text FROM compactions l WHERE l.public_id = :compaction AND l.kind IN ('summary', 'digest')
""")
"""Select a summary and its predecessor as JSON, with pinned messages and notes of its flush.

The pinned messages are those of the hidden turns. No row if the summary is unknown.
"""

_ID = Named("SELECT id FROM sessions WHERE public_id = :public_id")
_PERSON = Named("""
SELECT s.id, coalesce(r.public_id, p.public_id) AS person_id, nullif(p.display_name, '') AS person, p.kind,
       p.anonymous
  FROM sessions s JOIN contacts p ON p.id = s.contact_id LEFT JOIN contacts r ON r.id = p.merged_into
 WHERE s.public_id = :public_id
""")
_NEWEST = Named("SELECT c.turn_id FROM newest_call(:session_id::bigint) c")


class SessionInsights(PoolStore):
    """Read-only queries of one session; unknown numbers are None. They raise StorageUnavailable."""

    @store_method
    async def find_session_id(self, public_id: UUID) -> int | None:
        """Return the internal id of a session; None if it is unknown."""
        found: int | None = await self._pool.fetchval(*_ID(public_id=public_id), timeout=SECONDS)
        return found

    @store_method
    async def find_person(self, public_id: UUID) -> tuple[int, dict[str, Any]] | None:
        """Return (session's internal id, `{person_id, person, kind, anonymous}` of its person).

        Returns None if the session is unknown.
        """
        row = await self._pool.fetchrow(*_PERSON(public_id=public_id), timeout=SECONDS)
        if row is None:
            return None
        return row["id"], {name: row[name] for name in ("person_id", "person", "kind", "anonymous")}

    @store_method
    async def find_newest_turn(self, session_id: int) -> int | None:
        """Return the number of the newest turn with a recorded model call; None if there is none."""
        found: int | None = await self._pool.fetchval(*_NEWEST(session_id=session_id), timeout=SECONDS)
        return found

    async def load_timeline(
        self, public_id: UUID, *, max_points: int = 500, from_turn: int = 1
    ) -> dict[str, Any] | None:
        """Return tokens of context by turn, with summaries and flushes; None if the session is unknown.

        `max_points`, taken as 10 to 2000, is the approximate number of points; `from_turn` is the first turn.
        Of more turns, each stretch keeps its lowest and its highest point. Of more than `EXACT_TURNS` turns,
        each stretch keeps its first turn and the two turns around its newest summary.
        """
        points = max(10, min(max_points, 2000))
        found: dict[str, Any] | None = await read_page(
            self._pool,
            *TIMELINE(
                public_id=public_id,
                points=points,
                from_turn=from_turn,
            ),
        )
        return found

    async def load_diff(self, compaction: UUID) -> dict[str, Any] | None:
        """Return a summary and its predecessor, with pinned messages and notes; None if it is unknown."""
        found: dict[str, Any] | None = await read_page(self._pool, *DIFF(compaction=compaction))
        return found
