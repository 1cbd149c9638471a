"""SQL statements for the pages of jobs and deliveries, and for operators' changes on them."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named
from shared.core.compaction.jobs import LATE
from shared.core.ops.duties import LATE_PERIODS, LATE_SECONDS
from shared.core.ops.job_views import ASKED_AGAIN, JOB_KINDS, JobMatch, JobVerb

COUNTED_TO = 5_000
"""Maximum rows that are counted; above it the page shows that there are more."""
LOOKED_AT = 1_000
"""Maximum rows that are checked for the number next to a button."""

_STATES = {
    "": "true",
    "due": "j.state = 'due'",
    "running": "j.state = 'running'",
    "failing": "j.state IN ('due', 'running') AND j.last_error <> ''",
    "done": "j.state = 'done'",
    "dead": "j.state = 'dead'",
}
_MAY = {"retry": "j.may_retry", "cancel": "j.may_cancel"}


def render_jobs(match: JobMatch) -> Named:
    """Return the statement for a page of matching jobs; `JOBS` names its parameters."""
    return Named(
        JOBS.format(where=_render_match(match)),
        counted_to=COUNTED_TO,
        kinds=JOB_KINDS,
        late_periods=LATE_PERIODS,
        late_seconds=LATE_SECONDS,
        looked_at=LOOKED_AT,
    )


def render_count(match: JobMatch) -> Named:
    """Return the statement that selects one empty row per matching job; parameters `kind` and `session`."""
    return Named(_EACH.format(where=_render_match(match)))


def render_matching(verb: JobVerb, match: JobMatch) -> Named:
    """Return the statement for ids of matching jobs that allow the change `verb`, oldest first.

    Its parameters are `kind`, `session`, `after`, `through` and `limit`.
    """
    return Named(_MATCHING.format(where=_render_match(match), may=_MAY[verb]))


def _render_match(match: JobMatch) -> str:
    """Return the SQL condition for jobs `j` that match; its parameters are `kind` and `session`.

    `session` is the public id, NULL for all. A filter that is not set becomes a constant condition, so that
    an index can serve the others.
    """
    kind = "j.kind = :kind::text" if match.kind else ":kind::text = ''"
    owner = "j.session_id = (SELECT id FROM sessions WHERE public_id = :session::uuid)"
    whose = owner if match.session else ":session::uuid IS NULL"
    return f"{kind} AND {whose} AND ({_STATES.get(match.state, 'true')})"


_EACH = "SELECT FROM jobs j WHERE {where}"
_MATCHING = """
SELECT j.id FROM job_options j WHERE {where} AND {may} AND j.id > :after AND j.id <= :through ORDER BY j.id
   LIMIT :limit
"""

RETRY = Named("""
UPDATE jobs j SET state = 'due', due_at = now(), faults = 0, epoch = epoch + 1, leased_by = NULL, ended_at = NULL
 WHERE j.id = ANY (:ids::bigint[])
   AND (j.state = 'dead'
        AND NOT EXISTS (SELECT FROM jobs o WHERE o.key = j.key AND o.state IN ('due', 'running') AND o.id <> j.id)
        AND NOT EXISTS (SELECT FROM jobs n WHERE n.session_id = j.session_id AND n.key = j.key AND n.id > j.id)
        AND NOT EXISTS (SELECT FROM sessions e
                         WHERE e.id = j.session_id AND e.erased_turn > 0 AND e.erased_turn >= e.answered_turn)
        OR j.state = 'due' AND j.last_error <> '' AND j.due_at > now())
RETURNING j.id, j.kind, j.attempt
""")
"""Make those of the given jobs due now that allow a retry, with no faults and a new epoch.

The condition is that of `may_retry` in the view `job_options`; here it is checked on the locked row.
"""

CANCEL = Named(
    """
