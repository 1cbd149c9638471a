"""SQL statements for notes."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named

SESSION_OWNER = Named("""
SELECT s.contact_id, a.name AS scope FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = :session_id
""")
"""Select the person and agent of a session, who own its notes; no row for an unknown session."""

LOCK_CONTACT = Named("SELECT id FROM contacts WHERE id = :contact_id FOR NO KEY UPDATE")
"""Lock a contact, under which notes of one person are written one after the other."""

STILL_MINE = Named("""
SELECT true FROM sessions WHERE id = :session_id AND turn_epoch = :epoch
   AND answered_turn = :turn - 1 FOR NO KEY UPDATE
""")
"""Lock the session of a claimed turn; no row if the claim with this epoch is lost."""

BY_CALL = Named("SELECT n.*, note_state(n) AS state FROM notes n WHERE n.call_key = :call_key")
"""Select the note that a tool call stored; no row if it stored none."""

BY_SHORT_ID = Named("""
SELECT n.*, note_state(n) AS state FROM notes n
 WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope
   AND left(n.public_id::text, 8) = :start LIMIT 2
""")
"""Select at most two notes whose public id begins with `start`; two mean that it is ambiguous."""

BY_ID = Named("""
SELECT n.*, note_state(n) AS state FROM notes n
 WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope AND n.id = :note_id
""")
"""Select a note of a person and agent by its row id, in any state."""

SENT_NOTES = Named("""
SELECT n.*, note_state(n) AS state FROM notes n
 WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope
   AND n.text <> '' AND (n.id = ANY (:note_ids::bigint[]) OR n.hash = ANY (:hashes::bytea[]))
 ORDER BY n.importance DESC, n.id LIMIT :limit
""")
"""Select notes of a person and agent with these ids or hashes of text, the most important first.

Erased notes are left out.
"""

NEWEST = Named("""
SELECT n.*, note_state(n) AS state, f.total FROM (
       SELECT n.id, count(*) OVER () AS total,
              row_number() OVER (ORDER BY n.observed_at DESC, n.id DESC) AS place
         FROM notes n
        WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope
          AND (:everything AND n.text <> '' OR n.superseded_by IS NULL AND n.forgotten_at IS NULL)
        ORDER BY place LIMIT :limit) f
  JOIN notes n USING (id) ORDER BY f.place
""")
"""Select the newest notes of a person and agent, with the `total` beyond `limit`.

`everything` includes replaced and archived notes.
"""

FIND = Named("""
SELECT n.*, note_state(n) AS state, f.total FROM (
       SELECT w.id, count(*) OVER () AS total,
              row_number() OVER (
                ORDER BY w.hits DESC, w.importance DESC, w.observed_at DESC, w.id DESC) AS place
         FROM (SELECT n.id, n.importance, n.observed_at,
                      (SELECT count(*) FROM unnest(:stems::text[]) AS stem
                        WHERE strpos(l.words, stem) > 0) AS hits
                 FROM notes n
                CROSS JOIN LATERAL (SELECT lower(n.text || ' ' || n.subject) AS words OFFSET 0) l
                WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope
                  AND (:everything AND n.text <> ''
                       OR n.superseded_by IS NULL AND n.forgotten_at IS NULL)) w
        WHERE w.hits > 0 ORDER BY place LIMIT :limit) f
  JOIN notes n USING (id) ORDER BY f.place
""")
"""Select notes of a person and agent that contain any of the stems, with the `total` beyond `limit`.

The order is by the number of contained stems, then by importance. `everything` includes replaced and archived
notes.
"""

SAVES_OF_TURN = Named("""
SELECT count(*) FROM turn_steps
 WHERE session_id = :session_id AND turn_no = :turn AND tool = :tool
   AND (status = 'done' OR status = 'intent' AND call_id < :call_id)
