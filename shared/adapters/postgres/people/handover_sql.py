"""The statements of a hand-over."""

from __future__ import annotations

from shared.adapters.postgres.db.leases import LEASE_SECONDS

NOTICE_SECONDS = 10.0
"""So long the next answer waits, where the notice is a message of its own: the honest word comes first."""

LOCK = """
SELECT id, public_id, archived_at, turn_epoch, answered_turn, next_turn, held_after FROM sessions WHERE id = $1
   FOR NO KEY UPDATE
"""
"""A message, a claim or an answer waits for the end of this, and then reads the row as it is."""

SHOWN_NAME = "SELECT display_name FROM operators WHERE id = $1"
_WITH_NAME = f"SELECT h.*, ({SHOWN_NAME.replace('$1', 'h.operator_id')}) AS shown_name FROM handovers h"
OPEN = f"{_WITH_NAME} WHERE session_id = $1 AND ended_at IS NULL"
BY_KEY = f"{_WITH_NAME} WHERE call_key = $1"
ASKED_LATELY = """
SELECT count(*) FROM handovers
 WHERE session_id = $1 AND asked_by <> 'operator' AND asked_at > now() - interval '1 hour'
"""
NEWEST_ADDRESS = """
SELECT coalesce(
  (SELECT t.address_id FROM turns t JOIN addresses a ON a.id = t.address_id AND a.session_id = t.session_id
    WHERE t.session_id = $1 ORDER BY t.turn_no DESC LIMIT 1),
  (SELECT id FROM addresses WHERE session_id = $1 ORDER BY id DESC LIMIT 1))
"""

IS_RUNNING = f"""
SELECT EXISTS (
  SELECT FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
   WHERE s.id = $1 AND (
         EXISTS (SELECT FROM workers w WHERE w.id = s.leased_by AND w.stopped_at IS NULL
                    AND w.beat > now() - interval '{LEASE_SECONDS} s')
      OR EXISTS (SELECT FROM turn_steps p
                  WHERE p.session_id = s.id AND p.turn_no = t.turn_no AND p.status = 'intent')
      OR EXISTS (SELECT FROM reminders r WHERE r.session_id = s.id AND r.turn_no = t.turn_no)))
"""
"""What nobody but the assistant can end: it is being written, a tool of it is half done, or it reminds."""

HOLD = "UPDATE sessions SET held_after = $2 WHERE id = $1"
RELEASE = """
UPDATE sessions SET held_after = NULL,
       retry_at = CASE WHEN $2::float8 > 0 THEN greatest(retry_at, now() + make_interval(secs => $2))
                       ELSE retry_at END
 WHERE id = $1
"""
MAY_ASK = """
SELECT NOT EXISTS (SELECT FROM addresses a JOIN sites w ON a.channel = 'web' AND w.name = a.account
                    WHERE a.id = $1 AND w.config -> 'handover' = 'false')
"""
BEGIN = """
INSERT INTO handovers (session_id, address_id, asked_by, reason, call_key, operator_id, operator_name, state, taken_at)
VALUES ($1, $2, $3, $4, $5, $6::bigint, $7, CASE WHEN $6::bigint IS NULL THEN 'waiting' ELSE 'human' END,
        CASE WHEN $6::bigint IS NOT NULL THEN now() END)
"""
TAKE = """
UPDATE handovers SET state = 'human', operator_id = $2, operator_name = $3, taken_at = now() WHERE id = $1
"""
END = "UPDATE handovers SET state = 'ended', ended_at = now(), ended_by = $2, told = $3 WHERE id = $1"
IS_SENT_TO = "SELECT channel <> 'web' AND unreachable_since IS NULL FROM addresses WHERE id = $1"
"""Whether a channel sends messages of its own; on the web what is stored is on the screen."""

TELL = """
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = $1 RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT $1, event_seq, $2, $3::jsonb FROM s RETURNING event_seq
"""

REPLIED_BEFORE = """
SELECT e.seq, te.turn_no AS turn,
       (SELECT v.event_seq FROM events v
         WHERE v.session_id = $1 AND v.seq = e.seq AND v.kind = 'msg' LIMIT 1) AS event_seq
  FROM entries e JOIN turn_entries te USING (session_id, seq) WHERE e.session_id = $1 AND e.dedupe_key = $2
"""
WAITING = """
SELECT t.turn_no, t.channel, t.address_id,
       EXISTS (SELECT FROM reminders r WHERE r.session_id = t.session_id AND r.turn_no = t.turn_no) AS is_reminder
  FROM turns t WHERE t.session_id = $1 AND t.turn_no > $2 ORDER BY t.turn_no
"""
PLACE = """
SELECT a.channel, a.id AS address_id FROM addresses a
 WHERE a.id = coalesce((SELECT t.address_id FROM turns t JOIN addresses x ON x.id = t.address_id
                         WHERE t.session_id = $1 AND x.session_id = $1 ORDER BY t.turn_no DESC LIMIT 1), $2)
"""