WITH j AS (
  UPDATE jobs j SET state = 'dead', epoch = epoch + 1, leased_by = NULL, ended_at = now(),
         last_error = 'cancelled by an operator',
         outcome = outcome || '{"cancelled": true, "advice": "This was cancelled by an operator."}'
   WHERE j.id = ANY (:ids::bigint[])
     AND (j.state = 'due' OR j.state = 'running' AND NOT EXISTS (
            SELECT FROM workers w WHERE w.id = j.leased_by AND worker_is_alive(w)))
     AND NOT (j.kind = 'flush' AND j.trigger = :late)
  RETURNING j.id, j.kind, j.attempt
), f AS (
  UPDATE flushes SET outcome = 'failed', error = 'its job was cancelled', ended_at = now() FROM j
   WHERE flushes.job_id = j.id AND flushes.outcome = 'running'
)
SELECT id, kind, attempt FROM j
""",
    late=LATE,
)
"""Cancel those of the given jobs that allow it; a process that runs one loses it, and a flush fails.

The condition is that of `may_cancel` in the view `job_options`; here it is checked on the locked row.
"""

SKIPPED_JOBS = Named("""
SELECT x.id,
       CASE WHEN j.id IS NULL THEN 'there is no such job'
         WHEN j.state = 'running' THEN 'it runs just now'
         WHEN j.state = 'done' THEN 'it is done'
         WHEN :verb::text = 'cancel' AND j.state = 'dead' THEN 'it has ended'
         WHEN :verb::text = 'cancel' THEN 'the turns that it would save are summarised already and would be lost'
         WHEN j.state = 'due' THEN 'it waits for a worker already'
         WHEN EXISTS (SELECT FROM jobs o WHERE o.key = j.key AND o.state IN ('due', 'running') AND o.id <> j.id)
              OR EXISTS (SELECT FROM jobs n WHERE n.session_id = j.session_id AND n.key = j.key AND n.id > j.id)
         THEN 'the same was requested again since'
         WHEN EXISTS (SELECT FROM sessions e
                       WHERE e.id = j.session_id AND e.erased_turn > 0 AND e.erased_turn >= e.answered_turn)
         THEN 'its conversation was erased'
         ELSE 'it has changed since' END AS why
  FROM unnest(:missed::bigint[]) AS x(id) LEFT JOIN jobs j ON j.id = x.id
""")
"""Select for each of these jobs why it does not allow the change `verb`."""

SET_KIND = Named("""
INSERT INTO job_kinds AS k (kind, paused, concurrency, changed_by)
   VALUES (:kind, :paused, :concurrency, :actor)
ON CONFLICT (kind) DO UPDATE SET paused = :paused, concurrency = :concurrency, changed_by = :actor,
   changed_at = clock_timestamp()
 WHERE (extract(epoch FROM k.changed_at) * 1000000)::bigint = :version RETURNING kind
