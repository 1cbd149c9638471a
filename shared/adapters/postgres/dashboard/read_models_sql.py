"""SQL of the dashboard's pages: one statement per page, whose answer is one JSON text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from shared.adapters.postgres.db.pool import Named
from shared.core.session.channels import SECRETARY_CHANNEL

FULL_MARKS = (70, 90)
"""Percentages of filled context that have partial indexes."""
STATES = ("answering", "waiting", "tidying", "problem", "idle")
"""States of a session: being answered, waiting for an answer, with a running job, troubled, or none of these.
"""
IN_STATE = {
    "answering": """s.id = ANY (ARRAY(SELECT session_id FROM turns WHERE ended_at IS NULL))
                    AND s.answered_turn < s.next_turn - 1 AND s.leased_by IS NOT NULL""",
    "waiting": """s.id = ANY (ARRAY(SELECT session_id FROM turns WHERE ended_at IS NULL))
                  AND s.answered_turn < s.next_turn - 1 AND s.leased_by IS NULL""",
    "tidying": "s.id IN (SELECT session_id FROM jobs WHERE state = 'running') AND live.state = 'tidying'",
    "problem": "s.troubled_at IS NOT NULL AND coalesce(live.state = 'problem', false)",
    "idle": "coalesce(live.state = 'idle', false)",
}
"""SQL conditions that session `s` with the state `live` has a state, by indexes of sessions that are not idle.

`coalesce` makes the planner assume that half of the rows match; a bare comparison would make it sort them
all.
"""
LISTED_IN_STATE = {
    "answering": """s.id = ANY (ARRAY(SELECT session_id FROM turns WHERE ended_at IS NULL))
                    AND (SELECT y.state FROM session_states y WHERE y.id = s.id) = 'answering'""",
    "waiting": """s.id = ANY (ARRAY(SELECT session_id FROM turns WHERE ended_at IS NULL))
                  AND (SELECT y.state FROM session_states y WHERE y.id = s.id) = 'waiting'""",
    "tidying": """s.id IN (SELECT session_id FROM jobs WHERE state = 'running')
                  AND (SELECT y.state FROM session_states y WHERE y.id = s.id) = 'tidying'""",
    "problem": """s.troubled_at IS NOT NULL
                  AND coalesce((SELECT y.state FROM session_states y WHERE y.id = s.id) = 'problem', false)""",
    "idle": "coalesce((SELECT y.state FROM session_states y WHERE y.id = s.id) = 'idle', false)",
}
"""The same conditions for a row of `session_list`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Sort order of the session list, as SQL: `key` is never NULL, so that cursors can use it.

    `tie` orders rows with equal keys; `kind` is the SQL type of `key`.
    """

    key: str
    kind: str
    tie: str = "s.id"
    listed: bool = False
    """Whether `s` is a row of `session_list`, which is some seconds old."""

    def holds(self, key: str) -> bool:
        """Return whether a cursor's text is a value of this order's type."""
        try:
            match self.kind:
                case "bigint":
                    return abs(int(key)) < 2**63 and key.removeprefix("-").isdecimal() and key.isascii()
                case "float8":
                    return math.isfinite(float(key)) and len(key) < 40
                case "timestamptz":
                    return datetime.fromisoformat(key).tzinfo is not None
        except (ValueError, OverflowError):
            return False
        return True


def _listed(key: str, kind: str = "bigint") -> Order:
    return Order(key=key, kind=kind, listed=True)


SORTS = {
    "active": _listed("s.last_active_at", "timestamptz"),
    "channel": Order(key="s.last_channel", kind="text"),
    "person": Order(key='lower(p.display_name) COLLATE "C"', kind="text"),
    "agent": Order(key="a.name", kind="text"),
    "turns": _listed("s.next_turn"),
    "context": _listed(
        """coalesce((CASE WHEN s.context_limit > 0 THEN s.context_tokens * 100.0 / s.context_limit END)::float8,
                    -1)""",
        "float8",
    ),
    "input": _listed("(s.input_tokens + s.cache_read_tokens + s.cache_write_tokens)"),
    "output": _listed("s.output_tokens"),
    "cost": _listed(
        """coalesce((CASE WHEN s.cost_unknown_calls > 0 AND s.cost_micro = 0 THEN NULL ELSE s.cost_micro END),
                    -1)"""
    ),
    "cache": _listed(
        """coalesce((CASE WHEN s.input_tokens + s.cache_read_tokens + s.cache_write_tokens > 0
                          THEN s.cache_read_tokens * 100.0
                               / (s.input_tokens + s.cache_read_tokens + s.cache_write_tokens) END)::float8, -1)""",
        "float8",
    ),
    "compactions": Order(key="t.compaction_count", kind="bigint", tie="t.session_id"),
    "state": Order(key="live.state", kind="text"),
}
"""Sortable columns of the session list; each order has an index over exactly the same expression.