REPLY = """
WITH said AS (
  SELECT coalesce(sum(e.tokens), 0) AS tokens FROM turn_entries te JOIN entries e USING (session_id, seq)
   WHERE te.session_id = $1 AND te.turn_no BETWEEN $2 AND $3
), s AS (
  UPDATE sessions x
     SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1, next_turn = greatest(next_turn, $3 + 1),
         last_channel = CASE WHEN next_turn <= $3 THEN $4 ELSE last_channel END, answered_turn = $3, open_turn = CASE WHEN open_turn > $3 THEN open_turn END,
         turn_epoch = turn_epoch + 1, leased_by = NULL, retry_at = NULL, last_active_at = now(),
         context_tokens = CASE WHEN context_tokens = 0 THEN 0
                               ELSE context_tokens + ceil(token_ratio * (said.tokens + $7)) END
    FROM said WHERE x.id = $1
  RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq
), ended AS (
  UPDATE turns t SET state = 'answered', ended_at = now(),
         error_code = CASE WHEN turn_no < $3 THEN 'answered_together' END
   WHERE t.session_id = $1 AND t.turn_no BETWEEN $2 AND $3
), own AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id, state, ended_at)
  VALUES ($1, $3, $4, $5, 'answered', now()) ON CONFLICT DO NOTHING
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, cid)
  SELECT $1, seq, 'user', 'operator', $6::jsonb, $7, $8, $9 FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, $3, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT $1, event_seq, 'msg', seq, $3, $10::jsonb FROM s
), d AS (
  INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state, delivered_at)
  SELECT $1, n, 0, $4, $5, CASE WHEN n < $3 THEN 'delivered' ELSE 'queued' END, CASE WHEN n < $3 THEN now() END
    FROM generate_series($2::bigint, $3::bigint) AS n WHERE $4 <> 'web' ON CONFLICT DO NOTHING
), tot AS (
  UPDATE session_totals SET total_tokens_estimate = total_tokens_estimate + $7 WHERE session_id = $1
)
SELECT seq, $3::bigint AS turn, event_seq FROM s
"""
"""The words stand in the last of the turns that they answer; those before it are answered together with it."""

_OVER = """
CASE WHEN h.state = 'waiting' AND h.asked_at <= now() - make_interval(secs => {waiting} * 60) THEN
       CASE WHEN {waiting} > 0 THEN 'unanswered' ELSE 'off' END
     WHEN h.state = 'human' AND {waiting} <= 0 THEN 'off'
     WHEN h.state = 'human' AND h.taken_at <= now() - make_interval(secs => {silence} * 60)
          AND EXISTS (SELECT FROM turns t WHERE t.session_id = s.id AND t.turn_no = s.answered_turn + 1
                         AND t.opened_at <= now() - make_interval(secs => {silence} * 60)) THEN 'silent' END
"""
"""The oldest words that wait are as old as the silence: an operator's reply ends whatever waits."""
OVERDUE = f"""
SELECT * FROM (
  SELECT h.id, h.session_id, {_OVER.format(waiting="$3::float8", silence="$4::float8")} AS over
    FROM handovers h JOIN sessions s ON s.id = h.session_id JOIN addresses a ON a.id = h.address_id
   WHERE h.ended_at IS NULL AND a.channel = $1 AND ($2::text[] IS NULL OR a.account = ANY ($2))) o
 WHERE over IS NOT NULL ORDER BY id LIMIT $5
"""
STILL_OVERDUE = f"""
SELECT {_OVER.format(waiting="$2::float8", silence="$3::float8")} AS over
  FROM handovers h JOIN sessions s ON s.id = h.session_id WHERE h.id = $1 AND h.ended_at IS NULL
"""

LISTED = """
SELECT s.public_id AS session, h.state, h.asked_by, h.reason, h.operator_name AS operator, p.display_name AS who,
       coalesce((SELECT public_id FROM parties WHERE id = p.merged_into), p.public_id) AS person_id, p.kind, p.anonymous,
       a.channel, g.name AS agent, h.asked_at, h.taken_at,
       (SELECT t.opened_at FROM turns t WHERE t.session_id = s.id AND t.turn_no = s.answered_turn + 1) AS waits_since
  FROM handovers h JOIN sessions s ON s.id = h.session_id JOIN parties p ON p.id = s.party_id
  JOIN addresses a ON a.id = h.address_id JOIN agents g ON g.id = s.agent_id
 WHERE h.ended_at IS NULL AND ($1::text IS NULL OR h.state = $1) ORDER BY h.asked_at, h.id LIMIT 500
"""

UNTOLD = """
SELECT h.id, h.address_id, h.ended_by FROM handovers h JOIN addresses a ON a.id = h.address_id
 WHERE h.told = 'queued' AND a.channel = 'telegram' AND a.account = ANY ($1::text[]) AND NOT EXISTS (
       SELECT FROM deliveries d JOIN turns t USING (session_id, turn_no)
        WHERE d.session_id = h.session_id AND d.address_id = h.address_id AND t.ended_at <= h.ended_at
          AND d.state IN ('queued', 'sending', 'sent'))
 ORDER BY h.id LIMIT $2
"""
"""What was said before it ended is in the chat first."""
TOLD = """
WITH h AS (
  UPDATE handovers SET told = $2 WHERE id = $1 AND told IN ('queued', 'sending') RETURNING session_id, ended_at
)
UPDATE sessions s SET retry_at = now() FROM h
 WHERE s.id = h.session_id AND $2 <> 'queued' AND s.leased_by IS NULL
   AND s.retry_at > now() AND s.retry_at <= h.ended_at + make_interval(secs => $3)
"""
"""With it the next answer may come; what was put off for longer has other reasons."""
LEFT_BY_THE_DEAD = """
UPDATE handovers h SET told = 'uncertain' FROM addresses a
 WHERE a.id = h.address_id AND h.told = 'sending' AND a.channel = 'telegram' AND a.account = ANY ($1::text[])
RETURNING h.id
"""
