"""The statements of `insights`: one per page, each answers with one JSON text."""

from __future__ import annotations

LEASE_SECONDS = 4
NEAR_PCT = 90

CHANNEL = "(SELECT n.channel FROM turns n WHERE n.session_id = s.id AND n.turn_no = s.next_turn - 1)"
"""Where the newest turn came from; null before the first."""

STATE = """(CASE
  WHEN s.answered_turn < s.next_turn - 1 AND s.leased_by IS NOT NULL THEN 'answering'
  WHEN s.answered_turn < s.next_turn - 1 THEN 'waiting'
  WHEN EXISTS (SELECT FROM jobs j WHERE j.session_id = s.id AND j.state = 'running') THEN 'tidying'
  WHEN (SELECT j.state FROM jobs j WHERE j.session_id = s.id ORDER BY j.id DESC LIMIT 1) = 'dead' THEN 'problem'
  WHEN (SELECT n.state FROM turns n WHERE n.session_id = s.id AND n.turn_no = s.answered_turn) = 'failed'
  THEN 'problem'
  ELSE 'idle' END)"""
STATES = ("answering", "waiting", "tidying", "problem", "idle")

_READ = "(t.input_tokens + t.cache_read_tokens + t.cache_write_tokens)"
"""All that went in: the provider counts what its cache served apart from `input_tokens`."""
_COST = "(CASE WHEN t.cost_unknown_calls > 0 AND t.cost_micro = 0 THEN NULL ELSE t.cost_micro END)"
_HIT = f"(CASE WHEN {_READ} > 0 THEN t.cache_read_tokens * 100.0 / {_READ} END)::float8"
_PCT = "(CASE WHEN s.context_limit > 0 THEN s.context_tokens * 100.0 / s.context_limit END)::float8"

SORTS = {
    "active": ("s.last_active_at", "timestamptz"),
    "channel": (f"coalesce({CHANNEL}, '')", "text"),
    "person": ("lower(p.display_name)", "text"),
    "agent": ("a.name", "text"),
    "turns": ("s.next_turn", "bigint"),
    "context": (f"coalesce({_PCT}, -1)", "float8"),
    "input": (f"coalesce({_READ}, 0)", "bigint"),
    "output": ("coalesce(t.output_tokens, 0)", "bigint"),
    "cost": (f"coalesce({_COST}, -1)", "bigint"),
    "cache": (f"coalesce({_HIT}, -1)", "float8"),
    "compactions": ("coalesce(t.compaction_count, 0)", "bigint"),
    "state": (STATE, "text"),
}
"""Column of the list → what it is ordered by (never null, so that a cursor can stand on it), and its type."""

_FACTS = f"""
  'id', s.public_id, 'person', nullif(p.display_name, ''), 'kind', p.kind, 'anonymous', p.anonymous,
  'agent', a.name, 'channel', {CHANNEL}, 'turns', s.next_turn - 1,
  'context_tokens', CASE WHEN s.context_limit > 0 THEN s.context_tokens END,
  'context_limit', nullif(s.context_limit, 0), 'context_pct', {_PCT},
  'input_tokens', {_READ}, 'output_tokens', t.output_tokens,
  'cache_read_tokens', t.cache_read_tokens, 'cache_write_tokens', t.cache_write_tokens,
  'cache_hit_pct', {_HIT}, 'cost_micro', {_COST}, 'cost_unknown_calls', t.cost_unknown_calls,
  'compactions', t.compaction_count, 'state', {STATE},
  'created_at', s.created_at, 'last_active_at', s.last_active_at
"""
_OF_SESSION = """
  FROM sessions s JOIN parties p ON p.id = s.party_id JOIN agents a ON a.id = s.agent_id
  LEFT JOIN session_totals t ON t.session_id = s.id
"""

