"""The hot statements of a turn: one round trip and one commit each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from shared.adapters.postgres.db.leases import LEASE_SECONDS
from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.turns.slice_sql import TOKENS
from shared.adapters.postgres.turns.spend_sql import WRITTEN, render_total
from shared.core.context.build_context import RENDERER_VERSION
from shared.core.context.memory import CORE_CANDIDATES
from shared.core.session.failed_messages import FAILED_FORMS
from shared.core.session.turns import GUEST_NETWORK, SECRETARY_NETWORK, ReceiptParts
from shared.core.values.money import LONG_LIFE, SHORT_LIFE

WOKEN_ATTEMPTS = 20
"""A turn that its provider does not take, though it answers others, is left to its own pace from then on."""
LONGEST_WAIT_SECONDS = 61
"""No turn that waits for its provider is put back for longer: a minute, and what the commit took."""

OVERFLOW_COMES_FIRST = """
ON CONFLICT (key) WHERE state IN ('due', 'running') DO UPDATE
   SET trigger = excluded.trigger, due_at = now(), payload = jobs.payload || excluded.payload
 WHERE jobs.state = 'due' AND jobs.due_at > now() AND excluded.trigger = 'overflow'
"""
"""A compaction that rests after failures is due at once when a conversation no longer fits."""

_MESSAGE = """
), e AS (
  INSERT INTO entry_rows (session_id, seq, author, blocks, words, tokens, dedupe_key, cid)
  SELECT :session_id, seq, 'person', :blocks::jsonb, :words, :tokens, :dedupe_key, :cid FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn_no, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', seq, turn_no, :payload::jsonb FROM s
"""
_MAY_WRITE = """archived_at IS NULL AND (left_by IS NULL OR NOT :address_id = ANY (left_by))
     AND NOT EXISTS (SELECT FROM entry_rows WHERE session_id = :session_id AND dedupe_key = :dedupe_key)"""


_ONLY_IF_RECEIVED = "AND (SELECT * FROM receipt)"


def _lock_receipt(parts: ReceiptParts | None) -> str:
    """Return the first part of a statement with a receipt; `_ONLY_IF_RECEIVED` refers to it."""
    return "" if parts is None else f"receipt AS ({parts.lock}), "


def _record_receipt(parts: ReceiptParts | None) -> str:
    """Return the last parts of a statement, which store the rows of a receipt."""
    records = () if parts is None else parts.records
    return "".join(f"\n), received_{number} AS ({record}" for number, record in enumerate(records))


def _accept(*, before: str = "", only: str = "") -> str:
    """Return the statement that accepts a message; a turn collects messages of one address only.

    The right to write is checked on the session's row, which is read again after a wait for its lock.
    """
    return f"""
WITH {before}s AS (
  UPDATE sessions
     SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1,
         next_turn = next_turn + (open_turn IS NULL OR open_address IS DISTINCT FROM :address_id)::int,
         open_turn = CASE WHEN open_address = :address_id THEN coalesce(open_turn, next_turn)
            ELSE next_turn END,
         open_address = :address_id, last_channel = :channel, last_active_at = now()
   WHERE id = :session_id AND {_MAY_WRITE} {only}
  RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq, open_turn AS turn_no
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id)
  SELECT :session_id, turn_no, :channel, :address_id FROM s ON CONFLICT DO NOTHING{_MESSAGE}"""


def _accept_with(parts: ReceiptParts | None) -> Named:
    only = "" if parts is None else _ONLY_IF_RECEIVED
    begun = f"{_accept(before=_lock_receipt(parts), only=only)}{_record_receipt(parts)}"
    return Named(f"{begun}) SELECT seq, turn_no, event_seq, now() AS at FROM s")


ACCEPT = _accept_with(None)
_CAN_BE_JOINED = """next_turn = answered_turn + 2 AND EXISTS (
         SELECT FROM turns t WHERE t.session_id = :session_id AND t.turn_no = answered_turn + 1
            AND NOT t.stop_requested)
     AND NOT EXISTS (
         SELECT FROM turn_entries te JOIN entry_rows o USING (session_id, seq)
          WHERE te.session_id = :session_id AND te.turn_no = answered_turn + 1 AND o.author <> 'person')"""
"""The oldest unanswered turn is the newest one, too, and nothing but what its person wrote is stored of it."""
CAN_BE_JOINED = Named("""
SELECT true FROM sessions
 WHERE id = :session_id AND answered_turn = :turn - 1 AND next_turn = answered_turn + 2
   AND EXISTS (SELECT FROM turns t WHERE t.session_id = :session_id AND t.turn_no = answered_turn + 1
                  AND NOT t.stop_requested)
   AND NOT EXISTS (SELECT FROM turn_entries te JOIN entry_rows o USING (session_id, seq)
                    WHERE te.session_id = :session_id AND te.turn_no = answered_turn + 1 AND o.author <> 'person')
""")


def _accept_late(parts: ReceiptParts) -> Named:
    """Return the statement for the remaining part of a message whose turn is not claimed.

    The partial answer was discarded.
    """
    return Named(f"""
WITH {_lock_receipt(parts)}s AS (
  UPDATE sessions
     SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1, last_channel = :channel,
         last_active_at = now(), retry_at = NULL
   WHERE id = :session_id AND {_MAY_WRITE} AND leased_by IS NULL AND {_CAN_BE_JOINED}
     AND answered_turn = :turn - 1 {_ONLY_IF_RECEIVED}
     AND EXISTS (SELECT FROM turns t
                  WHERE t.session_id = :session_id AND t.turn_no = :turn AND t.address_id = :address_id)
  RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq, answered_turn + 1 AS turn_no{_MESSAGE}{_record_receipt(parts)}
) SELECT seq, turn_no, event_seq, now() AS at FROM s
""")


_MY_SAMPLE = """mine AS (
  SELECT FROM sample_plays
   WHERE session_id = :session_id AND played = :played AND played < total FOR UPDATE
), """
_NOTHING_WAITS = "AND EXISTS (SELECT FROM mine) AND answered_turn = next_turn - 1"
ACCEPT_OF_SAMPLE = Named(f"""{_accept(before=_MY_SAMPLE, only=_NOTHING_WAITS)}
), counted AS (
  UPDATE sample_plays p SET played = played + 1 FROM s WHERE p.session_id = :session_id
) SELECT seq, turn_no, event_seq, now() AS at FROM s
""")
"""The next message of a sample, where nothing waits for an answer: stored and counted in one commit."""
HOLD = Named("""
UPDATE sessions SET retry_at = greatest(retry_at, now() + make_interval(secs => :seconds))
 WHERE id = :session_id AND answered_turn = :turn - 1 AND next_turn > :turn AND leased_by IS NULL RETURNING id
