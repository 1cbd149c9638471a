"""SQL of jobs, flushes, compactions and their undo."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.turns.turn_sql import TURN_TIMES
from shared.core.context.memory import CORE_CANDIDATES
from shared.core.ops.job_views import JOB_KINDS
from shared.core.session.turns import GUEST_NETWORK, SECRETARY_NETWORK

STATE = Named(
    """
SELECT s.*, a.name AS agent_name, a.config AS agent_config, p.anonymous, p.kind AS contact_kind, p.display_name,
       p.timezone, coalesce(p.network = :guest_network OR starts_with(p.network, :secretary_network), false) AS is_guest,
       traits.brought, traits.nobody_comes, traits.no_pictures,
       (SELECT to_jsonb(l) FROM compactions l WHERE l.id = s.head) AS head_compaction,
       (SELECT jsonb_agg(f.threshold) FROM flushes f
         WHERE f.session_id = s.id AND f.cycle = s.cycle AND f.outcome <> 'failed') AS thresholds,
       core_notes(s.contact_id, a.name, :core_candidates) AS notes,
       coalesce((SELECT (c.parts->>'system')::bigint + (c.parts->>'tools')::bigint FROM turn_context_audit c
                  WHERE c.session_id = s.id ORDER BY c.turn_id DESC, c.id DESC LIMIT 1), 0) AS fixed_tokens,
       coalesce((SELECT t.channel FROM turns t WHERE t.session_id = s.id AND t.turn_no = s.answered_turn), '')
         AS last_channel,
       ARRAY(SELECT n.opened_at FROM turns n WHERE n.session_id = s.id AND n.turn_no <= s.answered_turn + 1
              ORDER BY n.turn_no DESC LIMIT :turn_times) AS turn_times
  FROM sessions s JOIN agents a ON a.id = s.agent_id JOIN contacts p ON p.id = s.contact_id
 CROSS JOIN LATERAL session_traits(s.id, s.contact_id, p.anonymous) traits
 WHERE s.id = :session_id
""",
    core_candidates=CORE_CANDIDATES,
    guest_network=GUEST_NETWORK,
    secretary_network=SECRETARY_NETWORK,
    turn_times=TURN_TIMES,
)
"""Select a session with agent, person, head, notes, last channel and times of turns, as its job needs them.

One statement, so that all columns are from one moment; locks nothing. No row if the session does not exist.
Its frozen prefix is read by `FROZEN`, in the same repeatable-read transaction.
"""

LOCK_KIND = Named("""
WITH k AS (
  SELECT kind FROM job_kinds
   WHERE concurrency IS NOT NULL AND kind = (SELECT kind FROM jobs WHERE id = :job_id) FOR UPDATE
)
SELECT count(*), (SELECT pg_advisory_xact_lock(hashtextextended('evertalk.imports', 0)) FROM jobs
                   WHERE id = :job_id AND kind = 'import') FROM k
""")
"""Lock the kind of a job, so that two workers do not take the same free place.

Kinds without a limit are not locked, except that all imports share one place.
"""

CLAIM_JOB = Named(
    """