SESSIONS = f"""
WITH page AS (
  SELECT s.id, {{key}} AS key {_OF_SESSION} WHERE {{where}} ORDER BY 2 {{direction}}, 1 {{direction}} LIMIT {{limit}}
)
SELECT json_agg(json_build_object('row', s.id, 'key', page.key::text, {_FACTS})
                ORDER BY page.key {{direction}}, page.id {{direction}})::text
  FROM page JOIN LATERAL (SELECT * FROM sessions WHERE id = page.id) s ON true
  JOIN parties p ON p.id = s.party_id JOIN agents a ON a.id = s.agent_id
  LEFT JOIN session_totals t ON t.session_id = s.id
"""

SESSION = f"""
SELECT json_build_object({_FACTS},
  'party', p.public_id, 'timezone', p.timezone, 'goal', nullif(s.goal, ''), 'mode', nullif(s.mode, ''),
  'base_turn', s.base_turn, 'flushed_turn', s.flushed_turn, 'held', s.hold_compaction,
  'answered_turn', s.answered_turn, 'view_epoch', s.view_epoch,
  'first_channel', (SELECT json_agg(DISTINCT n.channel) FROM turns n
                     WHERE n.session_id = s.id AND n.turn_no IN (1, s.next_turn - 1)),
  'undone', (SELECT count(*) FROM links l WHERE l.session_id = s.id AND l.undone_at IS NOT NULL),
  'now', (SELECT json_build_object('turn', c.turn_id, 'parts', c.parts, 'model', c.model_alias,
              'window', c.model_context_limit, 'hard', c.hard_limit, 'budget', c.input_budget, 'at', c.created_at)
            FROM turn_context_audit c WHERE c.session_id = s.id ORDER BY c.turn_id DESC, c.id DESC LIMIT 1),
  'running', (SELECT json_build_object('kind', j.kind, 'since', j.started_at) FROM jobs j
               WHERE j.session_id = s.id AND j.state = 'running'),
  'flushes', coalesce((SELECT json_agg(json_build_object('id', f.public_id, 'threshold', f.threshold,
        'from_turn', f.from_turn, 'through_turn', f.through_turn, 'outcome', f.outcome, 'note_count', f.note_count,
        'stray_text', nullif(f.stray_text, ''), 'error', nullif(f.error, ''), 'model', nullif(f.model, ''),
        'tokens', f.tokens, 'cost_micro', f.cost_micro, 'at', f.created_at, 'ended_at', f.ended_at,
        'notes', coalesce((SELECT json_agg(json_build_object('id', m.public_id, 'kind', m.kind, 'text', m.text,
             'importance', m.importance, 'authority', m.authority, 'superseded', m.superseded_by IS NOT NULL,
             'forgotten', m.forgotten_at IS NOT NULL) ORDER BY m.id)
             FROM notes m WHERE m.party_id = s.party_id AND m.flush_id = f.id), '[]'::json)) ORDER BY f.id DESC)
      FROM (SELECT * FROM flushes WHERE session_id = s.id ORDER BY id DESC LIMIT 50) f), '[]'::json),
  'spend', coalesce((SELECT json_agg(u ORDER BY u.cost_micro DESC NULLS LAST, u.purpose, u.model) FROM (
      SELECT purpose, model, count(*) AS calls, count(*) FILTER (WHERE status = 'aborted') AS aborted,
             sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
             sum(cache_read_tokens) AS cache_read_tokens, sum(cache_write_tokens) AS cache_write_tokens,
             sum(cost_micro) AS cost_micro, count(*) FILTER (WHERE cost_micro IS NULL) AS unknown_cost,
             count(*) FILTER (WHERE NOT known) AS unknown_tokens
        FROM usage WHERE session_id = s.id GROUP BY purpose, model) u), '[]'::json)
)::text {_OF_SESSION} WHERE s.public_id = $1
"""

_MESSAGE = """json_build_object('seq', e.seq, 'turn', e.turn_no, 'step', e.step, 'author', e.author,
  'blocks', e.blocks, 'tokens', e.tokens, 'at', e.at,
  'pinned', EXISTS (SELECT FROM pins x WHERE x.session_id = e.session_id AND x.seq = e.seq),
  'pruned', (SELECT d.form FROM prune_decisions d WHERE d.session_id = e.session_id AND d.seq = e.seq
              ORDER BY d.turn_no DESC LIMIT 1),
  'hidden', e.turn_no <= e.base_turn,
  'turn_state', n.state, 'error_code', n.error_code)"""