Values that each turn changes are ordered by their copy in `session_list`; rows always show current values.
"""

SESSIONS = """
WITH page AS (
  {page}
), placed AS (
  SELECT *, row_number() OVER () AS place FROM page
)
SELECT json_agg(json_build_object('row', s.id, 'key', s.key::text,
  'id', s.public_id,
  'person_id', (SELECT r.public_id FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id)
                 WHERE o.id = s.contact_id),
  'person', nullif(coalesce(s.person_name, (SELECT display_name FROM contacts WHERE id = s.contact_id)), ''),
  'kind', coalesce(s.person_kind, (SELECT kind FROM contacts WHERE id = s.contact_id)),
  'anonymous', coalesce(s.person_anonymous, (SELECT anonymous FROM contacts WHERE id = s.contact_id)),
  'title', named.title,
  'agent', a.name, 'channel', nullif(s.last_channel, ''), 'turns', s.next_turn - 1,
  'context_tokens', CASE WHEN s.context_limit > 0 THEN s.context_tokens END,
  'context_reserved', CASE WHEN s.context_limit > 0 THEN s.context_reserved END,
  'context_limit', nullif(s.context_limit, 0),
  'context_pct', (CASE WHEN s.context_limit > 0 THEN s.context_tokens * 100.0 / s.context_limit END)::float8,
  'input_tokens', (t.input_tokens + t.cache_read_tokens + t.cache_write_tokens), 'output_tokens', t.output_tokens,
  'cache_read_tokens', t.cache_read_tokens, 'cache_write_tokens', t.cache_write_tokens,
  'cache_hit_pct', (CASE WHEN t.input_tokens + t.cache_read_tokens + t.cache_write_tokens > 0
                         THEN t.cache_read_tokens * 100.0
                              / (t.input_tokens + t.cache_read_tokens + t.cache_write_tokens) END)::float8,
  'cost_micro', (CASE WHEN t.cost_unknown_calls > 0 AND t.cost_micro = 0 THEN NULL ELSE t.cost_micro END),
  'cost_unknown_calls', t.cost_unknown_calls, 'compactions', t.compaction_count,
  'state', {state},
  'created_at', s.created_at, 'last_active_at', s.last_active_at) ORDER BY s.place)::text
  FROM placed s LEFT JOIN session_totals t ON t.session_id = s.id JOIN agents a ON a.id = s.agent_id
 CROSS JOIN LATERAL session_title(s.id, s.head) named
 CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
"""
"""Template of a page of sessions as JSON; its slots are the SQL of the `page` and of the `state`.

A state known from the order or the filter is not computed again; else the slot is `live.state`. The person is read
from contacts only while the copies in the session are missing. Percentages are NULL before their whole is known,
and the cost is NULL if no call has a known price.
"""

SESSION = Named(
    """