UPDATE jobs j
   SET state = 'running', leased_by = :worker_id, epoch = epoch + 1, attempt = attempt + 1, started_at = now()
 WHERE j.id = :job_id
   AND j.kind = ANY (:known_kinds)
   AND j.kind <> ALL (ARRAY(
         SELECT k.kind FROM job_kinds k WHERE k.paused OR k.concurrency <= (
           SELECT count(*) FROM jobs r JOIN workers w ON w.id = r.leased_by AND worker_is_alive(w)
            WHERE r.state = 'running' AND r.kind = k.kind)))
   AND (j.kind <> 'import'
        OR NOT EXISTS (
             SELECT FROM jobs o WHERE o.kind <> 'import' AND o.state = 'due' AND o.due_at <= now()
                AND o.due_at > now() - interval '1 minute')
           AND NOT EXISTS (
             SELECT FROM jobs o JOIN workers w ON w.id = o.leased_by AND worker_is_alive(w)
              WHERE o.kind = 'import' AND o.state = 'running' AND o.id <> j.id)
           AND NOT EXISTS (
             SELECT FROM turns t JOIN sessions x ON x.id = t.session_id
              WHERE t.ended_at IS NULL AND t.opened_at > now() - interval '10 minutes'
                AND (t.waits_since IS NOT NULL OR x.contact_id IN (
                      SELECT contact_family(coalesce(p.merged_into, p.id)) FROM sessions m
                        JOIN contacts p ON p.id = m.contact_id WHERE m.id = j.session_id))))
   AND (j.state = 'due' AND j.due_at <= now()
        OR j.state = 'running' AND NOT EXISTS (
             SELECT FROM workers w WHERE w.id = j.leased_by AND worker_is_alive(w)))
   AND NOT EXISTS (SELECT FROM jobs o JOIN workers w ON w.id = o.leased_by
                    WHERE o.session_id = j.session_id AND o.state = 'running' AND o.id <> j.id)
RETURNING j.*
""",
    known_kinds=JOB_KINDS,
)
"""Claim a due job, or one whose worker died, if no other job of its session runs.

The new epoch invalidates the claims of former workers. Jobs of a kind that only a newer version knows wait
for its workers; so do those whose kind is paused or has no free place. An import's summary also waits while
another import runs, another kind of job has been due for less than a minute, or a turn of the last 10 minutes
waits for its provider or belongs to the same person. No row if the job is not claimed.
"""

DUE_JOBS = Named(
    """
SELECT id, kind, attempt FROM jobs j
 WHERE j.kind = ANY (:known_kinds)
   AND j.kind <> ALL (ARRAY(
         SELECT k.kind FROM job_kinds k WHERE k.paused OR k.concurrency <= (
           SELECT count(*) FROM jobs r JOIN workers w ON w.id = r.leased_by AND worker_is_alive(w)
            WHERE r.state = 'running' AND r.kind = k.kind)))
   AND (j.kind <> 'import'
        OR NOT EXISTS (
             SELECT FROM jobs o WHERE o.kind <> 'import' AND o.state = 'due' AND o.due_at <= now()
                AND o.due_at > now() - interval '1 minute')
           AND NOT EXISTS (
             SELECT FROM jobs o JOIN workers w ON w.id = o.leased_by AND worker_is_alive(w)
              WHERE o.kind = 'import' AND o.state = 'running' AND o.id <> j.id)
           AND NOT EXISTS (
             SELECT FROM turns t JOIN sessions x ON x.id = t.session_id
              WHERE t.ended_at IS NULL AND t.opened_at > now() - interval '10 minutes'
                AND (t.waits_since IS NOT NULL OR x.contact_id IN (
                      SELECT contact_family(coalesce(p.merged_into, p.id)) FROM sessions m
                        JOIN contacts p ON p.id = m.contact_id WHERE m.id = j.session_id))))
   AND (j.state = 'due' AND j.due_at <= now()
        OR j.state = 'running' AND NOT EXISTS (
             SELECT FROM workers w WHERE w.id = j.leased_by AND worker_is_alive(w)))
 ORDER BY due_at LIMIT :limit
""",
    known_kinds=JOB_KINDS,
)
"""Select jobs that are due and whose kind may start, the longest due first.

`CLAIM_JOB` has the same conditions, and also refuses a job beside another of its session.
"""

RELEASE_ORPHANS = Named("""
WITH j AS (
  UPDATE jobs SET state = 'due', epoch = epoch + 1, leased_by = NULL
   WHERE id IN (SELECT o.id FROM jobs o
                 WHERE o.state = 'running' AND NOT EXISTS (
                       SELECT FROM workers w WHERE w.id = o.leased_by AND worker_is_alive(w))
                 ORDER BY o.id LIMIT :limit FOR UPDATE SKIP LOCKED)
  RETURNING id
), f AS (
  UPDATE flushes SET outcome = 'failed', error = 'the worker ended while it ran', ended_at = now() FROM j
   WHERE flushes.job_id = j.id AND flushes.outcome = 'running'
)
SELECT id FROM j
""")
"""Make running jobs of dead workers due with a new epoch, end their flushes as failed, and select their ids.

