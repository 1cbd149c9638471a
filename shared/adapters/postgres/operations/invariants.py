"""Checks of the stored rows against the promises of Evertalk, for `evertalk doctor` and the fault tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg

from shared.adapters.postgres.db.hour_counts import PEOPLE_DAYS
from shared.adapters.postgres.db.pool import Constant, Named
from shared.adapters.postgres.handover.push import BROWSERS_AT_MOST
from shared.adapters.postgres.people.login_tries import PLACES_AT_MOST
from shared.adapters.postgres.privacy.retention import GRACE_DAYS, RULES, Sweep, render_condition
from shared.adapters.postgres.turns.turn_sql import LONGEST_WAIT_SECONDS
from shared.core.ops.job_views import ASKED_AGAIN
from shared.core.session.channels import GUEST_CHANNEL, SECRETARY_CHANNEL
from shared.samples import SAMPLE_KEY

STATEMENT_SECONDS = 20.0
"""Seconds after which the server cancels the query of one check."""
SHOWN_AT_MOST = 20
"""Maximum violations that one check reports; more would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Row or rows that break a promise."""

    code: str
    """Invariant of the design that is broken, I1 to I12."""
    what: str
    """Sentence that says what is wrong."""
    where: str
    """Place of the rows as ids, such as `session 3, turn 7`; never what people wrote."""

    def __str__(self) -> str:
        return f"{self.code}: {self.what} ({self.where})"


_CONSTANTS: Mapping[str, Constant] = {
    "asked_again": ASKED_AGAIN,
    "browsers": BROWSERS_AT_MOST,
    "guest_channel": GUEST_CHANNEL,
    "login_places": PLACES_AT_MOST,
    "longest_wait_seconds": LONGEST_WAIT_SECONDS,
    "people_days": PEOPLE_DAYS - 1,
    "sample_key": SAMPLE_KEY,
    "secretary_channel": SECRETARY_CHANNEL,
}
"""Values of the names in the queries, such as `:browsers`."""


class _Check:
    """Query of one row per violation, whose columns are its place; no row if the invariant holds.

    `code` and `what` are those of its violations.
    """

    def __init__(self, promise: str, rows: str) -> None:
        self.code, _, self.what = promise.partition(": ")
        used = {name: value for name, value in _CONSTANTS.items() if f":{name}" in rows}
        self.rows = Named(rows, **used).sql


# Each entry below has the broken invariant, the violation in words, and the query that finds it.
_LOG = {
    "I1: a stored message belongs to no turn": """
        SELECT e.session_id AS session, e.seq FROM entries e
         WHERE NOT EXISTS (
               SELECT FROM turn_entries t WHERE t.session_id = e.session_id AND t.seq = e.seq)
           AND e.replaces_seq IS NULL AND NOT EXISTS (
               SELECT FROM entries r
                WHERE r.session_id = e.session_id AND r.replaces_seq = e.seq)""",
    "I1: a new wording does not replace an earlier message of the same author": """
        SELECT e.session_id AS session, e.seq FROM entries e
         WHERE e.replaces_seq IS NOT NULL AND NOT EXISTS (
               SELECT FROM entries o WHERE o.session_id = e.session_id AND o.seq = e.replaces_seq
                  AND o.seq < e.seq AND o.author = e.author)""",
    "I1: a replaced message has no later message that replaces it": """
        SELECT te.session_id AS session, te.seq FROM turn_entries te
         WHERE te.replaced_by IS NOT NULL AND NOT EXISTS (
               SELECT FROM turn_entries n JOIN entries e USING (session_id, seq)
                WHERE n.session_id = te.session_id AND n.seq = te.replaced_by AND n.turn_no >= te.turn_no
                  AND (e.author = 'person' OR e.author = 'operator' AND n.turn_no = te.turn_no AND EXISTS (
                        SELECT FROM entries w WHERE w.session_id = te.session_id AND w.seq = te.seq
                           AND w.author <> 'person')))""",
    "I1: a new wording does not name the message that it replaces": """
        SELECT te.session_id AS session, te.seq FROM turn_entries te
          JOIN turn_entries n ON n.session_id = te.session_id AND n.seq = te.replaced_by
           AND n.turn_no = te.turn_no
          JOIN entries o ON o.session_id = te.session_id AND o.seq = te.seq
          JOIN entries e ON e.session_id = te.session_id AND e.seq = n.seq
         WHERE NOT (e.author = 'operator' AND n.turn_no = te.turn_no AND EXISTS (
                        SELECT FROM entries w WHERE w.session_id = te.session_id AND w.seq = te.seq
                           AND w.author <> 'person'))
           AND e.replaces_seq IS DISTINCT FROM coalesce(o.replaces_seq, o.seq)""",
    "I1: a former wording is pinned": """
        SELECT te.session_id AS session, te.seq FROM turn_entries te
          JOIN pins p USING (session_id, seq)
          JOIN turn_entries n ON n.session_id = te.session_id AND n.seq = te.replaced_by
           AND n.turn_no = te.turn_no""",
    "I1: an answer is shown whose question was replaced": """
        SELECT te.session_id AS session, te.seq FROM turn_entries te
          JOIN entries e USING (session_id, seq)
         WHERE te.replaced_by IS NULL AND e.author <> 'person' AND EXISTS (
               SELECT FROM turn_entries q
                WHERE q.session_id = te.session_id AND q.turn_no = te.turn_no AND q.replaced_by IS NOT NULL
                  AND NOT EXISTS (SELECT FROM turn_entries n WHERE n.session_id = q.session_id
                                     AND n.seq = q.replaced_by AND n.turn_no = q.turn_no))""",
    "I12: the text of an erased message is still stored with its Telegram message id": """
        SELECT m.session_id AS session, m.seq FROM telegram_messages m
          JOIN entries e USING (session_id, seq)
         WHERE m.own_text <> '' AND e.blocks = erased_blocks(e.blocks)""",
    "I1: a replaced message can still be recalled": """
        SELECT te.session_id AS session, te.seq FROM turn_entries te
          JOIN passages p USING (session_id, seq) WHERE te.replaced_by IS NOT NULL""",
    "I1: a stored message belongs to two turns": """
        SELECT session_id AS session, seq FROM turn_entries
         GROUP BY session_id, seq HAVING count(*) > 1""",
    # No foreign key prevents these four, see the table `entry_rows`.
    "I1: a message belongs to no session": """
        SELECT e.session_id AS session, e.seq FROM entry_rows e
         WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = e.session_id)""",
    "I1: an event belongs to no session": """
        SELECT v.session_id AS session, v.event_seq AS event FROM events v
         WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = v.session_id)""",
    "I1: a turn has no session or no address": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
         WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = t.session_id)
            OR NOT EXISTS (SELECT FROM addresses a WHERE a.id = t.address_id)""",
    "I1: the turn of a message does not exist, or a turn has a message that does not exist": """
        SELECT x.session_id AS session, x.turn_no AS turn, x.seq FROM turn_entries x
         WHERE NOT EXISTS (
               SELECT FROM turns t WHERE t.session_id = x.session_id AND t.turn_no = x.turn_no)
            OR NOT EXISTS (
               SELECT FROM entry_rows e WHERE e.session_id = x.session_id AND e.seq = x.seq)""",
    "I1: a turn counts as answered but has not ended": """
        SELECT s.id AS session, t.turn_no AS turn FROM sessions s JOIN turns t
            ON t.session_id = s.id AND t.turn_no <= s.answered_turn AND t.ended_at IS NULL""",
    "I1: an ended turn does not count as answered": """
        SELECT s.id AS session, t.turn_no AS turn FROM sessions s JOIN turns t
            ON t.session_id = s.id AND t.turn_no > s.answered_turn AND t.state NOT IN ('open', 'claimed')""",
    "I1: a turn has no message of a person or an operator, and no reminder": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
         WHERE NOT EXISTS (SELECT FROM turn_entries te JOIN entries e USING (session_id, seq)
                            WHERE te.session_id = t.session_id AND te.turn_no = t.turn_no
                              AND e.author IN ('person', 'program', 'operator'))""",
    "I1: a reminder counts as delivered, but no turn has its message": """
        SELECT r.session_id AS session, r.id AS reminder FROM reminders r
         WHERE r.state IN ('claimed', 'done') AND NOT EXISTS (
               SELECT FROM entries e JOIN turn_entries te USING (session_id, seq)
                WHERE e.session_id = r.session_id AND te.turn_no = r.turn_no
                  AND e.dedupe_key = 'reminder:' || r.id AND e.author = 'program')""",
    "I1: a sample conversation counts a wrong number of played messages": """
        SELECT p.session_id AS session FROM sample_plays p
         WHERE p.played <> (SELECT count(*) FROM entry_rows e
                             WHERE e.session_id = p.session_id AND e.author = 'person'
                               AND starts_with(e.dedupe_key, :sample_key || p.begun_turn || '-'))""",
    "I2: a repeating reminder is pending twice": """
        SELECT r.contact_id AS contact, r.id AS reminder FROM reminders r JOIN reminders o
            ON regexp_replace(o.key, '@[0-9]+$', '') = regexp_replace(r.key, '@[0-9]+$', '')
         WHERE o.id < r.id AND r.state = 'pending' AND o.state = 'pending' AND r.repeat <> ''
           AND o.contact_id = r.contact_id""",
    "I2: the program began a turn without a reminder": """
        SELECT e.session_id AS session, e.seq FROM entries e
          JOIN turn_entries o USING (session_id, seq) JOIN sessions s ON s.id = e.session_id
         WHERE e.author = 'program' AND o.turn_no > s.erased_turn AND NOT EXISTS (
               SELECT FROM reminders r JOIN turn_entries te USING (session_id, turn_no)
                WHERE r.session_id = e.session_id AND te.seq = e.seq)
           AND NOT EXISTS (SELECT FROM forks f WHERE f.session_id = e.session_id
                              AND o.turn_no <= f.through_turn)""",
    "I1: a fork has other copied messages than it lists": """
        SELECT f.session_id AS session, te.seq FROM forks f
         CROSS JOIN LATERAL (SELECT coalesce(sum((r ->> 1)::bigint - (r ->> 0)::bigint + 1), 0) AS number
                               FROM jsonb_array_elements(f.seqs) AS r) n
          JOIN turn_entries te ON te.session_id = f.session_id
           AND (te.seq <= n.number) <> (te.turn_no <= f.through_turn)
          JOIN entry_rows e ON e.session_id = te.session_id AND e.seq = te.seq
         WHERE te.seq <= n.number OR e.replaces_seq IS NULL""",
    "I9: a model call was paid for a turn that a fork copied": """
        SELECT DISTINCT u.session_id AS session, u.turn_no AS turn FROM forks f
          JOIN usage u ON u.session_id = f.session_id AND u.turn_no <= f.through_turn
         WHERE u.purpose = 'chat'""",
    "I7: a reminder was begun in a session of another person": """
        SELECT r.session_id AS session, r.id AS reminder FROM reminders r
          JOIN sessions s ON s.id = r.session_id JOIN contacts p ON p.id = r.contact_id
          JOIN contacts o ON o.id = s.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)""",
    # The notice that a turn waits is no final event.
    "I2: a turn has more than one final event": """
        SELECT session_id AS session, turn_no AS turn FROM (
          SELECT v.session_id, v.turn_no FROM events v
            LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
           WHERE v.kind = 'msg' AND v.turn_no IS NOT NULL
             AND (e.author IN ('assistant', 'operator')
                  OR v.seq IS NULL AND v.payload ->> 'waiting' IS DISTINCT FROM 'true')) f
         GROUP BY session_id, turn_no HAVING count(*) > 1""",
    "I2: a turn has more than one answer": """
        SELECT te.session_id AS session, te.turn_no AS turn
          FROM turn_entries te JOIN entries e USING (session_id, seq)
         WHERE e.author IN ('assistant', 'operator') AND NOT e.blocks @> '[{"type": "tool_use"}]'
           AND NOT (EXISTS (SELECT FROM turn_entries n WHERE n.session_id = te.session_id
                              AND n.seq = te.replaced_by AND n.turn_no = te.turn_no))
         GROUP BY te.session_id, te.turn_no HAVING count(*) > 1""",
    # On the web the event is the delivery, see I10: it is stored with the answer, and nothing is sent.
    "I2: an ended turn has no delivery": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
         WHERE t.state NOT IN ('open', 'claimed') AND t.channel NOT IN ('web', 'import') AND NOT EXISTS (
               SELECT FROM deliveries d
                WHERE d.session_id = t.session_id AND d.turn_no = t.turn_no AND d.part = 0)""",
    "I2: an answer to a web page is undelivered although a worker has run for an hour": """
        SELECT d.session_id AS session, d.turn_no AS turn FROM deliveries d
          JOIN turns t USING (session_id, turn_no)
         WHERE d.channel = 'web' AND d.state IN ('queued', 'sending', 'sent')
           AND t.ended_at < now() - interval '1 hour' AND EXISTS (
               SELECT FROM workers w WHERE w.role = 'worker' AND w.stopped_at IS NULL
                  AND w.beat > now() - interval '1 minute'
                  AND w.started_at < now() - interval '1 hour')""",
    "I2: a part of an answer is delivered twice": """
        SELECT session_id AS session, turn_no AS turn, part FROM deliveries
         GROUP BY session_id, turn_no, part HAVING count(*) > 1""",
    "I3: the numbers of the log have a gap": """
        SELECT s.id AS session, s.next_seq, n.number AS entries FROM sessions s
          LEFT JOIN (SELECT session_id, min(seq) AS first, max(seq) AS last, count(*) AS number
                       FROM entries GROUP BY session_id) n ON n.session_id = s.id
         WHERE (coalesce(n.first, 1), coalesce(n.last, 0), coalesce(n.number, 0))
               <> (1, s.next_seq - 1, s.next_seq - 1)""",
    # The oldest events may have been retired; the others end with the newest one and have no gap.
    "I3: the numbers of the events have a gap": """
        SELECT s.id AS session, s.next_event_seq, n.number AS events
          FROM sessions s JOIN (
               SELECT session_id, min(event_seq) AS first, max(event_seq) AS last, count(*) AS number
                 FROM events GROUP BY session_id) n ON n.session_id = s.id
         WHERE n.last <> s.next_event_seq - 1 OR n.number <> n.last - n.first + 1""",
    "I3: the numbers of the turns have a gap": """
        SELECT s.id AS session, s.next_turn, n.number AS turns FROM sessions s
          LEFT JOIN (SELECT session_id, max(turn_no) AS last, count(*) AS number
                       FROM turns GROUP BY session_id) n ON n.session_id = s.id
         WHERE (coalesce(n.last, 0), coalesce(n.number, 0)) <> (s.next_turn - 1, s.next_turn - 1)""",
    "I3: entries of the context are not in the order in which they were written": """
        SELECT session_id AS session, turn_no AS turn, seq FROM (
          SELECT w.*, lag(w.said) OVER (PARTITION BY w.session_id, w.author IN ('person', 'program')
                                        ORDER BY w.turn_no, w.step) AS before
            FROM (SELECT te.session_id, te.turn_no, te.step, te.seq, e.author,
                         CASE WHEN EXISTS (SELECT FROM turn_entries f
                                            WHERE f.session_id = te.session_id AND f.replaced_by = te.seq
                                              AND f.turn_no = te.turn_no)
                              THEN te.step ELSE te.seq END AS said
                    FROM turn_entries te JOIN entries e USING (session_id, seq)
                   WHERE NOT EXISTS (SELECT FROM turn_entries n
                                      WHERE n.session_id = te.session_id AND n.seq = te.replaced_by
                                        AND n.turn_no = te.turn_no)) w) o
         WHERE o.before > o.said""",
    "I3: a turn begins with a tool call": """
        SELECT te.session_id AS session, te.turn_no AS turn, te.seq
          FROM turn_entries te JOIN entries e USING (session_id, seq)
         WHERE e.blocks @> '[{"type": "tool_use"}]' AND (
               SELECT min(f.step) FROM turn_entries f
                WHERE f.session_id = te.session_id AND f.turn_no = te.turn_no) >= te.step""",
    # A failed turn may have a call without a result: the repair of a request adds one.
    "I4: a tool call of an ended turn has no result": """
        SELECT e.session_id AS session, te.turn_no AS turn, e.seq
          FROM entries e JOIN turn_entries te USING (session_id, seq)
          JOIN turns t USING (session_id, turn_no)
          CROSS JOIN LATERAL jsonb_array_elements(e.blocks) AS b
         WHERE e.blocks @> '[{"type": "tool_use"}]' AND b ->> 'type' = 'tool_use'
           AND t.state NOT IN ('open', 'claimed') AND t.state <> 'failed'
           AND NOT EXISTS (
               SELECT FROM turn_entries tr JOIN entries r USING (session_id, seq)
                WHERE tr.session_id = te.session_id AND tr.turn_no = te.turn_no AND tr.step > te.step
                  AND r.author = 'tool'
                  AND r.blocks @> jsonb_build_array(jsonb_build_object(
                        'type', 'tool_result', 'tool_use_id', b ->> 'id')))""",
    "I1: an artifact belongs to no message": """
        SELECT a.session_id AS session, a.id AS artifact FROM artifacts a
         WHERE NOT EXISTS (
               SELECT FROM entries e WHERE e.session_id = a.session_id AND e.seq = a.seq)""",
    "I1: an artifact's text does not match its hash": """
        SELECT session_id AS session, id AS artifact FROM artifacts
         WHERE sha256 <> sha256(convert_to(body, 'UTF8'))""",
    "I1: a file that an answer announces is not stored": """
        SELECT v.session_id AS session, v.turn_no AS turn, f ->> 'id' AS file FROM events v
          JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq AND e.author = 'assistant'
          CROSS JOIN LATERAL jsonb_array_elements(v.payload -> 'attachments') AS f
         WHERE v.kind = 'msg' AND v.payload ? 'attachments' AND NOT EXISTS (
               SELECT FROM attachments a WHERE a.session_id = v.session_id
                  AND a.public_id = (f ->> 'id')::uuid AND a.body IS NOT NULL)""",
    "I1: a message has a recording without a transcript": """
        SELECT e.session_id AS session, e.seq, a.id AS file FROM attachments a
          JOIN entries e ON e.session_id = a.session_id AND e.author = 'person'
                        AND e.blocks @> jsonb_build_array(jsonb_build_object('attachment_id', a.id))
         WHERE a.mime LIKE 'audio/%' AND coalesce(a.words, '') = ''""",
    "I4: a shortened tool result is shown in a longer form later": """
        SELECT session_id AS session, seq FROM (
          SELECT session_id, seq, strength,
                 max(strength) OVER (PARTITION BY session_id, seq ORDER BY turn_no) AS strongest
            FROM prune_decisions,
                 array_position(ARRAY['trim', 'duplicate', 'clear', 'hide'], form) AS strength
        ) p
         WHERE strength < strongest""",
    "I4: a message of a person or of the assistant is shortened": """
        SELECT d.session_id AS session, d.seq FROM prune_decisions d
          JOIN entries e USING (session_id, seq)
         WHERE e.author <> 'tool' AND NOT (e.author = 'assistant' AND d.form = 'hide')""",
    "I4: a tool result answers no call": """
        SELECT e.session_id AS session, te.turn_no AS turn, e.seq
          FROM entries e JOIN turn_entries te USING (session_id, seq)
          CROSS JOIN LATERAL jsonb_array_elements(e.blocks) AS b
         WHERE e.author = 'tool' AND b ->> 'type' = 'tool_result'
           AND NOT EXISTS (
               SELECT FROM turn_entries tc JOIN entries c USING (session_id, seq)
                WHERE tc.session_id = te.session_id AND tc.turn_no = te.turn_no AND tc.step < te.step
                  AND c.blocks @> jsonb_build_array(jsonb_build_object(
                        'type', 'tool_use', 'id', b ->> 'tool_use_id')))""",
    "I4: a tool call of an ended turn is still marked as running": """
        SELECT p.session_id AS session, p.turn_no AS turn, p.call_id AS call
          FROM turn_steps p JOIN turns t USING (session_id, turn_no)
         WHERE p.status = 'intent' AND t.state NOT IN ('open', 'claimed') AND t.state <> 'failed'""",
}