SELECT json_build_object(
  'id', s.public_id,
  'person_id', (SELECT r.public_id FROM contacts o JOIN contacts r ON r.id = coalesce(o.merged_into, o.id)
                 WHERE o.id = s.contact_id),
  'person', nullif(coalesce(s.person_name, (SELECT display_name FROM contacts WHERE id = s.contact_id)), ''),
  'kind', coalesce(s.person_kind, (SELECT kind FROM contacts WHERE id = s.contact_id)),
  'anonymous', coalesce(s.person_anonymous, (SELECT anonymous FROM contacts WHERE id = s.contact_id)),
  'title', named.title,
  'agent', a.name, 'channel', nullif(s.last_channel, ''), 'turns', s.next_turn - 1,
  'context_tokens', CASE WHEN s.context_limit > 0 THEN s.context_tokens END,
  'context_reserved', CASE WHEN s.context_limit > 0 THEN s.context_reserved END,
  'context_limit', nullif(s.context_limit, 0),
  'context_pct', (CASE WHEN s.context_limit > 0 THEN s.context_tokens * 100.0 / s.context_limit END)::float8,
  'input_tokens', (t.input_tokens + t.cache_read_tokens + t.cache_write_tokens), 'output_tokens', t.output_tokens,
  'cache_read_tokens', t.cache_read_tokens, 'cache_write_tokens', t.cache_write_tokens,
  'cache_hit_pct', (CASE WHEN t.input_tokens + t.cache_read_tokens + t.cache_write_tokens > 0
                         THEN t.cache_read_tokens * 100.0
                              / (t.input_tokens + t.cache_read_tokens + t.cache_write_tokens) END)::float8,
  'cost_micro', (CASE WHEN t.cost_unknown_calls > 0 AND t.cost_micro = 0 THEN NULL ELSE t.cost_micro END),
  'cost_unknown_calls', t.cost_unknown_calls, 'compactions', t.compaction_count,
  'state', live.state,
  'created_at', s.created_at, 'last_active_at', s.last_active_at,
  'contact', coalesce((SELECT r.public_id FROM contacts r WHERE r.id = p.merged_into), p.public_id),
  'timezone', p.timezone, 'goal', nullif(s.goal, ''), 'mode', nullif(s.mode, ''),
  'base_turn', s.base_turn, 'flushed_turn', s.flushed_turn, 'held', s.hold_compaction,
  'compaction', s.compaction, 'compact_at', s.compact_at,
  'answered_turn', s.answered_turn, 'view_epoch', s.view_epoch, 'newest_seq', s.next_seq - 1,
  'handover', (SELECT json_build_object('state', h.state, 'asked_by', h.asked_by, 'reason', h.reason,
        'operator_id', h.operator_id, 'operator', h.operator_name, 'asked_at', h.asked_at, 'taken_at', h.taken_at,
        'version', h.version, 'labels', h.labels,
        'snoozed_until', CASE WHEN awake_at(h) > now() THEN h.snoozed_until END,
        'waits_since', (SELECT n.opened_at FROM turns n
                         WHERE n.session_id = s.id AND n.turn_no = s.answered_turn + 1))
      FROM handovers h WHERE h.session_id = s.id AND h.ended_at IS NULL),
  'private_notes', (SELECT json_build_array(count(*), max(n.created_at)) FROM private_notes n WHERE n.session_id = s.id),
  'site', (SELECT coalesce(nullif(w.config ->> 'title', ''), w.name) FROM addresses x JOIN sites w ON w.name = x.account
            WHERE x.session_id = s.id AND x.channel = 'web' ORDER BY x.id DESC LIMIT 1),
  'for_owner', (SELECT nullif(c.owner_name, '') FROM addresses x JOIN secretary_connections c
                   ON c.bot_id::text = x.account AND c.owner_id::text = split_part(x.chat, ':', 1)
                 WHERE x.session_id = s.id AND x.channel = :secretary_channel
                 ORDER BY c.is_enabled DESC, c.established_at DESC LIMIT 1),
  'first_channel', (SELECT json_agg(DISTINCT n.channel) FROM turns n
                     WHERE n.session_id = s.id AND n.turn_no IN (1, s.next_turn - 1)),
  'undone', (SELECT count(*) FROM compactions l WHERE l.session_id = s.id AND l.undone_at IS NOT NULL),
  'now', (SELECT json_build_object('turn', c.turn_id, 'parts', c.parts, 'model', c.model_alias,
              'window', c.model_context_limit, 'hard', c.hard_limit, 'budget', c.input_budget, 'at', c.created_at)
            FROM newest_call(s.id) c),
  'running', (SELECT json_build_object('kind', j.kind, 'since', j.started_at) FROM jobs j
               WHERE j.session_id = s.id AND j.state = 'running'),
  'notes', (SELECT json_build_object('kept', count(*), 'newest', max(n.id)::text)
              FROM contact_family(coalesce(p.merged_into, p.id)) AS family(id)
             CROSS JOIN LATERAL (SELECT id FROM notes m WHERE m.contact_id = family.id AND m.text <> ''
                AND m.forgotten_at IS NULL AND m.superseded_by IS NULL OFFSET 0) n),
  'flushes', coalesce((SELECT json_agg(json_build_object('id', f.public_id, 'threshold', f.threshold,
        'from_turn', f.from_turn, 'through_turn', f.through_turn, 'outcome', f.outcome, 'note_count', f.note_count,
        'stray_text', nullif(f.stray_text, ''), 'error', nullif(f.error, ''), 'model', nullif(f.model, ''),
        'tokens', f.tokens, 'cost_micro', f.cost_micro, 'at', f.created_at, 'ended_at', f.ended_at,
        'notes', coalesce((SELECT json_agg(json_build_object('id', m.public_id, 'kind', m.kind, 'text', m.text,
             'importance', m.importance, 'authority', m.authority, 'superseded', m.superseded_by IS NOT NULL,
             'forgotten', m.forgotten_at IS NOT NULL) ORDER BY m.id)
             FROM notes m WHERE m.contact_id = s.contact_id AND m.flush_id = f.id), '[]'::json)) ORDER BY f.id DESC)
      FROM (SELECT * FROM flushes x WHERE (x.session_id, x.id) < (s.id, 4611686018427387904) AND x.session_id >= s.id
             ORDER BY x.session_id DESC, x.id DESC LIMIT 50) f), '[]'::json),
  'spend', coalesce((SELECT json_agg(u ORDER BY u.cost_micro DESC NULLS LAST, u.purpose, u.model) FROM (
      SELECT purpose, model, calls, aborted, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micro,
             unknown_cost, unknown_tokens FROM session_spend WHERE session_id = s.id) u), '[]'::json)
)::text
  FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
  LEFT JOIN session_totals t ON t.session_id = s.id
 CROSS JOIN LATERAL session_title(s.id, s.head) named
 CROSS JOIN LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live
 WHERE s.public_id = :public_id