_PAGE = """
page AS (
  SELECT e.*, o.turn_no, o.step, s.base_turn FROM s
    CROSS JOIN LATERAL (SELECT * FROM turn_entries x
      WHERE x.session_id = s.id AND (x.turn_no, x.step) < ($2, $3)
        AND x.turn_no BETWEEN {first} AND {last}
      ORDER BY x.turn_no DESC, x.step DESC LIMIT $4 + 1) o
    JOIN entries e ON e.session_id = o.session_id AND e.seq = o.seq
), shown AS (SELECT * FROM page ORDER BY turn_no DESC, step DESC LIMIT $4)
"""
_SHOWN = f"""
  'messages', coalesce((SELECT json_agg({_MESSAGE} ORDER BY e.turn_no, e.step) FROM shown e
      JOIN turns n ON n.session_id = e.session_id AND n.turn_no = e.turn_no), '[]'::json),
  'before', (SELECT CASE WHEN (SELECT count(*) FROM page) > $4
                    THEN (SELECT turn_no || '.' || step FROM shown ORDER BY turn_no, step LIMIT 1) END)
"""

MESSAGES = f"""
WITH s AS (SELECT * FROM sessions WHERE public_id = $1), {_PAGE.format(first="$5", last="$6")}
SELECT json_build_object({_SHOWN},
  'dividers', coalesce((SELECT json_agg(json_build_object('id', l.public_id, 'kind', l.kind,
      'from_turn', l.from_turn, 'through_turn', l.through_turn, 'trigger', l.trigger, 'tokens_before', l.tokens_before,
      'tokens_after', l.tokens_after, 'at', l.created_at) ORDER BY l.through_turn, l.id)
    FROM links l WHERE l.session_id = s.id AND l.active
     AND l.through_turn BETWEEN (SELECT min(turn_no) FROM shown) AND (SELECT max(turn_no) FROM shown)), '[]'::json)
)::text FROM s
"""

ORIGINALS = f"""
WITH l AS (SELECT * FROM links WHERE public_id = $1 AND kind IN ('summary', 'digest')),
s AS (SELECT s.*, l.from_turn, l.through_turn FROM l JOIN sessions s ON s.id = l.session_id),
{_PAGE.format(first="s.from_turn", last="s.through_turn")}
SELECT json_build_object({_SHOWN}, 'session', s.public_id)::text FROM s
"""

TIMELINE = """
WITH s AS (SELECT * FROM sessions WHERE public_id = $1),
calls AS (
  SELECT DISTINCT ON (c.turn_id) c.turn_id, c.id, c.context_tokens, c.input_budget, c.hard_limit, c.parts,
         c.reported_input_tokens, c.summary_triggered, c.prune_triggered, c.overflow_rejected, c.created_at,
         count(*) OVER (PARTITION BY c.turn_id) AS calls
    FROM s JOIN turn_context_audit c ON c.session_id = s.id
   ORDER BY c.turn_id, c.id DESC
), numbered AS (
  SELECT *, count(*) OVER () AS total, row_number() OVER (ORDER BY turn_id) AS place FROM calls
), stretched AS (
  SELECT *, CASE WHEN total <= $2 THEN place ELSE (place - 1) * ($2 / 2 - 1) / total END AS stretch FROM numbered
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY stretch ORDER BY context_tokens, turn_id) AS low,
         row_number() OVER (PARTITION BY stretch ORDER BY context_tokens DESC, turn_id DESC) AS high FROM stretched
), kept AS (SELECT * FROM ranked WHERE low = 1 OR high = 1 OR place IN (1, total))
SELECT json_build_object(
  'turns', coalesce((SELECT max(total) FROM kept), 0),
  'limit', nullif(s.context_limit, 0),
  'points', coalesce((SELECT json_agg(json_build_object('turn', k.turn_id, 'at', k.created_at,
      'context', k.context_tokens, 'reported', k.reported_input_tokens, 'budget', k.input_budget,
      'hard', k.hard_limit, 'parts', k.parts, 'calls', k.calls, 'summary', k.summary_triggered,
      'prune', k.prune_triggered, 'overflow', k.overflow_rejected) ORDER BY k.turn_id) FROM kept k), '[]'::json),
  'compactions', coalesce((SELECT json_agg(json_build_object('id', l.public_id, 'kind', l.kind, 'at', l.created_at,
      'before', l.tokens_before, 'after', l.tokens_after, 'undone', l.undone_at IS NOT NULL,
      'through_turn', l.through_turn,
      'turn', coalesce((SELECT max(n.turn_no) FROM turns n WHERE n.session_id = s.id
                          AND n.opened_at <= l.created_at), l.through_turn)) ORDER BY l.id)
    FROM links l WHERE l.session_id = s.id AND l.kind IN ('summary', 'digest')), '[]'::json),
  'flushes', coalesce((SELECT json_agg(json_build_object('id', f.public_id, 'at', f.created_at,
      'outcome', f.outcome, 'notes', f.note_count, 'turn', f.through_turn) ORDER BY f.id)
    FROM flushes f WHERE f.session_id = s.id), '[]'::json)
)::text FROM s
"""

