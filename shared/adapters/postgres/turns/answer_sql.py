"""Statements that end a turn: `ANSWER` alone ends a usual one; what else comes along follows in its transaction."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named
from shared.core.session.channels import PUSHED

USAGE = (
    "status", "model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "known",
    "cost_micro", "request_id",
)  # fmt: skip
"""Columns of a call in the ledger."""
AUDIT_NUMBERS = (
    "model_alias", "model_context_limit", "input_budget", "hard_limit", "estimated_before",
    "estimated_after_summary", "estimated_after_prune", "reported", "context_tokens", "summary_triggered",
    "prune_triggered", "overflow_rejected", "entry_from", "entry_through", "base_turn", "head",
    "renderer_version", "model_ms",
)  # fmt: skip
"""Fields of a `ContextAudit` that are stored as they are."""
AUDIT_SHORT = (
    "prune_seqs", "hashes", "plan", "system_tokens", "memory_tokens", "summary_tokens", "history_tokens",
    "tools_tokens",
)  # fmt: skip
"""Stored forms of its JSON fields; hashes are one word in hex."""

ANSWER = Named(
    """
WITH s AS (
  UPDATE sessions
     SET next_seq = next_seq + (num_nonnulls(:blocks::jsonb, :words::text) = 1)::int,
         next_event_seq = next_event_seq + 1, answered_turn = :turn, leased_by = NULL,
         context_tokens = CASE WHEN view_epoch = :view_epoch THEN coalesce(:context_tokens, context_tokens)
                               ELSE context_tokens + :turn_tokens END,
         context_limit = CASE WHEN view_epoch = :view_epoch OR context_limit = 0
                              THEN coalesce(:context_limit, context_limit) ELSE context_limit END,
         context_reserved = CASE WHEN view_epoch = :view_epoch OR context_limit = 0
                                 THEN coalesce(:context_reserved, context_reserved) ELSE context_reserved END,
         token_ratio = coalesce(:token_ratio, token_ratio),
         token_ratios = CASE WHEN measured_by IN ('', coalesce(:measured_by, measured_by)) THEN token_ratios
                             ELSE token_ratios || jsonb_build_object(measured_by, token_ratio) END,
         token_scale = coalesce(:token_scale, token_scale),
         measured_by = coalesce(:measured_by, measured_by),
         last_active_at = now(), hold_compaction = hold_compaction AND NOT :release_hold,
         troubled_at = CASE WHEN :state = 'failed' THEN clock_timestamp()
                            WHEN troubled_at < now() - interval '1 min' AND NOT EXISTS (
                              SELECT FROM jobs d WHERE d.session_id = :session_id AND d.state = 'dead') THEN NULL
                            ELSE troubled_at END
   WHERE id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1
  RETURNING id, contact_id, next_seq - (num_nonnulls(:blocks::jsonb, :words::text) = 1)::int AS seq,
            next_event_seq - 1 AS event_seq, answered_turn < least(next_turn - 1, held_after) AS another_waits,
            view_epoch <> :view_epoch AS view_moved
), t AS (
  UPDATE turns
     SET state = :state, error_code = :error_code, refused_scope = :refused_scope::text, ended_at = now(),
         stop_reason = :screen::jsonb ->> 'stop',
         first_token_ms = CASE WHEN :first_text_seconds::float8 IS NOT NULL THEN
           least(2e9, greatest(0, (extract(epoch FROM now() - opened_at) - :first_text_seconds) * 1000))::int END
    FROM s WHERE session_id = :session_id AND turn_no = :turn RETURNING channel, address_id
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, blocks, words, tokens, replaces_seq)
  SELECT :session_id, seq, 'assistant', :blocks::jsonb, :words::text, :tokens,
         substr(:screen::jsonb ->> 'replaces', 2)::bigint
    FROM s WHERE num_nonnulls(:blocks::jsonb, :words::text) = 1
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step)
  SELECT :session_id, seq, :turn, seq FROM s WHERE num_nonnulls(:blocks::jsonb, :words::text) = 1
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', CASE WHEN num_nonnulls(:blocks::jsonb, :words::text) = 1 THEN seq END,
         :turn, :screen::jsonb FROM s
), dl AS (
  INSERT INTO deliveries (session_id, turn_no, part, channel, address_id)
  SELECT :session_id, :turn, 0, t.channel, t.address_id FROM t
   WHERE t.channel = ANY (:pushed) ON CONFLICT DO NOTHING
), tot AS (
  UPDATE session_totals
     SET total_tokens = total_tokens + (:sums::bigint[])[1] + (:sums::bigint[])[2] + (:sums::bigint[])[3]
                        + (:sums::bigint[])[4],
         input_tokens = input_tokens + (:sums::bigint[])[1],
         output_tokens = output_tokens + (:sums::bigint[])[2],
         cache_read_tokens = cache_read_tokens + (:sums::bigint[])[3],
         cache_write_tokens = cache_write_tokens + (:sums::bigint[])[4],
         cost_micro = cost_micro + (:sums::bigint[])[5],
         cost_unknown_calls = cost_unknown_calls + (:sums::bigint[])[6],
         total_tokens_estimate = total_tokens_estimate + :tokens + coalesce(:audit_estimated_after_prune::bigint, 0)
    FROM s WHERE session_id = :session_id
), r AS (
  UPDATE reservations r
     SET state = 'settled', ended_at = now(), settled_micro = greatest(
           :settled_micro::bigint,
           CASE WHEN :state <> 'answered' OR :refused_scope::text IS NOT NULL THEN committed_micro(r) END)
    FROM s WHERE r.id = :reservation_id AND r.state = 'held'
  RETURNING amount_micro, settled_micro, scopes, day
), sp AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro - r.amount_micro,
         spent_micro = d.spent_micro + r.settled_micro
    FROM r WHERE d.day = r.day AND d.scope = ANY (r.scopes)
), u AS (
  INSERT INTO usage (session_id, contact_id, turn_no, purpose, status, model, input_tokens, output_tokens,
                     cache_read_tokens, cache_write_tokens, known, cost_micro, request_id)
  SELECT :session_id, s.contact_id, :turn, 'chat', :call_status::text, :call_model, :call_input_tokens,
         :call_output_tokens, :call_cache_read_tokens, :call_cache_write_tokens, :call_known, :call_cost_micro,
         :call_request_id
    FROM s WHERE :call_status::text IS NOT NULL
  RETURNING session_id, purpose, model, status, input_tokens, output_tokens, cache_read_tokens,
            cache_write_tokens, known, cost_micro
), grown AS (
  UPDATE session_spend k
     SET calls = k.calls + 1, aborted = k.aborted + (u.status = 'aborted')::int,
         input_tokens = k.input_tokens + u.input_tokens, output_tokens = k.output_tokens + u.output_tokens,
         cache_read_tokens = k.cache_read_tokens + u.cache_read_tokens,
         cache_write_tokens = k.cache_write_tokens + u.cache_write_tokens,
         unknown_cost = k.unknown_cost + (u.cost_micro IS NULL)::int,
         unknown_tokens = k.unknown_tokens + (NOT u.known)::int,
         cost_micro = coalesce(k.cost_micro + u.cost_micro, k.cost_micro, u.cost_micro)
    FROM u WHERE k.session_id = u.session_id AND k.purpose = u.purpose AND k.model = u.model
  RETURNING true
), spent_on AS (
  INSERT INTO session_spend AS k (session_id, purpose, model, calls, aborted, input_tokens, output_tokens,
                                  cache_read_tokens, cache_write_tokens, cost_micro, unknown_cost, unknown_tokens)
  SELECT session_id, purpose, model, 1, (status = 'aborted')::int, input_tokens, output_tokens,
         cache_read_tokens, cache_write_tokens, cost_micro, (cost_micro IS NULL)::int, (NOT known)::int
    FROM u WHERE NOT EXISTS (SELECT FROM grown)
  ON CONFLICT (session_id, purpose, model) DO UPDATE SET
         calls = k.calls + excluded.calls, aborted = k.aborted + excluded.aborted,
         input_tokens = k.input_tokens + excluded.input_tokens,
         output_tokens = k.output_tokens + excluded.output_tokens,
         cache_read_tokens = k.cache_read_tokens + excluded.cache_read_tokens,
         cache_write_tokens = k.cache_write_tokens + excluded.cache_write_tokens,
         unknown_cost = k.unknown_cost + excluded.unknown_cost,
         unknown_tokens = k.unknown_tokens + excluded.unknown_tokens,
         cost_micro = coalesce(k.cost_micro + excluded.cost_micro, k.cost_micro, excluded.cost_micro)
), au AS (
  INSERT INTO audit_rows (
         session_id, turn_id, model_alias, model_context_limit, input_budget, hard_limit,
         estimated_input_tokens_before, estimated_input_tokens_after_summary, estimated_input_tokens_after_prune,
         reported_input_tokens, context_tokens, summary_triggered, prune_triggered, overflow_rejected,
         entry_from, entry_through, base_turn, head, renderer_version, model_ms,
         prune_seqs, hashes, plan, system_tokens, memory_tokens, summary_tokens, history_tokens, tools_tokens)
  SELECT :session_id, :turn, :audit_model_alias::text, :audit_model_context_limit, :audit_input_budget,
         :audit_hard_limit, :audit_estimated_before, :audit_estimated_after_summary, :audit_estimated_after_prune,
         :audit_reported, :audit_context_tokens, :audit_summary_triggered, :audit_prune_triggered,
         :audit_overflow_rejected, :audit_entry_from, :audit_entry_through, :audit_base_turn, :audit_head,
         :audit_renderer_version, :audit_model_ms, nullif(:audit_prune_seqs::jsonb, 'null'),
         decode(:audit_hashes::text, 'hex'), :audit_plan, :audit_system_tokens, :audit_memory_tokens,
         :audit_summary_tokens, :audit_history_tokens, :audit_tools_tokens
    FROM s WHERE :audit_model_alias::text IS NOT NULL
)
SELECT s.seq, s.event_seq, s.contact_id, s.another_waits, s.view_moved, now() AS at,
       pg_current_xact_id()::xid AS version FROM s
