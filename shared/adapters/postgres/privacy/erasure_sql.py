"""SQL of erasures: statements that stop running work, and the batches that follow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.privacy.erasure_map import ACTIONS, Blank, Delete

BATCH = 2_000
"""Maximum rows of one batch."""

BEGIN_ERASING = """
SELECT set_config('evertalk.erasing', 'yes', true),
       (SELECT set_config('role', r.rolname, true) FROM pg_roles r
         WHERE current_user ~ '_app$' AND r.rolname = regexp_replace(current_user, '_app$', '_erase')
           AND pg_has_role(r.oid, 'MEMBER'))
"""
"""Allow the transaction to blank messages, under the role `erase` if the server has the four roles."""

FAMILY = Named("""
SELECT f AS id FROM sessions s JOIN contacts p ON p.id = s.contact_id
 CROSS JOIN contact_family(coalesce(p.merged_into, p.id)) AS f WHERE s.id = :session_id ORDER BY 1
""")
"""Select the ids of the contact of a session and of all contacts linked to it."""

CONTACT_HASH = Named("""
SELECT sha256(convert_to('evertalk.erasures:' || coalesce(r.public_id, p.public_id)::text, 'UTF8'))
  FROM sessions s JOIN contacts p ON p.id = s.contact_id LEFT JOIN contacts r ON r.id = p.merged_into
    WHERE s.id = :session_id
""")
"""Select the hash of the public id of a session's person; no row if the session does not exist.

The id is random, so the hash reveals nothing without the contact's row.
"""

IS_HELD = Named("SELECT contact_id IN (SELECT held_contacts()) FROM sessions WHERE id = :session_id")
"""Select whether the person of a session is on legal hold; no row if the session does not exist."""

LOCK_SESSIONS = Named("SELECT id FROM sessions WHERE contact_id = ANY (:contacts) ORDER BY id FOR UPDATE")
"""Select and lock all sessions of these contacts, in the order of their ids."""
LOCK_ONE = Named("""
SELECT id FROM sessions
 WHERE id = :session_id AND answered_turn = next_turn - 1 AND last_active_at < now() - interval '12 hours'
   FOR UPDATE
""")
"""Lock an idle session; no row if it has been used in the last 12 hours or has an unanswered turn."""
LOCK_IMPORT = Named("""
SELECT s.id FROM sessions s JOIN past_imports i ON i.session_id = s.id
 WHERE s.id = :session_id AND i.digest IS NOT NULL FOR UPDATE OF s
""")
"""Lock the session of an import; no row if it is no import or was undone."""

FENCE_TURNS = Named("""
WITH t AS (
  UPDATE turns t SET state = 'failed', error_code = 'erased', ended_at = clock_timestamp(), stop_requested = true
   WHERE t.session_id = :session_id AND t.ended_at IS NULL RETURNING t.turn_no, t.channel, t.address_id
), st AS (
  UPDATE turn_steps SET status = 'unknown', ended_at = clock_timestamp()
   WHERE session_id = :session_id AND status = 'intent'
)
INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state)
SELECT :session_id, turn_no, 0, channel, address_id, 'dead' FROM t ON CONFLICT DO NOTHING
""")
"""End open turns as failed with `erased`; their processes find them ended and drop the answers."""

FENCE_WORK = Named("""
WITH d AS (
  UPDATE deliveries SET state = 'dead' WHERE session_id = :session_id
     AND state IN ('queued', 'sending', 'sent')
), f AS (
  UPDATE flushes SET outcome = 'failed', ended_at = clock_timestamp() WHERE session_id = :session_id
     AND outcome = 'running'
), l AS (
  UPDATE compactions SET active = false WHERE session_id = :session_id AND active
)
UPDATE jobs SET state = 'dead', epoch = epoch + 1, leased_by = NULL, ended_at = clock_timestamp()
 WHERE session_id = :session_id AND state IN ('due', 'running')
""")
"""End a session's deliveries, flushes, summaries and jobs; a new epoch invalidates running ones."""

