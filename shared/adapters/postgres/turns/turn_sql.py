"""The hot statements of a turn: each is one text, and of a message without a receipt one round trip and one commit.

Where two statements repeat a part, `test_repeated_parts` compares it word for word.
"""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named
from shared.core.context.build_context import RENDERER_VERSION
from shared.core.context.memory import CORE_CANDIDATES
from shared.core.session.failed_messages import FAILED_FORMS
from shared.core.session.turns import GUEST_NETWORK, SECRETARY_NETWORK
from shared.core.values.money import LONG_LIFE, SHORT_LIFE

WOKEN_ATTEMPTS = 20
"""Attempts of a turn up to which another turn's success makes it due; after them only its own pause does."""
LONGEST_WAIT_SECONDS = 61
"""Most seconds that a turn waiting for its provider is put back, which an invariant checks: the longest pause,
`LONGEST_BUSY_SECONDS`, and one second for the commit.
"""
TURN_TIMES = 21
"""Newest turns whose times show how quickly a person writes."""
WARN_PERCENT = 80
"""Percent of a cap from which a person is warned, once per scope and day."""

ACCEPT = Named("""
WITH s AS (
  UPDATE sessions
     SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1,
         next_turn = next_turn + (open_turn IS NULL OR open_address IS DISTINCT FROM :address_id)::int,
         open_turn = CASE WHEN open_address = :address_id THEN coalesce(open_turn, next_turn)
            ELSE next_turn END,
         open_address = :address_id, last_channel = :channel, last_active_at = now()
   WHERE id = :session_id AND archived_at IS NULL AND (left_by IS NULL OR NOT :address_id = ANY (left_by))
     AND NOT EXISTS (SELECT FROM entry_rows WHERE session_id = :session_id AND dedupe_key = :dedupe_key)
  RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq, open_turn AS turn_no
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id)
  SELECT :session_id, turn_no, :channel, :address_id FROM s ON CONFLICT DO NOTHING
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, blocks, words, tokens, dedupe_key, cid)
  SELECT :session_id, seq, 'person', :blocks::jsonb, :words, :tokens, :dedupe_key, :cid FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn_no, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', seq, turn_no, :payload::jsonb FROM s
)
SELECT seq, turn_no, event_seq, now() AS at FROM s
""")
"""Store a person's message as an entry of the open turn, or of a new one, with its event, in one commit.

A turn collects messages of one address only. No row, and nothing stored, if the session is archived or unknown, the
address has left it, or the dedupe key is stored. All of that is checked on the session's row, which PostgreSQL
reads again after a wait for its lock. Of two rivals with the same key that both pass the check, one gets
UniqueViolationError.
"""
ACCEPT_LATE = Named("""
WITH s AS (
  UPDATE sessions
     SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1, last_channel = :channel,
         last_active_at = now(), retry_at = NULL
   WHERE id = :session_id AND archived_at IS NULL AND (left_by IS NULL OR NOT :address_id = ANY (left_by))
     AND NOT EXISTS (SELECT FROM entry_rows WHERE session_id = :session_id AND dedupe_key = :dedupe_key)
     AND leased_by IS NULL AND answered_turn = :turn - 1 AND next_turn = answered_turn + 2
     AND EXISTS (SELECT FROM turns t
                  WHERE t.session_id = :session_id AND t.turn_no = answered_turn + 1
                    AND NOT t.stop_requested AND t.address_id = :address_id)
     AND NOT EXISTS (SELECT FROM turn_entries te JOIN entry_rows o USING (session_id, seq)
                      WHERE te.session_id = :session_id AND te.turn_no = answered_turn + 1 AND o.author <> 'person')
  RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq, answered_turn + 1 AS turn_no
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, blocks, words, tokens, dedupe_key, cid)
  SELECT :session_id, seq, 'person', :blocks::jsonb, :words, :tokens, :dedupe_key, :cid FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn_no, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', seq, turn_no, :payload::jsonb FROM s
)
SELECT seq, turn_no, event_seq, now() AS at FROM s
""")
"""Store the remaining part of a message in its own turn `turn`, and make that turn due.

The partial answer was discarded. No row, and nothing stored, for the reasons of `ACCEPT`, and unless `turn` is the
newest and the oldest unanswered turn of this address, is not claimed or to be stopped, and has only messages of its
person: `ACCEPT` then stores the part in the open turn or a new one.
"""
CAN_BE_JOINED = Named("""
SELECT true FROM sessions
 WHERE id = :session_id AND answered_turn = :turn - 1 AND next_turn = answered_turn + 2
   AND EXISTS (SELECT FROM turns t WHERE t.session_id = :session_id AND t.turn_no = answered_turn + 1
                  AND NOT t.stop_requested)
   AND NOT EXISTS (SELECT FROM turn_entries te JOIN entry_rows o USING (session_id, seq)
                    WHERE te.session_id = :session_id AND te.turn_no = answered_turn + 1 AND o.author <> 'person')
""")
"""Select true if `turn` is the newest and the oldest unanswered one and has only messages of its person; else no row."""
HOLD = Named("""
UPDATE sessions SET retry_at = greatest(retry_at, now() + make_interval(secs => :seconds))
 WHERE id = :session_id AND answered_turn = :turn - 1 AND next_turn > :turn AND leased_by IS NULL RETURNING id
""")
"""Postpone a turn that waits for the remaining parts of its message; no row if it is claimed or answered."""
GOES_ON_ELSEWHERE = Named("""
SELECT archived_at IS NOT NULL OR :address_id = ANY (coalesce(left_by, '{}')) FROM sessions
   WHERE id = :session_id
""")
"""Select whether a refused message belongs to another session by now; no row if the session is unknown."""

