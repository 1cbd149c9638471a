"""Slices of the day's money: taken from the shared row, grown by a call, and closed with what was spent of them."""

from __future__ import annotations

from shared.adapters.postgres.db.leases import WORKER_IS_ALIVE

LOCK_DAYS = f"""
WITH d AS (
  INSERT INTO spend_days AS d (scope, day)
  SELECT CASE name WHEN 'visitors' THEN 'visitors:' || to_char(now() AT TIME ZONE $2, 'HH24') ELSE name END,
         (now() AT TIME ZONE $2)::date
    FROM unnest($1::text[]) AS name ORDER BY 1
  ON CONFLICT (scope, day) DO UPDATE SET reserved_micro = d.reserved_micro
  RETURNING scope, day, spent_micro, reserved_micro, warned_at
)
SELECT d.*, (SELECT greatest(1, count(*)) FROM workers w WHERE w.role <> 'worker' AND {WORKER_IS_ALIVE}) AS processes
  FROM d ORDER BY scope
"""
TAKE = """
WITH s AS (
  INSERT INTO spend_slices (worker_id, day, scopes, granted_micro, after_reservation)
  SELECT w.id, $2::date, $3::text[], $4::bigint, (SELECT coalesce(max(id), 0) FROM reservations)
    FROM workers w WHERE w.id = $1 AND w.stopped_at IS NULL
  RETURNING id, day, scopes, granted_micro
), d AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + s.granted_micro
    FROM s WHERE d.day = s.day AND d.scope = ANY (s.scopes)
)
SELECT id FROM s
"""
"""Whatever is set aside from a slice has a later number than all that can be seen now."""

OPEN = "SELECT scopes FROM spend_slices WHERE id = $1 AND closed_at IS NULL FOR UPDATE"
"""Waits for claims that are being made from it; those that wait for us find it closed."""
DAYS_OF = """
SELECT d.scope, d.spent_micro, d.reserved_micro FROM spend_days d, spend_slices s
 WHERE s.id = $1 AND d.day = s.day AND d.scope = ANY (s.scopes) ORDER BY d.scope FOR UPDATE OF d
"""
GROW = """
WITH s AS (
  UPDATE spend_slices SET granted_micro = granted_micro + $2 WHERE id = $1 RETURNING day, scopes
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro + $2
  FROM s WHERE d.day = s.day AND d.scope = ANY (s.scopes)
"""
MOVE_HELD = """
WITH moved AS (
  UPDATE reservations r SET slice_id = NULL, scopes = r.scopes || s.scopes
    FROM spend_slices s WHERE s.id = $1 AND r.slice_id = s.id AND r.id > s.after_reservation AND r.state = 'held'
  RETURNING amount_micro
)
SELECT coalesce(sum(amount_micro), 0)::bigint FROM moved
"""
SPENT = """
SELECT coalesce(sum(r.settled_micro), 0)::bigint FROM reservations r, spend_slices s
 WHERE s.id = $1 AND r.slice_id = s.id AND r.id > s.after_reservation
"""
CLOSE = """
WITH s AS (
  UPDATE spend_slices SET closed_at = now(), spent_micro = $3 WHERE id = $1
  RETURNING day, scopes, granted_micro
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - s.granted_micro + $2,
       spent_micro = d.spent_micro + $3
  FROM s WHERE d.day = s.day AND d.scope = ANY (s.scopes)
"""
LAPSED = f"""
SELECT s.id FROM spend_slices s
 WHERE s.closed_at IS NULL AND NOT EXISTS (SELECT FROM workers w WHERE w.id = s.worker_id AND {WORKER_IS_ALIVE})
 ORDER BY s.id LIMIT 20
"""

SPENT_OF_OPEN = """
(SELECT coalesce(sum(r.settled_micro), 0)::bigint FROM spend_slices s
   JOIN reservations r ON r.slice_id = s.id AND r.id > s.after_reservation
  WHERE s.closed_at IS NULL AND s.day = {day} AND 'total' = ANY (s.scopes))
"""
"""What is spent already of slices that are still open: the shared row learns of it when they close."""