_VIEW = {
    "I5: the active compactions do not cover exactly the hidden turns": """
        SELECT s.id AS session, s.base_turn, coalesce(l.size, 0) AS covered
          FROM sessions s LEFT JOIN (
               SELECT session_id, min(from_turn) AS first, max(through_turn) AS last,
                      sum(through_turn - from_turn + 1) AS size
                 FROM compactions WHERE active GROUP BY session_id) l ON l.session_id = s.id
         WHERE (coalesce(l.first, 1), coalesce(l.last, 0), coalesce(l.size, 0))
               <> (1, s.base_turn, s.base_turn)""",
    "I5: two active compactions overlap, or leave a gap between them": """
        SELECT session_id AS session, id AS compaction FROM (
          SELECT session_id, id, from_turn,
                 lag(through_turn) OVER (PARTITION BY session_id ORDER BY from_turn) AS before
            FROM compactions WHERE active) o
         WHERE o.before IS NOT NULL AND o.from_turn <> o.before + 1""",
    "I5: a session's head is not its newest active compaction": """
        SELECT s.id AS session, s.head FROM sessions s
         WHERE s.head IS NOT NULL AND NOT EXISTS (
               SELECT FROM compactions l WHERE l.id = s.head AND l.session_id = s.id AND l.active
                  AND l.through_turn = s.base_turn)""",
    "I5: turns are hidden without a head and without a new conversation": """
        SELECT s.id AS session, s.base_turn
          FROM sessions s JOIN (
               SELECT session_id, min(event_seq) AS first, max(event_seq) AS last, count(*) AS number
                 FROM events GROUP BY session_id) n ON n.session_id = s.id
         WHERE s.head IS NULL AND s.base_turn > 0 AND n.first = 1 AND NOT EXISTS (
               SELECT FROM events v WHERE v.session_id = s.id AND v.kind = 'compaction'
                  AND v.payload ->> 'state' = 'new')""",
    "I5: a compaction hides turns that have not ended": """
        SELECT s.id AS session, l.id AS compaction
          FROM compactions l JOIN sessions s ON s.id = l.session_id
         WHERE l.active AND l.through_turn > s.answered_turn""",
    "I5: a compaction ends inside a turn": """
        SELECT l.session_id AS session, l.id AS compaction FROM compactions l
         WHERE l.active AND (l.from_seq > l.through_seq OR l.through_seq < (
               SELECT max(te.seq) FROM turn_entries te
                WHERE te.session_id = l.session_id
                  AND te.turn_no BETWEEN l.from_turn AND l.through_turn
                  AND NOT EXISTS (SELECT FROM turn_entries f WHERE f.session_id = te.session_id
                                             AND f.replaced_by = te.seq AND f.turn_no = te.turn_no)))""",
    "I5: a person's message is hidden by a prune decision": """
        SELECT d.session_id AS session, d.seq FROM prune_decisions d
          JOIN entries e USING (session_id, seq)
         WHERE d.form = 'hide' AND e.author NOT IN ('assistant', 'tool')""",
    "I5: a session's token scale was learned from a later view": """
        SELECT s.id AS session, s.view_epoch FROM sessions s
         WHERE (s.token_scale ->> 'epoch')::bigint > s.view_epoch""",
    "I5: tokens are reserved for recalled passages although no turn is hidden": """
        SELECT s.id AS session, s.context_reserved AS reserved FROM sessions s
         WHERE s.context_reserved > 0 AND s.base_turn = 0""",
    "I6: turns were summarised that no flush has read, and no flush is due": """
        SELECT l.session_id AS session, l.id AS compaction FROM compactions l
          JOIN sessions s ON s.id = l.session_id
         WHERE l.active AND l.kind IN ('summary', 'digest', 'window')
           AND s.flushed_turn < l.through_turn
           AND NOT EXISTS (SELECT FROM flushes f
                            WHERE f.session_id = l.session_id AND f.through_turn >= l.through_turn
                              AND f.outcome <> 'running')
           AND NOT EXISTS (SELECT FROM jobs j WHERE j.session_id = l.session_id
                              AND j.kind = 'flush' AND j.state IN ('due', 'running'))""",
    "I6: turns were hidden that no flush has read, and no flush is due": """
        SELECT s.id AS session, s.base_turn, s.flushed_turn
          FROM sessions s
         WHERE s.flushed_turn < s.base_turn AND NOT EXISTS (
               SELECT FROM jobs j WHERE j.session_id = s.id AND j.kind = 'flush'
                  AND j.state IN ('due', 'running'))
           AND EXISTS (SELECT FROM compactions l WHERE l.id = s.head
                          AND l.kind IN ('summary', 'digest', 'new')
                          AND l.created_at < now() - interval '2 minutes')""",
    "I6: a flush counts as running without a due or running job": """
        SELECT f.session_id AS session, f.id AS flush, f.job_id AS job FROM flushes f
         WHERE f.outcome = 'running' AND NOT EXISTS (
               SELECT FROM jobs j WHERE j.id = f.job_id AND j.state IN ('due', 'running'))""",
    "I6: more turns count as flushed than any flush has read": """
        SELECT s.id AS session, s.flushed_turn FROM sessions s
         WHERE s.flushed_turn > 0 AND NOT EXISTS (
               SELECT FROM flushes f WHERE f.session_id = s.id AND f.through_turn >= s.flushed_turn
                  AND f.outcome IN ('saved', 'nothing'))""",
}