""")
"""Postponement of a turn that waits for the remaining parts of its message."""
GOES_ON_ELSEWHERE = Named("""
SELECT archived_at IS NOT NULL OR :address_id = ANY (coalesce(left_by, '{}')) FROM sessions
   WHERE id = :session_id
""")

ACCEPTED_BEFORE = Named("""
SELECT e.seq, t.turn_no, e.at,
       coalesce((SELECT max(event_seq) FROM events v
                  WHERE v.session_id = :session_id AND v.seq = e.seq
                    AND v.kind IN ('msg', 'edited')), 0) AS event_seq
  FROM entries e JOIN turn_entries t USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.dedupe_key = :dedupe_key
""")
"""The message with a known key; event 0 if it was edited since, for its event belongs to the newest wording."""
STORED_AS = Named("""
SELECT e.seq, t.turn_no, e.at,
       coalesce((SELECT event_seq FROM events v
                  WHERE v.session_id = :session_id AND v.seq = e.seq AND v.kind = 'msg' LIMIT 1), 0)
         AS event_seq
  FROM entries e JOIN turn_entries t USING (session_id, seq)
 WHERE e.session_id = :session_id AND e.seq = :seq
""")
"""The entry that holds a message which its channel has known before."""


WARN_PERCENT = 80
"""Percent of a cap from which a person is warned, once per scope and day."""


def render_is_relayed(network: str) -> str:
    """Return the condition that a conversation is held in chats of others: as a guest or a secretary."""
    return f"coalesce({network} = '{GUEST_NETWORK}' OR {network} LIKE '{SECRETARY_NETWORK}%', false)"


WHOSE_NETWORK = """CASE WHEN p.anonymous THEN p.network END AS network,
         CASE WHEN p.anonymous THEN to_char(now() AT TIME ZONE :timezone, 'HH24') END AS hour"""
"""Network of an anonymous contact `p`, and the hour of the day that its spending counts for."""


_LENT = """slice AS (
  SELECT l.id FROM spend_slices l, cost c,
         LATERAL (SELECT CASE WHEN c.anonymous THEN (:loan::bigint[])[3:4]
                  ELSE (:loan::bigint[])[1:2] END AS may) m
   WHERE l.id = m.may[1] AND l.closed_at IS NULL AND l.day = c.day AND c.micro BETWEEN 1 AND m.may[2]
     AND (c.hour IS NULL OR (:limits::bigint[])[6] IS NULL OR 'visitors:' || c.hour = ANY (l.scopes))
     FOR KEY SHARE OF l
), """
"""The slice of the day's money that this process has for `cost`; who closes it waits for us, or we see it closed."""


def render_caps(*, unless: str = "NULL", lent: bool = False) -> str:
    """Return the part `want`: each scope of `cost` with its cap, by the function `spending_caps`.

    The parameter `limits` has `Caps.limits`; `unless` stands for a cap that is not set. A slice that is `lent`
    covers the scopes that all share.
    """
    uncovered = "x.scope <> 'total' AND x.scope NOT LIKE 'visitors:%' OR NOT EXISTS (SELECT FROM slice)"
    return f"""want AS (
  SELECT x.scope, c.micro, c.day, coalesce(x.cap, {unless}) AS cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, c.network, c.hour) x
   WHERE {uncovered if lent else "true"}
)"""


_HAS_NO_ROOM = "c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap"
"""A scope `c` whose row of the day is `o`, as both were before the statement."""


def _hold(*, among: str = "true", unless: str = "NULL", lent: bool = False) -> str:
    """Return the reservation of `cost.micro` in all capped scopes or in none, except those a slice covers.

    Mostly that is one scope with an existing row, which is updated without a conflict lock. Several are
    locked in the same order, and none if one has visibly no room. `is_whole` undoes the statement if a rival
    took the room.
    """
    return f"""), {_LENT if lent else ""}{render_caps(unless=unless, lent=lent)}, capped AS (
  SELECT scope, day, micro, cap, count(*) OVER () AS number FROM want
   WHERE cap IS NOT NULL AND micro >= 0 AND {among}
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
                      WHERE {_HAS_NO_ROOM})
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
         {_HAS_NO_ROOM} AS has_no_room
    FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
   WHERE NOT (SELECT is_held FROM whole)
), refusing AS (
  SELECT * FROM refused WHERE has_no_room OR NOT EXISTS (SELECT FROM refused x WHERE x.has_no_room)
"""


REFUSED_SCOPE = "(SELECT min(scope) FROM refusing)"
SHORTAGES = """(SELECT jsonb_agg(jsonb_build_object('scope', scope, 'cap', cap, 'spent', spent, 'held', held))
          FROM refusing) AS shortages"""
"""Each cap that refused, with the numbers from before the statement."""
IS_NEAR = f"""EXISTS (SELECT FROM held h JOIN want w USING (scope)
           WHERE h.warned_at IS NULL AND h.used * 100 >= w.cap * {WARN_PERCENT})"""

NOBODY_COMES = """
       NOT EXISTS (SELECT FROM addresses x LEFT JOIN sites w ON x.channel = 'web' AND w.name = x.account
                    WHERE x.session_id = s.id AND w.config -> 'handover' IS DISTINCT FROM 'false')
"""
"""Whether a person can be asked for from no place of the conversation, as its sites say."""

NO_PICTURES = "NOT EXISTS (SELECT FROM attachments x WHERE x.session_id = s.id AND x.mime LIKE 'image/%')"