ACCEPTED_BEFORE = Named("""
SELECT e.seq, t.turn_no, e.at,
       coalesce((SELECT max(event_seq) FROM events v
                  WHERE v.session_id = :session_id AND v.seq = e.seq
                    AND v.kind IN ('msg', 'edited')), 0) AS event_seq
  FROM entries e JOIN turn_entries t USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.dedupe_key = :dedupe_key
""")
"""Select the entry with a dedupe key; no row if the key is not stored.

The event is 0 if the message was edited since: its event then belongs to the newest wording.
"""
STORED_AS = Named("""
SELECT e.seq, t.turn_no, e.at,
       coalesce((SELECT event_seq FROM events v
                  WHERE v.session_id = :session_id AND v.seq = e.seq AND v.kind = 'msg' LIMIT 1), 0)
         AS event_seq
  FROM entries e JOIN turn_entries t USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.seq = :seq
""")
"""Select an entry by its number, in the form of `ACCEPT`; event 0 without an event `msg`."""

FROZEN = Named(
    """
WITH s AS (
  SELECT s.base_turn, s.head, s.contact_id, a.name AS agent
    FROM sessions s JOIN agents a ON a.id = s.agent_id
   WHERE s.id = :session_id AND s.base_turn = :base_turn AND s.head IS NOT DISTINCT FROM :head::bigint
), newest AS (
  SELECT base_turn, head, renderer_version, created_at, hashes, plan::jsonb AS plan
    FROM audit_rows
   WHERE session_id = :session_id AND created_at > now() - make_interval(secs => :long_life_seconds)
   ORDER BY turn_id DESC, id DESC LIMIT 1
), sent AS (
  SELECT n.*, ARRAY(SELECT jsonb_array_elements_text(n.plan -> 'notes')::bigint) AS known FROM newest n
)
SELECT jsonb_build_object(
         'block', coalesce(p.body, ''), 'notes', sent.known, 'pins', coalesce(sent.plan -> 'pins', '[]'),
         'ended', (
           SELECT jsonb_agg(jsonb_build_object(
                    'id', n.id, 'kind', n.kind, 'text', n.text, 'subject', n.subject,
                    'authority', n.authority, 'importance', n.importance, 'observed_at', n.observed_at,
                    'event_date', n.event_date) ORDER BY n.id)
             FROM notes n
            WHERE n.id = ANY (sent.known) AND (n.superseded_reason = 'changed' OR n.expired_at IS NOT NULL)))
  FROM s CROSS JOIN sent
  LEFT JOIN prompt_parts p ON sent.plan -> 'system' = '2' AND p.sha256 = substr(sent.hashes, 33, 32)
 WHERE sent.base_turn = s.base_turn AND sent.head IS NOT DISTINCT FROM s.head
   AND sent.renderer_version = :renderer_version
   AND (sent.plan ? 'hour' OR sent.created_at > now() - make_interval(secs => :short_life_seconds))
   AND (p.sha256 IS NULL) = (sent.known = '{}')
   AND (sent.known = '{}' OR cardinality(sent.known) = (
         SELECT count(*) FROM contact_family(s.contact_id) AS family(id) JOIN notes n ON n.contact_id = family.id
          WHERE n.id = ANY (sent.known) AND n.scope = s.agent AND n.forgotten_at IS NULL))
""",
    long_life_seconds=LONG_LIFE.seconds,
    short_life_seconds=SHORT_LIFE.seconds,
    renderer_version=RENDERER_VERSION,
)
"""Select the prefix of the last request, which the provider has cached; no row if it must be built again.

That is after a compaction or its undo, when the provider's cache has expired, and when a note in it was deleted,
erased, or belongs to another person. `base_turn` and `head` are the view's, as it was read before. The statement is
separate, since a claim with it would be a tenth slower, and most conversations have neither notes nor pins.
"""

