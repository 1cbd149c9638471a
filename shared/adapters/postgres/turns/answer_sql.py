"""The statement that ends a turn, in two forms: the usual turn, and one with everything that can come along."""

from __future__ import annotations

from collections.abc import Iterable

from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.turns.spend_sql import WRITTEN, WRITTEN_ONE, render_total
from shared.adapters.postgres.turns.turn_sql import COMMITTED_MICRO, FENCE, OVERFLOW_COMES_FIRST, VERSION
from shared.core.session.channels import PUSHED

USAGE = {
    "status": "text", "model": "text", "input_tokens": "bigint", "output_tokens": "bigint",
    "cache_read_tokens": "bigint", "cache_write_tokens": "bigint", "known": "bool",
    "cost_micro": "bigint", "request_id": "text",
}  # fmt: skip
"""Columns of a call in the ledger, and their types."""

AUDIT = {
    "model_alias": "text", "model_context_limit": "bigint", "input_budget": "bigint", "hard_limit": "bigint",
    "estimated_before": "bigint", "estimated_after_summary": "bigint", "estimated_after_prune": "bigint",
    "reported": "bigint", "context_tokens": "bigint", "summary_triggered": "bool", "prune_triggered": "bool",
    "overflow_rejected": "bool", "parts": "jsonb", "part_hashes": "jsonb", "entry_from": "bigint",
    "entry_through": "bigint", "base_turn": "bigint", "head": "bigint", "prune_seqs": "jsonb",
    "renderer_version": "int", "recipe": "jsonb", "model_ms": "bigint",
}  # fmt: skip
"""Columns of a call's audit, and their types."""
SHORT = {
    "prune_seqs": "jsonb", "hashes": "text", "plan": "text", "system_tokens": "int", "memory_tokens": "int",
    "summary_tokens": "int", "history_tokens": "int", "tools_tokens": "int",
}  # fmt: skip
"""Stored forms of the JSON columns of `AUDIT`; hashes are one word in hex."""
AUDIT_NUMBERS = {name: kind for name, kind in AUDIT.items() if kind != "jsonb"}
AUDIT_ROW = {**AUDIT_NUMBERS, **SHORT}
_AUDIT_COLUMNS = """session_id, turn_id, model_alias, model_context_limit, input_budget, hard_limit,
         estimated_input_tokens_before, estimated_input_tokens_after_summary, estimated_input_tokens_after_prune,
         reported_input_tokens, context_tokens, summary_triggered, prune_triggered, overflow_rejected,
         entry_from, entry_through, base_turn, head, renderer_version, model_ms,
         prune_seqs, hashes, plan, system_tokens, memory_tokens, summary_tokens, history_tokens, tools_tokens"""

