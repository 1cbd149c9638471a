"""SQL of alerts: finds current problems, opens and ends alerts, and claims their messages."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.turns.turn_sql import WARN_PERCENT
from shared.core.ops.duties import LATE_PERIODS, LATE_SECONDS

LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('evertalk.alerts'))"
"""Take the lock of the sweep for the transaction; false if another process has it."""

SOURCE_SHARE = 3
"""Divisor of the daily cap: spending of one person or network above this part opens an alert."""

NEWEST_REFUSED = 20
"""Maximum turns refused by the total cap that are examined, the newest.

One that is the newest of its session suffices.
"""

FALLS_IN_A_ROW = 3
"""Consecutive summaries written without a model that open an alert."""
FALLEN_BACK = Named(
    """
SELECT count(*) AS number FROM (
  SELECT kind, audit, created_at FROM compactions WHERE kind IN ('summary', 'digest') AND trigger <> 'fork'
   ORDER BY id DESC LIMIT :falls) l
 WHERE kind = 'digest' AND created_at > now() - interval '1 day'
   AND NOT coalesce(audit -> 'attempts', '[]') @> '[{"step": "commit"}]'
""",
    falls=FALLS_IN_A_ROW,
)
"""Number of digests written without a model among the newest summaries of the last day."""

SESSIONS_AT_MOST = 5
"""Maximum sessions that an alert names."""

SWEEP = Named(
    """