_CONTACTS = {
    "I7: a fork is a copy of another person's conversation": """
        SELECT f.session_id AS session, f.from_session_id AS source FROM forks f
          JOIN sessions s ON s.id = f.session_id JOIN sessions x ON x.id = f.from_session_id
          JOIN contacts p ON p.id = s.contact_id JOIN contacts o ON o.id = x.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)
           AND NOT were_linked(p.id, o.id)""",
    "I7: an address leads to a session of another person": """
        SELECT a.id AS address, s.id AS session FROM addresses a
          JOIN sessions s ON s.id = a.session_id JOIN contacts p ON p.id = a.contact_id
          JOIN contacts o ON o.id = s.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)""",
    "I7: a turn came from an address of another person": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN addresses a ON a.id = t.address_id JOIN sessions s ON s.id = t.session_id
          JOIN contacts p ON p.id = a.contact_id JOIN contacts o ON o.id = s.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)
           AND NOT were_linked(p.id, o.id)""",
    "I7: an answer goes to an address of another person": """
        SELECT d.session_id AS session, d.turn_no AS turn, d.part FROM deliveries d
          JOIN addresses a ON a.id = d.address_id JOIN sessions s ON s.id = d.session_id
          JOIN contacts p ON p.id = a.contact_id JOIN contacts o ON o.id = s.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)
           AND NOT were_linked(p.id, o.id)""",
    "I3: an address counts an event as read that does not exist": """
        SELECT a.id AS address, s.id AS session FROM addresses a
          JOIN sessions s ON s.id = a.session_id
         WHERE a.read_seq < 0 OR a.read_seq > s.next_event_seq - 1""",
    "I1: feedback is about a turn that has not ended": """
        SELECT f.session_id AS session, f.turn_no AS turn FROM feedback f
          JOIN turns t USING (session_id, turn_no) WHERE t.ended_at IS NULL""",
    "I1: feedback stores a request id twice, or more than 8 request ids": """
        SELECT session_id AS session, turn_no AS turn FROM feedback
         WHERE cardinality(cids) > 8
            OR cardinality(cids) <> (SELECT count(DISTINCT c) FROM unnest(cids) AS c)""",
    "I7: a note was made in a session of another person": """
        SELECT n.id AS note, n.session_id AS session FROM notes n
          JOIN sessions s ON s.id = n.session_id JOIN contacts p ON p.id = n.contact_id
          JOIN contacts o ON o.id = s.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)
           AND NOT were_linked(p.id, o.id)""",
    "I7: a compaction, its parent and its flush are not of one session": """
        SELECT l.session_id AS session, l.id AS compaction FROM compactions l
          LEFT JOIN compactions p ON p.id = l.parent LEFT JOIN flushes f ON f.id = l.flush_id
         WHERE p.session_id <> l.session_id OR f.session_id <> l.session_id""",
    "I7: a checkpoint has a parent of another session, or contains unanswered turns": """
        SELECT c.session_id AS session, c.id AS checkpoint FROM checkpoints c
          JOIN sessions s ON s.id = c.session_id LEFT JOIN compactions p ON p.id = c.parent
         WHERE p.session_id <> c.session_id OR c.through_turn > s.answered_turn""",
    "I7: costs of a session are charged to another person": """
        SELECT DISTINCT u.session_id AS session, u.contact_id AS contact FROM usage u
          JOIN sessions s ON s.id = u.session_id JOIN contacts p ON p.id = u.contact_id
          JOIN contacts o ON o.id = s.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)
           AND NOT were_linked(p.id, o.id)""",
}

_PEOPLE = {
    "I7: a person was merged into a merged person or a group, or without a link": """
        SELECT p.id AS contact, p.merged_into FROM contacts p
          JOIN contacts m ON m.id = p.merged_into
         WHERE m.merged_into IS NOT NULL OR 'group' IN (p.kind, m.kind) OR NOT EXISTS (
               SELECT FROM contact_links l
                WHERE l.joined_contact_id = p.id AND l.unlinked_at IS NULL)""",
    "I7: linked persons are not merged": """
        SELECT l.id AS contact_link FROM contact_links l
          JOIN contacts p ON p.id = l.joined_contact_id JOIN contacts o ON o.id = l.kept_contact_id
         WHERE l.unlinked_at IS NULL
           AND coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)""",
    "I7: a session is archived without a link or import, or is not archived despite one": """
        SELECT s.id AS session FROM sessions s
         WHERE (s.archived_at IS NOT NULL) <> (EXISTS (
               SELECT FROM contact_links l
                WHERE l.archived_session_id = s.id AND l.unlinked_at IS NULL)
               OR EXISTS (SELECT FROM past_imports i WHERE i.session_id = s.id))""",
    "I1: an import counts a wrong number of messages": """
        SELECT s.id AS session, i.entries AS counted FROM past_imports i
          JOIN sessions s ON s.id = i.session_id
         WHERE i.entries <> s.next_seq - 1""",
    "I1: summaries of an import leave a gap, overlap, or are counted wrongly": """
        SELECT i.session_id AS session, i.summarised_turns AS counted FROM past_imports i
          JOIN sessions s ON s.id = i.session_id
         CROSS JOIN LATERAL (
               SELECT coalesce(sum(y.through_turn - y.from_turn + 1), 0) AS turns,
                      coalesce(max(y.through_turn) - min(y.from_turn) + 1, 0) AS span
                 FROM past_summaries y WHERE y.session_id = i.session_id) y
         WHERE i.digest IS NOT NULL AND (
               y.turns <> i.summarised_turns OR y.span <> i.summarised_turns
               OR i.summarised_turns > s.answered_turn
               OR i.summaries = 'done' AND i.summarised_turns < s.answered_turn
               OR i.summaries <> 'off' AND i.ended_at IS NULL)""",
    "I12: a summary of an undone import is still stored": """
        SELECT y.session_id AS session, y.from_turn AS turn FROM past_summaries y
          JOIN past_imports i USING (session_id)
         WHERE i.digest IS NULL AND NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')""",
    "I4: passages of an import's summary are missing, or are of no summary": """
        SELECT i.session_id AS session, y.counted, p.found FROM past_imports i
         CROSS JOIN LATERAL (SELECT coalesce(sum(x.passages), 0) AS counted FROM past_summaries x
                              WHERE x.session_id = i.session_id) y
         CROSS JOIN LATERAL (SELECT count(*) AS found FROM passages x
                              WHERE x.session_id = i.session_id AND x.author = 'summary') p
         WHERE y.counted <> p.found AND NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')""",
    "I7: an archived session has an address, or a turn to answer": """
        SELECT s.id AS session FROM sessions s
         WHERE s.archived_at IS NOT NULL AND (s.answered_turn < s.next_turn - 1
               OR EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id))""",
    "I7: a session that is not archived belongs to a merged person": """
        SELECT s.id AS session, p.id AS contact FROM sessions s
          JOIN contacts p ON p.id = s.contact_id
         WHERE s.archived_at IS NULL AND p.merged_into IS NOT NULL""",
    "I7: an open turn collects messages of two addresses": """
        SELECT s.id AS session, s.open_turn AS turn FROM sessions s
          JOIN turns t ON t.session_id = s.id AND t.turn_no = s.open_turn
         WHERE s.open_address IS NOT NULL AND s.open_address <> t.address_id""",
    "I7: a stream ticket has no person or address, or is valid for over 5 minutes": """
        SELECT created_at AS created FROM one_time_codes
         WHERE purpose = 'stream' AND (address_id IS NULL OR contact_id IS NULL
               OR expires_at > created_at + interval '5 minutes')""",
    "I7: an API key was used after it was revoked or had expired": """
        SELECT id AS key FROM api_keys
         WHERE last_used_at > least(revoked_at, expires_at)""",
    "I7: an operator of an identity provider can also log in without the provider": """
        SELECT o.id AS operator FROM operators o
         WHERE o.issuer IS NOT NULL AND (o.password_hash IS NOT NULL OR EXISTS (
               SELECT FROM login_links l WHERE l.operator_id = o.id AND l.used_at IS NULL))""",
    "I7: a disabled operator is logged in": """
        SELECT o.id AS operator FROM operators o
         WHERE o.disabled_at IS NOT NULL
           AND EXISTS (SELECT FROM operator_sessions s WHERE s.operator_id = o.id)""",
    # Two logins at the same time may each store one place too many, until the next login.
    "I11: a disabled operator has a login place, or an operator has too many": """
        SELECT DISTINCT o.id AS operator FROM operators o
          JOIN login_places p ON p.operator_id = o.id
         WHERE o.disabled_at IS NOT NULL
            OR (SELECT count(*) FROM login_places x WHERE x.operator_id = o.id)
               > 2 * :login_places""",
    "I7: a disabled operator has a push subscription": """
        SELECT p.id AS push, o.id AS operator FROM push_subscriptions p
          JOIN operators o ON o.id = p.operator_id WHERE o.disabled_at IS NOT NULL""",
    "I11: a person or operator has too many push subscriptions": """
        SELECT min(p.operator_id) AS operator, min(a.id) AS address FROM push_subscriptions p
          LEFT JOIN visitors v ON v.token_hash = p.visitor_hash LEFT JOIN addresses a ON a.id = v.address_id
         GROUP BY p.operator_id, a.channel, a.account, a.chat HAVING count(*) > :browsers""",
    "I7: an operator of an identity provider has a second factor, or one is used unconfirmed": """
        SELECT o.id AS operator FROM operators o JOIN operator_factors f
            ON f.operator_id = o.id
         WHERE o.issuer IS NOT NULL OR (f.confirmed_at IS NULL) <> (f.last_step = 0)""",
    "I7: a note is superseded because of a link that has ended": """
        SELECT n.id AS note, n.contact_link_id AS contact_link FROM notes n
          JOIN notes k ON k.id = n.superseded_by
          JOIN contacts p ON p.id = n.contact_id JOIN contacts o ON o.id = k.contact_id
         WHERE n.contact_link_id IS NOT NULL
           AND coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id)""",
}

