"""Erasure of single messages, with their text and all rows made from them, in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from shared.adapters.postgres.db.pool import Connection, Named
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.adapters.postgres.privacy import erasure_sql
from shared.adapters.postgres.turns.edits import FENCE_JOBS
from shared.core.memory import recall
from shared.core.privacy.erasure import Report, drop_sources, is_about
from shared.core.session.forks import CopiedEntries
from shared.core.session.ledger import ledger_from_json, ledger_to_json
from shared.core.session.summary import render_summary
from shared.core.values.errors import UnknownSession

EMPTY_SUMMARY = "What was said here was partly forgotten at the person's wish."
"""Text of a summary of which nothing else is left; empty text would look like an error to the model."""


async def erase_messages_everywhere(
    connection: Connection, session_id: int, seqs: Sequence[int], *, actor: str, places: bool = True
) -> Report:
    """Erase messages here and their copies in forks and in the conversations from which this one was forked.

    It runs in the caller's transaction and takes the locks of these sessions. `places` False also removes the
    placeholders that screens would show. A log entry, an audit entry and an event for screens are stored per
    session. Raises UnknownSession.
    """
    await connection.execute(*_ONE_OF_PERSON(session_id=session_id))
    report, gone = await _erase_messages(connection, session_id, seqs, actor=actor, places=places)
    counts, marks = Counter(report.counts), dict(report.marks or {})
    waiting = [(session_id, gone)]
    while waiting:
        here, erased = waiting.pop()
        for row in await connection.fetch(*_FORKS(session_id=here)):
            copied = CopiedEntries.from_json(row["seqs"])
            is_fork = row["session_id"] == here
            other = row["from_session_id"] if is_fork else row["session_id"]
            find = copied.original_of if is_fork else copied.copy_of
            twins = [twin for seq in erased if (twin := find(seq)) is not None]
            if other in marks or not twins:
                continue
            more, gone = await _erase_messages(connection, other, twins, actor=actor, places=places)
            counts.update(more.counts)
            marks.update(more.marks or {})
            waiting.append((other, gone))
    return Report(erasure_id=report.erasure_id, counts=dict(counts), marks=marks)


async def _erase_messages(
    connection: Connection, session_id: int, seqs: Sequence[int], *, actor: str, places: bool
) -> tuple[Report, list[int]]:
    """Erase messages of one session; return the report and the numbers of all their forms.

    `places` False also removes the placeholders that screens would show.
    """
    session = await connection.fetchrow(*_LOCK_SESSION(session_id=session_id))
    if session is None:
        raise UnknownSession(f"session {session_id}")
    await connection.execute(erasure_sql.BEGIN_ERASING)
    rows = await connection.fetch(*_WITH_EDITS(session_id=session_id, seqs=list(seqs)))
    gone = [row["seq"] for row in rows]
    turns = sorted({row["turn_no"] for row in rows if row["turn_no"] is not None})
    words = "\n".join(row["words"] for row in rows)
    await connection.execute(*FENCE_JOBS(session_id=session_id))
    # A running answer may contain the message or a note of it; the sweep starts that answer from the
    # beginning.
    await connection.execute(*_FENCE_TURN(session_id=session_id))
    counts = {
        "notes": await _notes(connection, session_id, turns, words),
        "compactions": await _links(connection, session_id, gone),
    }
    for table, statement in _STATEMENTS.items():
        counts[table] = await connection.fetchval(*statement(session_id=session_id, seqs=gone))
    counts["entries"] = await connection.fetchval(*_ENTRIES(session_id=session_id, seqs=gone))
    if not places:
        await connection.execute(*_HIDE(session_id=session_id, seqs=gone))
    marks = await _event(connection, session_id, gone)
    about = {"session": str(session["public_id"]), "seqs": gone}
    return await _log_erasure(connection, session_id, actor, counts, marks, about), gone


async def _notes(connection: Connection, session_id: int, turns: list[int], words: str) -> int:
    """Erase notes made from these turns, and return their number.

    Notes made from other turns too are erased if they share a word with the erased text.
    """
    if not turns:
        return 0
    rows = await connection.fetch(*_NOTES(session_id=session_id, turns=turns))
    gone = [
        row["id"]
        for row in rows
        if row["from_turn"] == row["through_turn"] or is_about(f"{row['text']} {row['subject']}", words)
    ]
    await connection.execute(*_NOTE_EVENTS(session_id=session_id, note_ids=gone))
    await connection.execute(*_DELETE_NOTES(note_ids=gone))
    return len(gone)


async def _links(connection: Connection, session_id: int, seqs: list[int]) -> int:
    """Rewrite every summary that may contain the messages without them, by code.

    Returns the number of summaries.
    """
    rows = await connection.fetch(*_LINKS(session_id=session_id, first_seq=min(seqs, default=0)))
    for row in rows:
        ledger = drop_sources(ledger_from_json(row["ledger"]), seqs)
        text = render_summary(ledger) or EMPTY_SUMMARY
        await connection.execute(*_REWRITE(compaction_id=row["id"], text=text, ledger=ledger_to_json(ledger)))
    return len(rows)


async def _event(connection: Connection, session_id: int, seqs: list[int]) -> dict[int, int]:
    """Store an event by which screens show `[erased]` in place of each message."""
    mids: list[Any] = [f"m{seq}" for seq in seqs]
    event_seq = await connection.fetchval(*_TELL(session_id=session_id, payload={"mids": mids}))
    return {session_id: event_seq}


async def _log_erasure(
    connection: Connection, session_id: int, actor: str, counts: dict[str, int], marks: dict[int, int],
    about: dict[str, Any],
) -> Report:  # fmt: skip
    contact_hash = await connection.fetchval(*erasure_sql.CONTACT_HASH(session_id=session_id))
    erasure_id = await connection.fetchval(
        *_LOG(contact_hash=contact_hash, actor=actor, counts=counts, about=about)
    )
    await append_audit(connection, actor=actor, action="erasure.messages", about=str(erasure_id))
    return Report(erasure_id=erasure_id, counts=counts, marks=marks)


_WITH_EDITS = Named("""
WITH RECURSIVE forms(seq, replaces_seq) AS (
  SELECT e.seq, e.replaces_seq FROM entries e WHERE e.session_id = :session_id
     AND e.seq = ANY (:seqs::bigint[])
  UNION
  SELECT n.seq, n.replaces_seq FROM forms f CROSS JOIN LATERAL (
    SELECT e.seq, e.replaces_seq FROM entries e
     WHERE e.session_id = :session_id AND e.seq = f.replaces_seq
    UNION ALL
    SELECT e.seq, e.replaces_seq FROM entries e
     WHERE e.session_id = :session_id AND e.replaces_seq = f.seq
    UNION ALL
    SELECT e.seq, e.replaces_seq FROM turn_entries te JOIN entries e USING (session_id, seq)
     WHERE te.session_id = :session_id AND te.replaced_by = f.seq
    UNION ALL
    SELECT e.seq, e.replaces_seq FROM turn_entries te
      JOIN entries o ON o.session_id = te.session_id AND o.seq = te.seq AND o.author = 'person'
      JOIN entries e ON e.session_id = te.session_id AND e.seq = te.replaced_by
     WHERE te.session_id = :session_id AND te.seq = f.seq) n
)
SELECT e.seq, coalesce(te.turn_no, o.turn_no) AS turn_no,
       (SELECT coalesce(string_agg(b ->> 'text', ' '), '') FROM jsonb_array_elements(e.blocks) AS b) AS words
  FROM forms f JOIN entries e ON e.session_id = :session_id AND e.seq = f.seq
  LEFT JOIN turn_entries te ON te.session_id = :session_id AND te.seq = e.seq
  LEFT JOIN turn_entries o ON o.session_id = :session_id AND o.seq = e.replaces_seq
 ORDER BY e.seq