CONTEXT_AUDIT = """
WITH s AS (SELECT id FROM sessions WHERE public_id = $1),
page AS (SELECT c.* FROM s JOIN turn_context_audit c ON c.session_id = s.id WHERE c.id < $2
          ORDER BY c.turn_id DESC, c.id DESC LIMIT $3 + 1),
shown AS (SELECT * FROM page ORDER BY turn_id DESC, id DESC LIMIT $3)
SELECT json_build_object(
  'calls', coalesce((SELECT json_agg(json_build_object('turn', c.turn_id, 'at', c.created_at, 'model', c.model_alias,
      'window', c.model_context_limit, 'budget', c.input_budget, 'hard', c.hard_limit,
      'before', c.estimated_input_tokens_before, 'after_summary', c.estimated_input_tokens_after_summary,
      'after_prune', c.estimated_input_tokens_after_prune, 'reported', c.reported_input_tokens,
      'context', c.context_tokens, 'summary', c.summary_triggered, 'prune', c.prune_triggered,
      'overflow', c.overflow_rejected) ORDER BY c.turn_id DESC, c.id DESC) FROM shown c), '[]'::json),
  'before', CASE WHEN (SELECT count(*) FROM page) > $3 THEN (SELECT min(id)::text FROM shown) END
)::text FROM s
"""

COMPACTIONS = """
SELECT json_build_object(
  'standing', json_build_object(
    'head', (SELECT public_id FROM links WHERE id = s.head),
    'head_kind', (SELECT kind FROM links WHERE id = s.head),
    'redo', (SELECT public_id FROM links WHERE id = s.redo),
    'context', s.context_tokens, 'busy', s.answered_turn < s.next_turn - 1,
    'hard', (SELECT c.hard_limit FROM turn_context_audit c WHERE c.session_id = s.id
              ORDER BY c.turn_id DESC, c.id DESC LIMIT 1)),
  'compactions', coalesce((SELECT json_agg(json_build_object('id', l.public_id, 'kind', l.kind, 'active', l.active,
      'trigger', l.trigger, 'from_turn', l.from_turn, 'through_turn', l.through_turn, 'summary', l.summary_text,
      'tokens', l.tokens, 'tokens_before', l.tokens_before, 'tokens_after', l.tokens_after,
      'saved_pct', CASE WHEN l.tokens_before > 0
                   THEN ((l.tokens_before - l.tokens_after) * 100.0 / l.tokens_before)::float8 END,
      'model', nullif(l.model, ''), 'duration_ms', nullif(l.duration_ms, 0), 'cost_micro', l.cost_micro,
      'audit', l.audit, 'contract', l.contract, 'focus', nullif(l.focus, ''),
      'at', l.created_at, 'undone_at', l.undone_at) ORDER BY l.id DESC)
    FROM links l WHERE l.session_id = s.id AND l.kind IN ('summary', 'digest')), '[]'::json),
  'failed', coalesce((SELECT json_agg(json_build_object('id', j.id, 'trigger', j.trigger, 'attempt', j.attempt,
      'error', nullif(j.last_error, ''), 'failures', j.failures, 'state', j.state, 'at', coalesce(j.ended_at, j.started_at, j.created_at))
      ORDER BY j.id DESC)
    FROM (SELECT * FROM jobs WHERE session_id = s.id AND kind = 'compact'
             AND (state = 'dead' OR (state IN ('due', 'running') AND last_error <> ''))
           ORDER BY id DESC LIMIT 20) j), '[]'::json)
)::text FROM sessions s WHERE s.public_id = $1
"""