CLAIM = Named(
    """
WITH s AS (
  UPDATE sessions
     SET turn_epoch = turn_epoch + 1, leased_by = :worker_id, leased_at = now(), retry_at = NULL,
         open_turn = nullif(open_turn, answered_turn + 1)
   WHERE id = :session_id AND answered_turn < next_turn - 1
     AND (held_after IS NULL OR answered_turn < held_after)
     AND (retry_at IS NULL OR retry_at <= now())
     AND (leased_by IS NULL OR NOT EXISTS (SELECT FROM workers w WHERE w.id = leased_by AND worker_is_alive(w)))
     AND EXISTS (SELECT FROM turns t
                  WHERE t.session_id = :session_id AND t.turn_no = answered_turn + 1 AND t.channel = :channel)
     AND EXISTS (SELECT FROM workers w WHERE w.id = :worker_id AND worker_is_alive(w))
  RETURNING sessions.id, sessions.agent_id, sessions.contact_id, sessions.answered_turn, sessions.base_turn,
            sessions.flushed_turn, sessions.indexed_turn, sessions.erased_turn, sessions.turn_epoch,
            sessions.view_epoch, sessions.cycle, sessions.head, sessions.model, sessions.compaction,
            sessions.compact_at, sessions.goal, sessions.mode, sessions.context_tokens, sessions.token_ratio,
            sessions.token_ratios, sessions.token_scale, sessions.measured_by, sessions.hold_compaction,
            sessions.compaction_backoff
), t AS (
  UPDATE turns SET state = 'claimed', attempt = attempt + 1, epoch = s.turn_epoch,
                   claimed_at = coalesce(claimed_at, now())
    FROM s WHERE turns.session_id = s.id AND turns.turn_no = s.answered_turn + 1
  RETURNING turns.session_id, turns.turn_no, turns.attempt, turns.faults, turns.process_faults,
            turns.stop_requested, turns.told_waiting, turns.address_id, turns.channel, turns.opened_at,
            turns.waits_since
), cost AS (
  SELECT CASE WHEN :micro_per_input_token::float8 + :micro_output::float8 > 0
                OR c.config ? 'model' OR s.model <> '' THEN
           ceil(:micro_per_input_token::float8 * (greatest(s.context_tokens, 2000) + 4000)
                + :micro_output::float8)::bigint END AS micro,
         (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id, p.anonymous, c.config,
         CASE WHEN p.anonymous THEN p.network END AS network,
         CASE WHEN p.anonymous THEN to_char(now() AT TIME ZONE :timezone, 'HH24') END AS hour,
         c.name AS agent, p.kind, p.display_name, p.timezone
    FROM s JOIN contacts p ON p.id = s.contact_id JOIN agents c ON c.id = s.agent_id
), slice AS (
  SELECT l.id
    FROM spend_slices l, cost c, LATERAL (
           SELECT CASE WHEN c.anonymous THEN (:loan::bigint[])[3:4] ELSE (:loan::bigint[])[1:2] END AS may) m
   WHERE l.id = m.may[1] AND l.closed_at IS NULL AND l.day = c.day AND c.micro BETWEEN 1 AND m.may[2]
     AND (c.hour IS NULL OR (:limits::bigint[])[6] IS NULL OR 'visitors:' || c.hour = ANY (l.scopes))
     FOR KEY SHARE OF l
), want AS (
  SELECT x.scope, c.micro, c.day, x.cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, c.network, c.hour) x
   WHERE x.scope <> 'total' AND x.scope NOT LIKE 'visitors:%' OR NOT EXISTS (SELECT FROM slice)
), capped AS (
  SELECT scope, day, micro, cap, count(*) OVER () AS number FROM want
   WHERE cap IS NOT NULL AND micro >= 0
), alone AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + one.micro
    FROM capped one
   WHERE one.number = 1 AND d.scope = one.scope AND d.day = one.day
     AND d.reserved_micro + d.spent_micro + one.micro <= one.cap
  RETURNING d.scope, d.reserved_micro + d.spent_micro AS used, d.warned_at
), together AS (
  INSERT INTO spend_days AS d (scope, day, reserved_micro)
  SELECT scope, day, micro FROM capped
   WHERE NOT EXISTS (SELECT FROM alone)
     AND NOT EXISTS (SELECT FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
                      WHERE c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap)
   ORDER BY scope
  ON CONFLICT (scope, day) DO UPDATE SET reserved_micro = d.reserved_micro + excluded.reserved_micro
   WHERE d.reserved_micro + d.spent_micro + excluded.reserved_micro <=
         (SELECT cap FROM capped WHERE capped.scope = excluded.scope)
  RETURNING scope, reserved_micro + spent_micro AS used, warned_at
), held AS (
  SELECT * FROM alone UNION ALL SELECT * FROM together
), whole AS (
  SELECT is_whole((SELECT count(*) FROM held), count(*)) AS is_held, count(*) AS asked FROM capped
), refused AS (
  SELECT c.scope, c.cap, coalesce(o.spent_micro, 0) AS spent, coalesce(o.reserved_micro, 0) AS held,
         c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap AS has_no_room
    FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
   WHERE NOT (SELECT is_held FROM whole)
), refusing AS (
  SELECT * FROM refused WHERE has_no_room OR NOT EXISTS (SELECT FROM refused x WHERE x.has_no_room)
), r AS (
  INSERT INTO reservations (session_id, contact_id, turn_no, day, amount_micro, scopes, slice_id, asked_scopes,
                            may_be_sent)
  SELECT c.id, c.contact_id, t.turn_no, c.day, c.micro, h.scopes, l.id, w.asked, t.attempt = 1
    FROM cost c CROSS JOIN t CROSS JOIN (SELECT ARRAY(SELECT scope FROM held ORDER BY scope) AS scopes) h
   CROSS JOIN whole w LEFT JOIN slice l ON true
   WHERE w.is_held AND (w.asked > 0 OR l.id IS NOT NULL)
  RETURNING id, slice_id
)
SELECT s.id, s.base_turn, s.flushed_turn, s.view_epoch, s.cycle, s.head, s.context_tokens, s.hold_compaction,
       s.compaction_backoff, s.contact_id, s.turn_epoch, s.model, s.compaction, s.compact_at, s.goal, s.mode,
       s.erased_turn, s.token_ratio, s.token_ratios, s.token_scale, s.measured_by,
       t.turn_no, t.attempt, t.faults, t.process_faults, t.stop_requested, t.told_waiting, t.address_id, t.channel,
       coalesce(extract(epoch FROM now() - t.waits_since), 0)::float8 AS waited_seconds,
       r.id AS reservation_id, r.slice_id, coalesce(c.micro, 0) AS reserved_micro,
       (SELECT min(scope) FROM refusing) AS refused_scope,
       EXISTS (SELECT FROM held h JOIN want w USING (scope)
                WHERE h.warned_at IS NULL AND h.used * 100 >= w.cap * :warn_percent) AS is_near,
       (SELECT to_jsonb(l) FROM compactions l WHERE l.id = s.head) AS head_compaction,
       ARRAY(SELECT f.threshold FROM flushes f WHERE f.session_id = s.id AND f.cycle = s.cycle) AS thresholds,
       core_notes(s.contact_id, c.agent, :core_candidates) AS notes,
       EXISTS (SELECT FROM pins WHERE pins.session_id = s.id) AS has_pins,
       c.agent AS agent_name, c.config AS agent_config, c.anonymous, c.kind AS contact_kind, c.display_name,
       c.timezone, coalesce(c.network = :guest_network OR starts_with(c.network, :secretary_network), false) AS is_guest,
       traits.brought, traits.nobody_comes, traits.no_pictures,
       is_recallable(s.id, s.contact_id, s.agent_id, s.indexed_turn, s.base_turn) AS recallable,
       CASE WHEN t.attempt > 1 THEN
         (SELECT o.epoch = s.turn_epoch - 1 FROM turns o WHERE o.session_id = s.id AND o.turn_no = t.turn_no)
         ELSE false END AS after_death,
       ARRAY(SELECT n.opened_at FROM turns n WHERE n.session_id = s.id AND n.turn_no <= s.answered_turn + 1
              ORDER BY n.turn_no DESC LIMIT :turn_times) AS turn_times
  FROM s CROSS JOIN t CROSS JOIN cost c
 CROSS JOIN LATERAL session_traits(s.id, s.contact_id, c.anonymous) traits LEFT JOIN r ON true
""",
    core_candidates=CORE_CANDIDATES,
    turn_times=TURN_TIMES,
    warn_percent=WARN_PERCENT,
    guest_network=GUEST_NETWORK,
    secretary_network=SECRETARY_NETWORK,
)
"""Claim the oldest unanswered turn for a process, reserve its cost, and select what its answer needs.

The new epoch fences former holders. No row if there is no such turn or it belongs to another channel, if it is held
back or not due yet, if a living process has it, or if `worker_id` itself is not alive. The claim stands although a cap
refuses its cost: then `refused_scope` names the cap, and nothing is reserved.

The cost is reserved in all capped scopes or in none, but for those that a slice covers. Mostly that is one scope
with an existing row, which is updated without a conflict lock (`alone`). Several are locked in the same order
(`together`), and none if one has visibly no room. `is_whole` undoes the statement if a rival took the room.
`slice` is the slice of the day's money that this process has: who closes it waits for us, or we see it closed.

Releasing a turn raises the epoch: if it has not risen since the last claim, that process died (`after_death`). Of
`turns` a part of this statement sees the state before it. After a wait for the session's row all other rows are as
before the wait.
"""
COMPACTION = Named("SELECT to_jsonb(l) FROM compactions l WHERE l.id = :compaction_id")