_NOTE = """jsonb_build_object('id', n.id, 'kind', n.kind, 'text', n.text, 'subject', n.subject,
                 'authority', n.authority, 'importance', n.importance, 'observed_at', n.observed_at,
                 'event_date', n.event_date)"""


def render_frozen_prefix(agent: str) -> str:
    """Return the prefix of the last request of session `s` and its agent; null if it is built again.

    That is after a compaction or its undo, when the provider's cache has expired, and when a note in it was
    deleted, erased, or belongs to another person.
    """
    return f"""(SELECT jsonb_build_object('block', coalesce(p.body, ''), 'notes', sent.known,
                 'pins', coalesce(sent.plan -> 'pins', '[]'),
                 'ended', (SELECT jsonb_agg({_NOTE} ORDER BY n.id) FROM notes n
                            WHERE n.id = ANY (sent.known)
                              AND (n.superseded_reason = 'changed' OR n.expired_at IS NOT NULL)))
          FROM (SELECT x.base_turn, x.head, x.renderer_version, x.created_at, x.hashes, x.plan,
                       ARRAY(SELECT jsonb_array_elements_text(x.plan -> 'notes')::bigint) AS known
                  FROM (SELECT base_turn, head, renderer_version, created_at, hashes, plan::jsonb AS plan
                          FROM audit_rows
                         WHERE session_id = s.id AND created_at > now() - interval '{LONG_LIFE.seconds} s'
                         ORDER BY turn_id DESC, id DESC LIMIT 1) x) sent
          LEFT JOIN prompt_parts p ON sent.plan -> 'system' = '2' AND p.sha256 = substr(sent.hashes, 33, 32)
         WHERE sent.base_turn = s.base_turn AND sent.head IS NOT DISTINCT FROM s.head
           AND sent.renderer_version = {RENDERER_VERSION}
           AND (sent.plan ? 'hour' OR sent.created_at > now() - interval '{SHORT_LIFE.seconds} s')
           AND (p.sha256 IS NULL) = (sent.known = '{{}}')
           AND (sent.known = '{{}}' OR cardinality(sent.known) = (
             SELECT count(*) FROM contact_family(s.contact_id) AS family(id) JOIN notes n ON n.contact_id = family.id
              WHERE n.id = ANY (sent.known) AND n.scope = {agent} AND n.forgotten_at IS NULL))) AS frozen"""


FROZEN = Named(f"""
SELECT {render_frozen_prefix("a.name")}
  FROM sessions s JOIN agents a ON a.id = s.agent_id
 WHERE s.id = :session_id AND s.base_turn = :base_turn AND s.head IS NOT DISTINCT FROM :head::bigint
""")
"""Frozen prefix of a view that was read before, in a separate statement: within it a claim would be a tenth
slower, and most conversations have neither notes nor pins.
"""


_VIEW = """s.id, s.base_turn, s.flushed_turn, s.view_epoch, s.cycle, s.head, s.context_tokens, s.hold_compaction,
       s.compaction_backoff"""
_OF_SESSION = ", ".join(
    f"sessions.{name}"
    for name in (
        "id", "agent_id", "contact_id", "answered_turn", "base_turn", "flushed_turn", "indexed_turn", "erased_turn",
        "turn_epoch", "view_epoch", "cycle", "head", "model", "compaction", "compact_at", "goal", "mode", "context_tokens", "token_ratio",
        "token_ratios", "token_scale", "measured_by", "hold_compaction", "compaction_backoff",
    )
)  # fmt: skip
_OF_TURN = "session_id, turn_no, attempt, faults, process_faults, stop_requested, told_waiting, address_id, channel, opened_at, waits_since"
"""Columns of a claim that both tables have; others would be prepared in vain."""
TURN_TIMES = 21
"""Newest turns whose times show how quickly a person writes."""
_WHEN_TURNS_BEGAN = f"""
       ARRAY(SELECT n.opened_at FROM turns n WHERE n.session_id = s.id AND n.turn_no <= s.answered_turn + 1
              ORDER BY n.turn_no DESC LIMIT {TURN_TIMES})"""


BROUGHT = """(p.anonymous AND (
           EXISTS (SELECT FROM addresses o WHERE o.contact_id = p.id AND o.channel = 'web'
                      AND (o.chat LIKE 'x:%' OR o.chat LIKE 'sub:%'))
           OR EXISTS (SELECT FROM addresses o WHERE o.session_id = s.id AND o.channel = 'web'
                         AND (o.chat LIKE 'x:%' OR o.chat LIKE 'sub:%'))))"""
"""Whether a program or a site has said who the person of `p` and `s` is, at this place or at one joined to it."""