HIDE_ALL = Named("""
WITH s AS (
  SELECT id, next_turn - 1 AS through, head, cycle FROM sessions WHERE id = :session_id
), bounds AS (
  SELECT coalesce(min(seq), 0) AS first, coalesce(max(seq), 0) AS last FROM turn_entries
     WHERE session_id = :session_id
), l AS (
  INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger)
  SELECT s.id, 'new', 1, s.through, b.first, b.last, 'erasure' FROM s, bounds b WHERE s.through > 0
  RETURNING id
), f AS (
  INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, outcome, ended_at)
  SELECT s.id, s.cycle, 'erased', 1, s.through, 'nothing', now() FROM s WHERE s.through > 0
  ON CONFLICT DO NOTHING
)
UPDATE sessions x
   SET turn_epoch = turn_epoch + 1, leased_by = NULL, retry_at = NULL, open_turn = NULL, open_address = NULL,
       answered_turn = next_turn - 1, base_turn = next_turn - 1, flushed_turn = next_turn - 1,
       erased_turn = next_turn - 1, indexed_turn = greatest(indexed_turn, next_turn - 1), head = (SELECT id FROM l), redo = NULL, view_epoch = view_epoch + 1,
       cycle = cycle + 1, context_tokens = 0, context_limit = context_limit + context_reserved, context_reserved = 0, hold_compaction = false, held_after = NULL, next_event_seq = next_event_seq + 1,
       troubled_at = clock_timestamp()
 WHERE x.id = :session_id
RETURNING id, next_turn - 1 AS turn, next_seq - 1 AS seq, next_event_seq - 1 AS event
""")
"""End all turns and hide them behind a new beginning; no flush will read them.

The session's lease and hand-over end. Selects the last turn and entry to erase, and the number of the event
for `MARK`.
"""

MARK = Named("""
INSERT INTO events (session_id, event_seq, kind, payload)
VALUES (:session_id, :event, 'erased', jsonb_build_object('turn', :turn::bigint))
""")
"""Insert the event at which connected screens clear themselves."""

ABOUT_CONTACTS = Named("""
SELECT jsonb_build_object('family', coalesce(jsonb_agg(
         encode(sha256(convert_to('evertalk.erasures:' || public_id::text, 'UTF8')), 'hex') ORDER BY id), '[]'))
  FROM contacts WHERE id = ANY (:contacts)
""")
"""Select what the erasure log stores about these contacts: hashes of their public ids."""
ABOUT_SESSION = Named("SELECT jsonb_build_object('session', public_id) FROM sessions WHERE id = :session_id")
"""Select what the erasure log stores about one session: its public id."""

INSERT_ERASURE = Named("""
INSERT INTO erasures (contact_hash, actor, scope, work, about, at)
   VALUES (:contact_hash, :actor, :scope, :work, :about, clock_timestamp())
RETURNING id, at
""")
"""Insert a running erasure into the log; select its id and time."""
LOCK_ERASURE = Named("SELECT * FROM erasures WHERE id = :erasure_id AND state = 'running' FOR UPDATE")
"""Select and lock a running erasure; no row if it is complete or unknown."""
RUNNING = "SELECT id FROM erasures WHERE state = 'running' ORDER BY id LIMIT 20"
"""Select the ids of at most 20 running erasures, oldest first."""
STORE_PROGRESS = Named(
    "UPDATE erasures SET step = :step, counts = :counts, work = :work WHERE id = :erasure_id"
)
"""Store how far an erasure has come."""
END_ERASURE = Named("""
UPDATE erasures SET state = 'done', work = NULL, counts = :counts, finished_at = clock_timestamp()
   WHERE id = :erasure_id
""")
"""Mark an erasure as complete, and delete its list of work."""