OVERVIEW = f"""
SELECT json_build_object(
  'spend_micro', u.spent, 'spend_unknown_calls', u.unknown, 'calls', u.calls,
  'active', (SELECT count(*) FROM sessions WHERE last_active_at > now() - interval '1 hour'),
  'near_limit', (SELECT count(*) FROM sessions WHERE last_active_at > now() - interval '1 day'
                    AND context_limit > 0 AND context_tokens * 100.0 >= context_limit * {NEAR_PCT}.0),
  'waiting', (SELECT count(*) FROM sessions WHERE answered_turn < next_turn - 1),
  'jobs_dead', (SELECT count(*) FROM jobs WHERE state = 'dead' AND ended_at > now() - interval '1 day'),
  'jobs_retrying', (SELECT count(*) FROM jobs WHERE state IN ('due', 'running') AND last_error <> ''),
  'workers', (SELECT count(*) FROM workers WHERE role = 'worker' AND stopped_at IS NULL
                 AND beat > now() - interval '{LEASE_SECONDS} s'),
  'at', now())::text
  FROM (SELECT CASE WHEN count(*) = 0 THEN 0 ELSE sum(cost_micro) END AS spent,
               count(*) FILTER (WHERE cost_micro IS NULL) AS unknown, count(*) AS calls
          FROM usage WHERE at >= date_trunc('day', now() AT TIME ZONE $1) AT TIME ZONE $1) u
"""