ACCEPT_AND_CLAIM = Named(
    """
WITH s AS (
  UPDATE sessions
     SET next_seq = sessions.next_seq + 1, next_event_seq = sessions.next_event_seq + 1,
         next_turn = sessions.next_turn + 1, open_turn = NULL, open_address = :address_id,
         last_channel = :channel, turn_epoch = sessions.turn_epoch + 1, leased_by = :worker_id, leased_at = NULL
    FROM (SELECT id, xmin AS version FROM sessions WHERE id = :session_id) seen
   WHERE sessions.id = seen.id AND sessions.xmin = seen.version
     AND archived_at IS NULL AND (left_by IS NULL OR NOT :address_id = ANY (left_by))
     AND NOT EXISTS (SELECT FROM entry_rows WHERE session_id = :session_id AND dedupe_key = :dedupe_key)
     AND answered_turn = next_turn - 1 AND held_after IS NULL AND retry_at IS NULL AND leased_by IS NULL
     AND EXISTS (SELECT FROM workers w WHERE w.id = :worker_id AND worker_is_alive(w))
  RETURNING sessions.id, sessions.agent_id, sessions.contact_id, sessions.answered_turn, sessions.base_turn,
            sessions.flushed_turn, sessions.indexed_turn, sessions.erased_turn, sessions.turn_epoch,
            sessions.view_epoch, sessions.cycle, sessions.head, sessions.model, sessions.compaction,
            sessions.compact_at, sessions.goal, sessions.mode, sessions.context_tokens, sessions.token_ratio,
            sessions.token_ratios, sessions.token_scale, sessions.measured_by, sessions.hold_compaction,
            sessions.compaction_backoff,
            sessions.next_seq - 1 AS seq, sessions.next_event_seq - 1 AS event_seq,
            sessions.next_turn - 1 AS turn_no,
            coalesce(seen.version = :version::xid AND sessions.next_seq - 2 = :last_seq::bigint, false) AS is_known
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id, state, attempt, epoch, claimed_at)
  SELECT :session_id, turn_no, :channel, :address_id, 'claimed', 1, turn_epoch, now() FROM s
  RETURNING session_id, turn_no, attempt, faults, process_faults, stop_requested, told_waiting, address_id,
            channel, opened_at, waits_since
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, blocks, words, tokens, dedupe_key, cid)
  SELECT :session_id, seq, 'person', :blocks::jsonb, :words, :tokens, :dedupe_key, :cid FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn_no, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', seq, turn_no, :payload::jsonb FROM s
), cost AS (
  SELECT CASE WHEN :micro_per_input_token::float8 + :micro_output::float8 > 0
                OR c.config ? 'model' OR s.model <> '' THEN
           ceil(:micro_per_input_token::float8 * (greatest(s.context_tokens, 2000) + 4000)
                + :micro_output::float8)::bigint END AS micro,
         (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id, p.anonymous, c.config,
         CASE WHEN p.anonymous THEN p.network END AS network,
         CASE WHEN p.anonymous THEN to_char(now() AT TIME ZONE :timezone, 'HH24') END AS hour,
         c.name AS agent, p.kind, p.display_name, p.timezone
    FROM s JOIN contacts p ON p.id = s.contact_id JOIN agents c ON c.id = s.agent_id
), slice AS (
  SELECT l.id
    FROM spend_slices l, cost c, LATERAL (
           SELECT CASE WHEN c.anonymous THEN (:loan::bigint[])[3:4] ELSE (:loan::bigint[])[1:2] END AS may) m
   WHERE l.id = m.may[1] AND l.closed_at IS NULL AND l.day = c.day AND c.micro BETWEEN 1 AND m.may[2]
     AND (c.hour IS NULL OR (:limits::bigint[])[6] IS NULL OR 'visitors:' || c.hour = ANY (l.scopes))
     FOR KEY SHARE OF l
), want AS (
  SELECT x.scope, c.micro, c.day, x.cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, c.network, c.hour) x
   WHERE x.scope <> 'total' AND x.scope NOT LIKE 'visitors:%' OR NOT EXISTS (SELECT FROM slice)
), capped AS (
  SELECT scope, day, micro, cap, count(*) OVER () AS number FROM want
   WHERE cap IS NOT NULL AND micro >= 0
), alone AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + one.micro
    FROM capped one
   WHERE one.number = 1 AND d.scope = one.scope AND d.day = one.day
     AND d.reserved_micro + d.spent_micro + one.micro <= one.cap
  RETURNING d.scope, d.reserved_micro + d.spent_micro AS used, d.warned_at
), together AS (
  INSERT INTO spend_days AS d (scope, day, reserved_micro)
  SELECT scope, day, micro FROM capped
   WHERE NOT EXISTS (SELECT FROM alone)
     AND NOT EXISTS (SELECT FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
                      WHERE c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap)
   ORDER BY scope
  ON CONFLICT (scope, day) DO UPDATE SET reserved_micro = d.reserved_micro + excluded.reserved_micro
   WHERE d.reserved_micro + d.spent_micro + excluded.reserved_micro <=
         (SELECT cap FROM capped WHERE capped.scope = excluded.scope)
  RETURNING scope, reserved_micro + spent_micro AS used, warned_at
), held AS (
  SELECT * FROM alone UNION ALL SELECT * FROM together
), whole AS (
  SELECT is_whole((SELECT count(*) FROM held), count(*)) AS is_held, count(*) AS asked FROM capped
), refused AS (
  SELECT c.scope, c.cap, coalesce(o.spent_micro, 0) AS spent, coalesce(o.reserved_micro, 0) AS held,
         c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap AS has_no_room
    FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
   WHERE NOT (SELECT is_held FROM whole)
), refusing AS (
  SELECT * FROM refused WHERE has_no_room OR NOT EXISTS (SELECT FROM refused x WHERE x.has_no_room)
), r AS (
  INSERT INTO reservations (session_id, contact_id, turn_no, day, amount_micro, scopes, slice_id, asked_scopes,
                            may_be_sent)
  SELECT c.id, c.contact_id, t.turn_no, c.day, c.micro, h.scopes, l.id, w.asked, t.attempt = 1
    FROM cost c CROSS JOIN t CROSS JOIN (SELECT ARRAY(SELECT scope FROM held ORDER BY scope) AS scopes) h
   CROSS JOIN whole w LEFT JOIN slice l ON true
   WHERE w.is_held AND (w.asked > 0 OR l.id IS NOT NULL)
  RETURNING id, slice_id
)
SELECT s.id, s.base_turn, s.flushed_turn, s.view_epoch, s.cycle, s.head, s.context_tokens, s.hold_compaction,
       s.compaction_backoff, s.contact_id, s.turn_epoch, s.model, s.compaction, s.compact_at, s.goal, s.mode,
       s.erased_turn, s.token_ratio, s.token_ratios, s.token_scale, s.measured_by,
       t.turn_no, t.attempt, t.faults, t.process_faults, t.stop_requested, t.told_waiting, t.address_id, t.channel,
       coalesce(extract(epoch FROM now() - t.waits_since), 0)::float8 AS waited_seconds,
       r.id AS reservation_id, r.slice_id, coalesce(c.micro, 0) AS reserved_micro,
       (SELECT min(scope) FROM refusing) AS refused_scope,
       EXISTS (SELECT FROM held h JOIN want w USING (scope)
                WHERE h.warned_at IS NULL AND h.used * 100 >= w.cap * :warn_percent) AS is_near,
       (SELECT to_jsonb(l) FROM compactions l WHERE l.id = s.head) AS head_compaction,
       ARRAY(SELECT f.threshold FROM flushes f WHERE f.session_id = s.id AND f.cycle = s.cycle) AS thresholds,
       core_notes(s.contact_id, c.agent, :core_candidates) AS notes,
       EXISTS (SELECT FROM pins WHERE pins.session_id = s.id) AS has_pins,
       c.agent AS agent_name, c.config AS agent_config, c.anonymous, c.kind AS contact_kind, c.display_name,
       c.timezone, coalesce(c.network = :guest_network OR starts_with(c.network, :secretary_network), false) AS is_guest,
       traits.brought, traits.nobody_comes, traits.no_pictures,
       is_recallable(s.id, s.contact_id, s.agent_id, s.indexed_turn, s.base_turn) AS recallable,
       false AS after_death,
       CASE WHEN NOT s.is_known THEN
         ARRAY(SELECT n.opened_at FROM turns n WHERE n.session_id = s.id AND n.turn_no <= s.answered_turn + 1
                ORDER BY n.turn_no DESC LIMIT :turn_times) END AS turn_times,
       s.seq, s.event_seq, t.opened_at, s.is_known
  FROM s CROSS JOIN t CROSS JOIN cost c
 CROSS JOIN LATERAL session_traits(s.id, s.contact_id, c.anonymous) traits LEFT JOIN r ON true
""",
    core_candidates=CORE_CANDIDATES,
    turn_times=TURN_TIMES,
    warn_percent=WARN_PERCENT,
    guest_network=GUEST_NETWORK,
    secretary_network=SECRETARY_NETWORK,
)
"""Store a message of an idle conversation as `ACCEPT` does, and claim its turn as `CLAIM` does, in one commit.

No row, and nothing stored, for the reasons of `ACCEPT`, and if the conversation has an unanswered turn, is held or
leased, or was changed while this waited for its row: what is read of it here is all from before the wait.

`version` and `last_seq` are those of the cached view, both null without one; `is_known` says that the view still
holds. A standby that was behind reuses numbers of lost transactions, hence the second. Entries are loaded only
where they are needed, since an unneeded part of a statement is prepared, too.

The log gets of a row all that lies between its first change and its last: what stands far behind is not changed
here. `leased_at` stays null, for `claimed_at` of the turn has the time of this first claim, and the conversation was active when the answer says
so (`last_active_at`).
"""