# A compaction, or its undo, that was committed while this turn ran has measured the new view without it: then
# the turn's own tokens are added to that, and what the old view called for is not asked for.
# A page is not sent an answer as a chat is: the event, which every look there finds, is its delivery.
# A trouble of this minute stays marked: who died while we waited for the row is not in our snapshot.
_SAID = "num_nonnulls(:blocks::jsonb, :words::text) = 1"
_CORE = f"""
WITH s AS (
  UPDATE sessions
     SET next_seq = next_seq + ({_SAID})::int, next_event_seq = next_event_seq + 1,
         answered_turn = :turn, leased_by = NULL,
         context_tokens = CASE WHEN view_epoch = :view_epoch THEN coalesce(:context_tokens, context_tokens)
            ELSE context_tokens + :turn_tokens END,
         context_limit = CASE WHEN view_epoch = :view_epoch
             OR context_limit = 0 THEN coalesce(:context_limit, context_limit)
                              ELSE context_limit END,
         context_reserved = CASE WHEN view_epoch = :view_epoch
             OR context_limit = 0 THEN coalesce(:context_reserved, context_reserved)
                                 ELSE context_reserved END,
         token_ratio = coalesce(:token_ratio, token_ratio),
         token_ratios = CASE WHEN measured_by IN ('', coalesce(:measured_by, measured_by)) THEN token_ratios
                             ELSE token_ratios || jsonb_build_object(measured_by, token_ratio) END,
         token_scale = coalesce(:token_scale, token_scale),
         measured_by = coalesce(:measured_by, measured_by),
         last_active_at = now(), hold_compaction = hold_compaction AND NOT :release_hold,
         troubled_at = CASE WHEN :state = 'failed' THEN clock_timestamp()
                            WHEN troubled_at < now() - interval '1 min' AND NOT EXISTS (
                              SELECT FROM jobs d WHERE d.session_id = :session_id
                                 AND d.state = 'dead') THEN NULL
                            ELSE troubled_at END
   WHERE {FENCE}
  RETURNING id, contact_id, next_seq - ({_SAID})::int AS seq, next_event_seq - 1 AS event_seq,
            answered_turn < least(next_turn - 1, held_after) AS another_waits,
               view_epoch <> :view_epoch AS view_moved
), t AS (
  UPDATE turns SET state = :state, error_code = :error_code, ended_at = now(),
     stop_reason = :screen::jsonb ->> 'stop',
         first_token_ms = CASE WHEN :first_text_seconds::float8 IS NOT NULL
           THEN least(2e9, greatest(0, (extract(epoch FROM now() - opened_at) - :first_text_seconds) *
                                    1000))::int END
    FROM s
   WHERE session_id = :session_id AND turn_no = :turn RETURNING channel, address_id
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, blocks, words, tokens, replaces_seq)
  SELECT :session_id, seq, 'assistant', :blocks::jsonb, :words::text, :tokens,
         substr(:screen::jsonb ->> 'replaces', 2)::bigint
    FROM s WHERE {_SAID}
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step)
  SELECT :session_id, seq, :turn, seq FROM s WHERE {_SAID}
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', CASE WHEN {_SAID} THEN seq END, :turn, :screen::jsonb FROM s
), dl AS (
  INSERT INTO deliveries (session_id, turn_no, part, channel, address_id)
  SELECT :session_id, :turn, 0, t.channel, t.address_id FROM t
   WHERE t.channel = ANY ('{{{",".join(PUSHED)}}}') ON CONFLICT DO NOTHING
), tot AS (
  UPDATE session_totals SET {render_total(":sums")},
         input_tokens = input_tokens + (:sums::bigint[])[1],
         output_tokens = output_tokens + (:sums::bigint[])[2],
         cache_read_tokens = cache_read_tokens + (:sums::bigint[])[3],
         cache_write_tokens = cache_write_tokens + (:sums::bigint[])[4],
         cost_micro = cost_micro + (:sums::bigint[])[5],
            cost_unknown_calls = cost_unknown_calls + (:sums::bigint[])[6],
         total_tokens_estimate = total_tokens_estimate + :tokens + _REQUEST_TOKENS
    FROM s WHERE session_id = :session_id
), r AS (
  UPDATE reservations r SET state = 'settled', settled_micro = :settled_micro, ended_at = now() FROM s
   WHERE r.id = :reservation_id AND r.state = 'held'
  RETURNING amount_micro, settled_micro, scopes, day
), sp AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro - r.amount_micro,
         spent_micro = d.spent_micro + r.settled_micro
    FROM r WHERE d.day = r.day AND d.scope = ANY (r.scopes)
), u AS (
  INSERT INTO usage (session_id, contact_id, turn_no, purpose, {", ".join(USAGE)})
"""


def _parameters(names: Iterable[str], prefix: str) -> str:
    return ", ".join(f":{prefix}_{name}" for name in names)


def _fields(names: dict[str, str]) -> str:
    return ", ".join(f"x.{name}" for name in names)


def _shape(names: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in names.items())