_MEMORY = {
    "I1: a note was replaced by a note that does not exist": """
        SELECT n.id AS note FROM notes n LEFT JOIN notes h ON h.id = n.superseded_by
         WHERE n.superseded_by IS NOT NULL AND h.id IS NULL""",
    "I1: notes replace each other in a circle": """
        WITH RECURSIVE chain AS (
          SELECT id, superseded_by AS heir, ARRAY[id] AS seen FROM notes
           WHERE superseded_by IS NOT NULL
          UNION ALL SELECT c.id, n.superseded_by, c.seen || n.id FROM chain c
            JOIN notes n ON n.id = c.heir WHERE n.id <> ALL (c.seen))
        SELECT id AS note FROM chain WHERE heir = ANY (seen)""",
    "I7: a note was replaced by a note of another person or scope": """
        SELECT n.id AS note FROM notes n JOIN notes h ON h.id = n.superseded_by
          JOIN contacts p ON p.id = n.contact_id JOIN contacts o ON o.id = h.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id) OR n.scope <> h.scope""",
    "I11: an ended import still has pieces, or an import counts a wrong number of bytes": """
        SELECT f.id AS file FROM import_files f
         WHERE f.state IN ('done', 'failed') AND EXISTS (SELECT FROM import_pieces p WHERE p.file_id = f.id)
            OR f.received <> (SELECT coalesce(sum(length(p.body)), 0) FROM import_pieces p
                               WHERE p.file_id = f.id) AND f.state NOT IN ('done', 'failed')""",
    "I7: a change of a note leads to a note of another person or scope": """
        SELECT c.id AS change FROM note_changes c
          JOIN notes k ON k.id = c.old_id JOIN notes n ON n.id = c.new_id
          JOIN contacts p ON p.id = k.contact_id JOIN contacts o ON o.id = n.contact_id
         WHERE coalesce(p.merged_into, p.id) <> coalesce(o.merged_into, o.id) OR k.contact_id <> c.contact_id
            OR k.scope <> n.scope""",
    "I12: a forgotten note can still be read": """
        SELECT id AS note FROM notes
         WHERE forgotten_at IS NOT NULL AND undo_until IS NULL
           AND (text <> '' OR subject <> '' OR event_date IS NOT NULL)""",
    "I12: an event contains the text of a forgotten note": """
        SELECT v.session_id AS session, v.event_seq AS event FROM notes n
          JOIN sessions s ON s.contact_id IN (SELECT contact_family(n.contact_id))
          JOIN events v ON v.session_id = s.id AND v.kind = 'memory'
         WHERE n.forgotten_at IS NOT NULL AND n.undo_until IS NULL
           AND v.payload ->> 'id' = 'n' || left(n.public_id::text, 8)
           AND v.payload ->> 'text' <> ''""",
}