""")
"""Select how many notes a turn has saved before the tool call `call_id`."""

TWINS = Named("""
SELECT n.*, note_state(n) AS state, n.hash = :hash AS same FROM notes n
 WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope AND n.id <> :besides
   AND (n.hash = :hash
        OR cardinality(n.gist) BETWEEN 0.8 * cardinality(:gist::int[]) AND cardinality(:gist::int[]) / 0.8
           AND n.gist && :gist::int[]
           AND (SELECT count(*)::float8 FROM unnest(n.gist) g WHERE g = ANY (:gist::int[]))
               >= 0.8 * greatest(cardinality(n.gist), cardinality(:gist::int[])))
 ORDER BY n.superseded_by IS NULL AND n.forgotten_at IS NULL DESC, n.id LIMIT 100
""")
"""Select at most 100 notes of the same or a similar text; the program compares them exactly."""

READABLE = Named("""
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       false AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no <= :through_turn AND coalesce(te.replaced_by, 0) <= 0
   AND te.turn_no > least(:from_turn - 1, (SELECT base_turn FROM sessions WHERE id = :session_id))
 ORDER BY te.turn_no, te.step
""")
"""Select entries that a model could read when it saved a note: turns of the note, and live ones before."""

TOOLS_USED = Named("""
SELECT EXISTS (SELECT FROM turn_steps t
                WHERE t.session_id = :session_id AND t.turn_no BETWEEN :from_turn AND :through_turn
                  AND t.status <> 'intent'
                  AND (t.tool <> ALL (:memory_tools::text[])
                       OR t.tool = :search AND EXISTS (
                          SELECT FROM notes n WHERE n.contact_id IN (SELECT contact_family(:contact_id))
                             AND n.scope = :scope
                             AND n.authority = 'tool')))
""")
"""Select whether turns used a tool other than those of memory, or a search that may show a tool's text.

A note that is saved after such a turn does not have the assistant's authority.
"""

INSERT = Named("""
INSERT INTO notes AS n (contact_id, scope, kind, text, subject, importance, hash, authority, session_id, from_turn,
                        through_turn, flush_id, durability, event_date, source_seqs, gist, call_key,
                        observed_at)
VALUES (:contact_id, :scope, :kind, :text, :subject, :importance, :hash, :authority, :session_id, :from_turn,
        :through_turn, :flush_id, :durability, :event_date, :source_seqs, :gist, :call_key,
        coalesce(:said_at, now()))
RETURNING n.*, note_state(n) AS state
""")
"""Insert a note and select it; the unique hash refuses a second note of the same text.

No row if a trigger refuses the note because its turn was erased.
"""

REVIVE = Named("""
UPDATE notes n SET text = :text, subject = :subject, importance = :importance, event_date = :event_date,
       durability = :durability, authority = coalesce(:authority, n.authority),
       call_key = coalesce(n.call_key, :call_key), superseded_by = NULL,
       superseded_reason = '', forgotten_at = NULL, undo_until = NULL, expired_at = NULL, observed_at = now()
 WHERE n.id = :note_id RETURNING n.*, note_state(n) AS state
""")
"""Make a forgotten or replaced note live again with new text and date.

`authority` NULL keeps the stored one.
"""

UNSUPERSEDE = Named("UPDATE notes SET superseded_by = NULL, superseded_reason = '' WHERE id = :note_id")
"""Undo that a note was replaced."""

SUPERSEDE = Named("""
WITH o AS (
  UPDATE notes SET superseded_by = :kept_id, superseded_reason = :reason
   WHERE id = ANY (:old_ids::bigint[]) AND superseded_by IS NULL AND id <> :kept_id
  RETURNING id, contact_id
)
INSERT INTO note_changes (contact_id, old_id, new_id, cause) SELECT contact_id, id, :kept_id, :cause FROM o
""")
"""Replace live notes by the note `kept_id`, with a row in the history of changes for each."""

VERSIONS = Named("""
WITH RECURSIVE former AS (
  SELECT n.id FROM notes n
   WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope AND n.id = :note_id
  UNION SELECT o.id FROM notes o JOIN former f ON o.superseded_by = f.id
   WHERE o.contact_link_id IS NULL
), saved AS (
  SELECT n.id AS note_id, 0::bigint AS change_id, NULL::bigint AS old_id, n.created_at AS at,
         CASE WHEN n.authority = 'operator' THEN 'operator' WHEN n.flush_id IS NOT NULL THEN 'flush'
              WHEN n.from_turn IS NULL THEN 'person' ELSE 'tool' END AS cause
    FROM former JOIN notes n USING (id)
   WHERE NOT EXISTS (SELECT FROM note_changes c WHERE c.new_id = n.id AND c.at <= n.created_at
                        AND c.old_id IN (SELECT id FROM former))
), shown AS (
  SELECT * FROM saved
  UNION ALL
  SELECT c.new_id, c.id, c.old_id, c.at, c.cause FROM note_changes c
   WHERE c.new_id IN (SELECT id FROM former) AND c.old_id IN (SELECT id FROM former)
)
SELECT n.*, note_state(n) AS state, s.at AS version_at, s.cause, o.text AS old_text,
       CASE WHEN o.id IS NOT NULL THEN 'n' || left(o.public_id::text, 8) END AS old_short_id
  FROM shown s JOIN notes n ON n.id = s.note_id LEFT JOIN notes o ON o.id = s.old_id
 WHERE n.text <> '' AND coalesce(o.text, '-') <> ''
 ORDER BY s.at DESC, s.change_id DESC, n.id DESC LIMIT :limit