ENTRIES = Named(
    """
WITH next AS (
  SELECT seq FROM entries WHERE session_id = :session_id AND seq > :cursor AND seq <= :bound ORDER BY seq
     LIMIT :batch
), u AS (
  UPDATE entries e SET blocks = erased_blocks(e.blocks), cid = NULL FROM next n
   WHERE e.session_id = :session_id AND e.seq = n.seq
     AND (e.blocks <> '[{"type": "text", "text": "[erased]"}]' OR e.cid IS NOT NULL)
  RETURNING e.seq
)
SELECT (SELECT max(seq) FROM next) AS cursor, (SELECT count(*) FROM u) AS done
""",
    batch=BATCH,
)
"""Blank the next batch of messages with numbers above `cursor`, at most `bound`.

Selects the new cursor, NULL if none is left, and the number of changed messages. An interrupted erasure
continues at the cursor.
"""

EVENTS = Named(
    """
WITH next AS (
  SELECT event_seq FROM events WHERE session_id = :session_id AND event_seq > :cursor AND event_seq < :bound
   ORDER BY event_seq LIMIT :batch
), u AS (
  UPDATE events v SET kind = 'erased', seq = NULL, turn_no = NULL, payload = '{}' FROM next n
   WHERE v.session_id = :session_id AND v.event_seq = n.event_seq AND v.kind <> 'erased'
  RETURNING v.event_seq
)
SELECT (SELECT max(event_seq) FROM next) AS cursor, (SELECT count(*) FROM u) AS done
""",
    batch=BATCH,
)
"""Blank the next batch of events with numbers above `cursor` and below `bound`.

Their numbers stay, so that screens see no gap. Selects the new cursor, NULL if none is left, and the number
of changed events.
"""

PROMPT_PARTS = Named("""
WITH mine AS (
  SELECT DISTINCT h.hash FROM turn_context_audit a
   CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) AS h(hash)
   WHERE a.session_id = ANY (:sessions) AND a.created_at <= :at
), wanted AS (
  SELECT m.hash, p.sha256 FROM mine m JOIN prompt_parts p ON p.sha256 = decode(m.hash, 'hex')
   WHERE p.body NOT LIKE '[{"name"%' AND p.body NOT LIKE '{"%'
), others AS (
  SELECT DISTINCT h.hash FROM turn_context_audit a
   CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) AS h(hash)
   WHERE NOT (a.session_id = ANY (:sessions) AND a.created_at <= :at) AND EXISTS (SELECT FROM wanted)
), gone AS (
  DELETE FROM prompt_parts p USING wanted w
   WHERE p.sha256 = w.sha256 AND w.hash NOT IN (SELECT hash FROM others) RETURNING p.sha256
)
SELECT count(*) FROM gone
""")
"""Delete the person's stored request parts, except those sent to others, tool lists and policy numbers."""

TELEGRAM_UPDATES = Named(
    """
WITH u AS (
  UPDATE telegram_updates t SET body = jsonb_build_object('update_id', t.update_id), error = '',
         handled_at = coalesce(t.handled_at, now())
   WHERE (t.bot_id, t.update_id) IN (
         SELECT x.bot_id, x.update_id FROM telegram_chats_of(:contacts) c JOIN telegram_updates x ON x.bot_id = c.bot_id
          CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(x.body) WHEN 'object' THEN x.body ELSE '{}' END) AS k
          WHERE x.received_at <= :at AND jsonb_typeof(k.value) = 'object'
            AND (k.key = 'guest_message') = (c.caller_id IS NOT NULL)
            AND (k.value ? 'business_connection_id') = (c.owner_id IS NOT NULL)
            AND CASE WHEN c.owner_id IS NOT NULL
                  THEN k.value #>> '{chat,id}' = c.chat_id AND EXISTS (
                    SELECT FROM secretary_connections o
                     WHERE o.bot_id = c.bot_id AND o.connection_id = k.value ->> 'business_connection_id'
                       AND o.owner_id::text = c.owner_id)
                  WHEN c.caller_id IS NOT NULL
                  THEN k.value #>> '{chat,id}' = c.chat_id AND k.value #>> '{from,id}' = c.caller_id
                  ELSE c.chat_id IN (k.value #>> '{chat,id}', k.value #>> '{message,chat,id}')
                    OR k.value #> '{chat}' IS NULL AND k.value #> '{message,chat}' IS NULL
                       AND c.chat_id IN (k.value #>> '{from,id}', k.value #>> '{user,id}') END
          LIMIT :batch)
  RETURNING 1
)
SELECT count(*) FROM u
""",
    batch=BATCH,
)
"""Blank raw updates of a person's chats; unhandled ones are refused.

Their ids stay, so that none is handled twice.
"""

