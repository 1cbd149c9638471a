"""SQL of `/metrics`."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named

CALLS_OF_ANSWERS = 500
"""Maximum newest model calls from which the speed of answers is computed.

The slowest 25 are above the 95th percentile.
"""

DURATIONS_SINCE = Named("""
WITH edge AS (
  SELECT coalesce((SELECT max(id) FROM (SELECT id FROM usage WHERE id > :usage::bigint ORDER BY id
                                        LIMIT :limit) x),
                  :usage::bigint, (SELECT max(id) FROM usage), 0) AS usage,
         now() - interval '1 s' AS jobs
), calls AS (
  SELECT u.id, u.at, u.session_id, u.turn_no FROM usage u, edge e
   WHERE u.id > :usage::bigint AND u.id <= e.usage AND u.purpose = 'chat' AND u.turn_no IS NOT NULL
), turns_seen AS (
  SELECT DISTINCT ON (c.session_id, c.turn_no) t.opened_at, t.claimed_at, t.ended_at, c.at
    FROM calls c JOIN turns t ON t.session_id = c.session_id AND t.turn_no = c.turn_no
   WHERE t.ended_at IS NOT NULL ORDER BY c.session_id, c.turn_no, c.id
), jobs_seen AS (
  SELECT due_at, started_at, ended_at FROM (
    (SELECT j.* FROM jobs j, edge e
      WHERE j.state = 'done' AND j.ended_at > :jobs::text::timestamptz AND j.ended_at <= e.jobs LIMIT :limit)
    UNION ALL
    (SELECT j.* FROM jobs j, edge e
      WHERE j.state = 'dead' AND NOT j.outcome ? 'cancelled'
        AND j.ended_at > :jobs::text::timestamptz AND j.ended_at <= e.jobs LIMIT :limit)) j
   WHERE started_at IS NOT NULL
), lasted AS (
  SELECT 'wait' AS stage, extract(epoch FROM claimed_at - opened_at) AS s FROM turns_seen WHERE claimed_at IS NOT NULL
  UNION ALL SELECT 'model', extract(epoch FROM at - claimed_at) FROM turns_seen WHERE claimed_at IS NOT NULL
  UNION ALL SELECT 'turn', extract(epoch FROM ended_at - opened_at) FROM turns_seen
  UNION ALL SELECT 'job_wait', extract(epoch FROM started_at - due_at) FROM jobs_seen
  UNION ALL SELECT 'job', extract(epoch FROM ended_at - started_at) FROM jobs_seen
), placed AS (
  SELECT stage, greatest(s, 0)::float8 AS s,
         (SELECT count(*) FROM unnest(:buckets::float8[]) b WHERE greatest(s, 0) > b) AS bucket FROM lasted
), counted AS (
  SELECT stage, bucket, count(*) AS n, sum(s) AS seconds FROM placed GROUP BY stage, bucket
)
SELECT json_build_object(
  'usage', e.usage, 'jobs', e.jobs,
  'stages', coalesce((SELECT json_agg(json_build_object('stage', x.stage, 'seconds', x.seconds, 'counts', x.counts))
    FROM (SELECT o.stage, sum(o.seconds) AS seconds,
                 (SELECT json_agg(coalesce((SELECT n FROM counted i WHERE i.stage = o.stage AND i.bucket = b), 0)
                         ORDER BY b) FROM generate_series(0, cardinality(:buckets::float8[])) b) AS counts
            FROM counted o GROUP BY o.stage) x), '[]'::json)
)::text FROM edge e
""")
"""Select durations of turns and jobs that ended since the last scrape, counted in buckets, as JSON.