""")
"""Store the settings of a kind of job; no row if they have changed since `version`."""

JOBS = """
WITH page AS (
  SELECT j.* FROM job_options j WHERE {where} AND j.id < :before ORDER BY j.id DESC LIMIT :limit + 1
), shown AS (
  SELECT * FROM page ORDER BY id DESC LIMIT :limit
)
SELECT json_build_object(
  'states', json_build_object(
     'due', (SELECT count(*) FROM (SELECT FROM jobs j WHERE j.state = 'due' LIMIT :counted_to) x),
     'running', (SELECT count(*) FROM (SELECT FROM jobs j WHERE j.state = 'running' LIMIT :counted_to) x),
     'done', (SELECT count(*) FROM (SELECT FROM jobs j WHERE j.state = 'done' AND j.ended_at > now() - interval '1 day'
                                     LIMIT :counted_to) x),
     'dead', (SELECT count(*) FROM (SELECT FROM jobs j WHERE j.state = 'dead' LIMIT :counted_to) x)),
  'counted_to', :counted_to,
  'failing', (SELECT count(*) FROM (SELECT last_error FROM jobs WHERE state IN ('due', 'running')
                ORDER BY due_at DESC LIMIT :counted_to) x WHERE last_error <> ''),
  'dead_lately', (SELECT count(*) FROM (
     SELECT FROM jobs j WHERE j.state = 'dead' AND j.ended_at > now() - interval '1 day' AND NOT j.outcome ? 'cancelled'
      LIMIT :counted_to) x),
  'oldest_due', (SELECT min(due_at) FROM jobs WHERE state = 'due' AND due_at <= now()),
  'kinds', (
     SELECT json_agg(json_build_object('kind', v.kind, 'paused', coalesce(k.paused, false), 'concurrency', k.concurrency,
              'version', coalesce((extract(epoch FROM k.changed_at) * 1000000)::bigint, 0)::text,
              'changed_by', k.changed_by, 'changed_at', k.changed_at,
              'running', (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = v.kind),
              'due', (SELECT count(*) FROM (
                 SELECT FROM jobs j WHERE j.state = 'due' AND j.due_at <= now() AND j.kind = v.kind
                  LIMIT :counted_to) x)) ORDER BY v.place)
       FROM unnest(:kinds) WITH ORDINALITY v(kind, place) LEFT JOIN job_kinds k ON k.kind = v.kind),
  'newest', (SELECT coalesce(max(id), 0)::text FROM jobs),
  'retry_all', (
     SELECT json_build_object('jobs', count(*) FILTER (WHERE j.may_retry),
              'more', count(*) FILTER (WHERE j.state = 'dead') = :looked_at
                   OR count(*) FILTER (WHERE j.state = 'due') = :looked_at)
       FROM ((SELECT j.state, j.may_retry FROM job_options j WHERE {where} AND j.state = 'dead'
               ORDER BY j.id DESC LIMIT :looked_at)
             UNION ALL
             (SELECT j.state, j.may_retry FROM job_options j WHERE {where} AND j.state = 'due' LIMIT :looked_at)) j),
  'cancel_all', (
     SELECT json_build_object('jobs', count(*) FILTER (WHERE j.may_cancel),
              'more', count(*) FILTER (WHERE j.state = 'due') = :looked_at)
       FROM ((SELECT j.state, j.may_cancel FROM job_options j WHERE {where} AND j.state = 'due' LIMIT :looked_at)
             UNION ALL
             (SELECT j.state, j.may_cancel FROM job_options j WHERE {where} AND j.state = 'running'
               LIMIT :looked_at)) j),
  'jobs', coalesce((SELECT json_agg(json_build_object('id', j.id, 'kind', j.kind, 'state', j.state,
      'session', s.public_id, 'session_kind', p.kind, 'anonymous', p.anonymous,
      'person_id', coalesce((SELECT public_id FROM contacts WHERE id = p.merged_into), p.public_id),
      'person', nullif(p.display_name, ''), 'trigger', j.trigger, 'attempt', j.attempt,
      'faults', j.faults, 'error', nullif(j.last_error, ''), 'cancelled', j.outcome ? 'cancelled',
      'reason', CASE j.state WHEN 'due' THEN j.outcome ->> 'deferred' ELSE j.outcome ->> 'nothing' END,
      'failures', j.failures, 'due_at', j.due_at, 'created_at', j.created_at,
      'started_at', j.started_at, 'ended_at', j.ended_at,
      'duration_ms', extract(epoch FROM coalesce(j.ended_at, CASE WHEN j.state = 'running' THEN now() END)
                             - j.started_at)::float8 * 1000,
      'can_retry', j.may_retry, 'can_cancel', j.may_cancel) ORDER BY j.id DESC)
    FROM shown j JOIN sessions s ON s.id = j.session_id JOIN contacts p ON p.id = s.contact_id), '[]'::json),
  'before', CASE WHEN (SELECT count(*) FROM page) > :limit THEN (SELECT min(id)::text FROM shown) END,
  'workers', coalesce((SELECT json_agg(json_build_object('id', w.id, 'role', w.role, 'pid', w.pid, 'beat', w.beat,
      'started_at', w.started_at, 'stopped_at', w.stopped_at, 'alive', worker_is_alive(w),
      'job', (SELECT j.id FROM jobs j WHERE j.leased_by = w.id AND j.state = 'running' LIMIT 1)) ORDER BY w.id DESC)
    FROM (SELECT * FROM workers WHERE beat > now() - interval '1 hour' ORDER BY id DESC LIMIT 20) w), '[]'::json),
  'duties', coalesce((SELECT json_agg(json_build_object('name', d.name, 'seconds', d.seconds,
      'state', CASE WHEN coalesce(d.succeeded_at, d.since)
                         < now() - make_interval(secs => greatest(d.seconds * :late_periods, :late_seconds))
                    THEN 'late' WHEN w.id IS NOT NULL THEN 'running'
                    WHEN d.failures > 0 THEN 'failing' ELSE 'waiting' END,
      'worker', w.pid, 'started_at', d.started_at, 'succeeded_at', d.succeeded_at, 'due_at', d.due_at,
      'duration_ms', d.duration_ms, 'runs', d.runs, 'failed_runs', d.failed_runs, 'failures', d.failures,
      'error', nullif(d.last_error, '')) ORDER BY d.seconds, d.name)
    FROM duties d LEFT JOIN workers w ON w.id = d.leased_by AND worker_is_alive(w)), '[]'::json),
  'imports', coalesce((SELECT json_agg(json_build_object('session', s.public_id, 'session_kind', p.kind,
      'anonymous', p.anonymous,
      'person_id', coalesce((SELECT public_id FROM contacts WHERE id = p.merged_into), p.public_id),
      'person', nullif(p.display_name, ''), 'source', i.source, 'messages', i.messages, 'at', i.began_at,
      'summaries', i.summaries,
      'summarised_percent', coalesce(100 * i.summarised_turns / nullif(s.answered_turn, 0), 0),
      'cost_micro', t.cost_micro) ORDER BY i.session_id DESC)
    FROM (SELECT * FROM past_imports WHERE digest IS NOT NULL ORDER BY session_id DESC LIMIT 20) i
    JOIN sessions s ON s.id = i.session_id JOIN session_totals t ON t.session_id = s.id
    JOIN contacts p ON p.id = s.contact_id), '[]'::json),
  'bots', coalesce((SELECT json_agg(json_build_object('id', b.bot_id, 'username', b.username, 'mode', b.mode,
      'access', b.access, 'problem', nullif(b.problem, ''), 'heard_at', b.heard_at, 'served_by', w.pid,
      'waiting', (SELECT count(*) FROM telegram_updates u WHERE u.bot_id = b.bot_id AND u.handled_at IS NULL))
      ORDER BY b.bot_id)
    FROM telegram_bots b LEFT JOIN leases l ON l.name = 'telegram:' || b.bot_id
    LEFT JOIN workers w ON w.id = l.leased_by AND worker_is_alive(w)), '[]'::json)
)::text
"""
"""Template of the jobs page as JSON; its slot `where` is the condition of a filter.