""")
"""Select texts of a note, newest first.

A note is its first version, unless it was saved to replace another one.
"""

SOURCES = Named("""
SELECT n.id, coalesce(min(e.seq) FILTER (WHERE e.at = n.observed_at), min(e.seq)) AS seq FROM notes n
  JOIN turn_entries te ON te.session_id = n.session_id
   AND te.turn_no BETWEEN n.from_turn AND coalesce(n.through_turn, n.from_turn)
  JOIN entry_rows e ON e.session_id = te.session_id AND e.seq = te.seq AND e.author = 'person'
 WHERE n.id = ANY (:note_ids::bigint[]) AND n.session_id = :session_id AND coalesce(te.replaced_by, 0) <= 0
 GROUP BY n.id
""")
"""Select the message of the session from which each note was taken; the dates of both are equal."""

ARCHIVE = Named("""
UPDATE notes n SET forgotten_at = now(), undo_until = now() + make_interval(days => :undo_days)
 WHERE n.id = :note_id RETURNING n.*, note_state(n) AS state
""")
"""Archive a note, which can be restored for `undo_days`."""

RESTORE = Named("""
UPDATE notes n SET forgotten_at = NULL, undo_until = NULL
 WHERE n.id = :note_id AND n.undo_until > now() RETURNING n.*, note_state(n) AS state
""")
"""Restore an archived note; no row after its undo time."""

NEWEST_VERSION = Named("""
WITH RECURSIVE chain AS (
  SELECT id, superseded_by FROM notes WHERE id = :note_id
  UNION SELECT h.id, h.superseded_by FROM notes h JOIN chain c ON h.id = c.superseded_by
)
SELECT n.*, note_state(n) AS state FROM notes n JOIN chain c USING (id)
 WHERE n.superseded_by IS NULL AND n.forgotten_at IS NULL
""")
"""Select the live note that replaces a note, perhaps through others, or the note itself.

No row if that note was forgotten.
"""

CLOSURE = Named("""
WITH RECURSIVE chain AS (
  SELECT n.id FROM notes n
   WHERE n.contact_id IN (SELECT contact_family(:contact_id)) AND n.scope = :scope
     AND n.id = ANY (:note_ids::bigint[])
  UNION SELECT o.id FROM notes o JOIN chain c ON o.superseded_by = c.id
)
SELECT n.*, note_state(n) AS state FROM notes n JOIN chain c USING (id) ORDER BY n.id
""")
"""Select notes of a person and agent with all notes that they replaced, in any state."""

SET_GIST = Named("UPDATE notes SET gist = :gist WHERE id = :note_id")
"""Store the gist of a note, by which similar notes are found."""

ERASE = Named("""
UPDATE notes SET text = '', subject = '', event_date = NULL, undo_until = NULL,
       forgotten_at = coalesce(forgotten_at, now())
 WHERE id = ANY (:note_ids::bigint[])