It also has the position from which the next scrape continues; a position of NULL reads no row.
"""

GAUGES = """
SELECT json_build_object(
  'unanswered', (SELECT count(DISTINCT session_id) FROM turns WHERE ended_at IS NULL),
  'oldest_job_seconds', (SELECT extract(epoch FROM now() - min(due_at))::float8 FROM jobs
                          WHERE state = 'due' AND due_at <= now()),
  'jobs_failing', (SELECT count(*) FROM jobs WHERE state IN ('due', 'running') AND last_error <> ''),
  'deliveries', (SELECT json_object_agg(v.state, (SELECT count(*) FROM deliveries d
                    WHERE d.channel = 'telegram' AND d.state = v.state
                      AND d.state IN ('queued', 'sending', 'sent')))
                   FROM (VALUES ('queued'), ('sending'), ('sent')) v(state)),
  'doubts', (SELECT json_object_agg(v.state, (SELECT count(*) FROM deliveries d
                WHERE d.channel = 'telegram' AND d.state = v.state AND d.state IN ('uncertain', 'dead')))
               FROM (VALUES ('uncertain'), ('dead')) v(state)),
  'jobs', (SELECT json_object_agg(v.state, (SELECT count(*) FROM jobs j
              WHERE j.state = v.state AND j.state IN ('due', 'running')))
             FROM (VALUES ('due'), ('running')) v(state)),
  'jobs_dead', (SELECT count(*) FROM jobs WHERE state = 'dead'),
  'undone', (SELECT count(*) FROM compactions WHERE undone_at IS NOT NULL),
  'handovers', (SELECT json_object_agg(v.state, (SELECT count(*) FROM handovers h
                   WHERE h.ended_at IS NULL AND h.state = v.state))
                  FROM (VALUES ('waiting'), ('human')) v(state)),
  'workers', (SELECT coalesce(json_object_agg(role, n), '{}'::json)
                FROM (SELECT w.role, count(*) AS n FROM workers w WHERE worker_is_alive(w) GROUP BY w.role) x),
  'updates_waiting', (SELECT count(*) FROM telegram_updates WHERE handled_at IS NULL),
  'screens', (SELECT coalesce(json_object_agg(kind, n), '{}'::json) FROM (
      SELECT s.key AS kind, sum(s.value::int) AS n
        FROM workers w, jsonb_each_text(coalesce(w.health -> 'screens', '{}')) s
       WHERE worker_is_alive(w) GROUP BY s.key) x),
  'redis_errors', (SELECT coalesce(json_object_agg(kind, n), '{}'::json) FROM (
      SELECT e.key AS kind, sum(e.value::bigint) AS n
        FROM workers w, jsonb_each_text(coalesce(w.health -> 'redis_errors', '{}')) e
       WHERE worker_is_alive(w) GROUP BY e.key) x),
  'breakers', (SELECT coalesce(json_object_agg(role, outs), '{}'::json) FROM (
      SELECT w.role, json_build_object(
          'open', count(DISTINCT p ->> 'provider') FILTER (WHERE (p ->> 'open')::boolean),
          'refused', count(DISTINCT p ->> 'provider')
                       FILTER (WHERE (p ->> 'open')::boolean AND (p ->> 'refused')::boolean)) AS outs
        FROM workers w LEFT JOIN LATERAL jsonb_array_elements(coalesce(w.health -> 'providers', '[]')) p ON true
       WHERE worker_is_alive(w) GROUP BY w.role) x),
  'alerts', (SELECT coalesce(json_object_agg(kind, n), '{}'::json)
               FROM (SELECT kind, count(*) AS n FROM alerts WHERE ended_at IS NULL GROUP BY kind) x),
  'duties', (SELECT coalesce(json_agg(json_build_object('name', d.name, 'runs', d.runs, 'failed_runs', d.failed_runs,
        'duration_seconds', d.duration_ms / 1000.0,
        'success_age_seconds', extract(epoch FROM now() - d.succeeded_at)::float8)), '[]'::json) FROM duties d),
  'reserved_micro', (SELECT coalesce(sum(amount_micro), 0) FROM reservations WHERE state = 'held')
)::text
"""
"""Current numbers of waiting and failed work as JSON."""

NEWEST_CALLS = Named(
    """
SELECT coalesce(json_agg(json_build_array(session_id, turn_id, model_ms)), '[]'::json)::text
  FROM (SELECT session_id, turn_id, model_ms, created_at FROM turn_context_audit
         ORDER BY id DESC LIMIT :newest) c
 WHERE created_at > now() - interval '1 day'
""",
    newest=CALLS_OF_ANSWERS,
)
"""Select (session id, turn, milliseconds of the model) of the newest calls of the last day as JSON."""

TIMES_OF_TURNS = Named("""
SELECT coalesce(json_agg(json_build_object(
    'turn', json_build_array(t.session_id, t.turn_no), 'has_ended', t.ended_at IS NOT NULL,
    'first_token_ms', CASE WHEN t.claimed_at IS NOT NULL THEN t.first_token_ms END,
    'answered_ms', CASE WHEN t.state = 'answered' AND NOT EXISTS (
          SELECT FROM turn_steps x WHERE x.session_id = t.session_id AND x.turn_no = t.turn_no)
        THEN (extract(epoch FROM t.ended_at - t.claimed_at) * 1000)::float8 END)), '[]'::json)::text
  FROM unnest(:sessions::bigint[], :turns::bigint[]) AS k(session_id, turn_no)
  JOIN turns t ON t.session_id = k.session_id AND t.turn_no = k.turn_no
""")
"""Times of turns; without `answered_ms` for turns with tools, whose time would count as the program's."""