A kind that is paused is released, too, so that it does not block other jobs of the same session.
"""

SETTLE_PAGES = """
UPDATE deliveries d SET state = 'delivered', delivered_at = now() FROM turns t
 WHERE d.channel = 'web' AND d.state IN ('queued', 'sent') AND d.created_at < now() - interval '1 minute'
   AND t.session_id = d.session_id AND t.turn_no = d.turn_no AND t.ended_at IS NOT NULL
RETURNING d.part
"""
"""Mark web answers of ended turns as delivered a minute after they were stored.

An earlier version could lose that state in a crash. Selects one row per answer.
"""

CONTACTS_COPIED_AT_ONCE = 1_000
"""Maximum sessions into which one statement copies names."""
COPY_CONTACTS = Named(
    """
WITH untold AS (
  SELECT id, contact_id FROM sessions WHERE person_kind IS NULL
   ORDER BY id LIMIT :copied_at_once FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sessions s SET person_name = p.display_name, person_kind = p.kind, person_anonymous = p.anonymous
  FROM untold JOIN contacts p ON p.id = untold.contact_id WHERE s.id = untold.id RETURNING s.id
""",
    copied_at_once=CONTACTS_COPIED_AT_ONCE,
)
"""Copy name and kind of the person into CONTACTS_COPIED_AT_ONCE sessions that lack them; select their ids.

Locked sessions are skipped. A rename at the same time updates its sessions too, so that none has the former
name.
"""

LOCK_RUNNING = Named("""
SELECT id FROM jobs WHERE id = :job_id AND epoch = :epoch AND state = 'running' FOR UPDATE
""")
"""Lock a running job whose claim has this epoch; no row if the claim is lost."""

LOCK_SESSION_AND_RUNNING = Named("""
WITH s AS MATERIALIZED (SELECT id FROM sessions WHERE id = :session_id FOR NO KEY UPDATE)
SELECT j.id FROM s JOIN jobs j ON j.session_id = s.id
 WHERE j.id = :job_id AND j.epoch = :epoch AND j.state = 'running' FOR UPDATE OF j
""")
"""Lock a session and then its running job whose claim has this epoch; no row if the claim is lost.

Answers, edits and erasures lock in this order, too; the other order could deadlock with them.
"""

MARK_TROUBLED = Named("""
UPDATE sessions SET troubled_at = clock_timestamp()
 WHERE id IN (SELECT session_id FROM jobs WHERE id = ANY (:job_ids::bigint[]))
""")
"""Mark the sessions of these jobs as troubled, before the jobs become dead in the same transaction.

Sessions are locked before jobs everywhere.
"""

END_JOB = Named("""
WITH j AS (
  UPDATE jobs SET state = :state, leased_by = NULL, last_error = :error, outcome = :outcome,
     faults = faults + :faults,
         failures = failures || :failures::jsonb, due_at = now() + make_interval(secs => :retry_seconds),
            ended_at = CASE WHEN :state = 'due' THEN NULL ELSE now() END
   WHERE id = :job_id AND epoch = :epoch AND state = 'running' RETURNING id
), f AS (
  UPDATE flushes SET outcome = 'failed', error = 'the worker ended while it ran', ended_at = now() FROM j
   WHERE flushes.job_id = j.id AND flushes.outcome = 'running'
)
SELECT id FROM j
""")
"""End a running job as `state`, and mark a flush that it left running as failed.

The next flush reads the turns of that one. `retry_seconds` counts if `state` is `due`. No row if the claim
with this epoch is lost.
"""

ASK_JOB = Named("""
INSERT INTO jobs (kind, session_id, key, trigger, payload) VALUES (:kind, :session_id, :key, :trigger, :payload)
ON CONFLICT (key) WHERE state IN ('due', 'running') DO UPDATE
   SET trigger = excluded.trigger, due_at = now(), payload = jobs.payload || excluded.payload
 WHERE jobs.state = 'due' AND jobs.due_at > now() AND excluded.trigger = 'overflow'
RETURNING id
""")
"""Insert a job that is due now and select its id; no row if a job with its key is due or running.

Exception: with trigger `overflow`, a job with the key that is due later becomes due now, and its id is
selected.
"""

ASK_JOB_LATER = Named("""
INSERT INTO jobs (kind, session_id, key, trigger, payload, due_at)
VALUES (:kind, :session_id, :key, :trigger, :payload, now() + make_interval(secs => :delay_seconds))
ON CONFLICT (key) WHERE state IN ('due', 'running') DO NOTHING RETURNING id
""")
"""Insert a job that is due in `delay_seconds` and select its id.

No row, and no change, if a job with its key is due or running.
"""

BEGIN_FLUSH = Named("""
WITH j AS (SELECT id FROM jobs WHERE id = :job_id AND epoch = :epoch AND state = 'running' FOR SHARE)
INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, job_id)
SELECT :session_id, :cycle, :threshold, :from_turn, :through_turn, j.id FROM j
ON CONFLICT (session_id, cycle, threshold, through_turn)
DO UPDATE SET job_id = excluded.job_id, outcome = 'running', ended_at = NULL
RETURNING id, from_turn, through_turn
""")
"""Insert a running flush; the one of the same cycle, threshold and last turn is set to running instead.