def _render_claim(*, turn_times: str, after_death: str = "false", more: str = "") -> str:
    """Return what the process that answers needs of `s` and its turn `t`, with the cost reserved.

    `after_death` can be true only of an earlier turn.
    """
    return f"""), cost AS (
  SELECT CASE WHEN :micro_per_input_token::float8 + :micro_output::float8 > 0
                OR c.config ? 'model' OR s.model <> '' THEN
           ceil(:micro_per_input_token::float8 * (greatest(s.context_tokens, 2000) + 4000)
                + :micro_output::float8)::bigint END AS micro,
         (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id, p.anonymous, c.config,
         {WHOSE_NETWORK}, c.name AS agent, p.kind, p.display_name, p.timezone,
         {BROUGHT} AS brought
    FROM s JOIN contacts p ON p.id = s.contact_id JOIN agents c ON c.id = s.agent_id
{_hold(lent=True)}), r AS (
  INSERT INTO reservations (session_id, contact_id, turn_no, day, amount_micro, scopes, slice_id, asked_scopes,
                            may_be_sent)
  SELECT c.id, c.contact_id, t.turn_no, c.day, c.micro, h.scopes, l.id, w.asked, t.attempt = 1
    FROM cost c CROSS JOIN t CROSS JOIN (SELECT ARRAY(SELECT scope FROM held ORDER BY scope) AS scopes) h
   CROSS JOIN whole w LEFT JOIN slice l ON true
   WHERE w.is_held AND (w.asked > 0 OR l.id IS NOT NULL)
  RETURNING id, slice_id
)
SELECT {_VIEW}, s.contact_id, s.turn_epoch, s.model, s.compaction, s.compact_at, s.goal, s.mode, s.erased_turn, s.token_ratio, s.token_ratios, s.token_scale, s.measured_by,
       t.turn_no, t.attempt, t.faults, t.process_faults, t.stop_requested, t.told_waiting, t.address_id, t.channel,
       coalesce(extract(epoch FROM now() - t.waits_since), 0)::float8 AS waited_seconds, r.id AS reservation_id, r.slice_id, coalesce(c.micro, 0) AS reserved_micro,
       {REFUSED_SCOPE} AS refused_scope, {IS_NEAR} AS is_near,
       (SELECT to_jsonb(l) FROM compactions l WHERE l.id = s.head) AS head_compaction,
       ARRAY(SELECT f.threshold FROM flushes f WHERE f.session_id = s.id AND f.cycle = s.cycle) AS thresholds,
       core_notes(s.contact_id, c.agent, {CORE_CANDIDATES}) AS notes,
       EXISTS (SELECT FROM pins WHERE pins.session_id = s.id) AS has_pins,
       {after_death} AS after_death, {turn_times} AS turn_times,
       c.agent AS agent_name, c.config AS agent_config, {NOBODY_COMES} AS nobody_comes, {NO_PICTURES} AS no_pictures,
       {render_is_relayed("c.network")} AS is_guest, c.anonymous, c.brought, c.kind AS contact_kind, c.display_name, c.timezone,
       is_recallable(s.id, s.contact_id, s.agent_id, s.indexed_turn, s.base_turn) AS recallable{more}
  FROM s CROSS JOIN t CROSS JOIN cost c LEFT JOIN r ON true
"""


_AFTER_DEATH = """CASE WHEN t.attempt > 1 THEN
         (SELECT o.epoch = s.turn_epoch - 1 FROM turns o WHERE o.session_id = s.id AND o.turn_no = t.turn_no)
       ELSE false END"""

CLAIM = Named(f"""
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
  RETURNING {_OF_SESSION}
), t AS (
  UPDATE turns SET state = 'claimed', attempt = attempt + 1, epoch = s.turn_epoch,
                   claimed_at = coalesce(claimed_at, now())
    FROM s WHERE turns.session_id = s.id AND turns.turn_no = s.answered_turn + 1
  RETURNING turns.{_OF_TURN.replace(", ", ", turns.")}
{_render_claim(turn_times=_WHEN_TURNS_BEGAN, after_death=_AFTER_DEATH)}""")
"""Claim of a turn. Releasing one raises the epoch: if it has not risen since the last claim, that process
died.

Of `turns` a part of this statement sees the state before it. After a wait for the session's row all other
rows are as before the wait.
"""
COMPACTION = Named("SELECT to_jsonb(l) FROM compactions l WHERE l.id = :compaction_id")


_FAILED = f"""x.state IN ('failed', 'refused')
   AND x.error_code IN ({", ".join(f"'{code}'" for code in FAILED_FORMS)})"""
"""Ended turns whose messages requests never have whole again."""


def _load(*, base: str, through: str, json: str = "") -> str:
    """`json` casts what is JSON."""
    short = f"""e.seq, te.turn_no, te.step,
       coalesce(e.role, CASE e.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, e.author,
       e.blocks{json}, e.words, e.tokens, e.at, e.replaces_seq"""
    failed = f"""CASE WHEN e.author = 'person' THEN (
         SELECT x.error_code FROM turns x
          WHERE x.session_id = :session_id AND x.turn_no = te.turn_no AND {_FAILED}) END"""
    return f"""
WITH failed AS MATERIALIZED (
  SELECT x.turn_no, x.error_code FROM turns x
   WHERE x.session_id = :session_id AND x.turn_no > {base} AND x.turn_no <= {through} AND {_FAILED}
)
SELECT {short},
       te.seq IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id) AS pinned, d.form, d.shown{json}
  FROM turn_entries te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0)
    e
  LEFT JOIN LATERAL (SELECT x.form, x.shown FROM prune_decisions x
                      WHERE x.session_id = :session_id AND x.seq = te.seq AND x.turn_no <= {through}
                        AND (SELECT true FROM prune_decisions y WHERE y.session_id = :session_id LIMIT 1)
                      ORDER BY x.turn_no DESC LIMIT 1) d ON true
 WHERE te.session_id = :session_id AND te.turn_no > {base} AND te.turn_no <= {through}
   AND (te.replaced_by IS NULL OR te.seq IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id))
   AND te.turn_no <> ALL (SELECT f.turn_no FROM failed f)
UNION ALL
SELECT {short},
       te.seq IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id), f.error_code, NULL
  FROM failed f
 CROSS JOIN LATERAL (SELECT * FROM turn_entries x
                      WHERE x.session_id = :session_id AND x.turn_no = f.turn_no
                        AND x.replaced_by IS NULL OFFSET 0) te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0)
    e
 WHERE e.author = 'person'
UNION ALL
SELECT {short}, true, {failed}, NULL
  FROM pins p
 CROSS JOIN LATERAL (SELECT * FROM turn_entries x WHERE x.session_id = :session_id AND x.seq = p.seq OFFSET 0)
    te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = p.seq OFFSET 0) e
 WHERE p.session_id = :session_id AND te.turn_no <= {base}
UNION ALL
SELECT {short}, false, {failed}, NULL
  FROM turn_entries o
 CROSS JOIN LATERAL (SELECT * FROM turn_entries x
                      WHERE x.session_id = :session_id AND x.seq = o.replaced_by AND x.turn_no = o.turn_no
                        AND x.replaced_by IS NULL OFFSET 0) te
 CROSS JOIN LATERAL (SELECT * FROM entry_rows x WHERE x.session_id = :session_id AND x.seq = te.seq OFFSET 0)
    e
 WHERE o.session_id = :session_id AND o.turn_no <= {base} AND o.replaced_by > (
         SELECT max(l.through_seq) FROM compactions l
          WHERE l.session_id = :session_id AND l.through_turn = {base}
            AND l.kind IN ('summary', 'digest', 'window')
            AND l.summary_text <> '')
   AND o.turn_no > coalesce((SELECT max(l.through_turn) FROM compactions l
                              WHERE l.session_id = :session_id AND l.active
                                AND l.kind IN ('new', 'separator')), 0)
   AND te.seq NOT IN (SELECT p.seq FROM pins p WHERE p.session_id = :session_id)
 ORDER BY 2, 3
"""