It has a page of at most `limit` jobs with ids below `before`, counts of all jobs, and the states of kinds,
workers, duties, imports and bots.
"""

DELIVERY_PROBLEMS = Named("""
SELECT FROM delivery_problems d JOIN sessions s ON s.id = d.session_id
 WHERE (:state::text = '' OR d.shown_state = :state) AND (:session::uuid IS NULL OR s.public_id = :session)
""")
"""Select one empty row per delivery problem of a state and session, for counting.

A problem is a part that is uncertain, dead, or waits for an unreachable chat.
"""

DELIVERIES = Named("""
WITH page AS (
  SELECT d.*, x.shown_state, s.public_id, p.kind AS contact_kind, p.anonymous, p.display_name,
         coalesce((SELECT public_id FROM contacts WHERE id = p.merged_into), p.public_id) AS person_id,
         a.account, a.unreachable_since,
         t.ended_at, t.state AS turn_state,
         a.unreachable_since IS NULL AND a.channel = 'telegram' AND t.ended_at IS NOT NULL AS can_send,
         coalesce(n.state = 'shown', false) AS told
    FROM delivery_problems x JOIN deliveries d USING (session_id, turn_no, part)
    LEFT JOIN uncertain_notices n ON n.session_id = d.session_id AND n.turn_no = d.turn_no
    JOIN sessions s ON s.id = d.session_id JOIN contacts p ON p.id = s.contact_id
    JOIN addresses a ON a.id = d.address_id
    JOIN turns t ON t.session_id = d.session_id AND t.turn_no = d.turn_no
   WHERE (:state::text = '' OR x.shown_state = :state) AND (:session::uuid IS NULL OR s.public_id = :session)
     AND (:before_at::timestamptz IS NULL OR (d.created_at, d.session_id, d.turn_no, d.part)
          < (:before_at::timestamptz, :before_session::bigint, :before_turn::bigint, :before_part::bigint))
   ORDER BY d.created_at DESC, d.session_id DESC, d.turn_no DESC, d.part DESC LIMIT :limit + 1
), shown AS (SELECT * FROM page ORDER BY created_at DESC, session_id DESC, turn_no DESC, part DESC
   LIMIT :limit)