No row if the job's claim with this epoch is lost. Locks the job against its end until the commit.
"""

END_FLUSH = Named("""
UPDATE flushes SET outcome = :outcome, note_count =
   (SELECT count(*) FROM notes n WHERE n.flush_id = :flush_id),
       stray_text = :stray_text, error = :error, model = :model, tokens = :tokens, cost_micro = :cost_micro,
          ended_at = now()
 WHERE id = :flush_id
""")
"""Store the end of a flush, with the number of notes that it made."""

ADVANCE_CURSOR = Named("""
UPDATE sessions SET flushed_turn = greatest(flushed_turn, :through_turn) WHERE id = :session_id
""")
"""Count a session's turns through `through_turn` as read by a flush; never moves backwards."""

ADD_CONTEXT_TOKENS = Named("""
UPDATE sessions SET context_tokens = greatest(0, context_tokens + :tokens)
 WHERE id = :session_id AND view_epoch = :view_epoch AND answered_turn = :answered_turn
   AND context_tokens = :context_tokens
""")
"""Add tokens to a session's size of its context, unless view, turn or size differ from those given."""

LOCK_SESSION = Named("SELECT * FROM sessions WHERE id = :session_id FOR UPDATE")
"""Select a session and lock its row until the commit; no row if it does not exist."""

INSERT_COMPACTION = Named("""
INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, parent, trigger, summary_text,
                   ledger, contract, audit, tokens, tokens_before, model, cost_micro, duration_ms, flush_id, job_id,
                   focus)
VALUES (:session_id, :kind, :from_turn, :through_turn, :from_seq, :through_seq, :parent, :trigger,
        :summary_text, :ledger, :contract, :audit, :tokens, :tokens_before, :model, :cost_micro, :duration_ms,
        coalesce(:flush_id, (SELECT f.id FROM flushes f WHERE f.session_id = :session_id
                             AND f.through_turn >= :through_turn
                          AND f.outcome IN ('saved', 'nothing') ORDER BY f.through_turn, f.id LIMIT 1)),
        :job_id, :focus)
RETURNING id, public_id, created_at
""")
"""Insert a compaction into the session's chain, behind its `parent`, and select its ids.

Without `flush_id` it gets the first flush that has read its turns; NULL if none has.
"""