""",
    secretary_channel=SECRETARY_CHANNEL,
)
"""Select facts of a session's page as JSON; no row if it is unknown.

One statement, so that all are from one moment.
"""

MESSAGES = Named("""
WITH s AS (
  SELECT * FROM sessions WHERE public_id = :public_id
), bounds AS (
  SELECT *, greatest(earliest, newest - :limit) AS oldest
    FROM (SELECT s.*, greatest(:first::bigint, 1) AS earliest,
                 least(:last::bigint, :turn, s.next_turn) AS newest FROM s) x
), page AS (
  SELECT e.*, o.turn_no, o.step, o.replaced_by, s.base_turn FROM bounds s
    CROSS JOIN LATERAL (SELECT * FROM turn_entries x
      WHERE x.session_id = s.id AND x.turn_no BETWEEN s.oldest AND s.newest
        AND (x.turn_no, x.step) < (:turn, :step)
      ORDER BY x.turn_no DESC, x.step DESC LIMIT :limit + 1) o
   CROSS JOIN LATERAL (SELECT * FROM entries x WHERE x.session_id = o.session_id AND x.seq = o.seq OFFSET 0) e
), shown AS (
  SELECT * FROM page ORDER BY turn_no DESC, step DESC LIMIT :limit
)
SELECT json_build_object(
  'messages', coalesce((SELECT json_agg(
    json_build_object('seq', e.seq, 'turn', e.turn_no, 'step', e.step, 'author', e.author,
      'blocks', e.blocks, 'tokens', e.tokens, 'at', e.at,
      'pinned', EXISTS (SELECT FROM pins x WHERE x.session_id = e.session_id AND x.seq = e.seq),
      'pruned', (SELECT d.form FROM prune_decisions d WHERE d.session_id = e.session_id AND d.seq = e.seq
                  ORDER BY d.turn_no DESC LIMIT 1),
      'hidden', e.turn_no <= e.base_turn, 'replaced', e.replaced_by IS NOT NULL,
      'edited', e.author = 'person' AND EXISTS (
          SELECT FROM turn_entries f WHERE f.session_id = e.session_id AND f.replaced_by = e.seq),
      'name', CASE WHEN e.author = 'operator' THEN (
          SELECT nullif(h.operator_name, '') FROM handovers h WHERE h.session_id = e.session_id AND h.taken_at <= e.at
           ORDER BY h.taken_at DESC LIMIT 1) END,
      'files', CASE WHEN e.blocks @? '$[*].attachment_id' THEN (SELECT json_agg(json_build_object(
                    'number', f.id, 'id', f.public_id, 'name', f.name, 'mime', f.mime, 'size', f.size,
                    'kept', f.body IS NOT NULL))
                  FROM attachments f WHERE f.session_id = e.session_id AND f.id IN (
                       SELECT (b ->> 'attachment_id')::bigint FROM jsonb_array_elements(e.blocks) b)) END,
      'feedback', CASE WHEN e.author = 'assistant' THEN (
          SELECT json_build_object('opinion', b.opinion, 'words', nullif(b.words, '')) FROM feedback b
           WHERE b.session_id = e.session_id AND b.turn_no = e.turn_no) END,
      'turn_state', n.state, 'error_code', n.error_code,
      'stop', CASE WHEN e.author = 'assistant' AND NOT e.blocks @? '$[*] ? (@.type == "tool_use")' THEN n.stop_reason END) ORDER BY e.turn_no, e.step) FROM shown e
      CROSS JOIN LATERAL (SELECT state, error_code, stop_reason FROM turns n
        WHERE n.session_id = e.session_id AND n.turn_no = e.turn_no LIMIT 1) n), '[]'::json),
  'before', (SELECT CASE WHEN (SELECT count(*) FROM page) > :limit
                    THEN (SELECT turn_no || '.' || step FROM shown ORDER BY turn_no, step LIMIT 1)
                    WHEN b.oldest > b.earliest THEN b.oldest || '.0' END FROM bounds b),
  'dividers', coalesce((SELECT json_agg(json_build_object('id', l.public_id, 'kind', l.kind,
      'from_turn', l.from_turn, 'through_turn', l.through_turn, 'trigger', l.trigger, 'tokens_before', l.tokens_before,
      'tokens_after', l.tokens_after, 'at', l.created_at) ORDER BY l.through_turn, l.id)
    FROM (SELECT min(turn_no) AS low, max(turn_no) AS high FROM shown) v JOIN compactions l
      ON l.session_id = s.id AND l.active AND l.through_turn BETWEEN v.low AND v.high
     AND int8range(l.from_turn, l.through_turn, '[]') && int8range(v.low, v.high, '[]')), '[]'::json),
  'handovers', coalesce((SELECT json_agg(json_build_object('id', h.id, 'asked_by', h.asked_by, 'reason', h.reason,
      'operator', h.operator_name, 'asked_at', h.asked_at, 'taken_at', h.taken_at, 'ended_at', h.ended_at,
      'ended_by', h.ended_by, 'rating', h.rating) ORDER BY h.id)
    FROM (SELECT * FROM handovers h WHERE h.session_id = s.id AND (h.ended_at IS NULL
             OR h.ended_at >= (SELECT coalesce(min(at), '-infinity') FROM shown))
           ORDER BY h.id DESC LIMIT 200) h), '[]'::json),
  'private_notes', coalesce((SELECT json_agg(json_build_object('id', n.public_id, 'operator', n.operator_name,
      'operator_id', n.operator_id, 'body', n.body, 'at', n.created_at) ORDER BY n.id)
    FROM (SELECT * FROM private_notes n WHERE n.session_id = s.id
             AND n.created_at >= (SELECT coalesce(min(at), '-infinity') FROM shown)
           ORDER BY n.id DESC LIMIT 200) n), '[]'::json)
)::text FROM s
""")
"""Select at most `limit` messages before (`turn`, `step`) as JSON, with what lies between them.

