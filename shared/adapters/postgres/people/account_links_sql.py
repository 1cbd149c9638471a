"""SQL that joins two persons and separates them again."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('evertalk.people', 0))"
"""Lock that lets one link be made or undone at a time; so no two conflict, and no circle can arise."""

PLACE = Named("""
SELECT a.id AS address_id, a.channel, a.session_id, coalesce(p.merged_into, p.id) AS contact_id,
       g.name AS agent,
       p.kind = 'group' OR o.kind = 'group' AS is_group,
       coalesce(CASE a.channel WHEN 'web' THEN (SELECT w.audience FROM sites w WHERE w.name = a.account)
                               ELSE (SELECT b.audience FROM telegram_bots b
                                      WHERE b.bot_id::text = a.account) END, 'personal') = 'public' AS is_public
  FROM addresses a JOIN contacts p ON p.id = a.contact_id JOIN sessions s ON s.id = a.session_id
  JOIN contacts o ON o.id = s.contact_id JOIN agents g ON g.id = s.agent_id
 WHERE a.id = :address_id
""")
"""Select the person, agent, kind and audience of an address, which decide whether it may be linked.

`contact_id` is the person into whom others are merged. No row if the address does not exist.
"""

COUNT_RECENT_CODES = Named("""
SELECT count(*) FROM one_time_codes
 WHERE purpose = 'link' AND contact_id = ANY (ARRAY (SELECT contact_family(:contact_id)))
   AND created_at > now() - interval '1 hour'
""")
"""Select how many link codes the person and those linked to them got within an hour."""
INSERT_CODE = Named("""
INSERT INTO one_time_codes (code_hash, purpose, contact_id, address_id, expires_at)
VALUES (:code_hash, 'link', :contact_id, :address_id, now() + make_interval(mins => :minutes))
""")
"""Store the hash of a link code, valid for `minutes`."""
FORGET_OLD_CODES = """
DELETE FROM one_time_codes WHERE purpose = 'link' AND created_at < now() - interval '1 day'
"""
"""Delete the link codes that are older than a day."""
LOCK_CODE = Named("""
SELECT address_id, used_at FROM one_time_codes
 WHERE code_hash = :code_hash AND purpose = 'link' AND expires_at > now() FOR UPDATE
""")
"""Select and lock an unexpired link code, also a used one; no row for another hash."""
USE_CODE = Named("UPDATE one_time_codes SET used_at = now() WHERE code_hash = :code_hash")
"""Mark a link code as used."""

TOO_MANY_GUESSES = Named("""
SELECT count(*) >= :guesses_of_all
    OR count(*) FILTER (WHERE session_id = :session_id) >= :guesses
    OR count(*) FILTER (WHERE contact_id = ANY (ARRAY (SELECT contact_family(:contact_id)))) >= :guesses
  FROM link_guesses WHERE at > now() - make_interval(mins => :minutes)
""")
"""Select whether wrong codes of the last `minutes` reach `guesses` of a session or person.

All guesses together may not reach `guesses_of_all`.
"""
RECORD_GUESS = Named("""
WITH old AS (DELETE FROM link_guesses WHERE at < now() - interval '1 hour')
INSERT INTO link_guesses (session_id, contact_id) VALUES (:session_id, :contact_id)
""")
"""Record a wrong code of a session and person, and delete records older than an hour."""

LOCK_SESSIONS = Named("""
SELECT id, answered_turn < next_turn - 1 AS is_open, held_after IS NOT NULL AS is_held,
       leased_by IS NULL AND retry_at > now() AS is_waiting FROM sessions
 WHERE id = ANY (:session_ids) OR contact_id = ANY (:contact_ids) AND archived_at IS NULL ORDER BY id
   FOR NO KEY UPDATE
""")
"""Lock sessions by id, and all live sessions of `contact_ids`, in the order of their ids.

Messages and claims wait for the transaction and then read the new row. `is_open` says that a turn is
unanswered, `is_held` that an operator has the conversation, `is_waiting` that the turn waits for its next
attempt and is not claimed meanwhile.
"""

INSERT_LINK = Named("""
INSERT INTO contact_links (kept_contact_id, joined_contact_id, kept_session_id, archived_session_id, day)
VALUES (:kept_contact, :joined_contact, :kept_session, :archived_session, (now() AT TIME ZONE :timezone)::date)
   RETURNING id
""")
"""Insert a link between two persons, with the day in `timezone`, and select its id."""
MERGE_CONTACTS = Named("""
UPDATE contacts SET merged_into = :kept_contact WHERE id = :joined_contact OR merged_into = :joined_contact
""")
"""Merge a contact into another, with those already merged into it, so that merges stay one level deep."""
ARCHIVE = Named("UPDATE sessions SET archived_at = now(), open_turn = NULL WHERE id = :session_id")
"""Archive a session; its open turn takes no further messages."""
# Messages from before are not unread for an address that is moved.
MOVE_ADDRESSES = Named("""
UPDATE addresses SET session_id = :kept_session,
   read_seq = (SELECT next_event_seq - 1 FROM sessions WHERE id = :kept_session)
 WHERE session_id = :archived_session RETURNING id
