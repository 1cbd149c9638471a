"""Names for what counts and invariants share: numbers of a turn and an hour, values of the session list."""

from __future__ import annotations

from alembic import op

revision = "0100"
down_revision = "0099"
branch_labels = None
depends_on = None

VIEWS = {
    # Numbers by which a turn is counted in its hour; 0 for turns that were imported or that a fork copied.
    # `messages` are those of people; `bucket` is the place of the time to the first token among 104 from
    # 20 ms to ten minutes, NULL until the turn has ended.
    "turn_counts": """
        SELECT t.session_id, t.turn_no, t.opened_at, t.ended_at,
               (t.state = 'answered' AND t.error_code IS NULL AND h.here)::int AS is_answered,
               (t.state = 'failed' AND t.error_code IS DISTINCT FROM 'erased' AND h.here)::int AS is_failed,
               CASE WHEN t.first_token_ms IS NOT NULL AND t.ended_at IS NOT NULL THEN
                 width_bucket(ln(greatest(t.first_token_ms, 1)), ln(20), ln(600000), 104)
               END AS bucket,
               (SELECT count(*) FROM turn_entries te JOIN entry_rows e USING (session_id, seq)
                 WHERE te.session_id = t.session_id AND te.turn_no = t.turn_no AND e.author = 'person'
                   AND h.here)::int AS messages
          FROM turns t CROSS JOIN LATERAL (
            SELECT t.channel <> 'import' AND NOT EXISTS (
                     SELECT FROM forks f
                      WHERE f.session_id = t.session_id AND t.turn_no <= f.through_turn) AS here) h""",
    # Values that the row of each session in `session_list` should have; 0 for a session without totals.
    "session_list_now": """
        SELECT s.id, s.contact_id, s.agent_id, s.next_turn, s.context_tokens, s.context_limit,
               s.last_active_at, s.troubled_at, s.last_channel,
               coalesce(t.input_tokens, 0) AS input_tokens, coalesce(t.output_tokens, 0) AS output_tokens,
               coalesce(t.cache_read_tokens, 0) AS cache_read_tokens,
               coalesce(t.cache_write_tokens, 0) AS cache_write_tokens,
               coalesce(t.cost_micro, 0) AS cost_micro,
               coalesce(t.cost_unknown_calls, 0) AS cost_unknown_calls
          FROM sessions s LEFT JOIN session_totals t ON t.session_id = s.id""",
}
FUNCTIONS = {
    # Counts of the hour that begins at `begins`, from its tables; people are counted elsewhere.
    "recount_hour(timestamptz)": """
        CREATE FUNCTION recount_hour(begins timestamptz)
        RETURNS TABLE (messages bigint, answers bigint, errors bigint, first_tokens int[], calls bigint,
                       unknown_calls bigint, cost_micro bigint, input_tokens bigint, cache_read_tokens bigint,
                       cache_write_tokens bigint, output_tokens bigint, summaries bigint, handovers bigint,
                       jobs jsonb)
        LANGUAGE sql STABLE ROWS 1 AS $$
          WITH t AS MATERIALIZED (
            SELECT c.is_answered, c.is_failed, c.bucket, c.messages FROM turn_counts c
             WHERE c.opened_at >= begins AND c.opened_at < begins + interval '1 hour'
          ), u AS (
            SELECT count(*) AS calls, count(*) FILTER (WHERE x.cost_micro IS NULL) AS unknown_calls,
                   coalesce(sum(x.cost_micro), 0)::bigint AS cost_micro,
                   coalesce(sum(x.input_tokens), 0)::bigint AS input_tokens,
                   coalesce(sum(x.cache_read_tokens), 0)::bigint AS cache_read_tokens,
                   coalesce(sum(x.cache_write_tokens), 0)::bigint AS cache_write_tokens,
                   coalesce(sum(x.output_tokens), 0)::bigint AS output_tokens
              FROM usage x WHERE x.at >= begins AND x.at < begins + interval '1 hour'
          ), b AS (
            SELECT bucket, count(*)::int AS n FROM t WHERE bucket IS NOT NULL GROUP BY 1
          ), j AS (
            SELECT kind, count(*) FILTER (WHERE state = 'done') AS done,
                   count(*) FILTER (WHERE state = 'dead') AS failed
              FROM (SELECT kind, state FROM jobs
                     WHERE state = 'done' AND ended_at >= begins AND ended_at < begins + interval '1 hour'
                    UNION ALL
                    SELECT kind, state FROM jobs
                     WHERE state = 'dead' AND NOT outcome ? 'cancelled' AND last_error <> ''
                       AND ended_at >= begins AND ended_at < begins + interval '1 hour') x
             GROUP BY 1
          )
          SELECT (SELECT coalesce(sum(t.messages), 0) FROM t)::bigint,
                 (SELECT coalesce(sum(t.is_answered), 0) FROM t)::bigint,
                 (SELECT coalesce(sum(t.is_failed), 0) FROM t)::bigint,
                 coalesce((SELECT array_agg(coalesce(b.n, 0) ORDER BY x.bucket)
                             FROM generate_series(0, 105) x(bucket) LEFT JOIN b ON b.bucket = x.bucket
                            WHERE EXISTS (SELECT FROM b)), '{}')::int[],
                 u.calls, u.unknown_calls, u.cost_micro, u.input_tokens, u.cache_read_tokens,
                 u.cache_write_tokens, u.output_tokens,
                 (SELECT count(*) FROM compactions c
                   WHERE c.kind IN ('summary', 'digest') AND c.trigger <> 'fork'
                     AND c.created_at >= begins AND c.created_at < begins + interval '1 hour'),
                 (SELECT count(*) FROM handovers h
                   WHERE h.asked_at >= begins AND h.asked_at < begins + interval '1 hour'),
                 coalesce((SELECT jsonb_object_agg(j.kind, jsonb_build_array(j.done, j.failed)) FROM j), '{}')
            FROM u $$""",
    # Whether two contacts are or were one person by links that stand or have ended. What linked contacts did
    # as one person stays where it is after the link ends.
    "were_linked(bigint, bigint)": """
        CREATE FUNCTION were_linked(one bigint, other bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
          WITH RECURSIVE kin(id) AS (
            SELECT one UNION
            SELECT CASE l.kept_contact_id WHEN kin.id THEN l.joined_contact_id ELSE l.kept_contact_id END
              FROM contact_links l JOIN kin ON kin.id IN (l.kept_contact_id, l.joined_contact_id)
          ) SELECT EXISTS (SELECT FROM kin WHERE kin.id = other) $$""",
    # Whether a process that lives has held the lease of a Telegram bot for `since`.
    "bot_is_served(text, interval)": """
        CREATE FUNCTION bot_is_served(bot text, since interval) RETURNS boolean LANGUAGE sql STABLE AS $$
          SELECT EXISTS (SELECT FROM leases l JOIN workers w ON w.id = l.leased_by
                          WHERE l.name = 'telegram:' || bot AND w.stopped_at IS NULL
                            AND w.beat > now() - interval '1 minute' AND l.taken_at <= now() - since) $$""",
}


def upgrade() -> None:
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query}")
    for function in FUNCTIONS.values():
        op.execute(function)


def downgrade() -> None:
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {signature}")
    for name in reversed(VIEWS):
        op.execute(f"DROP VIEW {name}")