LOAD = Named(_load(base=":base_turn", through=":through_turn"))
"""Entries are shortened as they were in the turn `through_turn`. `OFFSET 0` keeps the way through the keys: a plan made before there were statistics joins in the square.

What its person replaced by an edit is not sent, unless it is pinned. The last part finds hidden messages that were
edited after the newest summary: they are sent until the next summary knows them.

Of a turn that failed by its own content, such as a request that the provider rejected, only the person's message is
sent, as `show_failed` shows it: every later request with the whole turn would end like it.

The innermost SELECT is asked once, so that a session without prunes is not searched for one per entry.
"""

VERSION = "pg_current_xact_id()::xid AS version"
"""Version of the session's row that this statement writes."""

_AND_THE_MESSAGE = ", s.seq, s.event_seq, t.opened_at"
_AND_THE_VIEW = f"""{_AND_THE_MESSAGE},
       (SELECT array_agg(v) FROM ({_load(base="s.base_turn", through="t.turn_no", json="::text")}) v) AS entries"""
"""View as `LOAD` finds it, with JSON as text, which the driver reads within a record."""


def _accept_and_claim(parts: ReceiptParts | None, *, turn_times: str, told: str = "", more: str) -> str:
    return f"""
WITH {_lock_receipt(parts)}s AS (
  UPDATE sessions
     SET next_seq = sessions.next_seq + 1, next_event_seq = sessions.next_event_seq + 1,
         next_turn = sessions.next_turn + 1, open_turn = NULL, open_address = :address_id,
            last_channel = :channel,
         turn_epoch = sessions.turn_epoch + 1, leased_by = :worker_id, leased_at = NULL
    FROM (SELECT id, xmin AS version FROM sessions WHERE id = :session_id) seen
   WHERE sessions.id = seen.id AND sessions.xmin = seen.version
     AND {_MAY_WRITE}
     AND answered_turn = next_turn - 1 AND held_after IS NULL AND retry_at IS NULL AND leased_by IS NULL
     AND EXISTS (SELECT FROM workers w WHERE w.id = :worker_id AND worker_is_alive(w))
     {"" if parts is None else _ONLY_IF_RECEIVED}
  RETURNING {_OF_SESSION}, sessions.next_seq - 1 AS seq, sessions.next_event_seq - 1 AS event_seq,
            sessions.next_turn - 1 AS turn_no{told}
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id, state, attempt, epoch, claimed_at)
  SELECT :session_id, turn_no, :channel, :address_id, 'claimed', 1, turn_epoch, now() FROM s
     RETURNING {_OF_TURN}{_MESSAGE}{_record_receipt(parts)}
{_render_claim(turn_times=turn_times, more=more)}"""


def _claim_unknown(parts: ReceiptParts | None) -> Named:
    return Named(_accept_and_claim(parts, turn_times=_WHEN_TURNS_BEGAN, more=_AND_THE_VIEW))


def _claim_known(parts: ReceiptParts | None) -> Named:
    told = """, seen.version = :version::xid AND sessions.next_seq - 2 = :last_seq::bigint AS is_known"""
    times = f"CASE WHEN NOT s.is_known THEN {_WHEN_TURNS_BEGAN} END"
    return Named(
        _accept_and_claim(parts, told=told, turn_times=times, more=f"{_AND_THE_MESSAGE}, s.is_known")
    )


ACCEPT_AND_CLAIM = _claim_unknown(None)
"""A message of an idle conversation, and the right to answer it, in one commit; no row when it is not idle.

Nor when anything was changed in the conversation while this waited for its row: what is read of it here is all
from before the wait.

The log gets of a row all that lies between its first change and its last: what stands far behind is not changed
here. The turn has the time of this first claim, and the conversation was active when the answer says so.
"""

ACCEPT_AND_CLAIM_KNOWN = _claim_known(None)
"""Form of `ACCEPT_AND_CLAIM` without entries, since an unneeded part is prepared anyway.

`version` and `last_seq` are those of the cached view: a standby that was behind reuses numbers of lost
transactions.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithReceipt:
    """The statements that store a message, with a channel's rows in them."""

    accept: Named
    accept_late: Named
    accept_and_claim: Named
    accept_and_claim_known: Named


@cache
def join_receipt(parts: ReceiptParts) -> WithReceipt:
    """Return the statements that also lock and store what a channel keeps of a message.

    Nothing is stored unless the lock allows it. A statement that waited for the lock sees the locked rows as they
    are afterwards and all others as before: the message's key then refuses a message that was stored meanwhile.
    """
    return WithReceipt(
        accept=_accept_with(parts), accept_late=_accept_late(parts),
        accept_and_claim=_claim_unknown(parts), accept_and_claim_known=_claim_known(parts),
    )  # fmt: skip


FENCE = "id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1"