LOAD = Named(
    """
WITH failed AS MATERIALIZED (
  SELECT x.turn_no, x.error_code FROM turns x
   WHERE x.session_id = :session_id AND x.turn_no > :base_turn AND x.turn_no <= :through_turn
     AND x.state IN ('failed', 'refused') AND x.error_code = ANY (:failed_codes)
)
-- live turns
SELECT e.seq, te.turn_no, te.step,
       coalesce(e.role, CASE e.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, e.author,
       e.blocks, e.words, e.tokens, e.at, e.replaces_seq,
       te.seq IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id) AS pinned, d.form, d.shown
  FROM turn_entries te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0) e
  LEFT JOIN LATERAL (SELECT x.form, x.shown FROM prune_decisions x
                      WHERE x.session_id = :session_id AND x.seq = te.seq AND x.turn_no <= :through_turn
                        AND (SELECT true FROM prune_decisions y WHERE y.session_id = :session_id LIMIT 1)
                      ORDER BY x.turn_no DESC LIMIT 1) d ON true
 WHERE te.session_id = :session_id AND te.turn_no > :base_turn AND te.turn_no <= :through_turn
   AND (te.replaced_by IS NULL OR te.seq IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id))
   AND te.turn_no <> ALL (SELECT f.turn_no FROM failed f)
UNION ALL
-- the person's messages of live turns that failed
SELECT e.seq, te.turn_no, te.step,
       coalesce(e.role, CASE e.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, e.author,
       e.blocks, e.words, e.tokens, e.at, e.replaces_seq,
       te.seq IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id), f.error_code, NULL
  FROM failed f
 CROSS JOIN LATERAL (SELECT * FROM turn_entries x
                      WHERE x.session_id = :session_id AND x.turn_no = f.turn_no
                        AND x.replaced_by IS NULL OFFSET 0) te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0) e
 WHERE e.author = 'person'
UNION ALL
-- pins of hidden turns
SELECT e.seq, te.turn_no, te.step,
       coalesce(e.role, CASE e.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, e.author,
       e.blocks, e.words, e.tokens, e.at, e.replaces_seq, true,
       CASE WHEN e.author = 'person' THEN (
         SELECT x.error_code FROM turns x
          WHERE x.session_id = :session_id AND x.turn_no = te.turn_no
            AND x.state IN ('failed', 'refused') AND x.error_code = ANY (:failed_codes)) END, NULL
  FROM pins p
 CROSS JOIN LATERAL (SELECT * FROM turn_entries x WHERE x.session_id = :session_id AND x.seq = p.seq OFFSET 0) te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = p.seq OFFSET 0) e
 WHERE p.session_id = :session_id AND te.turn_no <= :base_turn
UNION ALL
-- messages of hidden turns that were edited after the newest summary
SELECT e.seq, te.turn_no, te.step,
       coalesce(e.role, CASE e.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, e.author,
       e.blocks, e.words, e.tokens, e.at, e.replaces_seq, false,
       CASE WHEN e.author = 'person' THEN (
         SELECT x.error_code FROM turns x
          WHERE x.session_id = :session_id AND x.turn_no = te.turn_no
            AND x.state IN ('failed', 'refused') AND x.error_code = ANY (:failed_codes)) END, NULL
  FROM turn_entries o
 CROSS JOIN LATERAL (SELECT * FROM turn_entries x
                      WHERE x.session_id = :session_id AND x.seq = o.replaced_by AND x.turn_no = o.turn_no
                        AND x.replaced_by IS NULL OFFSET 0) te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0) e
 WHERE o.session_id = :session_id AND o.turn_no <= :base_turn AND o.replaced_by > (
         SELECT max(l.through_seq) FROM compactions l
          WHERE l.session_id = :session_id AND l.through_turn = :base_turn
            AND l.kind IN ('summary', 'digest', 'window') AND l.summary_text <> '')
   AND o.turn_no > coalesce((SELECT max(l.through_turn) FROM compactions l
                              WHERE l.session_id = :session_id AND l.active
                                AND l.kind IN ('new', 'separator')), 0)
   AND te.seq NOT IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id)
 ORDER BY 2, 3
""",
    failed_codes=tuple(FAILED_FORMS),
)
"""Select the entries of the turns after `base_turn` up to `through_turn`, in their order, and hidden pins.

Entries are shortened as they were in the turn `through_turn`. What its person replaced by an edit is not sent,
unless it is pinned. Hidden messages that were edited after the newest summary are sent until the next summary knows
them. Of a turn that failed by its own content, such as a request that the provider rejected, only the person's
message is sent, as `show_failed` shows it, with the error code as its form: every later request with the whole
turn would end like it.

`OFFSET 0` keeps the way through the keys: a plan made before there were statistics joins in the square. The innermost
SELECT of prune decisions is asked once, so that a session without any is not searched for one per entry.
"""

