"""The statements of notes."""

from __future__ import annotations

LIVE = "n.superseded_by IS NULL AND n.forgotten_at IS NULL"

_STATE = """CASE WHEN n.forgotten_at IS NULL AND n.superseded_by IS NULL THEN 'kept'
       WHEN n.forgotten_at IS NULL THEN 'replaced'
       WHEN n.undo_until IS NOT NULL THEN 'put_away' ELSE 'erased' END AS state"""
_COLUMNS = f"n.*, {_STATE}"
_OURS = "n.party_id IN (SELECT party_family($1)) AND n.scope = $2"

WHOSE = """
SELECT s.party_id, a.name AS scope FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = $1
"""

LOCK_PARTY = "SELECT id FROM parties WHERE id = $1 FOR NO KEY UPDATE"

STILL_MINE = """
SELECT true FROM sessions WHERE id = $1 AND turn_epoch = $2 AND answered_turn = $3 - 1 FOR NO KEY UPDATE
"""

BY_CALL = f"SELECT {_COLUMNS} FROM notes n WHERE n.call_key = $1"

BY_SHORT_ID = f"SELECT {_COLUMNS} FROM notes n WHERE {_OURS} AND left(n.public_id::text, 8) = $3 LIMIT 2"

BY_ID = f"SELECT {_COLUMNS} FROM notes n WHERE {_OURS} AND n.id = $3"

NEWEST = f"""
SELECT {_COLUMNS}, f.total FROM (
       SELECT n.id, count(*) OVER () AS total, row_number() OVER (ORDER BY n.observed_at DESC, n.id DESC) AS place
         FROM notes n WHERE {_OURS} AND ($4 AND n.text <> '' OR {LIVE}) ORDER BY place LIMIT $3) f
  JOIN notes n USING (id) ORDER BY f.place
"""

FIND = f"""
SELECT {_COLUMNS}, f.total FROM (
       SELECT w.id, count(*) OVER () AS total,
              row_number() OVER (ORDER BY w.hits DESC, w.importance DESC, w.observed_at DESC, w.id DESC) AS place
         FROM (SELECT n.id, n.importance, n.observed_at,
                      (SELECT count(*) FROM unnest($5::text[]) AS stem WHERE strpos(l.words, stem) > 0) AS hits
                 FROM notes n
                CROSS JOIN LATERAL (SELECT lower(n.text || ' ' || n.subject) AS words OFFSET 0) l
                WHERE {_OURS} AND ($4 AND n.text <> '' OR {LIVE})) w
        WHERE w.hits > 0 ORDER BY place LIMIT $3) f
  JOIN notes n USING (id) ORDER BY f.place
"""

SAVES_OF_TURN = """
SELECT count(*) FROM turn_steps
 WHERE session_id = $1 AND turn_no = $2 AND tool = $4 AND (status = 'done' OR status = 'intent' AND call_id < $3)
"""

TWINS = f"""
SELECT {_COLUMNS}, n.hash = $3 AS same FROM notes n
 WHERE {_OURS} AND n.id <> $5
   AND (n.hash = $3
        OR cardinality(n.gist) BETWEEN 0.8 * cardinality($4::int[]) AND cardinality($4::int[]) / 0.8
           AND n.gist && $4::int[]
           AND (SELECT count(*)::float8 FROM unnest(n.gist) g WHERE g = ANY ($4::int[]))
               >= 0.8 * greatest(cardinality(n.gist), cardinality($4::int[])))
 ORDER BY n.superseded_by IS NULL AND n.forgotten_at IS NULL DESC, n.id LIMIT 100
"""
"""A little wider than what counts as nearly the same: the core decides."""

READABLE = """
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       false AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = $1 AND te.turn_no <= $3 AND coalesce(te.replaced_by, 0) <= 0
   AND te.turn_no > least($2 - 1, (SELECT base_turn FROM sessions WHERE id = $1))
 ORDER BY te.turn_no, te.step
"""
"""Entries that a model could read when it kept a note: turns of the note, and live ones before."""

TOOLS_USED = """
SELECT EXISTS (SELECT FROM turn_steps t WHERE t.session_id = $1 AND t.turn_no BETWEEN $2 AND $3
                  AND t.status <> 'intent'
                  AND (t.tool <> ALL ($4::text[])
                       OR t.tool = $5 AND EXISTS (
                          SELECT FROM notes n WHERE n.party_id IN (SELECT party_family($6)) AND n.scope = $7
                             AND n.authority = 'tool')))
"""
"""A search may have shown what only a tool vouches for: what is saved after it is not the assistant's own."""

INSERT = f"""
INSERT INTO notes AS n (party_id, scope, kind, text, subject, importance, hash, authority, session_id, from_turn,
                        through_turn, flush_id, durability, event_date, source_seqs, gist, call_key,
                        observed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
        coalesce($18, now()))
RETURNING {_COLUMNS}
"""

REVIVE = f"""
UPDATE notes n SET text = $2, subject = $3, importance = $4, event_date = $5, durability = $6,
       authority = coalesce($7, n.authority), call_key = coalesce(n.call_key, $8), superseded_by = NULL,
       superseded_reason = '', forgotten_at = NULL, undo_until = NULL, expired_at = NULL, observed_at = now()
 WHERE n.id = $1 RETURNING {_COLUMNS}
"""