""",
    pushed=PUSHED,
)
"""End a turn: store its answer with entry, event and delivery, its call, its audit and its settled reservation.

No row, and nothing stored, if the lease is lost; the epoch of the turn fences it. Exactly one of `blocks` and `words`
has the answer; both are null for a turn that ends with a notice. `call_...` has the turn's last call if it is the
only one that is not in the ledger yet, else nulls: `RECORD_CALLS` then stores them. `audit_...` are nulls without
an audit. `sums` are those of all calls. `version` is the one of the session's row.

A compaction, or its undo, that was committed while this turn ran has measured the new view without it: then the turn's
own tokens are added to that (`turn_tokens`), and `view_moved` says that what the old view called for is not asked for.
A trouble of this minute stays marked: who died while we waited for the row is not in our snapshot.

Only channels that push get a delivery: a page is not sent an answer as a chat is, for the event, which every look
there finds, is its delivery. A turn that ends with a notice may have committed rounds that its outcome does not know
of: they are paid, too (`committed_micro`). Sums of one call that exist already are updated without a conflict lock.
"""
KEEP_PRUNES = Named("""
INSERT INTO prune_decisions (session_id, seq, form, shown, turn_no)
SELECT :session_id, x.seq, x.form, nullif(x.shown, 'null'), :turn
  FROM jsonb_to_recordset(:prunes::jsonb) AS x(seq bigint, form text, shown jsonb)
ON CONFLICT (session_id, seq, turn_no) DO UPDATE SET form = excluded.form, shown = excluded.shown
""")
"""Store how requests from this turn on shorten entries."""
KEEP_PARTS = Named("""
INSERT INTO prompt_parts (sha256, body)
SELECT decode(x.sha256, 'hex'), x.body FROM jsonb_to_recordset(:parts::jsonb) AS x(sha256 text, body text)
ON CONFLICT DO NOTHING
""")
"""Store parts of a request that audits name by their hashes, once each."""
REQUEST_JOB = Named("""
INSERT INTO jobs (kind, session_id, key, trigger, payload, due_at)
VALUES (:kind, :session_id, :key, :trigger, :payload, now() + make_interval(secs => :delay_seconds))
ON CONFLICT (key) WHERE state IN ('due', 'running') DO UPDATE
   SET trigger = excluded.trigger, due_at = now(), payload = jobs.payload || excluded.payload
 WHERE jobs.state = 'due' AND jobs.due_at > now() AND excluded.trigger = 'overflow'
RETURNING id, due_at <= now() AS is_due
""")
"""Store the job that a turn calls for; no row if an unfinished job has its key.

A compaction that waits after failures is due at once when a conversation no longer fits.
"""