Between them lie compactions, hand-overs and private notes. No row if the session is unknown.

`bounds` are the turns that hold the page; it may be short, and then `before` names the begin of the next one.
Without these bounds, a plan made for short conversations reads a whole long one.
"""

ORIGINALS = Named("""
WITH l AS (
  SELECT * FROM compactions WHERE public_id = :public_id AND kind IN ('summary', 'digest')
), s AS (
  SELECT s.*, l.from_turn, l.through_turn FROM l JOIN sessions s ON s.id = l.session_id
), bounds AS (
  SELECT *, greatest(earliest, newest - :limit) AS oldest
    FROM (SELECT s.*, greatest(s.from_turn::bigint, 1) AS earliest,
                 least(s.through_turn::bigint, :turn, s.next_turn) AS newest FROM s) x
), page AS (
  SELECT e.*, o.turn_no, o.step, o.replaced_by, s.base_turn FROM bounds s
    CROSS JOIN LATERAL (SELECT * FROM turn_entries x
      WHERE x.session_id = s.id AND x.turn_no BETWEEN s.oldest AND s.newest
        AND (x.turn_no, x.step) < (:turn, :step)
      ORDER BY x.turn_no DESC, x.step DESC LIMIT :limit + 1) o
   CROSS JOIN LATERAL (SELECT * FROM entries x WHERE x.session_id = o.session_id AND x.seq = o.seq OFFSET 0) e
), shown AS (
  SELECT * FROM page ORDER BY turn_no DESC, step DESC LIMIT :limit
)
SELECT json_build_object(
  'messages', coalesce((SELECT json_agg(
    json_build_object('seq', e.seq, 'turn', e.turn_no, 'step', e.step, 'author', e.author,
      'blocks', e.blocks, 'tokens', e.tokens, 'at', e.at,
      'pinned', EXISTS (SELECT FROM pins x WHERE x.session_id = e.session_id AND x.seq = e.seq),
      'pruned', (SELECT d.form FROM prune_decisions d WHERE d.session_id = e.session_id AND d.seq = e.seq
                  ORDER BY d.turn_no DESC LIMIT 1),
      'hidden', e.turn_no <= e.base_turn, 'replaced', e.replaced_by IS NOT NULL,
      'edited', e.author = 'person' AND EXISTS (
          SELECT FROM turn_entries f WHERE f.session_id = e.session_id AND f.replaced_by = e.seq),
      'name', CASE WHEN e.author = 'operator' THEN (
          SELECT nullif(h.operator_name, '') FROM handovers h WHERE h.session_id = e.session_id AND h.taken_at <= e.at
           ORDER BY h.taken_at DESC LIMIT 1) END,
      'files', CASE WHEN e.blocks @? '$[*].attachment_id' THEN (SELECT json_agg(json_build_object(
                    'number', f.id, 'id', f.public_id, 'name', f.name, 'mime', f.mime, 'size', f.size,
                    'kept', f.body IS NOT NULL))
                  FROM attachments f WHERE f.session_id = e.session_id AND f.id IN (
                       SELECT (b ->> 'attachment_id')::bigint FROM jsonb_array_elements(e.blocks) b)) END,
      'feedback', CASE WHEN e.author = 'assistant' THEN (
          SELECT json_build_object('opinion', b.opinion, 'words', nullif(b.words, '')) FROM feedback b
           WHERE b.session_id = e.session_id AND b.turn_no = e.turn_no) END,
      'turn_state', n.state, 'error_code', n.error_code,
      'stop', CASE WHEN e.author = 'assistant' AND NOT e.blocks @? '$[*] ? (@.type == "tool_use")' THEN n.stop_reason END) ORDER BY e.turn_no, e.step) FROM shown e
      CROSS JOIN LATERAL (SELECT state, error_code, stop_reason FROM turns n
        WHERE n.session_id = e.session_id AND n.turn_no = e.turn_no LIMIT 1) n), '[]'::json),
  'before', (SELECT CASE WHEN (SELECT count(*) FROM page) > :limit
                    THEN (SELECT turn_no || '.' || step FROM shown ORDER BY turn_no, step LIMIT 1)
                    WHEN b.oldest > b.earliest THEN b.oldest || '.0' END FROM bounds b),
  'session', s.public_id)::text FROM s