_MONEY = {
    "I9: the ledger and the totals of a session differ": """
        SELECT t.session_id AS session FROM session_totals t LEFT JOIN (
          SELECT session_id, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
                 sum(cache_read_tokens) AS cache_read_tokens,
                 sum(cache_write_tokens) AS cache_write_tokens, sum(cost_micro) AS cost_micro,
                 count(*) FILTER (WHERE cost_micro IS NULL) AS cost_unknown_calls
            FROM usage GROUP BY session_id) u ON u.session_id = t.session_id
          JOIN sessions s ON s.id = t.session_id AND s.created_at > now() - interval '700 days'
         WHERE (t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens,
               t.cost_micro, t.cost_unknown_calls)
            <> (coalesce(u.input_tokens, 0), coalesce(u.output_tokens, 0),
                coalesce(u.cache_read_tokens, 0), coalesce(u.cache_write_tokens, 0),
                coalesce(u.cost_micro, 0), coalesce(u.cost_unknown_calls, 0))""",
    "I9: the ledger and a session's costs by purpose differ": """
        SELECT DISTINCT session_id AS session FROM session_spend k FULL JOIN (
          SELECT session_id, purpose, model, count(*) AS calls,
                 count(*) FILTER (WHERE status = 'aborted') AS aborted,
                 sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
                 sum(cache_read_tokens) AS cache_read_tokens,
                 sum(cache_write_tokens) AS cache_write_tokens, sum(cost_micro) AS cost_micro,
                 count(*) FILTER (WHERE cost_micro IS NULL) AS unknown_cost,
                 count(*) FILTER (WHERE NOT known) AS unknown_tokens
            FROM usage GROUP BY session_id, purpose, model) u USING (session_id, purpose, model)
          JOIN sessions s ON s.id = session_id AND s.created_at > now() - interval '700 days'
         WHERE (k.calls, k.aborted, k.input_tokens, k.output_tokens, k.cache_read_tokens,
               k.cache_write_tokens, k.cost_micro, k.unknown_cost, k.unknown_tokens)
               IS DISTINCT FROM (u.calls, u.aborted, u.input_tokens, u.output_tokens, u.cache_read_tokens,
                                 u.cache_write_tokens, u.cost_micro, u.unknown_cost, u.unknown_tokens)""",
    "I9: a session has no totals": """
        SELECT s.id AS session FROM sessions s
          LEFT JOIN session_totals t ON t.session_id = s.id
         WHERE t.session_id IS NULL""",
    "I9: the channel of a session is not that of its newest message": """
        SELECT s.id AS session, s.last_channel AS channel FROM sessions s
          JOIN LATERAL (
            SELECT t.channel FROM entries e JOIN turn_entries te USING (session_id, seq)
              JOIN turns t ON t.session_id = e.session_id AND t.turn_no = te.turn_no
             WHERE e.session_id = s.id AND e.author IN ('person', 'program', 'operator')
             ORDER BY e.seq DESC LIMIT 1) n ON n.channel <> s.last_channel""",
    "I7: a session is searched by another name than its person has": """
        SELECT s.id AS session FROM sessions s JOIN contacts p ON p.id = s.contact_id
         WHERE s.person <> lower(p.display_name)""",
    "I7: a session shows another person than it belongs to": """
        SELECT s.id AS session FROM sessions s JOIN contacts p ON p.id = s.contact_id
         WHERE s.person_kind IS NOT NULL AND (s.person_name, s.person_kind, s.person_anonymous)
               IS DISTINCT FROM (p.display_name, p.kind, p.anonymous)""",
    "I9: a row of the conversation list is out of date, and no update of it waits": """
        SELECT x.id AS session FROM session_list_now x JOIN sessions s ON s.id = x.id
          LEFT JOIN session_list l ON l.id = x.id
         WHERE l.id IS NULL OR s.leased_by IS NULL AND (
               l.contact_id, l.agent_id, l.next_turn, l.context_tokens, l.context_limit, l.last_active_at,
               l.troubled_at, l.last_channel, l.input_tokens, l.output_tokens, l.cache_read_tokens,
               l.cache_write_tokens, l.cost_micro, l.cost_unknown_calls)
               IS DISTINCT FROM (
               x.contact_id, x.agent_id, x.next_turn, x.context_tokens, x.context_limit, x.last_active_at,
               x.troubled_at, x.last_channel, x.input_tokens, x.output_tokens, x.cache_read_tokens,
               x.cache_write_tokens, x.cost_micro, x.cost_unknown_calls)
           AND NOT EXISTS (SELECT FROM session_list_changes c WHERE c.session_id = x.id)""",
    "I9: a minute's count of conversations differs from the conversation list": """
        SELECT coalesce(l.minute, m.minute) AS minute, l.n AS listed, m.n AS counted
          FROM (SELECT date_trunc('minute', last_active_at) AS minute, count(*) AS n FROM session_list
                 WHERE last_active_at > now() - interval '1 day' GROUP BY 1) l
          FULL JOIN (SELECT minute, sum(sessions) AS n FROM listed_minutes GROUP BY 1) m
            ON m.minute = l.minute
         WHERE coalesce(l.minute, m.minute) > now() - interval '1 day'
           AND coalesce(l.n, 0) <> coalesce(m.n, 0)""",
    "I7: a session is listed under another name than it is searched by": """
        SELECT s.id AS session FROM sessions s JOIN session_list l ON l.id = s.id
         WHERE (l.person, l.public_id) <> (s.person, s.public_id)""",
    "I10: a session waits for an answer without an unended turn, or the reverse": """
        SELECT s.id AS session FROM sessions s
         WHERE (s.answered_turn < s.next_turn - 1)
            <> (s.id IN (SELECT session_id FROM turns WHERE ended_at IS NULL))""",
    "I9: a conversation's total tokens are not the sum of all kinds of tokens": """
        SELECT session_id AS session, total_tokens AS total FROM session_totals
         WHERE total_tokens
               <> input_tokens + cache_read_tokens + cache_write_tokens + output_tokens""",
    "I9: a session's number of compactions is wrong": """
        SELECT t.session_id AS session, t.compaction_count AS counted FROM session_totals t
          LEFT JOIN (SELECT session_id, count(*) AS number FROM compactions
                      WHERE kind IN ('summary', 'digest') GROUP BY session_id) l
            ON l.session_id = t.session_id
         WHERE t.compaction_count <> coalesce(l.number, 0)""",
    # The sweep releases reservations of a dead process within two minutes; a subagent may hold one longer.
    "I9: a reservation is held for work that has ended": """
        SELECT r.id AS reservation, r.session_id AS session FROM reservations r
         WHERE r.state = 'held' AND r.created_at < now() - interval '30 minutes'
           AND NOT EXISTS (SELECT FROM turns t WHERE t.session_id = r.session_id
                              AND t.turn_no = r.turn_no AND t.ended_at IS NULL)
           AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.job_id
                              AND j.state IN ('due', 'running'))""",
    "I9: a reservation of tokens has another scope, or a person, slice, turn or job": """
        SELECT id AS reservation FROM reservations
         WHERE 'tokens' = ANY (scopes) AND (cardinality(scopes) > 1 OR contact_id <> 0 OR slice_id IS NOT NULL
                                            OR turn_no IS NOT NULL OR job_id IS NOT NULL)""",
    "I9: a reservation is held and ended, or neither": """
        SELECT id AS reservation FROM reservations
         WHERE (state = 'held') <> (ended_at IS NULL)
            OR (state = 'held') <> (settled_micro IS NULL)""",
    # Settled reservations are deleted after some days: only days that surely have all rows are summed.
    "I9: a day's spending is not the sum of its reservations": """
        SELECT coalesce(d.scope, r.scope) AS scope, coalesce(d.day, r.day) AS day
          FROM (SELECT * FROM spend_days WHERE day >= current_date - 1) d
          FULL JOIN (
            SELECT scope, day, sum(held) AS held, sum(spent) AS spent FROM (
              SELECT scope, day, CASE state WHEN 'held' THEN amount_micro END AS held,
                     settled_micro AS spent
                FROM reservations, unnest(scopes) AS scope
              UNION ALL
              SELECT scope, day, CASE WHEN closed_at IS NULL THEN granted_micro END, spent_micro
                FROM spend_slices, unnest(scopes) AS scope) x
             WHERE day >= current_date - 1 GROUP BY scope, day) r USING (scope, day)
         WHERE (coalesce(d.reserved_micro, 0), coalesce(d.spent_micro, 0))
            <> (coalesce(r.held, 0), coalesce(r.spent, 0))""",
    "I9: a reservation has fewer scopes than were requested": """
        SELECT id AS reservation, session_id AS session FROM reservations
         WHERE cardinality(scopes) < asked_scopes""",
    # A call whose person has no cap, or that belongs to no person, counts on one side alone.
    "I9: the spending of all persons in a day is not the total": """
        SELECT d.day, d.persons, d.total FROM (
            SELECT day, coalesce(sum(spent_micro) FILTER (WHERE scope LIKE 'contact:%'), 0) AS persons,
                   coalesce(sum(spent_micro) FILTER (WHERE scope = 'total'), 0) AS total
              FROM spend_days WHERE day >= current_date - 1 GROUP BY day) d
          LEFT JOIN (
            SELECT r.day, sum(settled_micro) FILTER (WHERE in_total AND NOT by_person) AS of_nobody,
                   sum(settled_micro) FILTER (WHERE by_person AND NOT in_total AND is_whole) AS of_uncapped,
                   sum(settled_micro) FILTER (WHERE in_open_slice) AS in_slices
              FROM (SELECT r.day, r.settled_micro, 'total' = ANY (r.scopes) OR l.id IS NOT NULL AS in_total,
                           EXISTS (SELECT FROM unnest(r.scopes) AS x WHERE x LIKE 'contact:%') AS by_person,
                           cardinality(r.scopes) >= coalesce(r.asked_scopes, 0) AS is_whole,
                           l.id IS NOT NULL AND l.closed_at IS NULL AS in_open_slice
                      FROM reservations r LEFT JOIN spend_slices l ON l.id = r.slice_id
                     WHERE r.day >= current_date - 1 AND r.settled_micro > 0) r
             GROUP BY r.day) r ON r.day = d.day
         WHERE d.persons - coalesce(r.of_uncapped, 0)
            <> d.total + coalesce(r.in_slices, 0) - coalesce(r.of_nobody, 0)""",
    "I9: a spend slice granted more than it had, or is closed with open reservations": """
        SELECT s.id AS slice FROM spend_slices s
          LEFT JOIN (SELECT slice_id, sum(least(amount_micro, coalesce(settled_micro, amount_micro)))
                              AS taken, coalesce(sum(settled_micro), 0) AS settled,
                            bool_or(state = 'held') AS holds
                       FROM reservations WHERE slice_id IS NOT NULL GROUP BY 1) r
            ON r.slice_id = s.id
         WHERE s.taken_at > now() - interval '29 days'
           AND (r.taken > s.granted_micro OR s.closed_at IS NOT NULL
                AND (r.holds OR s.spent_micro <> coalesce(r.settled, 0)))""",
    "I9: a spend slice is still open although its process has ended": """
        SELECT s.id AS slice, s.worker_id AS worker FROM spend_slices s
          LEFT JOIN workers w ON w.id = s.worker_id
         WHERE s.closed_at IS NULL AND s.taken_at < now() - interval '30 minutes'
           AND (w.id IS NULL OR w.stopped_at IS NOT NULL
                OR w.beat < now() - interval '30 minutes')""",
    "I9: a day's spending is negative": """
        SELECT scope, day FROM spend_days
         WHERE reserved_micro < 0 OR spent_micro < 0""",
    # The busiest hour and the busiest ended hour: counting all takes a minute on a large server. None is
    # compared that still has rows to count.
    "I9: an hour's counts differ from its tables": """
        SELECT n.hour FROM (
          (SELECT * FROM hourly_stats WHERE hour > now() - interval '50 hours' AND added_at = counted_at
            ORDER BY messages + calls DESC, hour LIMIT 1)
          UNION
          (SELECT * FROM hourly_stats
            WHERE hour BETWEEN now() - interval '50 hours' AND now() - interval '2 hours'
              AND added_at = counted_at
            ORDER BY messages + calls DESC, hour LIMIT 1)) n
         CROSS JOIN LATERAL recount_hour(n.hour) c
         WHERE NOT EXISTS (
               SELECT FROM hour_turns f JOIN turns t
                   ON t.session_id = f.session_id AND t.turn_no > f.after_turn AND t.turn_no <= f.through_turn
                WHERE t.opened_at >= n.hour AND t.opened_at < n.hour + interval '1 hour')
           AND NOT EXISTS (SELECT FROM hour_jobs
                            WHERE ended_at >= n.hour AND ended_at < n.hour + interval '1 hour')
           AND NOT EXISTS (
               SELECT FROM turns t LEFT JOIN hour_open o USING (session_id, turn_no)
                WHERE t.ended_at IS NULL AND o.session_id IS NULL
                  AND t.opened_at >= n.hour AND t.opened_at < n.hour + interval '1 hour')
           AND NOT EXISTS (
               SELECT FROM (SELECT 'usage' AS source, id, at FROM usage
                             WHERE id > (SELECT edge FROM hour_marks WHERE source = 'usage')
                            UNION ALL SELECT 'compactions', id, created_at FROM compactions
                             WHERE id > (SELECT edge FROM hour_marks WHERE source = 'compactions')
                            UNION ALL SELECT 'handovers', id, asked_at FROM handovers
                             WHERE id > (SELECT edge FROM hour_marks WHERE source = 'handovers')) x
                 JOIN hour_marks m ON m.source = x.source
                WHERE x.id <> ALL (m.above) AND x.at >= n.hour AND x.at < n.hour + interval '1 hour')
           AND (n.messages, n.answers, n.errors, n.first_tokens, n.calls, n.unknown_calls,
               n.cost_micro, n.input_tokens, n.cache_read_tokens, n.cache_write_tokens,
               n.output_tokens, n.summaries, n.handovers, n.jobs)
               IS DISTINCT FROM (c.messages, c.answers, c.errors, c.first_tokens, c.calls, c.unknown_calls,
                                 c.cost_micro, c.input_tokens, c.cache_read_tokens, c.cache_write_tokens,
                                 c.output_tokens, c.summaries, c.handovers, c.jobs)""",
    "I9: an hour's number of people is wrong": """
        SELECT n.hour FROM (
          (SELECT * FROM hourly_stats WHERE hour > now() - interval '50 hours' AND added_at = counted_at
            ORDER BY messages + calls DESC, hour LIMIT 1)
          UNION
          (SELECT * FROM hourly_stats
            WHERE hour BETWEEN now() - interval '50 hours' AND now() - interval '2 hours'
              AND added_at = counted_at
            ORDER BY messages + calls DESC, hour LIMIT 1)) n
         CROSS JOIN LATERAL (
           SELECT count(*) AS people FROM hour_people p WHERE p.hour = n.hour) c
         WHERE n.hour > now() - :people_days * interval '1 day' AND n.people <> c.people""",
    "I9: a turn names a cap that did not refuse it": """
        SELECT session_id AS session, turn_no AS turn FROM turns
         WHERE refused_scope IS NOT NULL
            AND (state NOT IN ('refused', 'answered')
                 OR error_code IS NULL OR error_code NOT IN ('cap_reached', 'hour_cap_reached'))""",
}