def _stored(values: str) -> str:
    """Return the values as the audit's columns store them."""
    each = dict(zip(AUDIT_ROW, values.split(", "), strict=True))
    each["prune_seqs"] = f"nullif({each['prune_seqs']}::jsonb, 'null')"
    each["hashes"] = f"decode({each['hashes']}::text, 'hex')"
    return ", ".join(each.values())


_REQUEST = "estimated_after_prune"
"""Column of an audit for a session's totals: the last request of a turn, estimated, as SPEC-008 counts."""

ANSWER_PLAIN = Named(f"""{_CORE.replace("_REQUEST_TOKENS", f":audit_{_REQUEST}::bigint")}
  SELECT :session_id, s.contact_id, :turn, 'chat', {_parameters(USAGE, "call")} FROM s
  {WRITTEN_ONE}), au AS (
  INSERT INTO audit_rows ({_AUDIT_COLUMNS})
  SELECT :session_id, :turn, {_stored(_parameters(AUDIT_ROW, "audit"))} FROM s
)
SELECT s.seq, s.event_seq, s.another_waits, s.view_moved, now() AS at,
       {VERSION}, NULL::bigint AS job_id FROM s
""")
"""One call, its audit, and nothing else: each further part would cost its own preparation in every turn."""

_OR_COMMITTED = (
    _CORE.replace(
        "settled_micro = :settled_micro",
        f"settled_micro = greatest(:settled_micro::bigint, {COMMITTED_MICRO})",
    )
    .replace("error_code = :error_code,", "error_code = :error_code, refused_scope = :refused_scope,")
    .replace(
        "_REQUEST_TOKENS",
        f"coalesce((SELECT sum(x.{_REQUEST})::bigint FROM jsonb_to_recordset(:audits::jsonb)"
        f" AS x({_REQUEST} bigint)), 0)",
    )
)
ANSWER = Named(f"""{_OR_COMMITTED}
  SELECT :session_id, s.contact_id, :turn, 'chat', {_fields(USAGE)}
    FROM s, jsonb_to_recordset(:usage::jsonb) AS x({_shape(USAGE)})
  {WRITTEN}), au AS (
  INSERT INTO audit_rows ({_AUDIT_COLUMNS})
  SELECT :session_id, :turn, {_stored(_fields(AUDIT_ROW))}
    FROM s, jsonb_to_recordset(:audits::jsonb) AS x({_shape(AUDIT_ROW)})
), pd AS (
  INSERT INTO prune_decisions (session_id, seq, form, shown, turn_no)
  SELECT :session_id, x.seq, x.form, nullif(x.shown, 'null'), :turn
    FROM s, jsonb_to_recordset(:prunes::jsonb) AS x(seq bigint, form text, shown jsonb)
  ON CONFLICT (session_id, seq, turn_no) DO UPDATE SET form = excluded.form, shown = excluded.shown
), pp AS (
  INSERT INTO prompt_parts (sha256, body)
  SELECT decode(x.sha256, 'hex'), x.body
     FROM s, jsonb_to_recordset(:parts::jsonb) AS x(sha256 text, body text)
  ON CONFLICT DO NOTHING
), j AS (
  INSERT INTO jobs (kind, session_id, key, trigger, payload, due_at)
  SELECT x.kind, :session_id, x.key, x.trigger, x.payload, now() + make_interval(secs => x.delay_seconds)
    FROM s, jsonb_to_recordset(:jobs::jsonb) AS x(kind text, key text, trigger text, payload jsonb,
         delay_seconds float8)
   WHERE NOT s.view_moved
  {OVERFLOW_COMES_FIRST}
  RETURNING id, due_at <= now() AS is_due
)
SELECT s.seq, s.event_seq, s.another_waits, s.view_moved, now() AS at,
       {VERSION}, (SELECT id FROM j WHERE is_due LIMIT 1) AS job_id FROM s
""")
"""A turn that ends with a notice may have committed rounds that its outcome does not know of: they are paid, too.

Only such a one is refused by a cap."""