""")
"""Select all forms of the messages: edits, repeated questions, and answers to former forms.

Each branch looks up one kind of form. Only that of later wordings reads the conversation once per form.
"""

_ONE_OF_PERSON = Named("""
SELECT pg_advisory_xact_lock(hashtextextended('evertalk.forks:' || contact_id, 0)) FROM sessions
 WHERE id = :session_id AND EXISTS (SELECT FROM forks WHERE :session_id IN (session_id, from_session_id))
""")
"""Lock that prevents a deadlock of two erasures that reach the same forks from both sides."""
_FORKS = Named("""
SELECT session_id, from_session_id, seqs FROM forks WHERE session_id = :session_id
UNION ALL
SELECT session_id, from_session_id, seqs FROM forks WHERE from_session_id = :session_id
""")

_FENCE_TURN = Named("""
UPDATE sessions SET turn_epoch = turn_epoch + 1, leased_by = NULL, retry_at = now()
 WHERE id = :session_id AND leased_by IS NOT NULL
""")

_NOTES = Named("""
SELECT id, text, subject, from_turn, coalesce(through_turn, from_turn) AS through_turn FROM notes
 WHERE session_id = :session_id AND EXISTS (
       SELECT FROM unnest(:turns::bigint[]) AS t WHERE t BETWEEN from_turn
          AND coalesce(through_turn, from_turn))