SELECT json_build_object(
  'states', (SELECT json_object_agg(v.state, (SELECT count(*) FROM delivery_problems d WHERE d.shown_state = v.state))
      FROM (VALUES ('uncertain'), ('dead'), ('waiting')) v(state)),
  'on_their_way', (SELECT count(*) FROM deliveries WHERE channel = 'telegram' AND state IN ('queued', 'sending', 'sent')),
  'oldest', (SELECT min(created_at) FROM deliveries WHERE channel = 'telegram' AND state IN ('queued', 'sending', 'sent')),
  'deliveries', coalesce((SELECT json_agg(json_build_object('session', d.public_id, 'session_kind', d.contact_kind,
      'anonymous', d.anonymous, 'person_id', d.person_id, 'person', nullif(d.display_name, ''),
      'turn', d.turn_no, 'part', d.part,
      'parts', (SELECT count(*) FROM deliveries o WHERE o.session_id = d.session_id AND o.turn_no = d.turn_no),
      'state', d.shown_state, 'error', nullif(d.error, ''), 'attempt', d.attempt, 'bot', b.username,
      'at', d.created_at, 'unreachable_since', d.unreachable_since, 'can_send', d.can_send, 'told', d.told)
      ORDER BY d.created_at DESC, d.session_id DESC, d.turn_no DESC, d.part DESC)
    FROM shown d LEFT JOIN telegram_bots b ON b.bot_id::text = d.account), '[]'::json),
  'edge', CASE WHEN (SELECT count(*) FROM page) > :limit THEN (
      SELECT json_build_array(created_at, session_id, turn_no, part) FROM shown
       ORDER BY created_at, session_id, turn_no, part LIMIT 1) END
)::text
""")
"""Select a page of delivery problems, newest first, with the number of each state over all pages.

A part can be sent again only to a chat of a bot: a guest chat accepts an answer only while its question is
open, and answers to customers are decided by the owner.
"""

MARK_ARRIVED = Named("""
WITH wanted AS (
  SELECT s.id, x.turn, x.part, x.place, s.erased_turn
    FROM unnest(:sessions::uuid[], :turns::bigint[], :parts::bigint[]) WITH ORDINALITY AS
      x(session, turn, part, place)
    LEFT JOIN sessions s ON s.public_id = x.session
)
UPDATE deliveries d SET state = 'delivered', delivered_at = now(), error = ''
  FROM wanted x JOIN sessions s ON s.id = x.id
 WHERE d.session_id = x.id AND d.turn_no = x.turn AND d.part = x.part
   AND d.channel = 'telegram' AND d.state IN ('uncertain', 'dead') AND d.turn_no > s.erased_turn RETURNING x.place
""")
"""Mark those of the given parts as delivered that are uncertain or dead; select their places in the list."""

SEND_AGAIN = Named(
    """
WITH wanted AS (
  SELECT s.id, x.turn, x.part, x.place, s.erased_turn
    FROM unnest(:sessions::uuid[], :turns::bigint[], :parts::bigint[]) WITH ORDINALITY AS
      x(session, turn, part, place)
    LEFT JOIN sessions s ON s.public_id = x.session
)
UPDATE deliveries d SET state = 'queued', remote_id = NULL, error = :asked_again
  FROM wanted x JOIN sessions s ON s.id = x.id JOIN turns t ON t.session_id = s.id AND t.turn_no = x.turn, addresses a
 WHERE d.session_id = x.id AND d.turn_no = x.turn AND d.part = x.part AND a.id = d.address_id
   AND d.channel = 'telegram' AND d.state IN ('uncertain', 'dead') AND d.turn_no > s.erased_turn
   AND a.unreachable_since IS NULL AND a.channel = 'telegram' AND t.ended_at IS NOT NULL RETURNING x.place