WITH spent AS (
  SELECT coalesce(max(spent_micro), 0) + spent_of_open_slices((now() AT TIME ZONE :timezone)::date) AS used
    FROM spend_days WHERE scope = 'total' AND day = (now() AT TIME ZONE :timezone)::date
), providers AS (
  SELECT p ->> 'provider' AS provider, bool_or((p ->> 'refused')::boolean) AS refused,
         jsonb_path_query_array(jsonb_agg(p -> 'sessions'), '$[*][*]') AS sessions
    FROM workers w, jsonb_array_elements(coalesce(w.health -> 'providers', '[]')) p
   WHERE worker_is_alive(w) AND ((p ->> 'open')::boolean OR (p ->> 'refused')::boolean) GROUP BY 1
), windows AS (
  SELECT p ->> 'provider' AS provider, (p ->> 'window')::bigint AS least_, (p ->> 'expected')::bigint AS expected,
         coalesce(nullif(left(regexp_replace(p ->> 'model', '[^A-Za-z0-9_.:-]+', '-', 'g'), 200), ''), 'model') AS model,
         coalesce(p -> 'sessions', '[]') AS sessions
    FROM workers w, jsonb_array_elements(coalesce(w.health -> 'windows', '[]')) p WHERE worker_is_alive(w)
), rejections AS (
  SELECT DISTINCT ON (1) coalesce(nullif(left(regexp_replace(p ->> 'model', '[^A-Za-z0-9_.:-]+', '-', 'g'), 200), ''), 'model') AS model,
         p ->> 'provider' AS provider, p ->> 'code' AS code, p ->> 'wording' AS wording, (p ->> 'count')::bigint AS number,
         (SELECT s.public_id::text FROM sessions s WHERE s.id = (p ->> 'session')::bigint) AS session,
         name_sessions(coalesce(p -> 'sessions', '[]'), :sessions_at_most) AS sessions
    FROM workers w, jsonb_array_elements(coalesce(w.health -> 'rejections', '[]')) p
   WHERE worker_is_alive(w) ORDER BY 1, 5 DESC
), disk AS (
  SELECT (w.health -> 'disk' ->> 'free')::bigint AS free, (w.health -> 'disk' ->> 'total')::bigint AS total
    FROM workers w WHERE worker_is_alive(w) AND w.health ? 'disk'
   ORDER BY (w.health -> 'disk' ->> 'free')::bigint LIMIT 1
), work AS (
  SELECT extract(epoch FROM now() - max(at))::bigint AS silent FROM (
    SELECT max(beat) FILTER (WHERE stopped_at IS NULL) AS at FROM workers WHERE role = 'worker'
    UNION ALL SELECT started_at FROM workers WHERE id = :worker_id) x
), near AS (
  SELECT d.scope, d.spent_micro AS used, split_part(d.scope, ':', 1) AS whose,
         nullif(split_part(d.scope, ':', 2), '')::bigint AS id
    FROM spend_days d WHERE d.warned_at IS NOT NULL AND d.day = (now() AT TIME ZONE :timezone)::date
     AND d.scope ~ '^(contact|session):'
), talks AS (
  SELECT n.scope, n.whose, n.used, s.agent_id, agent_cap(a.config, 'session_usd') AS cap, s.id AS session_id, s.answered_turn
    FROM near n JOIN sessions s ON s.id = n.id JOIN agents a ON a.id = s.agent_id WHERE n.whose = 'session'
  UNION ALL
  SELECT n.scope, n.whose, n.used, s.agent_id, agent_cap(a.config, 'person_per_day_usd'), s.id, s.answered_turn
    FROM near n JOIN sessions s ON s.contact_id = n.id JOIN agents a ON a.id = s.agent_id
   WHERE n.whose = 'contact' AND s.last_active_at > now() - interval '1 day'
), capped AS (
  SELECT t.scope, CASE WHEN a.name ~ '^[A-Za-z0-9_.-]{1,60}$' THEN a.name ELSE 'agent-' || a.id END AS agent,
         bool_or(t.used >= t.cap OR (t.used * 100 >= t.cap * :warn_percent AND EXISTS (
             SELECT FROM turns x WHERE x.session_id = t.session_id AND x.turn_no = t.answered_turn
                AND x.refused_scope = t.whose))) AS used_up
    FROM talks t JOIN agents a ON a.id = t.agent_id WHERE t.used * 100 >= t.cap * :warn_percent GROUP BY 1, 2
), total AS (
  SELECT s.used, s.used >= :cap_micro::bigint OR (s.used * 100 >= :cap_micro::bigint * :warn_percent AND EXISTS (
           SELECT FROM (SELECT * FROM turns WHERE refused_scope = 'total'
                         ORDER BY ended_at DESC LIMIT :newest_refused) x
             JOIN sessions t ON t.id = x.session_id AND t.answered_turn = x.turn_no
            WHERE x.opened_at >= date_trunc('day', now() AT TIME ZONE :timezone) AT TIME ZONE :timezone
              AND x.ended_at > (SELECT min(w.started_at) FROM workers w WHERE w.role <> 'worker' AND worker_is_alive(w)))) AS used_up
    FROM spent s WHERE s.used * 100 >= :cap_micro::bigint * :warn_percent
), seen(kind, key, detail) AS (
  SELECT CASE level WHEN :warn_percent THEN 'spend_80' ELSE 'spend_100' END, 'total',
         jsonb_build_object('used_micro', used, 'cap_micro', :cap_micro::bigint)
    FROM total, unnest(ARRAY[:warn_percent, 100]) AS level WHERE used_up OR level < 100
  UNION ALL
  SELECT 'spend_source', d.scope, jsonb_build_object(
           'source', CASE split_part(d.scope, ':', 1) WHEN 'contact' THEN d.scope
                          ELSE 'network:' || left(split_part(d.scope, ':', 2), 8) END,
           'used_micro', d.spent_micro, 'cap_micro', :cap_micro::bigint)
    FROM spend_days d WHERE d.day = (now() AT TIME ZONE :timezone)::date AND d.scope ~ '^(contact|network):'
     AND d.digits >= char_length((:cap_micro::bigint / :source_share)::text)
     AND d.spent_micro * :source_share >= :cap_micro::bigint
  UNION ALL
  SELECT CASE level WHEN :warn_percent THEN 'agent_cap_80' ELSE 'agent_cap_100' END, agent,
         jsonb_build_object('agent', agent, 'count', count(*))
    FROM capped, unnest(ARRAY[:warn_percent, 100]) AS level WHERE used_up OR level < 100 GROUP BY level, agent
  UNION ALL
  SELECT CASE WHEN refused THEN 'provider_refused' ELSE 'breaker_open' END, provider,
         jsonb_strip_nulls(jsonb_build_object('provider', provider, 'sessions', name_sessions(sessions, :sessions_at_most)))
    FROM providers
  UNION ALL
  SELECT 'window_narrowed', model, jsonb_strip_nulls(jsonb_build_object(
           'provider', min(provider), 'model', model, 'window', min(least_), 'expected', max(expected),
           'sessions', name_sessions(jsonb_path_query_array(jsonb_agg(sessions), '$[*][*]'), :sessions_at_most)))
    FROM windows GROUP BY model
  UNION ALL
  SELECT 'model_rejects', model, jsonb_strip_nulls(jsonb_build_object(
           'provider', provider, 'model', model, 'code', code, 'wording', wording, 'count', number, 'session', session,
           'sessions', sessions))
    FROM rejections
  UNION ALL
  SELECT 'no_summaries', '', jsonb_strip_nulls(jsonb_build_object('sessions', name_sessions((
           SELECT jsonb_agg(session_id) FROM (
             SELECT session_id FROM compactions WHERE kind IN ('summary', 'digest') AND trigger <> 'fork'
              ORDER BY id DESC LIMIT :falls) l), :sessions_at_most)))
    FROM (
      SELECT count(*) AS number FROM (
        SELECT kind, audit, created_at FROM compactions WHERE kind IN ('summary', 'digest') AND trigger <> 'fork'
         ORDER BY id DESC LIMIT :falls) l
       WHERE kind = 'digest' AND created_at > now() - interval '1 day'
         AND NOT coalesce(audit -> 'attempts', '[]') @> '[{"step": "commit"}]') f
   WHERE number >= :falls
  UNION ALL
  SELECT 'dead_job', kind, jsonb_build_object('job', kind, 'count', count(*))
    FROM jobs WHERE state = 'dead' AND ended_at > now() - interval '7 days' AND NOT outcome ? 'cancelled'
   GROUP BY kind
  UNION ALL
  SELECT 'uncertain_delivery', channel, jsonb_build_object('count', count(*))
    FROM deliveries WHERE state = 'uncertain' AND created_at > now() - interval '24 h' GROUP BY channel
  UNION ALL
  SELECT 'disk_low', 'data', jsonb_build_object('free_bytes', free, 'total_bytes', total)
    FROM disk WHERE free < least(total / 10, 2147483648)
  UNION ALL
  SELECT 'handover_waiting', s.public_id::text,
         jsonb_build_object('session', s.public_id, 'minutes', round(:handover_seconds::float8 / 60))
    FROM handovers h JOIN sessions s ON s.id = h.session_id
   WHERE h.state = 'waiting' AND :handover_seconds::float8 > 0
     AND coalesce(h.snoozed_until <= now(), true) AND h.asked_at < now() - make_interval(secs => :handover_seconds::float8)
  UNION ALL
  SELECT 'no_backup', 'data', '{}' WHERE EXISTS (
    SELECT FROM workers w WHERE worker_is_alive(w) AND (w.health ->> 'backup_failed')::boolean)
  UNION ALL
  SELECT 'duty_late', d.name, jsonb_build_object('duty', d.name) FROM duties d
   WHERE coalesce(d.succeeded_at, d.since)
         < now() - make_interval(secs => greatest(d.seconds * :late_periods, :late_seconds)) AND EXISTS (
         SELECT FROM workers w WHERE w.role = 'worker' AND worker_is_alive(w)
            AND w.started_at < now() - make_interval(secs => greatest(d.seconds * :late_periods, :late_seconds)))
  UNION ALL
  SELECT 'stuck_turn', '', jsonb_build_object('count', count(*)) FROM turns_unknown_to_their_holder HAVING count(*) > 0
  UNION ALL
  SELECT 'process_stopped', left(regexp_replace(f.work, '[^A-Za-z0-9_.:]+', '-', 'g'), 200),
         jsonb_strip_nulls(jsonb_build_object(
           'process', (array_agg(f.role ORDER BY f.at DESC))[1],
           'cause', (array_agg(f.cause ORDER BY f.at DESC))[1],
           'work', split_part(f.work, ' ', 1), 'session', max(s.public_id::text), 'turn', max(f.turn_no),
           'count', count(*)))
    FROM process_faults f LEFT JOIN sessions s ON s.id = f.session_id
   WHERE f.work IN (SELECT work FROM process_faults WHERE at > now() - interval '24 h')
   GROUP BY f.work
  UNION ALL
  SELECT 'no_worker', '', jsonb_build_object('seconds', :worker_seconds::bigint) FROM work WHERE silent > :worker_seconds::bigint
), opened AS (
  INSERT INTO alerts AS a (kind, key, detail) SELECT kind, key, detail FROM seen
  ON CONFLICT (kind, key) WHERE ended_at IS NULL DO UPDATE
     SET true_at = now(), detail = excluded.detail,
         seen_at = CASE WHEN (excluded.detail ->> 'count')::bigint > (a.detail ->> 'count')::bigint
                        THEN NULL ELSE a.seen_at END
  RETURNING id, (xmax = 0) AS fresh
), ended AS (
  UPDATE alerts a SET ended_at = now()
   WHERE ended_at IS NULL AND true_at <= now() - make_interval(secs => :over_seconds::float8)
     AND NOT EXISTS (SELECT FROM seen s WHERE s.kind = a.kind AND s.key = a.key)
  RETURNING id
), told AS (
  INSERT INTO alert_sends (alert_id, target, phase)
  SELECT o.id, target, 'opened' FROM opened o, unnest(:targets::text[]) AS target WHERE o.fresh
  UNION ALL
  SELECT e.id, s.target, 'ended' FROM ended e JOIN alert_sends s ON s.alert_id = e.id
   WHERE s.phase = 'opened' AND s.state <> 'failed'
  RETURNING 1
)
SELECT (SELECT count(*) FROM opened WHERE fresh) AS opened, (SELECT count(*) FROM ended) AS ended
""",
    falls=FALLS_IN_A_ROW,
    late_periods=LATE_PERIODS,
    late_seconds=LATE_SECONDS,
    newest_refused=NEWEST_REFUSED,
    sessions_at_most=SESSIONS_AT_MOST,
    source_share=SOURCE_SHARE,
    warn_percent=WARN_PERCENT,
)
"""Open alerts for current problems, end alerts without one for `over_seconds`, and insert their messages.