_ENDS = {
    "I10: an ended turn has no event that shows an answer or a notice": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN (SELECT session_id, min(event_seq) AS first, max(event_seq) AS last, count(*) AS number
                 FROM events GROUP BY session_id) n ON n.session_id = t.session_id AND n.first = 1
          JOIN sessions s ON s.id = t.session_id AND s.erased_turn < t.turn_no
         WHERE t.state NOT IN ('open', 'claimed') AND t.error_code IS DISTINCT FROM 'answered_together'
           AND t.channel <> 'import' AND NOT EXISTS (
               SELECT FROM events v LEFT JOIN entries e
                   ON e.session_id = v.session_id AND e.seq = v.seq
                WHERE v.session_id = t.session_id AND v.turn_no = t.turn_no AND v.kind = 'msg'
                  AND (e.author IN ('assistant', 'operator') OR v.seq IS NULL
                       AND v.payload ->> 'waiting' IS DISTINCT FROM 'true'
                       AND coalesce(v.payload ->> 'text', '') <> ''))""",
    "I10: a turn that has stopped two processes is not ended": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN sessions s ON s.id = t.session_id
         WHERE t.process_faults >= 2 AND t.state IN ('open', 'claimed') AND s.held_after IS NULL
           AND s.answered_turn = t.turn_no - 1 AND NOT EXISTS (
               SELECT FROM process_faults f WHERE f.session_id = t.session_id AND f.turn_no = t.turn_no
                  AND f.at > now() - interval '60 s')
           AND EXISTS (SELECT FROM workers w
                        WHERE w.role = CASE t.channel WHEN 'web' THEN 'web' ELSE 'bot' END
                          AND w.started_at < now() - interval '60 s' AND worker_is_alive(w))""",
    "I10: a claimed turn has no process that answers it, and no time for a retry": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN sessions s ON s.id = t.session_id
         WHERE t.state = 'claimed' AND s.leased_by IS NULL AND s.retry_at IS NULL""",
    "I10: a turn waits for its provider longer than the longest wait": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN sessions s ON s.id = t.session_id AND s.answered_turn = t.turn_no - 1
         WHERE t.ended_at IS NULL AND t.waits_for IS NOT NULL AND s.held_after IS NULL
           AND s.retry_at > now() + :longest_wait_seconds * interval '1 s'""",
    "I10: a turn is being answered out of order": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN sessions s ON s.id = t.session_id
         WHERE t.state = 'claimed' AND t.turn_no <> s.answered_turn + 1""",
    "I10: a session is leased without a claimed turn, or by an unknown process": """
        SELECT s.id AS session, s.leased_by FROM sessions s
         WHERE s.leased_by IS NOT NULL AND (
               NOT EXISTS (SELECT FROM workers w WHERE w.id = s.leased_by)
               OR NOT EXISTS (SELECT FROM turns t WHERE t.session_id = s.id
                                 AND t.turn_no = s.answered_turn + 1 AND t.state = 'claimed'))""",
    "I10: a turn is leased by a living process that does not work on it": """
        SELECT session_id AS session, leased_by FROM turns_unknown_to_their_holder""",
    "I10: a session with a dead job or a failed newest turn is not marked as troubled": """
        SELECT s.id AS session FROM sessions s
         WHERE s.troubled_at IS NULL AND (
               EXISTS (SELECT FROM jobs j WHERE j.session_id = s.id AND j.state = 'dead')
               OR EXISTS (SELECT FROM turns t WHERE t.session_id = s.id
                             AND t.turn_no = s.answered_turn AND t.state = 'failed'))""",
    "I10: a job runs without a lease, or has ended without an end time": """
        SELECT j.id AS job, j.state FROM jobs j
         WHERE (j.state = 'running') <> (j.leased_by IS NOT NULL)
            OR (j.state IN ('done', 'dead')) <> (j.ended_at IS NOT NULL)
            OR j.state = 'running'
               AND NOT EXISTS (SELECT FROM workers w WHERE w.id = j.leased_by)""",
}

_HANDED_OVER = {
    "I10: a conversation is held without an open hand-over, or the reverse": """
        SELECT s.id AS session, s.held_after FROM sessions s
         WHERE (s.held_after IS NOT NULL) <> EXISTS (
               SELECT FROM handovers h WHERE h.session_id = s.id AND h.ended_at IS NULL)""",
    "I10: the assistant answers a turn of a conversation that was handed over": """
        SELECT s.id AS session, t.turn_no AS turn FROM sessions s JOIN turns t
            ON t.session_id = s.id AND t.turn_no > s.held_after
         WHERE t.state = 'claimed' AND s.leased_by IS NOT NULL""",
    "I1: a turn was answered together with a later one that no operator answered": """
        SELECT t.session_id AS session, t.turn_no AS turn FROM turns t
          JOIN sessions s ON s.id = t.session_id AND s.erased_turn < t.turn_no
         WHERE t.error_code = 'answered_together' AND NOT EXISTS (
               SELECT FROM turn_entries te JOIN entries e USING (session_id, seq)
                WHERE te.session_id = t.session_id AND te.turn_no > t.turn_no
                  AND e.author = 'operator')""",
    "I2: an operator's reply has no delivery": """
        SELECT e.session_id AS session, e.seq FROM entries e
          JOIN turn_entries te USING (session_id, seq) JOIN turns t USING (session_id, turn_no)
         WHERE e.author = 'operator' AND t.channel <> 'web' AND NOT EXISTS (
               SELECT FROM deliveries d
                WHERE d.session_id = e.session_id AND d.turn_no = te.turn_no)""",
}

_TELEGRAM = {
    "I1: an update waits although its bot is served": """
        SELECT u.bot_id AS bot, u.update_id AS update FROM telegram_updates u
         WHERE u.handled_at IS NULL AND u.received_at < now() - interval '1 hour'
           AND bot_is_served(u.bot_id::text, interval '1 hour')""",
    "I2: a part of an answer is being sent by a dead process": """
        SELECT d.session_id AS session, d.turn_no AS turn, d.part FROM deliveries d
          JOIN addresses a ON a.id = d.address_id
         WHERE d.channel = 'telegram' AND d.state = 'sending'
           AND NOT bot_is_served(a.account, interval '0 s')""",
    "I2: an answer is undelivered after a day although its bot is served": """
        SELECT DISTINCT d.session_id AS session, d.turn_no AS turn FROM deliveries d
          JOIN turns t USING (session_id, turn_no) JOIN addresses a ON a.id = d.address_id
         WHERE d.channel = 'telegram' AND d.state IN ('queued', 'sending', 'sent')
           AND t.ended_at < now() - interval '1 day' AND a.unreachable_since IS NULL
           AND bot_is_served(a.account, interval '1 day')""",
    "I2: an answer to a guest's question is being sent by a dead process": """
        SELECT q.bot_id AS bot, q.update_id AS update FROM guest_queries q
         WHERE q.state = 'sending' AND NOT bot_is_served(q.bot_id::text, interval '0 s')""",
    "I10: a guest's question is open although its answer is stored and its bot is served": """
        SELECT q.bot_id AS bot, q.update_id AS update FROM guest_queries q
          LEFT JOIN turns t ON t.session_id = q.session_id AND t.turn_no = q.turn_no
         WHERE q.state IN ('waiting', 'sending', 'shown')
           AND coalesce(t.ended_at, CASE WHEN q.session_id IS NULL THEN q.asked_at END)
               < now() - interval '1 hour'
           AND bot_is_served(q.bot_id::text, interval '1 hour')""",
    "I7: a guest's question is answered by a turn of another chat": """
        SELECT q.bot_id AS bot, q.update_id AS update FROM guest_queries q
          JOIN turns t ON t.session_id = q.session_id AND t.turn_no = q.turn_no
          JOIN addresses a ON a.id = t.address_id
         WHERE a.channel <> :guest_channel OR a.account <> q.bot_id::text
            OR a.chat <> q.chat_id || ':' || q.caller_id""",
    "I2: a draft is being shown or sent by a dead process": """
        SELECT f.session_id AS session, f.turn_no AS turn FROM secretary_drafts f
         WHERE f.state IN ('showing', 'sending')
           AND NOT bot_is_served(f.bot_id::text, interval '0 s')""",
    "I2: an answer that was not sent is part of later requests": """
        SELECT f.session_id AS session, f.turn_no AS turn FROM secretary_drafts f
         WHERE f.is_hidden AND EXISTS (
               SELECT FROM turn_entries te JOIN entries e USING (session_id, seq)
                WHERE te.session_id = f.session_id AND te.turn_no = f.turn_no AND te.replaced_by IS NULL
                  AND e.author NOT IN ('person', 'operator'))""",
    "I10: a draft is open although it has expired and its bot is served": """
        SELECT f.session_id AS session, f.turn_no AS turn FROM secretary_drafts f
         WHERE f.ended_at IS NULL AND f.expires_at < now() - interval '1 hour'
           AND bot_is_served(f.bot_id::text, interval '1 hour')""",
    "I10: an answer to a customer has no draft although its bot is served": """
        SELECT d.session_id AS session, d.turn_no AS turn FROM deliveries d
          JOIN turns t USING (session_id, turn_no) JOIN addresses a ON a.id = d.address_id
         WHERE a.channel = :secretary_channel AND d.state = 'queued'
           AND t.ended_at < now() - interval '1 hour'
           AND bot_is_served(a.account, interval '1 hour')
           AND NOT EXISTS (SELECT FROM secretary_drafts f
                            WHERE f.session_id = d.session_id AND f.turn_no = d.turn_no)""",
    "I7: a draft is for another chat than that of its conversation": """
        SELECT f.session_id AS session, f.turn_no AS turn FROM secretary_drafts f
          JOIN turns t ON t.session_id = f.session_id AND t.turn_no = f.turn_no
          JOIN addresses a ON a.id = t.address_id
         WHERE a.channel <> :secretary_channel OR a.account <> f.bot_id::text
            OR a.chat <> f.owner_id || ':' || f.chat_id""",
    "I7: a customer's message is stored in the conversation of another chat": """
        SELECT m.session_id AS session, m.turn_no AS turn FROM secretary_messages m
          JOIN turns t ON t.session_id = m.session_id AND t.turn_no = m.turn_no
          JOIN addresses a ON a.id = t.address_id
         WHERE a.channel <> :secretary_channel OR a.chat <> m.owner_id || ':' || m.chat_id""",
    "I10: an answer that may not have arrived has no notice for its person": """
        SELECT DISTINCT d.session_id AS session, d.turn_no AS turn FROM deliveries d
          JOIN sessions s ON s.id = d.session_id AND s.erased_turn < d.turn_no
         WHERE d.channel = 'telegram' AND d.state = 'uncertain' AND NOT EXISTS (
               SELECT FROM uncertain_notices n
                WHERE n.session_id = d.session_id AND n.turn_no = d.turn_no)""",
    "I10: a notice about an uncertain answer is unsent although its bot is served": """
        SELECT n.session_id AS session, n.turn_no AS turn FROM uncertain_notices n
          JOIN addresses a ON a.id = n.address_id
         WHERE n.state IN ('due', 'sending') AND n.due_at < now() - interval '1 hour'
           AND a.unreachable_since IS NULL
           AND bot_is_served(a.account, interval '1 hour')""",
    "I3: an answer was delivered before an earlier one": """
        SELECT DISTINCT d.session_id AS session, d.turn_no AS turn FROM deliveries d
          JOIN turns t USING (session_id, turn_no)
         WHERE d.channel = 'telegram' AND d.state IN ('queued', 'sending') AND t.ended_at IS NOT NULL
           AND d.error <> :asked_again AND NOT EXISTS (SELECT FROM uncertain_notices u
                 WHERE u.session_id = d.session_id AND u.turn_no = d.turn_no)
           AND EXISTS (SELECT FROM deliveries n
                        WHERE n.session_id = d.session_id AND n.address_id = d.address_id
                          AND n.turn_no > d.turn_no AND n.state = 'delivered'
                          AND n.remote_id IS NOT NULL)""",
    "I3: the numbers of an answer's parts have a gap": """
        SELECT session_id AS session, turn_no AS turn FROM deliveries
         GROUP BY session_id, turn_no HAVING count(*) <> max(part) + 1""",
    "I7: an address leads to no session": """
        SELECT a.id AS address FROM addresses a
         WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = a.session_id)""",
    "I7: a visitor has another conversation but no first one": """
        SELECT a.id AS address FROM addresses a
         WHERE a.channel = 'web' AND a.thread <> '' AND NOT EXISTS (
               SELECT FROM addresses m WHERE m.channel = 'web' AND m.account = a.account AND m.chat = a.chat
                  AND m.thread = '')""",
    "I7: a visitor token or recovery code opens an address of a signed-in person or another site": """
        SELECT a.id AS address FROM addresses a
          JOIN (SELECT address_id, identified, site FROM visitors
                UNION ALL SELECT address_id, false, NULL FROM recovery_codes) v
            ON v.address_id = a.id
         WHERE v.identified <> (a.chat LIKE 'sub:%') OR a.channel <> 'web' OR v.site <> a.account""",
}

_RECALL = {
    # After an undo, messages stay searchable; a session without an address is indexed whole.
    "I4: turns are searchable that were never hidden": """
        SELECT s.id AS session, s.indexed_turn FROM sessions s
         WHERE s.indexed_turn > greatest(s.base_turn, coalesce((
                 SELECT max(l.through_turn) FROM compactions l WHERE l.session_id = s.id), 0))
           AND (s.indexed_turn > s.answered_turn
                OR EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id))""",
    "I4: a passage has no message, or belongs to a turn that is not indexed": """
        SELECT p.session_id AS session, p.number, p.seq
          FROM passages p LEFT JOIN sessions s ON s.id = p.session_id
         WHERE NOT EXISTS (SELECT FROM entries e WHERE e.session_id = p.session_id AND e.seq = p.seq)
            OR p.turn_no > s.indexed_turn""",
    "I4: a note is not searchable, and is not queued for indexing": """
        SELECT n.id AS note FROM notes n
         WHERE n.forgotten_at IS NULL AND n.superseded_by IS NULL AND n.authority <> 'tool'
           AND NOT EXISTS (SELECT FROM note_words w WHERE w.note_id = n.id)
           AND NOT EXISTS (SELECT FROM unindexed_notes u WHERE u.note_id = n.id)""",
    "I4: a session without an address is not searchable, and is not queued for indexing": """
        SELECT s.id AS session, s.indexed_turn FROM sessions s
         WHERE s.indexed_turn < s.answered_turn
           AND NOT EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id)
           AND NOT EXISTS (SELECT FROM left_sessions l WHERE l.session_id = s.id)""",
    "I11: a removed note has an undo deadline, but no tidying is due by then": """
        SELECT n.id AS note FROM notes n
         WHERE n.undo_until IS NOT NULL AND NOT EXISTS (
               SELECT FROM due_tidyings d WHERE d.contact_id = n.contact_id
                  AND d.due_at <= greatest(n.undo_until, now() + interval '26 hours'))""",
    "I4: a passage has no vector, and its session is not queued for encoding": """
        SELECT p.session_id AS session, p.number FROM passages p
         WHERE NOT EXISTS (SELECT FROM passage_vectors v
                            WHERE v.session_id = p.session_id AND v.number = p.number)
           AND NOT EXISTS (SELECT FROM unencoded_sessions u WHERE u.session_id = p.session_id)""",
    "I4: a searchable note has no vector, and is not queued for encoding": """
        SELECT w.note_id AS note FROM note_words w
         WHERE NOT EXISTS (SELECT FROM note_vectors v WHERE v.note_id = w.note_id)
           AND NOT EXISTS (SELECT FROM unencoded_notes u WHERE u.note_id = w.note_id)""",
    "I12: a note's vector belongs to no searchable note": """
        SELECT v.note_id AS note FROM note_vectors v
         WHERE NOT EXISTS (SELECT FROM note_words w WHERE w.note_id = v.note_id)""",
    "I12: a passage's vector belongs to no passage": """
        SELECT v.session_id AS session, v.number FROM passage_vectors v
         WHERE NOT EXISTS (SELECT FROM passages p
                            WHERE p.session_id = v.session_id AND p.number = v.number)""",
    "I4: the terms of a session's passages are counted wrongly": """
        SELECT s.id AS session, n.number AS passages, w.passages AS counted FROM sessions s
          JOIN (SELECT session_id, count(*) AS number, sum(terms) AS terms
                  FROM passages GROUP BY session_id) n ON n.session_id = s.id
          LEFT JOIN recall_words w ON w.lane = 'said' AND w.owner = s.id AND w.lexeme = ''
         WHERE (w.passages, w.terms) IS DISTINCT FROM (n.number, n.terms)""",
}

_FORGOTTEN = {
    "I12: an erased message still has its text": """
        SELECT s.id AS session, e.seq FROM sessions s
          JOIN turn_entries te ON te.session_id = s.id AND te.turn_no <= s.erased_turn
          JOIN entries e ON e.session_id = te.session_id AND e.seq = te.seq
         WHERE s.erased_turn > 0 AND NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')
           AND NOT e.blocks @> '[{"type": "text", "text": "[erased]"}]'
           AND e.blocks <> erased_blocks(e.blocks)""",
    "I12: an erased message can still be found": """
        SELECT s.id AS session, p.seq FROM sessions s
          JOIN passages p ON p.session_id = s.id AND p.turn_no <= s.erased_turn
         WHERE s.erased_turn > 0 AND NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')""",
    "I12: a summary of erased turns still has its text": """
        SELECT s.id AS session, l.id AS compaction FROM sessions s
          JOIN compactions l ON l.session_id = s.id AND l.through_turn <= s.erased_turn
         WHERE NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')
           AND (l.summary_text <> '' OR l.ledger <> '{}')""",
    "I12: a request of an erased turn can still be reproduced": """
        SELECT s.id AS session, a.turn_id AS turn FROM sessions s
          JOIN turn_context_audit a ON a.session_id = s.id AND a.turn_id <= s.erased_turn
         WHERE s.erased_turn > 0 AND NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')
           AND a.recipe <> '{}'""",
    "I12: an event of an erased turn is still stored": """
        SELECT s.id AS session, v.event_seq AS event FROM sessions s
          JOIN events v ON v.session_id = s.id AND v.turn_no <= s.erased_turn
         WHERE s.erased_turn > 0 AND NOT EXISTS (SELECT FROM erasures r WHERE r.state = 'running')""",
    "I12: the log of erasures holds more than numbers and ids": """
        SELECT r.id AS erasure FROM erasures r
         CROSS JOIN LATERAL jsonb_each(r.about) f
         CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(f.value)
               WHEN 'array' THEN f.value ELSE jsonb_build_array(f.value) END) v
         WHERE r.about IS NOT NULL
           AND (f.key NOT IN ('family', 'session', 'seqs', 'notes')
                OR v !~ '^[0-9a-f-]{1,64}$')""",
    "I12: an erasure has been running for over a day": """
        SELECT id AS erasure FROM erasures
         WHERE state = 'running' AND at < now() - interval '1 day'""",
}