SHOWN_SIZES = Named("""
SELECT te.seq,
       CASE WHEN d.form IS NULL THEN e.tokens
            WHEN d.form = 'hide' AND (:whole
                                      OR te.seq IN
                                        (SELECT p.seq FROM pins p WHERE p.session_id = :session_id))
            THEN e.tokens
            WHEN d.form = 'hide' THEN 0
            WHEN d.shown IS NOT NULL AND EXISTS (SELECT FROM jsonb_each(d.shown) x WHERE x.value = 'null')
            THEN e.tokens
            WHEN d.shown IS NOT NULL
            THEN least(e.tokens, ceil(e.tokens * length(d.shown::text)::float8 / length(e.blocks::text))::bigint)
            WHEN d.form = 'trim' THEN least(e.tokens, 1200)
            ELSE least(e.tokens, 60) END::bigint AS tokens
  FROM turn_entries te
 CROSS JOIN LATERAL (SELECT x.tokens, x.blocks FROM entries x
                      WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0) e
  LEFT JOIN LATERAL (SELECT x.form, x.shown FROM prune_decisions x
                      WHERE x.session_id = :session_id AND x.seq = te.seq AND x.turn_no <= :through_turn
                        AND (SELECT true FROM prune_decisions y WHERE y.session_id = :session_id LIMIT 1)
                      ORDER BY x.turn_no DESC LIMIT 1) d ON true
 WHERE te.session_id = :session_id AND te.turn_no > :base_turn AND te.turn_no <= :through_turn
   AND coalesce(te.replaced_by, 0) <= 0
""")
"""Select estimated tokens of each entry in ended live turns, as its newest prune decision shows it.

A result that a rule of its tool left unchanged counts in full, since the policy is unknown here. With `whole`
hidden messages count too.
"""

PINNED_TOKENS = Named("""
SELECT coalesce(sum(e.tokens), 0)::bigint FROM pins p JOIN turn_entries te USING (session_id, seq)
  JOIN entries e USING (session_id, seq) WHERE p.session_id = :session_id AND te.turn_no <= :base_turn
""")
"""Select the sum of estimated tokens of pinned entries in turns through `base_turn`; 0 without any."""

MOVE_VIEW = Named("""
UPDATE sessions SET base_turn = :base_turn, head = :head, redo = :redo, view_epoch = view_epoch + 1,
       cycle = cycle + :cycles, context_tokens = :context_tokens, hold_compaction = :hold,
          context_reserved = :reserved, token_scale = coalesce(:token_scale::jsonb, token_scale),
       context_limit = CASE WHEN context_limit = 0 THEN 0
          ELSE greatest(1, context_limit + context_reserved - :reserved) END,
       compaction_backoff = NULL, next_event_seq = next_event_seq + 1
 WHERE id = :session_id RETURNING next_event_seq - 1 AS event_seq
""")
"""Move the session's view after a compaction or its undo; the new epoch makes cached views stale.

Ends a backoff of compaction. `token_scale` NULL keeps the stored one. Selects the number for the event that
the caller must insert.
"""

ADD_EVENT = Named("""
INSERT INTO events (session_id, event_seq, kind, payload) VALUES (:session_id, :event_seq, :kind, :payload)
   RETURNING at
""")
"""Insert an event whose number was reserved from the session before; select its time."""

COMPACTION_OF = Named("""
SELECT id AS compaction, kind, tokens_before AS before, tokens_after AS after, through_turn - from_turn + 1 AS turns
  FROM compactions WHERE session_id = :session_id AND job_id = :job_id ORDER BY id DESC LIMIT 1
""")
"""Select the newest compaction that a job has committed, as the job's outcome; no row without one."""

BOUNDS = Named("""
SELECT coalesce(min(seq), 0) AS first, coalesce(max(seq), 0) AS last FROM turn_entries
 WHERE session_id = :session_id AND turn_no > :after_turn AND turn_no <= :through_turn
""")
"""Select the first and last entry number of the turns after `after_turn` through `through_turn`.

Both are 0 without any.
"""