A known problem updates its alert, and marks it as unseen if its count has risen. A call is refused before a
cap is full; so a cap also counts as used up if the newest message of a session was refused by it. Selects the
numbers of opened and ended alerts.
"""

END_INTERRUPTED_SENDS = """
UPDATE alert_sends s
   SET state = CASE WHEN target = 'webhook' THEN 'due' ELSE 'uncertain' END,
       error = CASE WHEN target = 'webhook' THEN error ELSE 'cut_off' END,
       sent_by = NULL, ended_at = CASE WHEN target = 'webhook' THEN NULL ELSE now() END
 WHERE state = 'sending' AND NOT EXISTS (SELECT FROM workers w WHERE w.id = s.sent_by AND worker_is_alive(w))
"""
"""End sends whose process died.

Those to a webhook are sent again, since it recognises repetitions; others become uncertain.
"""

GIVE_UP = Named("""
UPDATE alert_sends s SET state = 'failed', ended_at = now(), error = why.code
  FROM (SELECT d.id, CASE WHEN d.target <> ALL (:targets::text[]) THEN 'not_configured'
                          WHEN o.state = 'failed' THEN 'never_told'
                          WHEN d.created_at < now() - make_interval(hours => :hours) THEN 'expired' END AS code
          FROM alert_sends d LEFT JOIN alert_sends o
            ON d.phase = 'ended' AND o.alert_id = d.alert_id AND o.target = d.target AND o.phase = 'opened'
         WHERE d.state = 'due') why
 WHERE why.id = s.id AND s.state = 'due' AND why.code IS NOT NULL