""")
"""Select at most `limit` messages that a summary replaces, before (`turn`, `step`), as JSON.

No row if the summary is unknown.
"""

CONTEXT_AUDIT = """
WITH s AS (SELECT id FROM sessions WHERE public_id = :public_id),
page AS (SELECT c.* FROM s CROSS JOIN LATERAL (
          SELECT * FROM turn_context_audit x
           WHERE (x.session_id, x.turn_id, x.id) < (s.id, :turn, :number::bigint) AND x.session_id >= s.id
           ORDER BY x.session_id DESC, x.turn_id DESC, x.id DESC LIMIT {limit} + 1) c),
shown AS (SELECT * FROM page ORDER BY turn_id DESC, id DESC LIMIT {limit})
SELECT json_build_object(
  'calls', coalesce((SELECT json_agg(json_build_object('turn', c.turn_id, 'at', c.created_at, 'model', c.model_alias,
      'window', c.model_context_limit, 'budget', c.input_budget, 'hard', c.hard_limit,
      'before', c.estimated_input_tokens_before, 'after_summary', c.estimated_input_tokens_after_summary,
      'after_prune', c.estimated_input_tokens_after_prune, 'reported', c.reported_input_tokens,
      'context', c.context_tokens, 'summary', c.summary_triggered, 'prune', c.prune_triggered,
      'overflow', c.overflow_rejected) ORDER BY c.turn_id DESC, c.id DESC) FROM shown c), '[]'::json),
  'before', (SELECT CASE WHEN (SELECT count(*) FROM page) > {limit}
                    THEN (SELECT turn_id || '.' || id FROM shown ORDER BY turn_id, id LIMIT 1) END)
)::text FROM s
"""
"""Template of a page of `{limit}` model calls of a session before (`turn`, `number`), as JSON.