""")
"""Let the addresses of an archived session lead to the kept one; select their ids.

Earlier messages of the kept session count as read there.
"""
UNMARK_LEFT = Named("""
UPDATE sessions SET left_by = nullif(ARRAY
                                     (SELECT unnest(left_by) EXCEPT SELECT unnest(:addresses::bigint[])),
                                        '{}')
 WHERE id = :session_id AND left_by && :addresses::bigint[]
""")
"""Remove addresses from those that have left a session, since they lead to it again."""
TAKE_OVER_SESSIONS = Named("""
UPDATE sessions SET contact_id = :kept_contact WHERE contact_id = :joined_contact AND archived_at IS NULL
""")
"""Give the joined person's other live sessions, such as topics of a chat, to the kept person."""

SUPERSEDE_NOTES = Named("""
WITH kept AS (
  SELECT DISTINCT ON (k.scope, k.hash) k.id, k.scope, k.hash FROM notes k
   WHERE k.contact_id = :kept_contact OR k.contact_id IN
     (SELECT id FROM contacts WHERE merged_into = :kept_contact AND id <> ALL (:joined_contacts))
   ORDER BY k.scope, k.hash, k.contact_id <> :kept_contact, k.id
), gone AS (
  UPDATE notes n SET superseded_by = kept.id, contact_link_id = :link_id FROM kept
   WHERE n.contact_id = ANY (:joined_contacts) AND n.scope = kept.scope AND n.hash = kept.hash
     AND n.superseded_by IS NULL AND n.forgotten_at IS NULL
  RETURNING n.id
)
SELECT count(*) FROM gone
""")
"""Supersede duplicate notes of the joined persons by those of the kept person; select their number.

Notes that the kept person deleted supersede too, so that they do not return.
"""

CARRY_SPENDING = Named("""
WITH l AS (SELECT * FROM contact_links WHERE id = :link_id), carried AS (
  SELECT l.kept_session_id, l.kept_contact_id, l.day,
         greatest(0, d.spent_micro - (
           SELECT coalesce(sum(e.carried_micro), 0) FROM contact_links e
            WHERE e.joined_contact_id = l.joined_contact_id AND e.kept_contact_id = l.kept_contact_id
              AND e.day = l.day)) AS micro
    FROM l JOIN spend_days d ON d.scope = 'contact:' || l.joined_contact_id AND d.day = l.day
), r AS (
  INSERT INTO reservations (session_id, contact_id, day, amount_micro, settled_micro, state, scopes, ended_at)
  SELECT kept_session_id, kept_contact_id, day, micro, micro, 'settled', ARRAY['contact:' || kept_contact_id], now()
    FROM carried WHERE micro > 0
), s AS (
  INSERT INTO spend_days AS d (scope, day, spent_micro)
  SELECT 'contact:' || kept_contact_id, day, micro FROM carried WHERE micro > 0
  ON CONFLICT (scope, day) DO UPDATE SET spent_micro = d.spent_micro + excluded.spent_micro
)
UPDATE contact_links p SET carried_micro = carried.micro FROM carried WHERE p.id = :link_id
   AND carried.micro > 0
""")
"""Add today's spending of the joined person to the kept person's.

It is added once, however often they join and separate.
"""