""")

_NOTE_EVENTS = Named("""
UPDATE events v SET payload = v.payload || '{"text": ""}' FROM notes n
 WHERE v.kind = 'memory' AND n.id = ANY (:note_ids::bigint[])
   AND v.payload ->> 'id' = 'n' || left(n.public_id::text, 8)
   AND v.session_id IN (SELECT id FROM sessions WHERE contact_id IN (
         SELECT contact_family((SELECT contact_id FROM sessions WHERE id = :session_id))))
""")

_LINKS = Named("""
SELECT id, ledger FROM compactions
 WHERE session_id = :session_id AND through_seq >= :first_seq AND kind IN ('summary', 'digest', 'window')
   AND summary_text <> ''
""")
"""Select the summaries that may contain the messages; a window repeats the summary before it."""
_REWRITE = Named("""
UPDATE compactions SET summary_text = :text, ledger = :ledger, contract = '{}', audit = '{}', focus = '',
       tokens = least(tokens, ceil(length(:text) / 2.5)::int) WHERE id = :compaction_id
""")

_STATEMENTS = {
    "past_summaries": Named("""
      WITH r AS (
        SELECT y.from_turn, y.through_turn FROM past_summaries y
         WHERE y.session_id = :session_id AND EXISTS (
               SELECT FROM turn_entries te
                WHERE te.session_id = :session_id AND te.seq = ANY (:seqs::bigint[])
                  AND te.turn_no BETWEEN y.from_turn AND y.through_turn)
      ), p AS (
        DELETE FROM passages x USING r WHERE x.session_id = :session_id AND x.author = 'summary'
           AND x.turn_no BETWEEN r.from_turn AND r.through_turn
      ), u AS (
        UPDATE past_summaries y SET ledger = '{}', audit = '{}', passages = 0 FROM r
         WHERE y.session_id = :session_id AND y.from_turn = r.from_turn RETURNING 1
      )
      SELECT count(*) FROM u"""),
    "passages": Named("""
      WITH u AS (DELETE FROM passages WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[])
                     RETURNING 1) SELECT count(*) FROM u"""),
    "reminders": Named("""
      WITH u AS (UPDATE reminders r SET text = '-' FROM turn_entries te
                      WHERE te.session_id = :session_id AND te.seq = ANY (:seqs::bigint[])
                        AND r.session_id = :session_id
                        AND r.turn_no = te.turn_no AND r.ended_at IS NOT NULL
                      RETURNING 1) SELECT count(*) FROM u"""),
    "artifacts": Named("""
      WITH u AS (DELETE FROM artifacts WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[])
                      RETURNING 1) SELECT count(*) FROM u"""),
    "pins": Named("""
      WITH u AS (DELETE FROM pins WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[])
                 RETURNING 1) SELECT count(*) FROM u"""),
    "feedback": Named("""
      WITH u AS (
        UPDATE feedback f SET words = '', cids = '{}' WHERE f.session_id = :session_id AND f.turn_no IN (
          SELECT t.turn_no FROM turn_entries t WHERE t.session_id = :session_id
             AND t.seq = ANY (:seqs::bigint[]))
        RETURNING 1) SELECT count(*) FROM u"""),
    "prune_decisions": Named("""
      WITH u AS (DELETE FROM prune_decisions WHERE session_id = :session_id
                 AND seq = ANY (:seqs::bigint[]) RETURNING 1) SELECT count(*) FROM u"""),
    "checkpoints": Named("""
      WITH u AS (DELETE FROM checkpoints WHERE session_id = :session_id AND :seqs::bigint[] IS NOT NULL
                        RETURNING 1) SELECT count(*) FROM u"""),
    "attachments": Named("""
      WITH u AS (
        DELETE FROM attachments a WHERE a.session_id = :session_id AND a.id IN (
          SELECT (b ->> 'attachment_id')::bigint FROM entries e
           CROSS JOIN LATERAL jsonb_array_elements(e.blocks) AS b
           WHERE e.session_id = :session_id AND e.seq = ANY (:seqs::bigint[]))
           AND NOT EXISTS (
             -- What a tool has shown again later is no reason to keep a picture.
             SELECT FROM entries o WHERE o.session_id = :session_id AND o.seq <> ALL (:seqs::bigint[])
                AND (o.author <> 'tool' OR o.seq < (SELECT min(n) FROM unnest(:seqs::bigint[]) n))
                AND o.blocks @> jsonb_build_array(jsonb_build_object('attachment_id', a.id)))
           OR a.session_id = :session_id AND a.public_id IN (
             SELECT (f ->> 'id')::uuid FROM events v JOIN entries e USING (session_id, seq)
              CROSS JOIN LATERAL jsonb_array_elements(v.payload -> 'attachments') AS f
              WHERE v.session_id = :session_id AND v.seq = ANY (:seqs::bigint[]) AND e.author = 'assistant')
           -- A notice has no number of its own: its files are those of its turn.
           OR a.session_id = :session_id AND a.public_id IN (
             SELECT (f ->> 'id')::uuid FROM events v
              CROSS JOIN LATERAL jsonb_array_elements(v.payload -> 'attachments') AS f
              WHERE v.session_id = :session_id AND v.kind = 'msg' AND v.seq IS NULL AND v.turn_no IN (
                SELECT t.turn_no FROM turn_entries t WHERE t.session_id = :session_id
                   AND t.seq = ANY (:seqs::bigint[])))
        RETURNING 1) SELECT count(*) FROM u"""),
    "spoken_answers": Named("""
      WITH u AS (
        DELETE FROM spoken_answers s WHERE s.session_id = :session_id AND s.turn_no IN (
          SELECT t.turn_no FROM turn_entries t WHERE t.session_id = :session_id
             AND t.seq = ANY (:seqs::bigint[]))
        RETURNING 1) SELECT count(*) FROM u"""),
    "flushes": Named("""
      WITH u AS (
        UPDATE flushes f SET stray_text = '', error = '' WHERE f.session_id = :session_id
           AND f.through_turn >= (
          SELECT min(t.turn_no) FROM turn_entries t WHERE t.session_id = :session_id
             AND t.seq = ANY (:seqs::bigint[]))
        RETURNING 1) SELECT count(*) FROM u"""),
    "events": Named("""
      WITH first AS (
        SELECT min(event_seq) AS n FROM events WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[])
      ), u AS (
        UPDATE events v
           SET payload = CASE WHEN v.kind = 'msg' AND v.seq IS NULL THEN v.payload - 'attachments'
                 WHEN v.kind = 'msg' THEN v.payload - 'text' - 'cid' - 'attachments'
                 WHEN v.kind = 'compaction' THEN v.payload || '{"summary": ""}'
                 ELSE v.payload || '{"result": "[erased]"}' END
          FROM first WHERE v.session_id = :session_id AND v.event_seq >= first.n
           AND (v.kind IN ('compaction', 'command.result') OR v.kind = 'msg'
                AND v.seq = ANY (:seqs::bigint[])
                OR v.kind = 'msg' AND v.seq IS NULL AND v.payload ? 'attachments' AND v.turn_no IN (
                  SELECT t.turn_no FROM turn_entries t WHERE t.session_id = :session_id
                     AND t.seq = ANY (:seqs::bigint[])))
        RETURNING 1) SELECT count(*) FROM u"""),
    "jobs": Named("""
      WITH u AS (
        UPDATE jobs SET payload = payload - 'focus', outcome = '{}', failures = '[]', last_error = ''
         WHERE session_id = :session_id AND :seqs::bigint[] IS NOT NULL AND state <> 'running' RETURNING 1
      ) SELECT count(*) FROM u"""),
    "telegram_messages": Named("""
      WITH u AS (
        UPDATE telegram_messages SET own_text = '' WHERE session_id = :session_id
           AND seq = ANY (:seqs::bigint[])
           AND own_text <> '' RETURNING 1) SELECT count(*) FROM u"""),
    "telegram_updates": Named("""
      WITH m AS (
        SELECT bot_id, chat_id, message_id FROM telegram_messages
         WHERE session_id = :session_id AND (seq = ANY (:seqs::bigint[]) OR turn_no IN (
               SELECT t.turn_no FROM turn_entries t WHERE t.session_id = :session_id
                  AND t.seq = ANY (:seqs::bigint[])))
      ), u AS (
        UPDATE telegram_updates t SET body = jsonb_build_object('update_id', t.update_id), error = ''
         WHERE t.handled_at IS NOT NULL AND (EXISTS (
               SELECT FROM guest_queries q JOIN turn_entries e
                   ON e.session_id = q.session_id AND e.turn_no = q.turn_no
                WHERE q.session_id = :session_id AND e.seq = ANY (:seqs::bigint[])
                  AND q.bot_id = t.bot_id AND q.update_id = t.update_id) OR EXISTS (
               SELECT FROM secretary_messages q JOIN secretary_connections o USING (bot_id, owner_id)
                CROSS JOIN LATERAL jsonb_each(t.body) AS k
                WHERE q.session_id = :session_id AND q.bot_id = t.bot_id AND q.seq = ANY (:seqs::bigint[])
                  AND jsonb_typeof(k.value) = 'object'
                  AND k.value ->> 'business_connection_id' = o.connection_id
                  AND k.value #>> '{chat,id}' = q.chat_id::text
                  AND k.value ->> 'message_id' = q.message_id::text) OR EXISTS (
               SELECT FROM m CROSS JOIN LATERAL jsonb_each(t.body) AS k
                WHERE m.bot_id = t.bot_id AND jsonb_typeof(k.value) = 'object'
                  AND ((k.value #>> '{chat,id}' = m.chat_id::text
                        AND m.message_id::text IN (k.value ->> 'message_id',
                                                   k.value #>> '{reply_to_message,message_id}'))
                       OR (k.value #>> '{message,chat,id}' = m.chat_id::text
                           AND k.value #>> '{message,message_id}' = m.message_id::text))))
        RETURNING 1) SELECT count(*) FROM u"""),
    "prompt_parts": Named(
        """
      WITH mine AS (
        SELECT DISTINCT h.hash FROM turn_context_audit a
         CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) AS h(hash)
         WHERE a.session_id = :session_id AND :seqs::bigint[] IS NOT NULL
      ), u AS (
        DELETE FROM prompt_parts p USING mine WHERE p.sha256 = decode(mine.hash, 'hex')
           AND (p.body ~ :recalled OR p.body LIKE '<known_about_this_person>%')
           AND mine.hash NOT IN (
               SELECT h.hash FROM turn_context_audit a
                CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) AS h(hash)
                WHERE a.session_id <> :session_id)
        RETURNING 1) SELECT count(*) FROM u""",
        recalled=recall.BEGINS,
    ),
    "turn_context_audit": Named("""
      WITH u AS (
        UPDATE turn_context_audit a SET part_hashes = '[]', recipe = '{}'
         WHERE a.session_id = :session_id AND a.turn_id >= (
          SELECT min(t.turn_no) FROM turn_entries t WHERE t.session_id = :session_id
             AND t.seq = ANY (:seqs::bigint[]))
        RETURNING 1) SELECT count(*) FROM u"""),
}
_ENTRIES = Named("""
WITH u AS (
  UPDATE entries SET blocks = erased_blocks(blocks), cid = NULL
   WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[]) RETURNING 1
) SELECT count(*) FROM u
""")
_HIDE = Named("""
UPDATE events v SET kind = CASE v.kind WHEN 'msg' THEN 'msg' ELSE 'erased' END,
       payload = CASE v.kind WHEN 'msg' THEN jsonb '{"gone": true}' ELSE '{"mids": []}' END
 WHERE v.session_id = :session_id AND v.event_seq >= (
         SELECT min(event_seq) FROM events WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[]))
   AND (v.kind IN ('compaction', 'command.result') OR v.kind = 'msg' AND v.seq = ANY (:seqs::bigint[]))
""")
_TELL = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1, view_epoch = view_epoch + 1 WHERE id = :session_id
  RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT :session_id, event_seq, 'erased', :payload FROM s RETURNING event_seq
""")
_LOG = Named("""
INSERT INTO erasures (contact_hash, actor, scope, state, counts, about, finished_at)
VALUES (:contact_hash, :actor, 'messages', 'done', :counts, :about, now()) RETURNING id
""")
_LOCK_SESSION = Named("SELECT * FROM sessions WHERE id = :session_id FOR UPDATE")
_DELETE_NOTES = Named("DELETE FROM notes WHERE id = ANY (:note_ids)")