_TOO_OLD = {
    f"I11: a row of {table} is older than its retention": f"""
        SELECT '{table}' AS "table" FROM {table} WHERE {render_condition(rule, grace=GRACE_DAYS)}"""
    for table, rule in RULES.items()
    if isinstance(rule, Sweep) and not rule.costly
}

_ALERTS = {
    "I11: a message about an alert has been unsent for over 2 days": """
        SELECT id AS alert_send FROM alert_sends
         WHERE state IN ('due', 'sending') AND created_at < now() - interval '2 days'
           AND EXISTS (SELECT FROM workers
                        WHERE role IN ('web', 'bot') AND stopped_at IS NULL
                          AND beat > now() - interval '5 s'
                          AND started_at < now() - interval '1 h')""",
    "I10: an alert's end was sent before its start": """
        SELECT e.id AS alert_send FROM alert_sends e JOIN alert_sends o
            ON o.alert_id = e.alert_id AND o.target = e.target AND o.phase = 'opened'
         WHERE e.phase = 'ended' AND e.state IN ('sending', 'sent', 'uncertain')
           AND o.state IN ('due', 'sending')""",
    "I12: an alert's details are more than numbers, ids and a wording": """
        SELECT a.id AS alert FROM alerts a, jsonb_each(a.detail) f
         WHERE jsonb_typeof(f.value) NOT IN ('number', 'string')
            OR f.value #>> '{}' !~ CASE f.key
                 WHEN 'wording' THEN '^[^[:cntrl:]]{0,255}$'
                 WHEN 'sessions' THEN '^[0-9a-f-]{36}(, [0-9a-f-]{36}){0,4}$'
                 ELSE '^[A-Za-z0-9._:\\[\\]-]{1,255}$' END""",
}