TOOL_CALLS = Named(f"""
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1 WHERE {FENCE} RETURNING next_seq - 1 AS seq
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
), u AS (
  INSERT INTO usage (session_id, contact_id, turn_no, purpose, status, model, input_tokens, output_tokens,
                     cache_read_tokens, cache_write_tokens, known, cost_micro, request_id)
  SELECT :session_id, x.contact_id, :turn, 'chat', x.status, x.model, x.input_tokens, x.output_tokens,
         x.cache_read_tokens, x.cache_write_tokens, x.known, x.cost_micro, x.request_id
    FROM s, jsonb_to_recordset(:usage::jsonb) AS
      x(contact_id bigint, status text, model text, input_tokens bigint,
         output_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, known bool,
         cost_micro bigint, request_id text)
  {WRITTEN}), tot AS (
  UPDATE session_totals SET {render_total(":sums")},
         input_tokens = input_tokens + (:sums::bigint[])[1],
         output_tokens = output_tokens + (:sums::bigint[])[2],
         cache_read_tokens = cache_read_tokens + (:sums::bigint[])[3],
         cache_write_tokens = cache_write_tokens + (:sums::bigint[])[4],
         cost_micro = cost_micro + (:sums::bigint[])[5],
            cost_unknown_calls = cost_unknown_calls + (:sums::bigint[])[6],
         total_tokens_estimate = total_tokens_estimate + :tokens
    FROM s WHERE session_id = :session_id
)
SELECT seq FROM s
""")
"""Calls of tools before the first one runs: a crash finds them as intents. Fenced by the turn's epoch."""

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
"""Results of tools with their outcomes and whole texts, in one commit. Fenced by the turn's epoch."""

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
"""Whole texts of results that are shortened, stored once each. Fenced by the turn's epoch."""

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
"""A turn put back with its reason and notice; the new epoch fences its process."""

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
"""Wake of waiting turns: each success wakes a few, so that a recovered provider is not flooded."""

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
"""Wish to stop the running turn; one that waits for its provider is due at once."""

LET_GO = Named("""
WITH s AS (
  SELECT id FROM sessions WHERE id = ANY (:session_ids::bigint[]) AND leased_by = :worker_id ORDER BY id
     FOR NO KEY UPDATE)
UPDATE sessions SET leased_by = NULL, retry_at = now(), turn_epoch = turn_epoch + 1
 WHERE id IN (SELECT id FROM s)
""")
"""Several are locked in the order in which everybody locks them."""

STUCK_SECONDS = 15
UNKNOWN_TO_ITS_HOLDER = f"""
  FROM turns t JOIN sessions s ON s.id = t.session_id AND s.answered_turn = t.turn_no - 1
  JOIN workers w ON w.id = s.leased_by AND worker_is_alive(w)
 WHERE t.ended_at IS NULL AND coalesce(s.leased_at, t.claimed_at) < w.beat - interval '{STUCK_SECONDS} s'
   AND w.health ? 'turns' AND NOT w.health -> 'turns' @> to_jsonb(s.id)
"""
"""Leased for a while to a process that lives and did not name the session with its last beat."""

HELD = Named("""
SELECT s.id, t.stop_requested
  FROM turns t JOIN sessions s ON s.id = t.session_id AND s.answered_turn = t.turn_no - 1
 WHERE t.ended_at IS NULL AND s.leased_by = :worker_id
""")
"""Leases that a process holds, by the index of open turns: an index on leases would be written with each
claim and answer.
"""

RESERVE = Named(f"""
WITH cost AS (
  SELECT nullif(:micro::bigint, 0) AS micro, (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id,
         p.anonymous,
         a.config, {WHOSE_NETWORK}
    FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
      WHERE s.id = :session_id
{_hold()}), r AS (
  INSERT INTO reservations (session_id, contact_id, turn_no, job_id, day, amount_micro, scopes, asked_scopes)
  SELECT c.id, c.contact_id, :turn, :job_id, c.day, c.micro, (SELECT array_agg(scope ORDER BY scope) FROM held),
         w.asked
    FROM cost c CROSS JOIN whole w WHERE w.is_held AND w.asked > 0
  RETURNING id
)
SELECT (SELECT id FROM r) AS id, {SHORTAGES}
""")
"""Reservation of a call's most cost in every cap that holds, or in none."""

RESERVE_FOR_NOBODY = Named(f"""
WITH cost AS (
  SELECT nullif(:micro::bigint, 0) AS micro, (now() AT TIME ZONE :timezone)::date AS day, 0::bigint AS id,
         0::bigint AS contact_id, false AS anonymous, '{{}}'::jsonb AS config, NULL::text AS network,
         NULL::text AS hour
{_hold()}), r AS (
  INSERT INTO reservations (session_id, contact_id, day, amount_micro, scopes, asked_scopes)
  SELECT c.id, c.contact_id, c.day, c.micro, (SELECT array_agg(scope ORDER BY scope) FROM held), w.asked
    FROM cost c CROSS JOIN whole w WHERE w.is_held AND w.asked > 0
  RETURNING id
)
SELECT (SELECT id FROM r) AS id, {SHORTAGES}
""")
"""For a call that belongs to no conversation: of the caps, that of the whole deployment."""

NO_LIMIT = f"{2**62}"
"""Stands for a cap that was there when a reservation was made, and is not any more."""
SCOPES_OF_MINE = "scope = ANY ((SELECT scopes FROM cost)::text[])"
RAISE_RESERVATION = Named(f"""
WITH mine AS (
  SELECT id, session_id, day, scopes, amount_micro, :micro::bigint - amount_micro AS more FROM reservations
   WHERE id = :reservation_id AND state = 'held' AND amount_micro < :micro::bigint FOR UPDATE
), cost AS (
  SELECT m.more AS micro, m.day, s.id, s.contact_id, p.anonymous, a.config, m.scopes,
         substring(array_to_string(m.scopes, ' ') FROM 'network:([^ ]+)') AS network,
         substring(array_to_string(m.scopes, ' ') FROM 'visitors:([^ ]+)') AS hour
    FROM mine m JOIN sessions s ON s.id = m.session_id JOIN contacts p ON p.id = s.contact_id
    JOIN agents a ON a.id = s.agent_id
{_hold(among=SCOPES_OF_MINE, unless=NO_LIMIT)}), r AS (
  UPDATE reservations r SET amount_micro = :micro, may_be_sent = true FROM mine, whole w
   WHERE r.id = mine.id AND w.is_held
)
SELECT (SELECT amount_micro FROM mine) AS mine, {SHORTAGES}
""")
"""A reservation for more, on the day and in the scopes that it was made for; unchanged if one of them refuses."""