LINKS = Named("""
SELECT l.id, a.channel, a.title, l.linked_at, l.joined_contact_id, l.kept_session_id, l.archived_session_id
  FROM contact_links l
  LEFT JOIN LATERAL (SELECT x.channel, x.title FROM addresses x WHERE x.contact_id = l.joined_contact_id
                      ORDER BY x.id LIMIT 1) a ON true
 WHERE l.unlinked_at IS NULL AND l.joined_contact_id IN (SELECT contact_family(:contact_id))
   AND EXISTS (SELECT FROM addresses x WHERE x.contact_id = l.joined_contact_id AND (
         x.channel <> 'web' OR x.chat LIKE 'sub:%' OR x.chat LIKE 'x:%'
         OR EXISTS (SELECT FROM visitors v WHERE v.address_id = x.id AND v.expires_at > now())
         OR EXISTS (SELECT FROM recovery_codes c WHERE c.address_id = x.id AND c.expires_at > now())))
 ORDER BY l.id
""")
"""Select links whose other address can still be opened; after undoing another, it could not be reached."""
SUBTREE = Named("""
WITH RECURSIVE tree(id) AS (
  SELECT :contact_id::bigint UNION
  SELECT l.joined_contact_id FROM contact_links l JOIN tree ON l.kept_contact_id = tree.id WHERE l.unlinked_at IS NULL
)
SELECT array_agg(id) FROM tree
""")
"""Select the ids of a joined contact and of all contacts joined to it."""
LIVE_SESSION = Named("""
WITH RECURSIVE way(id) AS (
  SELECT :session_id::bigint UNION
  SELECT l.kept_session_id FROM contact_links l JOIN way ON l.archived_session_id = way.id
   WHERE l.unlinked_at IS NULL
)
SELECT way.id FROM way JOIN sessions s ON s.id = way.id WHERE s.archived_at IS NULL
""")
"""Select the live session in which a session continues after all links since.

It is the session itself if it is not archived; no row if none is live.
"""
END_LINK = Named("UPDATE contact_links SET unlinked_at = now() WHERE id = :link_id")
"""Mark a link as ended now."""
SEPARATE_CONTACTS = Named("""
UPDATE contacts SET merged_into = CASE WHEN id <> :root THEN :root END WHERE id = ANY (:family)
""")
"""Make `root` a separate person, into whom the rest of `family` is merged."""
RESTORE_SESSION = Named("""
UPDATE sessions SET archived_at = NULL, open_address = NULL, contact_id = :contact_id WHERE id = :session_id
""")
"""Make an archived session live again, as one of the person `contact_id`."""
RESTORE_ADDRESSES = Named("""
UPDATE addresses SET session_id = :back_session,
   read_seq = (SELECT next_event_seq - 1 FROM sessions WHERE id = :back_session)
 WHERE session_id = :session_id AND contact_id = ANY (:family) RETURNING id
""")
"""Let the addresses of `family` lead from a session back to `back_session`; select their ids.

All messages there count as read.
"""
MARK_LEFT = Named("""
UPDATE sessions SET left_by = ARRAY (SELECT unnest(coalesce(left_by, '{}')) UNION SELECT
                                     unnest(:addresses::bigint[]))
 WHERE id = :session_id
""")
"""Record that addresses have left a session, so that late messages from them are refused there."""
RESTORE_SESSION_OWNERS = Named("""
UPDATE sessions SET contact_id = :contact_id
 WHERE archived_at IS NULL AND id IN (SELECT session_id FROM addresses WHERE contact_id = ANY (:family))
""")
"""Give the live sessions to which addresses of `family` lead to the person `contact_id`."""
RESTORE_NOTES = Named("""
WITH c AS (
  DELETE FROM note_changes c USING notes o, notes k
   WHERE o.id = c.old_id AND k.id = c.new_id AND o.contact_id <> k.contact_id
     AND (o.contact_id = ANY (:family)) <> (k.contact_id = ANY (:family))
     AND c.contact_id IN (SELECT contact_family(s.contact_id) FROM sessions s WHERE s.id = :session_id
                         UNION SELECT unnest(:family::bigint[]))
)
UPDATE notes n SET superseded_by = NULL, superseded_reason = '', contact_link_id = NULL FROM notes k
 WHERE k.id = n.superseded_by AND (n.contact_id = ANY (:family)) <> (k.contact_id = ANY (:family))
   AND (n.contact_id = ANY (:family)
        OR n.contact_id IN (SELECT contact_family(s.contact_id) FROM sessions s WHERE s.id = :session_id))
""")
"""Restore notes as they were before two people were joined, and delete the changes that joined them."""
RESTORE_REMINDERS = Named("""
UPDATE reminders r SET contact_id = s.contact_id, session_id = s.id
  FROM addresses a JOIN sessions s ON s.id = a.session_id
 WHERE a.id = r.address_id AND a.contact_id = ANY (:family) AND r.turn_no IS NULL
""")
"""Give waiting reminders at addresses of `family` to the sessions to which these addresses lead now."""
MOVE_BEGUN_REMINDERS = Named("""
UPDATE reminders r SET contact_id = s.contact_id FROM sessions s
 WHERE s.id = r.session_id AND r.turn_no IS NOT NULL AND s.contact_id = :contact_id AND r.contact_id <> :contact_id
""")
"""Give begun reminders of a person's sessions to the persons of these sessions."""

ARCHIVED = Named("""
SELECT s.id, s.public_id::text AS public_id, s.archived_at,
       coalesce((SELECT t.channel FROM turns t WHERE t.session_id = s.id ORDER BY t.turn_no DESC LIMIT 1),
                '') AS channel
  FROM sessions s JOIN sessions mine ON mine.id = :session_id
 WHERE s.archived_at IS NOT NULL AND s.contact_id IN (SELECT contact_family(mine.contact_id))
 ORDER BY s.archived_at DESC LIMIT :limit
""")
"""Select at most `limit` archived sessions of the session's person, with the channel of the last turn."""
NEWEST_MESSAGES = Named("""
SELECT * FROM (
  SELECT e.author, e.blocks, e.at, te.turn_no, te.step
    FROM turn_entries te JOIN entries e USING (session_id, seq)
   WHERE te.session_id = :session_id AND e.author IN ('person', 'assistant', 'operator')
     AND coalesce(te.replaced_by, 0) <= 0
   ORDER BY te.turn_no DESC, te.step DESC LIMIT :limit) newest
 ORDER BY turn_no, step
""")
"""Select the newest `limit` messages of a session in their order, without replaced ones and tool calls."""