JOBS = f"""
WITH page AS (SELECT * FROM jobs WHERE ($1::text = '' OR state = $1) AND id < $2 ORDER BY id DESC LIMIT $3 + 1),
shown AS (SELECT * FROM page ORDER BY id DESC LIMIT $3)
SELECT json_build_object(
  'states', (SELECT json_object_agg(v.state, (SELECT count(*) FROM jobs j WHERE j.state = v.state))
               FROM (VALUES ('due'), ('running'), ('done'), ('dead')) v(state)),
  'dead_lately', (SELECT count(*) FROM jobs WHERE state = 'dead' AND ended_at > now() - interval '1 day'),
  'oldest_due', (SELECT min(due_at) FROM jobs WHERE state = 'due' AND due_at <= now()),
  'jobs', coalesce((SELECT json_agg(json_build_object('id', j.id, 'kind', j.kind, 'state', j.state,
      'session', s.public_id, 'person', nullif(p.display_name, ''), 'trigger', j.trigger, 'attempt', j.attempt,
      'faults', j.faults, 'error', nullif(j.last_error, ''),
      'failures', j.failures, 'due_at', j.due_at, 'created_at', j.created_at,
      'started_at', j.started_at, 'ended_at', j.ended_at,
      'duration_ms', extract(epoch FROM coalesce(j.ended_at, CASE WHEN j.state = 'running' THEN now() END)
                             - j.started_at)::float8 * 1000) ORDER BY j.id DESC)
    FROM shown j JOIN sessions s ON s.id = j.session_id JOIN parties p ON p.id = s.party_id), '[]'::json),
  'before', CASE WHEN (SELECT count(*) FROM page) > $3 THEN (SELECT min(id)::text FROM shown) END,
  'workers', coalesce((SELECT json_agg(json_build_object('id', w.id, 'role', w.role, 'pid', w.pid, 'beat', w.beat,
      'started_at', w.started_at, 'stopped_at', w.stopped_at,
      'alive', w.stopped_at IS NULL AND w.beat > now() - interval '{LEASE_SECONDS} s') ORDER BY w.id DESC)
    FROM (SELECT * FROM workers WHERE beat > now() - interval '1 hour' ORDER BY id DESC LIMIT 20) w), '[]'::json),
  'bots', coalesce((SELECT json_agg(json_build_object('id', b.bot_id, 'username', b.username, 'mode', b.mode,
      'access', b.access, 'problem', nullif(b.problem, ''), 'heard_at', b.heard_at, 'served_by', w.pid,
      'waiting', (SELECT count(*) FROM telegram_updates u WHERE u.bot_id = b.bot_id AND u.handled_at IS NULL))
      ORDER BY b.bot_id)
    FROM telegram_bots b LEFT JOIN leases l ON l.name = 'telegram:' || b.bot_id
    LEFT JOIN workers w ON w.id = l.leased_by AND w.stopped_at IS NULL
          AND w.beat > now() - interval '{LEASE_SECONDS} s'), '[]'::json),
  'uncertain', coalesce((SELECT json_agg(json_build_object('session', s.public_id,
      'person', nullif(p.display_name, ''), 'turn', d.turn_no, 'part', d.part, 'state', d.state,
      'error', nullif(d.error, ''), 'at', d.created_at) ORDER BY d.created_at DESC)
    FROM (SELECT * FROM deliveries WHERE state IN ('uncertain', 'dead') AND created_at > now() - interval '30 days'
           ORDER BY created_at DESC LIMIT 20) d
    JOIN sessions s ON s.id = d.session_id JOIN parties p ON p.id = s.party_id), '[]'::json)
)::text
"""

COUNTERS = f"""
SELECT json_build_object(
  'summaries', (SELECT count(*) FROM links WHERE kind IN ('summary', 'digest')),
  'undone', (SELECT count(*) FROM links WHERE undone_at IS NOT NULL),
  'prunes', c.prunes, 'overflows', c.overflows, 'avg_prompt', c.avg_prompt,
  'turns', (SELECT coalesce(json_object_agg(state, n), '{{}}'::json)
              FROM (SELECT state, count(*) AS n FROM turns GROUP BY state) x),
  'tokens', (SELECT json_build_object('input', coalesce(sum(input_tokens), 0),
      'output', coalesce(sum(output_tokens), 0), 'cache_read', coalesce(sum(cache_read_tokens), 0),
      'cache_write', coalesce(sum(cache_write_tokens), 0)) FROM session_totals),
  'cost_micro', (SELECT coalesce(sum(cost_micro), 0) FROM session_totals),
  'cost_unknown_calls', (SELECT coalesce(sum(cost_unknown_calls), 0) FROM session_totals),
  'jobs', (SELECT json_object_agg(v.state, (SELECT count(*) FROM jobs j WHERE j.state = v.state))
             FROM (VALUES ('due'), ('running'), ('done'), ('dead')) v(state)),
  'workers', (SELECT coalesce(json_object_agg(role, n), '{{}}'::json) FROM (
      SELECT role, count(*) AS n FROM workers
       WHERE stopped_at IS NULL AND beat > now() - interval '{LEASE_SECONDS} s' GROUP BY role) x),
  'sessions', (SELECT count(*) FROM sessions),
  'flushes', (SELECT coalesce(json_object_agg(outcome, n), '{{}}'::json)
                FROM (SELECT outcome, count(*) AS n FROM flushes GROUP BY outcome) x)
)::text FROM (
  SELECT count(*) FILTER (WHERE prune_triggered) AS prunes, count(*) FILTER (WHERE overflow_rejected) AS overflows,
         avg(coalesce(reported_input_tokens, estimated_input_tokens_after_prune))::float8 AS avg_prompt
    FROM turn_context_audit) c
"""