TOOL_CALLS = Named("""
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1
   WHERE id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1
  RETURNING next_seq - 1 AS seq
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
  SELECT :session_id, seq, 'assistant', 'assistant', :blocks::jsonb, :tokens FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, :turn, seq FROM s
), st AS (
  INSERT INTO turn_steps (session_id, turn_no, call_id, tool, epoch)
  SELECT :session_id, :turn, x.id, x.name, :epoch
    FROM s, jsonb_to_recordset(:calls::jsonb) AS x(id text, name text)
  ON CONFLICT (session_id, turn_no, call_id) DO UPDATE SET epoch = excluded.epoch
), tot AS (
  UPDATE session_totals SET total_tokens_estimate = total_tokens_estimate + :tokens
    FROM s WHERE session_id = :session_id
)
SELECT seq FROM s
""")
"""Store calls of tools before the first one runs, so that a crash finds them as intents.

No row, and nothing stored, if the lease is lost; the epoch of the turn fences it.
"""

TOOL_RESULTS = Named("""
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1
   WHERE id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1
  RETURNING next_seq - 1 AS seq
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
  SELECT :session_id, seq, 'user', 'tool', :blocks::jsonb, :tokens FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, :turn, seq FROM s
), st AS (
  UPDATE turn_steps t SET status = x.status, ended_at = now()
    FROM s, jsonb_to_recordset(:outcomes::jsonb) AS x(id text, status text)
   WHERE t.session_id = :session_id AND t.turn_no = :turn AND t.call_id = x.id
), a AS (
  INSERT INTO artifacts (session_id, seq, sha256, body, tokens)
  SELECT :session_id, seq, sha256(convert_to(x.body, 'UTF8')), x.body, x.tokens
    FROM s, jsonb_to_recordset(:artifacts::jsonb) AS x(body text, tokens int)
  ON CONFLICT (session_id, seq, sha256) DO NOTHING
)
SELECT seq FROM s
""")
"""Store results of tools with their outcomes and whole texts, in one commit.

No row, and nothing stored, if the lease is lost; the epoch of the turn fences it.
"""