LOWER_RESERVATION = Named("""
WITH mine AS (
  SELECT id, amount_micro FROM reservations
   WHERE id = :reservation_id AND state = 'held' AND amount_micro > :micro::bigint FOR UPDATE
), r AS (
  UPDATE reservations r SET amount_micro = :micro FROM mine WHERE r.id = mine.id
  RETURNING r.scopes, r.day, mine.amount_micro - r.amount_micro AS less
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - r.less
  FROM r WHERE d.day = r.day AND d.scope = ANY (r.scopes)
""")
"""Release of money by a turn that waits for more; the cost of its calls stays reserved."""

MARK_MAY_BE_SENT = Named("""
UPDATE reservations SET may_be_sent = true WHERE id = :reservation_id AND state = 'held'
""")

WARN = Named(f"""
WITH cost AS (
  SELECT 0::bigint AS micro, (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id, p.anonymous,
         a.config,
         {WHOSE_NETWORK}
    FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
      WHERE s.id = :session_id
), {render_caps()}, w AS (
  UPDATE spend_days d SET warned_at = now() FROM want
   WHERE d.scope = want.scope AND d.day = want.day AND d.warned_at IS NULL
     AND d.spent_micro * 100 >= want.cap * {WARN_PERCENT}
  RETURNING d.scope
), s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1
   WHERE id = :session_id AND EXISTS (SELECT FROM w WHERE scope ~ '^(contact|session):')
     RETURNING next_event_seq - 1 AS event_seq
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', :turn, :notice::jsonb FROM s
)
SELECT (SELECT array_agg(scope ORDER BY scope) FROM w) AS scopes, (SELECT event_seq FROM s) AS event_seq,
       now() AS at
""")
"""Warning of a cap; of rivals that see the same scope near it, one finds it not warned of yet."""

COMMITTED_MICRO = """
CASE WHEN r.turn_no IS NULL THEN 0 ELSE
  (SELECT coalesce(sum(u.cost_micro), 0) FROM usage u
    WHERE u.session_id = r.session_id AND u.turn_no = r.turn_no AND u.purpose = 'chat' AND u.at >= r.created_at
      AND u.at < coalesce((SELECT min(n.created_at) FROM reservations n WHERE n.id > r.id
                              AND n.session_id = r.session_id AND n.turn_no = r.turn_no), 'infinity')) END
"""
"""Cost in the ledger of the turn of reservation `r`, up to the next attempt, without helpers, whose calls
have separate reservations.
"""

JOB_OWES_MICRO = """
greatest(0, (SELECT coalesce(sum(u.cost_micro), 0) FROM usage u
              WHERE u.session_id = r.session_id AND u.job_id = r.job_id)
          - (SELECT coalesce(sum(o.settled_micro), 0) FROM reservations o
              WHERE o.job_id = r.job_id AND o.session_id = r.session_id AND o.id <> r.id))
"""
"""Cost in the ledger of a job beyond what its other reservations have paid, so that nothing is charged
twice.
"""

UNBOUND_SECONDS = 270
"""Half as long again as a picture may be made (`adapters.media.drawing`), for the way to the database."""

TOKEN_CALL_SECONDS = 660
"""All attempts for one answer take ten minutes (`Patience.total_seconds`), and a minute is for the database."""

LEFT_BEHIND = f"""
SELECT r.id FROM reservations r
 WHERE r.state = 'held' AND r.created_at < now() - interval '{LEASE_SECONDS} s' AND (
       r.created_at < now() - interval '2 days'
    OR r.turn_no IS NOT NULL AND NOT EXISTS (
         SELECT FROM turns t WHERE t.session_id = r.session_id AND t.turn_no = r.turn_no AND t.ended_at IS NULL)
    OR r.job_id IS NOT NULL AND NOT EXISTS (
         SELECT FROM jobs j JOIN workers w ON w.id = j.leased_by AND worker_is_alive(w)
          WHERE j.id = r.job_id AND j.state = 'running' AND j.started_at <= r.created_at)
    OR r.scopes = '{{{TOKENS}}}' AND r.created_at < now() - interval '{TOKEN_CALL_SECONDS} s'
    OR r.turn_no IS NULL AND r.job_id IS NULL AND r.scopes <> '{{{TOKENS}}}'
       AND r.created_at < now() - interval '{UNBOUND_SECONDS} s'
       AND NOT EXISTS (
         SELECT FROM sessions s JOIN workers w ON w.id = s.leased_by AND worker_is_alive(w)
           JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
          WHERE s.id = r.session_id AND coalesce(s.leased_at, t.claimed_at) <= r.created_at))
 ORDER BY r.id LIMIT 100
"""
"""Reservations that no living process can settle: their turn, or the attempt at their job, has ended.

A turn that waits for its next attempt is excluded: that one books the rest (`LOST`); after two days no cap
counts it. One without turn and job is a subagent's, which lives as long as its session's lease, or of a
picture, a recording or speech, which takes at most three minutes.
"""

SWEEP_RESERVATION = Named(f"""
WITH done AS (
  UPDATE reservations r SET state = 'released', ended_at = now(),
         settled_micro = CASE WHEN r.job_id IS NOT NULL THEN {JOB_OWES_MICRO}
                              WHEN r.turn_no IS NULL THEN r.amount_micro ELSE {COMMITTED_MICRO} END
   WHERE r.id = :reservation_id AND r.state = 'held' RETURNING amount_micro, settled_micro, scopes, day
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - done.amount_micro,
       spent_micro = d.spent_micro + done.settled_micro
  FROM done WHERE d.day = done.day AND d.scope = ANY (done.scopes)
""")

"""Sweep of a reservation; without turn and job its cost is unknown and counts in full."""

RELEASE_RESERVATION = Named(f"""
WITH done AS (
  UPDATE reservations r SET state = 'released', ended_at = now(),
         settled_micro = greatest(:spent_micro::bigint, {COMMITTED_MICRO})
   WHERE r.id = :reservation_id AND r.state = 'held' RETURNING amount_micro, settled_micro, scopes, day
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - done.amount_micro,
       spent_micro = d.spent_micro + done.settled_micro
  FROM done WHERE d.day = done.day AND d.scope = ANY (done.scopes)
""")
"""A turn that is put back has paid for the rounds that it committed, though no answer settled them."""