No row if the session is unknown.
"""

COMPACTIONS = """
WITH s AS (SELECT * FROM sessions WHERE public_id = :public_id),
page AS (SELECT l.* FROM s CROSS JOIN LATERAL (
          SELECT * FROM compactions x WHERE (x.session_id, x.id) < (s.id, :before) AND x.session_id >= s.id
             AND x.kind IN ('summary', 'digest')
           ORDER BY x.session_id DESC, x.id DESC LIMIT {limit} + 1) l),
shown AS (SELECT * FROM page ORDER BY id DESC LIMIT {limit})
SELECT json_build_object(
  'standing', json_build_object(
    'head', (SELECT public_id FROM compactions WHERE id = s.head),
    'head_kind', (SELECT kind FROM compactions WHERE id = s.head),
    'redo', (SELECT public_id FROM compactions WHERE id = s.redo),
    'context', s.context_tokens, 'busy', s.answered_turn < s.next_turn - 1,
    'hard', (SELECT c.hard_limit FROM newest_call(s.id) c)),
  'total', (SELECT t.compaction_count FROM session_totals t WHERE t.session_id = s.id),
  'compactions', coalesce((SELECT json_agg(json_build_object('id', l.public_id, 'kind', l.kind, 'active', l.active,
      'trigger', l.trigger, 'from_turn', l.from_turn, 'through_turn', l.through_turn, 'summary', l.summary_text,
      'tokens', l.tokens, 'tokens_before', l.tokens_before, 'tokens_after', l.tokens_after,
      'saved_pct', CASE WHEN l.tokens_before > 0
                   THEN ((l.tokens_before - l.tokens_after) * 100.0 / l.tokens_before)::float8 END,
      'model', nullif(l.model, ''), 'duration_ms', nullif(l.duration_ms, 0), 'cost_micro', l.cost_micro,
      'audit', l.audit, 'contract', l.contract, 'focus', nullif(l.focus, ''),
      'at', l.created_at, 'undone_at', l.undone_at, 'stale', l.active AND EXISTS (
          SELECT FROM turn_entries o JOIN turn_entries n ON n.session_id = o.session_id AND n.seq = o.replaced_by
             AND n.turn_no = o.turn_no
           WHERE o.session_id = l.session_id AND o.turn_no BETWEEN l.from_turn AND l.through_turn
             AND o.replaced_by > l.through_seq)) ORDER BY l.id DESC)
    FROM shown l), '[]'::json),
  'before', (SELECT CASE WHEN (SELECT count(*) FROM page) > {limit} THEN (SELECT min(id)::text FROM shown) END),
  'failed', coalesce((SELECT json_agg(json_build_object('id', j.id, 'trigger', j.trigger, 'attempt', j.attempt,
      'error', nullif(j.last_error, ''), 'failures', j.failures, 'state', j.state,
      'at', coalesce(j.ended_at, j.started_at, j.created_at)) ORDER BY j.id DESC)
    FROM (SELECT * FROM (
            (SELECT * FROM jobs WHERE session_id = s.id AND kind = 'compact' AND state = 'dead'
              ORDER BY id DESC LIMIT 20)
            UNION ALL
            SELECT * FROM jobs WHERE session_id = s.id AND kind = 'compact' AND state IN ('due', 'running')
               AND last_error <> '') x
           ORDER BY id DESC LIMIT 20) j), '[]'::json)
)::text FROM s
"""
"""Template of a page of `{limit}` summaries of a session with ids below `before`, as JSON.