""",
    asked_again=ASKED_AGAIN,
)
"""Queue those of the given parts again that are uncertain or dead and whose chat can be reached.

Selects their places in the list.
"""

SKIPPED_PARTS = Named("""
WITH wanted AS (
  SELECT s.id, x.turn, x.part, x.place, s.erased_turn
    FROM unnest(:sessions::uuid[], :turns::bigint[], :parts::bigint[]) WITH ORDINALITY AS
      x(session, turn, part, place)
    LEFT JOIN sessions s ON s.public_id = x.session
)
SELECT x.place, CASE WHEN d.session_id IS NULL THEN 'there is no such part'
     WHEN d.turn_no <= x.erased_turn THEN 'its conversation was erased'
     WHEN d.state = 'delivered' THEN 'it has been delivered'
     WHEN d.state IN ('queued', 'sending', 'sent') THEN 'it is on its way already'
     WHEN a.unreachable_since IS NOT NULL OR a.channel <> 'telegram' THEN 'the chat cannot be reached any more'
     ELSE 'it has changed since' END AS why
  FROM wanted x LEFT JOIN deliveries d ON d.session_id = x.id AND d.turn_no = x.turn AND d.part = x.part
  LEFT JOIN addresses a ON a.id = d.address_id ORDER BY x.place
""")
"""Select why parts were not changed, in the order in which they were named."""

PULSE = """
SELECT json_build_object(
  'sessions', (SELECT json_build_array(max(last_active_at), (SELECT max(id) FROM compactions)) FROM session_list),
  'turns', (SELECT json_build_array(count(*), sum(answered_turn), sum(turn_epoch)) FROM
            (SELECT answered_turn, turn_epoch FROM sessions WHERE id = ANY (ARRAY(
               SELECT session_id FROM turns WHERE ended_at IS NULL LIMIT 1000))) w),
  'jobs', (SELECT json_build_array((SELECT max(id) FROM jobs), count(*), sum(id), sum(epoch)) FROM
            (SELECT id, epoch FROM jobs WHERE state IN ('due', 'running') LIMIT 5000) j),
  'dead', (SELECT json_build_array(count(*), max(id)) FROM (SELECT id FROM jobs WHERE state = 'dead'
            ORDER BY id DESC LIMIT 5000) j),
  'handovers', (SELECT json_build_array(count(*), sum(h.id), sum(length(h.state)), max(h.taken_at), sum(s.answered_turn),
                  sum(s.next_seq), sum(h.version), count(*) FILTER (WHERE h.snoozed_until > now()),
                  (SELECT json_build_array(count(*), sum(n.id)) FROM
                    (SELECT id FROM private_notes ORDER BY id DESC LIMIT 1000) n)) FROM handovers h JOIN sessions s ON s.id = h.session_id WHERE h.ended_at IS NULL),
  'deliveries', (SELECT json_build_array(count(*), max(created_at), sum(turn_no), sum(part)) FROM
            (SELECT created_at, turn_no, part FROM deliveries WHERE state IN ('uncertain', 'dead')
              ORDER BY created_at DESC LIMIT 1000) d),
  'costs', (SELECT max(id) FROM usage),
  'notes', (SELECT json_build_array((SELECT max(id) FROM notes), count(*), sum(id), max(undo_until)) FROM
            (SELECT id, undo_until FROM notes WHERE undo_until IS NOT NULL ORDER BY undo_until DESC LIMIT 1000) n),
  'alerts', (SELECT json_build_array((SELECT max(id) FROM alerts), count(*), sum(id), count(seen_at),
               md5(string_agg(detail::text, '' ORDER BY id))) FROM
            (SELECT id, seen_at, detail FROM alerts WHERE ended_at IS NULL ORDER BY opened_at LIMIT 1000) a),
  'sends', (SELECT json_build_array((SELECT max(id) FROM alert_sends), count(*), sum(id), sum(attempt)) FROM
            (SELECT id, attempt FROM alert_sends WHERE state IN ('due', 'sending') LIMIT 1000) d)
)::text
"""
"""Select a JSON value by part of the data, which changes when rows of that part change."""