_MACROS = {
    "I10: a macro has a label that no conversation can have": """
        SELECT m.name AS macro FROM macros m, unnest(m.labels) AS label
         WHERE char_length(label) NOT BETWEEN 1 AND 40 OR label <> btrim(label)""",
}

_HOOKS = {
    "I11: a message of the compaction hook has been unsent for over 3 days": """
        SELECT id AS compaction_hook FROM compaction_hooks
         WHERE (state = 'due' OR awaits_end) AND created_at < now() - interval '3 days'
           AND EXISTS (SELECT FROM workers
                        WHERE role = 'worker' AND stopped_at IS NULL AND beat > now() - interval '5 s'
                          AND started_at < now() - interval '1 h')
           AND EXISTS (SELECT FROM compaction_hooks n
                        WHERE n.state = 'sent' AND n.ended_at > now() - interval '1 h')""",
    "I10: the end of a summary is reported without its announcement": """
        SELECT h.id AS compaction_hook, h.job_id AS job FROM compaction_hooks h
         WHERE h.phase = 'after' AND h.created_at > now() - interval '20 days' AND NOT EXISTS (
               SELECT FROM compaction_hooks b
                WHERE (b.job_id, b.round, b.phase) = (h.job_id, h.round, 'before') AND NOT b.awaits_end)""",
    "I12: a message of the compaction hook holds more than numbers, ids and names": """
        SELECT h.id AS compaction_hook FROM compaction_hooks h, jsonb_each(h.detail) f
         WHERE jsonb_typeof(f.value) NOT IN ('number', 'string', 'boolean', 'null')
            OR length(f.value #>> '{}') > 255""",
}

_SETTINGS = {
    "I10: a changed tool list has no entry in the audit log": """
        SELECT l.server FROM mcp_tool_lists l
         WHERE l.changed_at IS NOT NULL AND NOT EXISTS (
               SELECT FROM audit a WHERE a.action = 'mcp.tools_changed' AND a.object = l.server
                  AND a.at >= l.changed_at)""",
    "I10: a changed setting has no entry of its author in the audit log": """
        SELECT s.name AS setting FROM stored_settings s
         WHERE NOT EXISTS (SELECT FROM audit a
                            WHERE a.action = 'settings.changed' AND a.actor = s.changed_by
                              AND (a.detail ->> 'version')::bigint = s.version)""",
}

_AGENTS = {
    "I10: an agent differs from its newest stored version": """
        SELECT a.id AS agent FROM agents a
          JOIN LATERAL (SELECT version, config FROM agent_versions WHERE agent_id = a.id
                         ORDER BY version DESC LIMIT 1) v
            ON (v.version, v.config) IS DISTINCT FROM (a.version, a.config)""",
}

_ALL = (
    _LOG, _VIEW, _RECALL, _CONTACTS, _PEOPLE, _MEMORY, _MONEY, _ENDS, _HANDED_OVER, _TELEGRAM, _FORGOTTEN,
    _ALERTS, _MACROS, _HOOKS, _SETTINGS, _AGENTS, _TOO_OLD,
)  # fmt: skip
CHECKS = tuple(_Check(promise, rows) for group in _ALL for promise, rows in group.items())
"""All checks, in the order in which their violations are reported."""

_FOUND = "evertalk.violations"
"""Setting of the transaction that collects the violations.

The transaction may not write, and a message with several statements returns no rows.
"""


def _render_question(number: int, check: _Check) -> str:
    """Return the statement that adds number and place of each violation of one check."""
    return f"""
SELECT set_config('{_FOUND}', (current_setting('{_FOUND}')::jsonb
                               || jsonb_build_array({number}, to_json(broken)::text))::text, true)
  FROM ({check.rows}) broken LIMIT {SHOWN_AT_MOST};
"""


_ASK_ALL = f"""
SET LOCAL statement_timeout = '{STATEMENT_SECONDS:.0f} s';
SET LOCAL {_FOUND} = '[]';
""" + "".join(_render_question(number, check) for number, check in enumerate(CHECKS))


def _render_place(columns: Mapping[str, object]) -> str:
    """Return a place such as `session 3, turn 7`, with `–` for a column without a value."""
    return ", ".join(f"{name} {'–' if value is None else value}" for name, value in columns.items())


_ACTIVITY = """
SELECT coalesce(nullif(application_name, ''), 'nobody') || '''s process ' || pid || ', ' || state || ' for '
       || round(extract(epoch FROM clock_timestamp() - xact_start)::numeric, 1) || ' s'
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
   AND (xact_start < clock_timestamp() - interval '2 seconds'
        OR state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '1 second')
 ORDER BY xact_start
"""


async def check_invariants(connection: asyncpg.Connection[asyncpg.Record]) -> list[Violation]:
    """Return all violations of the stored conversations, as of one moment; empty if all invariants hold.

    Reads only, in one transaction. Each check reports at most SHOWN_AT_MOST violations. All checks are sent
    as one message: sent singly they take three times as long. Raises exceptions of asyncpg, also if a check
    takes longer than STATEMENT_SECONDS.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(_ASK_ALL, timeout=STATEMENT_SECONDS * len(CHECKS))
        found = json.loads(await connection.fetchval(f"SELECT current_setting('{_FOUND}')"))
    broken = zip(found[::2], found[1::2], strict=True)
    return [
        Violation(code=CHECKS[number].code, what=CHECKS[number].what, where=_render_place(json.loads(place)))
        for number, place in broken
    ]


async def check_activity(connection: asyncpg.Connection[asyncpg.Record]) -> list[Violation]:
    """Return a violation of I8 for each transaction of another connection that is open too long.

    No transaction may be open during a model call. Too long is 2 seconds, or 1 second without a statement.
    `where` names process and state.
    """
    rows = await connection.fetch(_ACTIVITY, timeout=STATEMENT_SECONDS)
    return [Violation(code="I8", what="a transaction is open for too long", where=row[0]) for row in rows]