""")
"""Mark due sends that can never arrive as failed, with the reason.

Such a target is not among `targets`, was never notified of the beginning, or the send is older than `hours`.
"""

CLAIM = Named("""
WITH mine AS (
  SELECT d.id FROM alert_sends d
   WHERE d.state = 'due' AND d.due_at <= now() AND d.target = ANY (:targets::text[])
     AND (d.phase = 'opened' OR EXISTS (
           SELECT FROM alert_sends o WHERE o.alert_id = d.alert_id AND o.target = d.target
              AND o.phase = 'opened' AND o.state IN ('sent', 'uncertain')))
   ORDER BY d.due_at, d.id LIMIT 1 FOR UPDATE OF d SKIP LOCKED
), claimed AS (
  UPDATE alert_sends s SET state = 'sending', sent_by = :worker_id, attempt = attempt + 1
    FROM mine WHERE s.id = mine.id RETURNING s.*
)
SELECT c.id, c.send_key::text, c.target, c.phase, c.attempt,
       a.public_id::text, a.kind, a.key, a.detail, a.opened_at, a.ended_at
  FROM claimed c JOIN alerts a ON a.id = c.alert_id
""")
"""Claim the next due send for one process, and select it with its alert; no row if none is due.

The end of an alert is sent only where its beginning was.
"""

END_SEND = Named("""
UPDATE alert_sends SET state = :state, error = :code, sent_by = NULL, ended_at = now()
 WHERE id = :send_id AND sent_by = :worker_id AND state = 'sending' RETURNING id
