"""SQL statements for budget slices, and for the tokens of calls without a price.

A slice is a part of the day's budget, in micro-dollars, that one process spends without asking. It is taken
from the shared rows of the day, grown by a call, and closed with the amount that was spent. Tokens of calls
without a price are reserved in the shared row `tokens`, without slices.
"""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named

MAKE_DAYS = Named("""
INSERT INTO spend_days (scope, day)
SELECT CASE name WHEN 'visitors' THEN 'visitors:' || to_char(now() AT TIME ZONE :timezone, 'HH24')
   ELSE name END,
       (now() AT TIME ZONE :timezone)::date
  FROM unnest(:names::text[]) AS name ORDER BY 1
ON CONFLICT DO NOTHING
""")
"""Insert the missing rows of today, in `timezone`, for the scopes `names`.

The scope `visitors` has a row for each hour.
"""
TAKE = Named("""
WITH named AS (
  SELECT CASE name WHEN 'visitors' THEN 'visitors:' || to_char(now() AT TIME ZONE :timezone, 'HH24') ELSE name END
           AS scope,
         cap, (now() AT TIME ZONE :timezone)::date AS day
    FROM unnest(:names::text[], :limits::bigint[]) AS x(name, cap)
), d AS MATERIALIZED (
  SELECT d.scope, d.day, n.cap, d.spent_micro, d.reserved_micro, d.warned_at
    FROM spend_days d JOIN named n ON n.scope = d.scope AND n.day = d.day ORDER BY d.scope FOR NO KEY UPDATE OF d
), room AS (
  SELECT least(min(cap - spent_micro - reserved_micro) / (:share * (
                 SELECT greatest(1, count(*)) FROM workers w WHERE w.role <> 'worker' AND worker_is_alive(w))),
               :most::bigint) AS micro,
         min(day) AS day, array_agg(scope ORDER BY scope) AS scopes
    FROM d HAVING count(*) = (SELECT count(*) FROM named)
), s AS (
  INSERT INTO spend_slices (worker_id, day, scopes, granted_micro, after_reservation)
  SELECT w.id, r.day, r.scopes, r.micro, (SELECT coalesce(max(id), 0) FROM reservations)
    FROM room r, workers w WHERE w.id = :worker_id AND w.stopped_at IS NULL AND r.micro >= :least::bigint
  RETURNING id, day, scopes, granted_micro
), u AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + s.granted_micro
    FROM s WHERE d.day = s.day AND d.scope = ANY (s.scopes)
)
SELECT (SELECT count(*) FROM d) = (SELECT count(*) FROM named) AS are_there, s.id, s.granted_micro,
       (SELECT bool_or(warned_at IS NULL AND spent_micro * 100 >= cap * 80) FROM d) AS near_cap,
       extract(epoch FROM date_trunc('hour', now() AT TIME ZONE :timezone) + interval '1 hour'
                          - now() AT TIME ZONE :timezone)::float8 AS seconds
  FROM (VALUES (true)) one(row) LEFT JOIN s ON true
""")
"""Lock the shared rows of the scopes and take a slice of them, in one statement, so that locks are short.

The slice is the room of the tightest scope divided by `share` and the number of living processes, at most
`most` micro-dollars. Its id is NULL if that is below `least`, a row of the day is missing (`are_there` is
false), or the process has ended. Reservations from the slice have higher ids than all that are visible now.
`seconds` are left of the hour, after which the visitors' scope and perhaps the day change.
"""

HAS_ROOM = Named("""
WITH named AS (
  SELECT CASE name WHEN 'visitors' THEN 'visitors:' || to_char(now() AT TIME ZONE :timezone, 'HH24') ELSE name END
           AS scope,
         cap, (now() AT TIME ZONE :timezone)::date AS day
    FROM unnest(:names::text[], :limits::bigint[]) AS x(name, cap)
)
SELECT min(n.cap - coalesce(d.spent_micro + d.reserved_micro, 0)) >= :share * (
         SELECT greatest(1, count(*)) FROM workers w WHERE w.role <> 'worker' AND worker_is_alive(w)) * :least::bigint
  FROM named n LEFT JOIN spend_days d ON d.scope = n.scope AND d.day = n.day
""")
"""Select whether `TAKE` would find a slice of at least `least` micro-dollars; writes and locks nothing.

A scope without a row of the day counts as unspent.
"""