UNCHAIN = "UPDATE notes SET superseded_by = NULL, superseded_reason = '' WHERE id = $1"

SUPERSEDE = """
UPDATE notes SET superseded_by = $2, superseded_reason = $3
 WHERE id = ANY ($1::bigint[]) AND superseded_by IS NULL AND id <> $2
"""

PUT_AWAY = f"""
UPDATE notes n SET forgotten_at = now(), undo_until = now() + make_interval(days => $2)
 WHERE n.id = $1 RETURNING {_COLUMNS}
"""

BRING_BACK = f"""
UPDATE notes n SET forgotten_at = NULL, undo_until = NULL
 WHERE n.id = $1 AND n.undo_until > now() RETURNING {_COLUMNS}
"""

HEIR = f"""
WITH RECURSIVE chain AS (
  SELECT id, superseded_by FROM notes WHERE id = $1
  UNION SELECT h.id, h.superseded_by FROM notes h JOIN chain c ON h.id = c.superseded_by
)
SELECT {_COLUMNS} FROM notes n JOIN chain c USING (id) WHERE {LIVE}
"""

CLOSURE = f"""
WITH RECURSIVE chain AS (
  SELECT n.id FROM notes n WHERE {_OURS} AND n.id = ANY ($3::bigint[])
  UNION SELECT o.id FROM notes o JOIN chain c ON o.superseded_by = c.id
)
SELECT {_COLUMNS} FROM notes n JOIN chain c USING (id) ORDER BY n.id
"""

SET_GIST = "UPDATE notes SET gist = $2 WHERE id = $1"

ERASE = """
UPDATE notes SET text = '', subject = '', event_date = NULL, undo_until = NULL,
       forgotten_at = coalesce(forgotten_at, now())
 WHERE id = ANY ($1::bigint[])
"""

LOG_ERASURE = """
INSERT INTO erasures (party_hash, actor, scope, state, counts, about, at, finished_at)
SELECT sha256(convert_to('evertalk.erasures:' || coalesce(r.public_id, p.public_id)::text, 'UTF8')), $4,
       'notes', 'done', jsonb_build_object('notes', $3::bigint), $2, clock_timestamp(), clock_timestamp()
  FROM parties p LEFT JOIN parties r ON r.id = p.merged_into WHERE p.id = $1
"""
"""Erasure log entry, so that a restored backup does not bring the note back."""

_SESSIONS = "(SELECT id FROM sessions WHERE party_id IN (SELECT party_family($1)))"

ERASE_EVENTS = f"""
UPDATE events SET payload = CASE WHEN kind = 'memory' THEN payload || '{{"text": ""}}'
                                 ELSE payload || '{{"result": "…"}}' || CASE WHEN payload ? 'error'
                                      THEN '{{"error": "…"}}'::jsonb ELSE '{{}}'::jsonb END END
 WHERE session_id IN {_SESSIONS}
   AND (kind = 'memory' AND payload ->> 'id' = ANY ($2::text[])
        OR kind = 'command.result' AND payload ->> 'command' IN ('memory', 'remember', 'forget'))
"""
"""Erasure of events; the answer of such a command is a list of notes and is erased as a whole."""

ERASE_STRAY = """
UPDATE flushes SET stray_text = '' WHERE id IN (SELECT flush_id FROM notes WHERE id = ANY ($1::bigint[]))
"""

ERASE_PARTS = f"""
DELETE FROM prompt_parts p USING (
       SELECT DISTINCT decode(h.hash, 'hex') AS sha256 FROM turn_context_audit a
        CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) h(hash)
        WHERE a.session_id IN {_SESSIONS}) used
 WHERE p.sha256 = used.sha256
   AND (p.body LIKE $3 || '%' AND EXISTS (SELECT FROM unnest($2::text[]) AS line WHERE strpos(p.body, line) > 0)
        OR EXISTS (SELECT FROM unnest($4::text[]) AS line WHERE strpos(p.body, line) > 0))
"""
"""Erasure of prompt parts of the person's turns that showed the notes; replay then reports a missing part."""

ASK_FOR_TIDY = """
INSERT INTO jobs (kind, session_id, key, trigger, due_at)
VALUES ('tidy', $1, 'tidy:' || $2::bigint || ':forgotten', 'forgotten', now() + interval '10 minutes')
ON CONFLICT (key) WHERE state IN ('due', 'running') DO NOTHING
"""
"""A turn that was being answered meanwhile stores what it was shown a little later."""

KEEP_LIST = """
INSERT INTO note_lists (session_id, address_id, purpose, note_ids, expires_at)
VALUES ($1, $2, $3, $4, now() + interval '10 minutes')
ON CONFLICT (session_id, address_id) DO UPDATE
   SET purpose = excluded.purpose, note_ids = excluded.note_ids, expires_at = excluded.expires_at
"""

LOCK_LIST = """
SELECT purpose, note_ids FROM note_lists WHERE session_id = $1 AND address_id = $2 AND expires_at > now() FOR UPDATE
"""

DROP_LIST = "DELETE FROM note_lists WHERE session_id = $1 AND address_id = $2"

ADD_EVENT = """
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = $1 RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload) SELECT $1, event_seq, 'memory', $2 FROM s
RETURNING event_seq
"""