""")
"""End a send that this process has claimed; no row if it has lost the claim."""

RETRY_SEND = Named("""
UPDATE alert_sends SET state = 'due', error = :code, sent_by = NULL,
       due_at = now() + make_interval(secs => :seconds::float8)
 WHERE id = :send_id AND sent_by = :worker_id AND state = 'sending' RETURNING id
""")
"""Make a send due again after `seconds`; no row if this process has lost the claim."""

HAS_SENDER = "SELECT EXISTS (SELECT FROM workers w WHERE w.role IN ('web', 'bot') AND worker_is_alive(w))"
"""Select whether a web or bot process is alive."""

OLDER_PROCESSES = Named("""
SELECT count(*) FROM workers w JOIN workers mine ON mine.id = :worker_id AND w.role = mine.role
   AND w.id < mine.id
 WHERE worker_is_alive(w)
""")
"""Select how many living processes of the same role have registered before this one."""

ADD_OUTAGE = Named("""
WITH made AS (
  INSERT INTO alerts (public_id, kind, detail, opened_at, ended_at)
  VALUES (:public_id::uuid, 'database_lost', :detail, least(:opened_at::timestamptz, now()), now())
  ON CONFLICT (public_id) DO NOTHING RETURNING id
), outage AS (
  SELECT id FROM made UNION ALL SELECT id FROM alerts WHERE public_id = :public_id::uuid
), told AS (
  SELECT * FROM unnest(:targets::text[], :keys::uuid[], :states::text[], :errors::text[]) AS t(target, key, state, error)
)
INSERT INTO alert_sends (alert_id, target, phase, send_key, state, error, attempt, ended_at)
SELECT o.id, t.target, 'opened', t.key, t.state, t.error, 1, now() FROM outage o, told t
 UNION ALL
SELECT o.id, t.target, 'ended', gen_random_uuid(), 'due', '', 0, NULL FROM outage o, told t WHERE t.state <> 'failed'
ON CONFLICT (alert_id, target, phase) DO NOTHING
""")
"""Insert an outage that has ended, with the sends that a process made without the database.

Each target that was notified of its beginning is notified of its end.
"""

ADD_TEST_ALERT = Named("""
WITH a AS (
  INSERT INTO alerts (kind, key, ended_at, seen_at, seen_by)
  VALUES ('test', gen_random_uuid()::text, now(), now(), :by) RETURNING id, public_id
), s AS (
  INSERT INTO alert_sends (alert_id, target, phase) SELECT a.id, t, 'opened' FROM a, unnest(:targets::text[]) AS t
)
SELECT public_id FROM a
""")
"""Insert a test alert that has ended already, with a send to every target."""