KEEP_ARTIFACTS = Named("""
WITH s AS (
  SELECT id FROM sessions
   WHERE id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1
     FOR NO KEY UPDATE
), a AS (
  INSERT INTO artifacts (session_id, seq, sha256, body, tokens)
  SELECT :session_id, x.seq, sha256(convert_to(x.body, 'UTF8')), x.body, x.tokens
    FROM s, jsonb_to_recordset(:artifacts::jsonb) AS x(seq bigint, body text, tokens int)
  ON CONFLICT (session_id, seq, sha256) DO NOTHING
)
SELECT id FROM s
""")
"""Store whole texts of results that are shortened, once each; no row if another process has the turn."""

OPEN_ARTIFACT = Named("""
SELECT body FROM artifacts WHERE session_id = :session_id AND substr(sha256, 1, 6) = decode(:artifact, 'hex')
   LIMIT 1
""")

SAID = Named("SELECT blocks FROM entries WHERE session_id = :session_id AND seq = :seq AND author = 'person'")

POSTPONE = Named("""
WITH s AS (
  UPDATE sessions
     SET leased_by = NULL, retry_at = now() + make_interval(secs => :seconds), turn_epoch = turn_epoch + 1,
         next_event_seq = next_event_seq + (:notice::jsonb IS NOT NULL)::int
   WHERE id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1
  RETURNING next_event_seq - 1 AS event_seq
), t AS (
  UPDATE turns
     SET faults = faults + :faults, told_waiting = told_waiting OR :notice::jsonb IS NOT NULL, waits_for = :waits_for,
         waits_since = CASE WHEN :waits_for::text IS NOT NULL THEN coalesce(waits_since, now()) END
    FROM s WHERE session_id = :session_id AND turn_no = :turn
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', :turn, :notice::jsonb FROM s WHERE :notice::jsonb IS NOT NULL
)
SELECT event_seq, now() AS at FROM s
""")
"""Put a turn back with its reason and notice; the new epoch fences its process.

No row if another process has the turn.
"""