The limit is a literal, since a plan for a parameter would look more expensive. No row if the session is
unknown.
"""

OVERVIEW = Named("""
SELECT json_build_object(
  'providers', (
     SELECT coalesce(json_agg(x ORDER BY x.host), '[]'::json) FROM (
       SELECT p ->> 'provider' AS host,
              CASE WHEN bool_or((p ->> 'refused')::boolean AND (p ->> 'open')::boolean) THEN 'refused'
                   WHEN bool_or((p ->> 'open')::boolean) THEN 'open' ELSE 'closed' END AS state,
              coalesce(sum((p ->> 'calls')::bigint), 0) AS calls,
              coalesce(sum((p ->> 'failures')::bigint), 0) AS failures,
              coalesce(max((p ->> 'open_seconds')::bigint), 0) AS open_seconds,
              count(DISTINCT w.id) AS processes, count(DISTINCT w.id) FILTER (WHERE (p ->> 'open')::boolean) AS out_of,
              coalesce(json_agg(DISTINCT w.role) FILTER (WHERE (p ->> 'open')::boolean), '[]'::json) AS out_in,
              coalesce(json_agg(DISTINCT jsonb_build_object('role', w.role, 'reason', p ->> 'reason'))
                         FILTER (WHERE (p ->> 'open')::boolean AND p ->> 'reason' <> ''), '[]'::json) AS reasons
         FROM workers w, jsonb_array_elements(coalesce(w.health -> 'providers', '[]')) p
        WHERE worker_is_alive(w) GROUP BY 1) x)
,
  'learned', (
     SELECT coalesce(json_agg(x ORDER BY x.model), '[]'::json) FROM (
       SELECT p ->> 'provider' AS host, p ->> 'model' AS model, json_agg(DISTINCT p ->> 'ability') AS refused
         FROM workers w, jsonb_array_elements(coalesce(w.health -> 'learned', '[]')) p
        WHERE worker_is_alive(w) GROUP BY 1, 2) x)
,
  'active', m.active, 'near_limit', m.nearly_full,
  'waiting', (SELECT count(*) FROM sessions s WHERE s.id = ANY (ARRAY(SELECT session_id FROM turns WHERE ended_at IS NULL))
                 AND s.answered_turn < s.next_turn - 1),
  'jobs_dead', (SELECT count(*) FROM jobs WHERE state = 'dead' AND ended_at > now() - interval '1 day'
                   AND NOT outcome ? 'cancelled'),
  'jobs_retrying', (SELECT count(*) FROM jobs WHERE state IN ('due', 'running') AND last_error <> ''),
  'workers', (SELECT count(*) FROM workers w WHERE w.role = 'worker' AND worker_is_alive(w)),
  'charged_micro', (SELECT coalesce(max(spent_micro), 0)
                             + spent_of_open_slices((now() AT TIME ZONE :timezone)::date)
                       FROM spend_days
                      WHERE scope = 'total' AND day = (now() AT TIME ZONE :timezone)::date),
  'near_caps', (SELECT count(*) FROM spend_days WHERE scope ~ '^(contact|session):' AND warned_at IS NOT NULL
                   AND day = (now() AT TIME ZONE :timezone)::date),
  'jobs_due', (SELECT count(*) FROM jobs WHERE state = 'due' AND due_at <= now()),
  'summaries_deferred', (SELECT count(DISTINCT session_id) FROM jobs
                         WHERE state = 'due' AND kind = 'compact' AND outcome ->> 'deferred' = 'backoff'),
  'handovers_waiting', (SELECT count(*) FROM handovers WHERE state = 'waiting'),
  'rating', (SELECT json_build_object('average', round(avg(rating), 2), 'count', count(*)) FROM handovers
              WHERE ended_by = 'resolved' AND ended_at > now() - interval '30 days' AND rating IS NOT NULL),
  'oldest_waiting', (SELECT min(asked_at) FROM handovers WHERE state = 'waiting'),
  'at', now())::text
  FROM
  (SELECT coalesce(sum(sessions) FILTER (WHERE minute >= date_trunc('minute', now() - interval '1 hour')), 0) AS active,
          coalesce(sum(nearly_full), 0) AS nearly_full
     FROM listed_minutes WHERE minute >= date_trunc('minute', now() - interval '1 day')) m
""")
"""Figures of the overview page, read only from counters and partial indexes.

States of providers and the abilities that model servers have refused are in the heartbeats of all living
processes; each process has separate circuit breakers.
"""

CHECKLIST = Named("""
SELECT json_build_object(
  'hidden', (SELECT checklist_hidden_at IS NOT NULL FROM operators WHERE id = :operator_id),
  'factor', EXISTS (SELECT FROM operator_factors WHERE operator_id = :operator_id
                    AND confirmed_at IS NOT NULL),
  'answered', EXISTS (SELECT FROM usage WHERE purpose = 'chat' AND status = 'done' AND model <> :demo_model),
  'embedded', EXISTS (SELECT FROM visitors v JOIN sites s ON s.name = v.site
                       WHERE cardinality(s.allowed_origins) > 0),
  'token', EXISTS (SELECT FROM stored_settings WHERE name = 'TELEGRAM_BOT_TOKEN' AND sealed IS NOT NULL),
  'refused', EXISTS (SELECT FROM refused_origins WHERE last_at > now() - interval '1 day'),
  'alerts', (SELECT coalesce(json_agg(DISTINCT kind), '[]') FROM alerts WHERE ended_at IS NULL))::text
""")
"""Steps of the set-up checklist that have been done."""