""")
"""Delete the text of notes; their rows and hashes stay."""

LOG_ERASURE = Named("""
INSERT INTO erasures (contact_hash, actor, scope, state, counts, about, at, finished_at)
SELECT sha256(convert_to('evertalk.erasures:' || coalesce(r.public_id, p.public_id)::text, 'UTF8')), :actor,
       'notes', 'done', jsonb_build_object('notes', :number::bigint), :about, clock_timestamp(),
         clock_timestamp()
  FROM contacts p LEFT JOIN contacts r ON r.id = p.merged_into WHERE p.id = :contact_id
""")
"""Insert an entry of the erasure log, so that a restored backup does not bring the notes back."""

ERASE_EVENTS = Named("""
UPDATE events SET payload = CASE WHEN kind = 'memory' THEN payload || '{"text": ""}'
                                 ELSE payload || '{"result": "…"}' || CASE WHEN payload ? 'error'
                                      THEN '{"error": "…"}'::jsonb ELSE '{}'::jsonb END END
 WHERE session_id IN (SELECT id FROM sessions WHERE contact_id IN (SELECT contact_family(:contact_id)))
   AND (kind = 'memory' AND payload ->> 'id' = ANY (:short_ids::text[])
        OR kind = 'command.result' AND payload ->> 'command' IN ('memory', 'remember', 'forget'))
""")
"""Erase events with notes; the result of a memory command is a list of notes, and is erased as a whole."""

ERASE_STRAY = Named("""
UPDATE flushes SET stray_text = ''
 WHERE id IN (SELECT flush_id FROM notes WHERE id = ANY (:note_ids::bigint[]))
""")
"""Delete the text that flushes of these notes wrote beside them."""

ERASE_PARTS = Named("""
DELETE FROM prompt_parts p USING (
       SELECT DISTINCT decode(h.hash, 'hex') AS sha256 FROM turn_context_audit a
        CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) h(hash)
        WHERE a.session_id IN (SELECT id FROM sessions WHERE contact_id IN (SELECT contact_family(:contact_id)))) used
 WHERE p.sha256 = used.sha256
   AND (p.body LIKE :opening || '%'
        AND EXISTS (SELECT FROM unnest(:lines::text[]) AS line WHERE strpos(p.body, line) > 0)
        OR EXISTS (SELECT FROM unnest(:recalled::text[]) AS line WHERE strpos(p.body, line) > 0))
""")
"""Delete stored parts of the person's requests that contain the notes.

A replay then reports a missing part.
"""

REQUEST_TIDY = Named("""
INSERT INTO jobs (kind, session_id, key, trigger, due_at)
VALUES ('tidy', :session_id, 'tidy:' || :contact_id::bigint || ':forgotten', 'forgotten',
   now() + interval '10 minutes')
ON CONFLICT (key) WHERE state IN ('due', 'running') DO NOTHING
""")
"""Insert a tidy job in ten minutes.

A turn that is being answered now may store later that it was sent the notes.
"""

STORE_LIST = Named("""
INSERT INTO note_lists (session_id, address_id, purpose, note_ids, expires_at)
VALUES (:session_id, :address_id, :purpose, :note_ids, now() + interval '10 minutes')
ON CONFLICT (session_id, address_id) DO UPDATE
   SET purpose = excluded.purpose, note_ids = excluded.note_ids, expires_at = excluded.expires_at
""")
"""Store a list of notes for an address, valid for ten minutes, in place of the former one."""

LOCK_LIST = Named("""
SELECT purpose, note_ids FROM note_lists WHERE session_id = :session_id AND address_id = :address_id
   AND expires_at > now() FOR UPDATE
""")
"""Select and lock the list of notes of an address; no row if there is none or it has expired."""

DELETE_LIST = Named("DELETE FROM note_lists WHERE session_id = :session_id AND address_id = :address_id")
"""Delete the list of notes of an address."""

ADD_EVENT = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = :session_id
     RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload) SELECT :session_id, event_seq, 'memory',
   :payload FROM s
RETURNING event_seq
""")
"""Insert an event of a changed note, for screens, with the session's next number."""