TELEGRAM_ACCESS = Named("""
WITH u AS (
  UPDATE telegram_access t SET name = '', username = '' FROM telegram_chats_of(:contacts) c
   WHERE t.bot_id = c.bot_id AND t.chat_id::text = c.chat_id AND c.caller_id IS NULL
     AND c.owner_id IS NULL AND (t.name, t.username) <> ('', '') RETURNING 1
)
SELECT count(*) FROM u
""")
"""Blank the person's names in requests for access to bots."""

SECRETARY_CONNECTIONS = Named("""
WITH u AS (
  UPDATE secretary_connections t SET owner_name = '' FROM telegram_chats_of(:contacts) c
   WHERE t.bot_id = c.bot_id AND t.owner_id::text = c.chat_id AND c.caller_id IS NULL AND c.owner_id IS NULL
     AND t.owner_name <> '' RETURNING 1
)
SELECT count(*) FROM u
""")
"""Blank the person's name as owner of a connected business account."""

PUSH_SUBSCRIPTIONS = Named("""
WITH gone AS (
  DELETE FROM push_subscriptions p USING visitors v JOIN addresses a ON a.id = v.address_id
   WHERE p.visitor_hash = v.token_hash AND a.contact_id = ANY (:contacts) RETURNING 1
)
SELECT count(*) FROM gone
""")
"""Delete the push subscriptions of the person's browsers."""

PRIMARY_KEY = Named("""
SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum))
  FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
 WHERE i.indrelid = :table::text::regclass AND i.indisprimary
""")
"""Select the columns of a table's primary key."""

_DELETE = """
WITH u AS (
  DELETE FROM {table} WHERE ({key}) IN (
         SELECT {key} FROM {table} WHERE {owner} = ANY (:owners::bigint[]) {until} LIMIT :batch)
  RETURNING 1
)
SELECT count(*) FROM u
"""
_BLANK = """
WITH u AS (
  UPDATE {table} SET {changes} WHERE ({key}) IN (
         SELECT {key} FROM {table} WHERE {owner} = ANY (:owners::bigint[]) {until}
            AND ({old}) IS DISTINCT FROM ({new}) LIMIT :batch)
  RETURNING 1
)
SELECT count(*) FROM u
"""
_UNTIL = "AND {at} <= :at"


def render_batch(
    table: str, key: Sequence[str], *, sessions: Sequence[int], contacts: Sequence[int], at: datetime
) -> tuple[str, *tuple[object, ...]]:
    """Return the statement that erases one batch of a table's rows, at most BATCH, with its values.

    By the table's action it deletes or blanks rows of these sessions or contacts, created until `at`. `key`
    are the columns of the primary key. It selects the number of rows. The names of table and columns are put
    into a text here, since no parameter can be a name.
    """
    action = ACTIONS[table]
    assert isinstance(action, Delete | Blank)
    given: dict[str, Any] = {"owners": sessions if action.owner == "session" else contacts}
    names = {
        "table": table,
        "key": ", ".join(key),
        "owner": getattr(action, "of", "") or f"{action.owner}_id",
        "until": "",
    }
    if action.at is not None:
        given["at"] = at
        names["until"] = _UNTIL.format(at=action.at)
    if isinstance(action, Delete):
        return Named(_DELETE.format(**names), batch=BATCH)(**given)
    statement = _BLANK.format(
        **names,
        changes=", ".join(map(" = ".join, action.values.items())),
        old=", ".join(action.values),
        new=", ".join(action.values.values()),
    )
    return Named(statement, batch=BATCH)(**given)