def _render_spent(purpose: str, *, contact: str = ":contact_id", turn: str = ":turn") -> str:
    """Store calls in the ledger and settle their reservation; common tables, the last one open."""
    return f"""
WITH u AS (
  INSERT INTO usage (session_id, contact_id, turn_no, purpose, status, model, input_tokens, output_tokens,
                     cache_read_tokens, cache_write_tokens, known, cost_micro, request_id)
  SELECT :session_id, {contact}, {turn}, '{purpose}', x.status, x.model, x.input_tokens, x.output_tokens,
         x.cache_read_tokens, x.cache_write_tokens, x.known, x.cost_micro, x.request_id
    FROM jsonb_to_recordset(:spent::jsonb) AS x(status text, model text, input_tokens bigint,
         output_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, known bool,
         cost_micro bigint, request_id text)
  {WRITTEN}), r AS (
  UPDATE reservations SET state = 'settled', settled_micro = :settled_micro, ended_at = now()
   WHERE id = :reservation_id AND state = 'held' RETURNING amount_micro, scopes, day
), sp AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro - r.amount_micro,
     spent_micro = d.spent_micro + :settled_micro
    FROM r WHERE d.day = r.day AND d.scope = ANY (r.scopes)
)
"""


_ADDED_UP = f"""
UPDATE session_totals SET {render_total(":sums")},
         input_tokens = input_tokens + (:sums::bigint[])[1],
       output_tokens = output_tokens + (:sums::bigint[])[2],
       cache_read_tokens = cache_read_tokens + (:sums::bigint[])[3],
       cache_write_tokens = cache_write_tokens + (:sums::bigint[])[4],
       cost_micro = cost_micro + (:sums::bigint[])[5],
          cost_unknown_calls = cost_unknown_calls + (:sums::bigint[])[6]
 WHERE session_id = :session_id
"""
WASTE = Named(f"{_render_spent('chat')}{_ADDED_UP}")
DELEGATED = {purpose: Named(f"{_render_spent(purpose)}{_ADDED_UP}") for purpose in ("delegate", "picture")}
"""Usage of a turn's tools, whose calls have separate reservations: those two parameters are null."""
DESCRIBED = Named(f"""{_render_spent("chat")}, seen AS (
  UPDATE attachments SET description = :description WHERE id = :attachment_id AND description = ''
)
{_ADDED_UP}""")
"""Description and cost of a picture in one commit; the first description stays."""
_CONTACT_OF_SESSION = "(SELECT contact_id FROM sessions WHERE id = :session_id)"
HEARD = Named(f"""{_render_spent("transcribe", contact=_CONTACT_OF_SESSION, turn="NULL")}, heard AS (
  UPDATE attachments SET words = :words WHERE id = :attachment_id AND session_id = :session_id
     AND words IS NULL
)
{_ADDED_UP}""")
"""Transcript and cost of a recording in one commit; it has no turn yet."""
SPOKEN = Named(f"""{_render_spent("speech", contact=_CONTACT_OF_SESSION)}, spoken AS (
  UPDATE spoken_answers SET body = :body
   WHERE session_id = :session_id AND turn_no = :turn AND form = :form AND state = 'due' AND body IS NULL
)
{_ADDED_UP}""")
"""A spoken answer and what it cost, in one commit; where its row is erased, nothing is kept."""

LOST = Named(f"""
WITH s AS (SELECT id, contact_id FROM sessions WHERE {FENCE} FOR NO KEY UPDATE), dead AS (
  SELECT r.id, r.may_be_sent, {COMMITTED_MICRO} AS committed FROM reservations r, s
   WHERE r.session_id = :session_id AND r.turn_no = :turn AND r.job_id IS NULL AND r.state = 'held'
     AND r.id IS DISTINCT FROM :reservation_id::bigint
), r AS (
  UPDATE reservations r SET state = 'settled', ended_at = now(),
         settled_micro = greatest(CASE WHEN dead.may_be_sent THEN r.amount_micro ELSE 0 END, dead.committed)
    FROM dead WHERE r.id = dead.id AND r.state = 'held'
  RETURNING r.amount_micro, r.settled_micro, r.settled_micro > dead.committed AS had_call, r.scopes, r.day
), calls AS (
  SELECT s.contact_id FROM s, r WHERE r.had_call
  UNION ALL SELECT contact_id FROM s WHERE :had_call AND NOT EXISTS (SELECT FROM r)
), owed AS (
  SELECT scope, day, sum(amount_micro)::bigint AS held, sum(settled_micro)::bigint AS spent
    FROM r, unnest(scopes) AS scope GROUP BY scope, day
), sp AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro - owed.held, spent_micro = d.spent_micro + owed.spent
    FROM owed WHERE d.day = owed.day AND d.scope = owed.scope
), u AS (
  INSERT INTO usage (session_id, contact_id, turn_no, purpose, status, model, input_tokens, output_tokens,
                     cache_read_tokens, cache_write_tokens, known, cost_micro)
  SELECT :session_id, contact_id, :turn, 'chat', 'aborted', :model, :input_tokens::bigint, 0, 0, 0, false, NULL
     FROM calls
  {WRITTEN}), tot AS (
  UPDATE session_totals SET total_tokens = total_tokens + number * :input_tokens::bigint,
         input_tokens = input_tokens + number * :input_tokens::bigint,
         cost_unknown_calls = cost_unknown_calls + number
    FROM (SELECT count(*) AS number FROM calls) lost WHERE session_id = :session_id AND number > 0
)
SELECT (SELECT count(*) FROM calls) AS number FROM s
""")
"""Settlement of reservations whose attempt died: a call that may have been sent counts in full.

Its cost is unknown: the ledger has it without a price, and the caps count the whole reservation, so that
repeated deaths cannot pass a cap. An attempt that waited for money, or a later one that had sent nothing,
settles for its rounds. Without caps, `had_call` reports the last attempt alone.
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
"""Sessions with an unanswered turn, by the index of open turns."""