WAKE = Named(
    """
WITH waits AS (
  SELECT t.session_id FROM turns t
   WHERE t.ended_at IS NULL AND t.waits_for = ANY (:providers::text[]) AND t.attempt <= :woken_attempts
     AND EXISTS (SELECT FROM sessions s WHERE s.id = t.session_id AND s.answered_turn = t.turn_no - 1
                    AND s.leased_by IS NULL AND s.retry_at > now())
   ORDER BY t.opened_at, t.session_id LIMIT :limit
), mine AS (
  SELECT id FROM sessions WHERE id IN (SELECT session_id FROM waits) AND leased_by IS NULL AND retry_at > now()
   ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sessions SET retry_at = now() WHERE id IN (SELECT id FROM mine)
""",
    woken_attempts=WOKEN_ATTEMPTS,
)
"""Make at most `limit` turns due that wait for these providers, oldest first.

Each success wakes a few, so that a recovered provider is not flooded.
"""

REQUEST_STOP = Named("""
WITH s AS (
  SELECT id, answered_turn FROM sessions WHERE id = :session_id FOR NO KEY UPDATE
), t AS (
  UPDATE turns SET stop_requested = true FROM s
   WHERE session_id = s.id AND turn_no = s.answered_turn + 1 AND state = 'claimed' RETURNING turn_no
), due AS (
  UPDATE sessions SET retry_at = now() WHERE id IN (SELECT s.id FROM s, t) AND leased_by IS NULL AND retry_at > now()
)
SELECT count(*) FROM t
""")
"""Mark the session's next turn as to be stopped, if it was ever claimed, and select how many that is, 0 or 1.

A turn that waits for its provider becomes due at once.
"""

LET_GO = Named("""
WITH s AS (
  SELECT id FROM sessions WHERE id = ANY (:session_ids::bigint[]) AND leased_by = :worker_id ORDER BY id
     FOR NO KEY UPDATE)
UPDATE sessions SET leased_by = NULL, retry_at = now(), turn_epoch = turn_epoch + 1
 WHERE id IN (SELECT id FROM s)
""")
"""Release the leases of sessions that this process holds, and make their turns due.

Rows are locked in the order of their ids, as in all statements that lock several sessions.
"""

HELD = Named("""
SELECT s.id, t.stop_requested
  FROM turns t JOIN sessions s ON s.id = t.session_id AND s.answered_turn = t.turn_no - 1
 WHERE t.ended_at IS NULL AND s.leased_by = :worker_id
""")
"""Leases that a process holds, by the index of open turns: an index on leases would be written with each
claim and answer.
"""

UNANSWERED = Named("""
SELECT s.id FROM turns t JOIN sessions s ON s.id = t.session_id AND t.turn_no = s.answered_turn + 1
 WHERE t.ended_at IS NULL AND s.answered_turn < s.next_turn - 1 AND (s.held_after IS NULL OR s.answered_turn < s.held_after)
   AND t.channel = :channel
   AND (s.retry_at IS NULL OR s.retry_at <= now())
   AND (s.leased_by IS NULL OR NOT EXISTS (
         SELECT FROM workers w WHERE w.id = s.leased_by AND worker_is_alive(w)))
   AND (:accounts::text[] IS NULL OR EXISTS (
         SELECT FROM addresses a WHERE a.id = t.address_id AND a.account = ANY (:accounts)))
 ORDER BY t.session_id LIMIT :limit
""")
"""Select at most `limit` sessions of a channel with a due turn that no living process has, by session id.

`accounts` limits them to these bots or sites; null means all. It reads the index of open turns.
"""