GROW = Named("""
WITH s AS MATERIALIZED (
  SELECT id, day, scopes FROM spend_slices WHERE id = :slice_id AND closed_at IS NULL FOR UPDATE
), d AS MATERIALIZED (
  SELECT d.scope, d.spent_micro, d.reserved_micro, CASE d.scope WHEN 'total' THEN :total::bigint
     ELSE :visitors_hour::bigint END AS cap
    FROM s JOIN spend_days d ON d.day = s.day AND d.scope = ANY (s.scopes) ORDER BY d.scope FOR NO KEY UPDATE OF d
), refused AS (
  SELECT * FROM d WHERE spent_micro + reserved_micro + :micro::bigint > cap
), grown AS (
  UPDATE spend_slices g SET granted_micro = g.granted_micro + :micro::bigint FROM s
   WHERE g.id = s.id AND NOT EXISTS (SELECT FROM refused) RETURNING g.day, g.scopes
), u AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + :micro::bigint
    FROM grown g WHERE d.day = g.day AND d.scope = ANY (g.scopes)
)
SELECT s.id, r.scope, r.cap, r.spent_micro, r.reserved_micro FROM s LEFT JOIN refused r ON true
""")
"""Add `micro` micro-dollars to an open slice, unless a scope's cap would be exceeded.

Selects no row if the slice is closed, a row for each scope that refuses, else one row without a scope.
"""
CLOSE = Named("SELECT close_slice(:slice_id)")
"""Close a slice, so that its unspent rest returns to the shared rows; repeating it has no effect."""
LAPSED = """
SELECT s.id FROM spend_slices s
 WHERE s.closed_at IS NULL AND NOT EXISTS (SELECT FROM workers w WHERE w.id = s.worker_id AND worker_is_alive(w))
 ORDER BY s.id LIMIT 20
"""
"""Select the ids of at most 20 open slices whose process no longer lives."""

TOKENS = "tokens"
"""Scope whose amounts are tokens, not micro-dollars."""
RESERVE_TOKENS = Named("""
WITH d AS MATERIALIZED (
  SELECT day, least(:output_tokens::bigint,
                    (:cap::bigint - spent_micro - reserved_micro - :input_tokens::bigint) / :weight::bigint)
                       AS longest
    FROM spend_days WHERE scope = 'tokens' AND day = (now() AT TIME ZONE :timezone)::date FOR NO KEY UPDATE
), held AS (
  SELECT day, longest, :input_tokens::bigint + :weight::bigint * longest AS amount FROM d
     WHERE longest >= :least_output::bigint
), u AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + h.amount
    FROM held h WHERE d.scope = 'tokens' AND d.day = h.day
), r AS (
  INSERT INTO reservations (session_id, contact_id, day, amount_micro, scopes, asked_scopes)
  SELECT 0, 0, day, amount, '{tokens}', 1 FROM held RETURNING id
)
SELECT EXISTS (SELECT FROM d) AS is_there, (SELECT id FROM r) AS id, (SELECT longest FROM held) AS output_tokens
""")
"""Lock the shared row of today and reserve input tokens and output tokens times `weight`, under `cap`.

Output is shortened to what is left. Selects one row: `is_there` is false if the day has no row; `id` and
`output_tokens` are NULL if less than `least_output` is left. Other processes wait for the lock, and then read
what is left.
"""

MAKE_TOKEN_DAY = Named("""
WITH d AS (
  INSERT INTO spend_days (scope, day, spent_micro)
  SELECT 'tokens', (now() AT TIME ZONE :timezone)::date,
         coalesce(sum(input_tokens + cache_read_tokens + cache_write_tokens + :weight::bigint *
                      output_tokens), 0)
    FROM usage
   WHERE cost_micro IS NULL AND at >= date_trunc('day', now() AT TIME ZONE :timezone) AT TIME ZONE :timezone
     AND model <> ALL (:free_models::text[])
  ON CONFLICT DO NOTHING
  RETURNING day, spent_micro
)
INSERT INTO reservations (session_id, contact_id, day, amount_micro, settled_micro, state, scopes, ended_at, asked_scopes)
SELECT 0, 0, day, spent_micro, spent_micro, 'settled', '{tokens}', now(), 1 FROM d WHERE spent_micro > 0
""")
"""Insert the row of today, with the tokens of today's calls that an older version made without a reservation.

No effect if the row exists. Models in `free_models` do not count.
"""

SETTLE_TOKENS = Named("""
WITH done AS (
  UPDATE reservations SET state = 'settled', settled_micro = :tokens::bigint, ended_at = now()
   WHERE id = :reservation_id AND state = 'held' RETURNING day, amount_micro
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - done.amount_micro,
   spent_micro = d.spent_micro + :tokens::bigint
  FROM done WHERE d.scope = 'tokens' AND d.day = done.day
""")
"""End a reservation of tokens, and count the real number instead; repeating it has no effect."""
