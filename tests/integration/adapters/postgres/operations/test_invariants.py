"""A real conversation keeps every promise, and each way of breaking one is found and named."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.operations.invariants import Violation, check_activity, check_invariants
from shared.core.values.messages import repair, text_message, tool_uses
from tests.conftest import DatabaseServer
from tests.kit.app_driver import Visit, running_app, settings_for, visit

WITHOUT_GUARDS = """
DO $$ DECLARE c record; BEGIN
  FOR c IN SELECT conrelid::regclass AS place, conname FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f', 'x', 'u')
              AND conparentid = 0 AND conislocal LOOP
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', c.place, c.conname);
  END LOOP;
END $$;
DROP TRIGGER entries_are_only_added ON entry_rows;
"""
"""The database refuses most of these by itself; the checks are for the day on which it could not."""

SPENT = """
INSERT INTO reservations (session_id, contact_id, turn_no, day, amount_micro, settled_micro, state, scopes,
                          ended_at)
SELECT s.id, s.contact_id, 1, current_date, 70, CASE WHEN x.state = 'held' THEN NULL ELSE 50 END, x.state,
       '{total}', CASE WHEN x.state = 'held' THEN NULL ELSE now() END
  FROM (SELECT * FROM sessions ORDER BY id LIMIT 1) s, (VALUES ('settled'), ('held')) x(state);
INSERT INTO spend_days (scope, day, reserved_micro, spent_micro) VALUES ('total', current_date, 70, 50);
"""


CHAT = """
INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state, delivered_at)
SELECT session_id, turn_no, 0, channel, address_id, 'delivered', ended_at FROM turns
 WHERE ended_at IS NOT NULL;
"""
"""Rows as the answers of a chat have them, and those of a page had in versions before."""
PASSAGE = """
INSERT INTO passages (session_id, number, seq, part, turn_no, author, sitting, at, text, terms, vector)
VALUES (1, 999, 1, 0, 0, 'person', 1, now(), 'found', 1, 'found:1')
"""
NOTE = """
INSERT INTO notes (contact_id, scope, kind, text, hash)
SELECT contact_id, 'default', 'fact', 'Likes tea.', '\\x01' FROM sessions WHERE id = 1
"""
SERVED = """
UPDATE addresses SET account = '7';
UPDATE workers SET beat = now(), stopped_at = NULL;
INSERT INTO leases (name, leased_by, epoch, taken_at)
SELECT 'telegram:7', max(id), 1, now() - interval '3 days' FROM workers;
"""


@pytest.fixture(scope="module")
async def seeded_database(
    database_server: DatabaseServer, migrated_template: str, servers: EmbeddedServers
) -> AsyncIterator[str]:
    """Two people: one with tools, a compaction and an undo behind them, one who waits for an answer."""
    name = await database_server.create(template=migrated_template)
    url = database_server.url(name)
    async with running_app(settings_for(url, f"{servers.redis_url}?db=15")) as app:
        await _talk(await visit(app))
        waiting = await visit(app)
        await waiting.ask("Hello")
        await waiting.say("Are you still there?")
        await app.pool.execute(SPENT)
        await app.pool.execute(CHAT)
    yield name
    await database_server.drop(name)


FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 3
"""Text that a summary leaves out, so that it makes the next request smaller."""


async def _talk(guest: Visit) -> None:
    await guest.ask("Please remember that my cat is called Miso.")
    for number in range(9):
        await guest.ask(f"Number {number}: we decided to meet on 2026-05-{number + 10} in Lisbon. {FILLER}")
    await _compacted(guest)
    undone = await guest.app.stores.jobs.undo_compaction(guest.session_id, limit_tokens=10**9, fixed_tokens=0)
    assert hasattr(undone, "compaction_id"), undone
    await _compacted(guest)
    for number in range(7):
        await guest.ask(f"Later {number}: the train to Porto leaves at 1{number}:20. {FILLER}")
    await _compacted(guest)


async def _compacted(guest: Visit) -> None:
    await guest.one(
        """INSERT INTO jobs (kind, session_id, key, trigger, payload)
           VALUES ('compact', $1, 'compact:by:hand', 'manual', '{"force": true}') RETURNING id""",
        guest.session_id,
    )
    await guest.run_due_jobs()
    assert await guest.one("SELECT state FROM jobs ORDER BY id DESC LIMIT 1") == "done"


@pytest.fixture
async def copied(
    database_server: DatabaseServer, seeded_database: str
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A copy of the seeded database, for this test alone."""
    name = await database_server.create(template=seeded_database)
    opened = await asyncpg.connect(database_server.url(name), timeout=60)
    yield opened
    await opened.close(timeout=30)
    await database_server.drop(name)


BROKEN = [
    (
        "I1",
        "a message has a recording without a transcript",
        """INSERT INTO attachments (session_id, sha256, mime, size, state, body)
           VALUES (1, 'x', 'audio/ogg', 1, 'stored', 'x');
           INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
           SELECT 1, 9999, 'user', 'person', jsonb_build_array(jsonb_build_object(
                    'type', 'text', 'text', 'x', 'attachment_id', id)), 1 FROM attachments""",
    ),
    (
        "I2",
        "an answer to a web page is undelivered although a worker has run for an hour",
        """UPDATE deliveries SET state = 'queued' WHERE (session_id, turn_no) = (1, 3);
           UPDATE turns SET ended_at = now() - interval '2 hours' WHERE (session_id, turn_no) = (1, 3);
           INSERT INTO workers (role, pid, started_at) VALUES ('worker', 1, now() - interval '2 hours')""",
    ),
    (
        "I10",
        "a changed setting has no entry of its author in the audit log",
        """INSERT INTO stored_settings (name, value, version, changed_by)
           VALUES ('EVERTALK_MODEL', 'x', 1, 'cli')""",
    ),
    (
        "I10",
        "an agent differs from its newest stored version",
        """INSERT INTO agent_versions (agent_id, version, config)
           SELECT id, version, '{"name": "Eve"}' FROM agents LIMIT 1""",
    ),
    (
        "I1",
        "a sample conversation counts a wrong number of played messages",
        """INSERT INTO sample_plays (session_id, address_id, begun_turn, played, total)
           VALUES (1, 1, 1, 1, 68)""",
    ),
    ("I1", "belongs to no turn", "DELETE FROM turn_entries WHERE session_id = 1 AND seq = 5"),
    (
        "I1",
        "belongs to two turns",
        """ALTER TABLE turn_entries DROP CONSTRAINT turn_entries_pkey;
           INSERT INTO turn_entries (session_id, seq, turn_no, step) VALUES (1, 5, 9, 500)""",
    ),
    (
        "I1",
        "a message belongs to no session",
        "INSERT INTO entries (session_id, seq, author, blocks, tokens) VALUES (9, 1, 'person', '[]', 1)",
    ),
    (
        "I1",
        "an event belongs to no session",
        "INSERT INTO events (session_id, event_seq, kind, payload) VALUES (9, 1, 'msg', '{}')",
    ),
    *(
        ("I1", "a turn has no session or no address", statement)
        for statement in (
            "INSERT INTO turns (session_id, turn_no, channel, address_id) VALUES (9, 1, 'web', 1)",
            "UPDATE turns SET address_id = 99 WHERE (session_id, turn_no) = (1, 3)",
        )
    ),
    *(
        ("I1", "the turn of a message does not exist, or a turn has a message that does not exist", statement)
        for statement in (
            "UPDATE turn_entries SET turn_no = 999 WHERE (session_id, seq) = (1, 5)",
            "UPDATE turn_entries SET seq = 999 WHERE (session_id, seq) = (1, 5)",
        )
    ),
    (
        "I1",
        "a turn counts as answered but has not ended",
        "UPDATE turns SET state = 'open', ended_at = NULL WHERE (session_id, turn_no) = (1, 3)",
    ),
    (
        "I1",
        "does not count as answered",
        "UPDATE turns SET state = 'answered', ended_at = now() WHERE session_id = 2",
    ),
    (
        "I1",
        "no message of a person",
        "UPDATE entries SET author = 'tool' WHERE (session_id, seq) = (1, 1)",
    ),
    (
        "I2",
        "a turn has more than one final event",
        """INSERT INTO events (session_id, event_seq, kind, turn_no, payload)
           SELECT 1, next_event_seq, 'msg', 2, '{"text": "again"}' FROM sessions WHERE id = 1;
           UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = 1""",
    ),
    (
        "I2",
        "more than one answer",
        """INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
           SELECT 1, next_seq, 'assistant', 'assistant', '[{"type": "text", "text": "again"}]', 1
             FROM sessions WHERE id = 1;
           INSERT INTO turn_entries (session_id, seq, turn_no, step)
           SELECT 1, next_seq, 2, next_seq FROM sessions WHERE id = 1;
           UPDATE sessions SET next_seq = next_seq + 1 WHERE id = 1""",
    ),
    (
        "I2",
        "an ended turn has no delivery",
        """UPDATE turns SET channel = 'telegram' WHERE (session_id, turn_no) = (1, 4);
           DELETE FROM deliveries WHERE (session_id, turn_no) = (1, 4)""",
    ),
    (
        "I2",
        "delivered twice",
        """ALTER TABLE deliveries DROP CONSTRAINT deliveries_pkey;
           INSERT INTO deliveries SELECT * FROM deliveries WHERE (session_id, turn_no) = (1, 4)""",
    ),
    ("I3", "log have a gap", "UPDATE sessions SET next_seq = next_seq + 1 WHERE id = 1"),
    (
        "I3",
        "log have a gap",
        """DELETE FROM turn_entries WHERE (session_id, seq) = (1, 6);
           DELETE FROM entries WHERE (session_id, seq) = (1, 6)""",
    ),
    ("I3", "events have a gap", "DELETE FROM events WHERE (session_id, event_seq) = (1, 6)"),
    ("I3", "events have a gap", "UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = 1"),
    ("I3", "an address counts an event as read that does not exist", "UPDATE addresses SET read_seq = 10000"),
    (
        "I1",
        "turn that has not ended",
        """INSERT INTO feedback (session_id, turn_no)
           SELECT session_id, turn_no FROM turns WHERE ended_at IS NULL""",
    ),
    (
        "I1",
        "feedback stores a request id twice, or more than 8 request ids",
        "INSERT INTO feedback (session_id, turn_no, cids) VALUES (1, 1, '{a,a}')",
    ),
    ("I3", "turns have a gap", "UPDATE sessions SET next_turn = next_turn + 1 WHERE id = 1"),
    (
        "I3",
        "not in the order",
        """UPDATE turn_entries SET turn_no = 100 - turn_no WHERE session_id = 1 AND turn_no IN (45, 5)""",
    ),
    (
        "I3",
        "a turn begins with a tool call",
        "UPDATE turn_entries SET step = 0 WHERE session_id = 1 AND seq = 2",
    ),
    (
        "I4",
        "has no result",
        """UPDATE entries SET blocks = '[{"type": "text", "text": "gone"}]'
            WHERE session_id = 1 AND author = 'tool'""",
    ),
    (
        "I4",
        "answers no call",
        """UPDATE entries SET blocks = '[{"type": "text", "text": "gone"}]'
            WHERE session_id = 1 AND blocks @> '[{"type": "tool_use"}]'""",
    ),
    (
        "I4",
        "a tool call of an ended turn is still marked as running",
        "UPDATE turn_steps SET status = 'intent', ended_at = NULL",
    ),
    (
        "I5",
        "do not cover",
        "UPDATE compactions SET active = false WHERE id = (SELECT min(id) FROM compactions WHERE active)",
    ),
    ("I5", "overlap", "UPDATE compactions SET active = true"),
    (
        "I5",
        "overlap",
        "UPDATE compactions c SET from_turn = from_turn + 1 FROM sessions s WHERE s.id = 1 AND c.id = s.head",
    ),
    (
        "I5",
        "a session's head is not its newest active compaction",
        "UPDATE sessions SET head = (SELECT min(id) FROM compactions) WHERE id = 1",
    ),
    (
        "I5",
        "turns are hidden without a head and without a new conversation",
        "UPDATE sessions SET head = NULL WHERE id = 1",
    ),
    ("I5", "have not ended", "UPDATE sessions SET answered_turn = 1 WHERE id = 1"),
    ("I5", "inside a turn", "UPDATE compactions SET through_seq = through_seq - 1 WHERE active"),
    (
        "I5",
        "a session's token scale was learned from a later view",
        """UPDATE sessions SET token_scale = jsonb_build_object('epoch', view_epoch + 1) WHERE id = 1""",
    ),
    (
        "I5",
        "tokens are reserved for recalled passages although no turn is hidden",
        "UPDATE sessions SET context_reserved = 400, base_turn = 0 WHERE id = 1",
    ),
    (
        "I6",
        "turns were summarised that no flush has read, and no flush is due",
        "DELETE FROM flushes; UPDATE sessions SET flushed_turn = 0",
    ),
    (
        "I6",
        "turns were hidden that no flush has read",
        "UPDATE sessions SET flushed_turn = 0; UPDATE compactions SET created_at = now() - interval '1 hour'",
    ),
    (
        "I4",
        "turns are searchable that were never hidden",
        "UPDATE sessions SET indexed_turn = 1000 WHERE id = 1",
    ),
    (
        "I4",
        "a passage has no message, or belongs to a turn that is not indexed",
        """INSERT INTO passages (session_id, number, seq, part, turn_no, author, sitting, at, text, terms,
                                 vector)
           VALUES (1, 999, 999, 0, 1, 'person', 1, now(), 'lost', 1, 'lost:1')""",
    ),
    ("I4", "a note is not searchable", f"{NOTE}; DELETE FROM unindexed_notes"),
    (
        "I4",
        "a session without an address is not searchable",
        """INSERT INTO sessions (contact_id, agent_id, next_turn, answered_turn)
           SELECT contact_id, agent_id, 2, 1 FROM sessions WHERE id = 1""",
    ),
    (
        "I11",
        "no tidying is due",
        f"""{NOTE}; UPDATE notes SET forgotten_at = now(), undo_until = now() + interval '7 days';
            DELETE FROM due_tidyings""",
    ),
    ("I4", "a passage has no vector", PASSAGE + "; DELETE FROM unencoded_sessions"),
    (
        "I4",
        "a searchable note has no vector",
        f"""{NOTE}; INSERT INTO note_words (note_id, contact_id, terms, vector)
                    SELECT id, contact_id, 1, 'lost:1' FROM notes ON CONFLICT DO NOTHING;
            DELETE FROM unencoded_notes""",
    ),
    (
        "I12",
        "a note's vector belongs to no searchable note",
        "INSERT INTO note_vectors (note_id, contact_id, encoder) VALUES (999, 1, 'lost')",
    ),
    (
        "I12",
        "a passage's vector belongs to no passage",
        "INSERT INTO passage_vectors (session_id, number, encoder) VALUES (1, 999, 'lost')",
    ),
    ("I4", "counted wrongly", PASSAGE + "; UPDATE recall_words SET passages = 7 WHERE lexeme = ''"),
    (
        "I7",
        "a checkpoint has a parent of another session, or contains unanswered turns",
        "INSERT INTO checkpoints (session_id, from_turn, through_turn) VALUES (1, 1, 1000)",
    ),
    (
        "I1",
        "belongs to no message",
        """INSERT INTO artifacts (session_id, seq, sha256, body, tokens)
           VALUES (1, 999, sha256('whole'), 'whole', 1)""",
    ),
    (
        "I1",
        "an artifact's text does not match its hash",
        "INSERT INTO artifacts (session_id, seq, sha256, body, tokens) VALUES (1, 1, sha256('a'), 'b', 1)",
    ),
    (
        "I4",
        "a shortened tool result is shown in a longer form later",
        """INSERT INTO prune_decisions (session_id, seq, form, turn_no)
           VALUES (1, 1, 'clear', 3), (1, 1, 'trim', 4)""",
    ),
    (
        "I4",
        "a message of a person or of the assistant is shortened",
        "INSERT INTO prune_decisions (session_id, seq, form, turn_no) VALUES (1, 1, 'clear', 3)",
    ),
    ("I6", "counts as running", "UPDATE flushes SET outcome = 'running', ended_at = NULL"),
    ("I6", "than any flush has read", "UPDATE sessions SET flushed_turn = answered_turn WHERE id = 1"),
    (
        "I7",
        "an address leads to a session of another person",
        "UPDATE addresses SET contact_id = 1 WHERE session_id = 2",
    ),
    ("I7", "turn came from", "UPDATE turns SET address_id = 2 WHERE session_id = 1 AND turn_no = 3"),
    ("I7", "answer goes to", "UPDATE deliveries SET address_id = 2 WHERE session_id = 1 AND turn_no = 3"),
    ("I7", "a note was made in a session of another person", "UPDATE notes SET contact_id = 2"),
    ("I1", "a note was replaced by a note that does not exist", "UPDATE notes SET superseded_by = 999"),
    ("I1", "in a circle", "UPDATE notes SET superseded_by = id"),
    (
        "I7",
        "a note was replaced by a note of another person or scope",
        """INSERT INTO notes (contact_id, scope, kind, text, hash) VALUES (2, 'other', 'fact', 'Other', 'x');
           UPDATE notes SET superseded_by = (SELECT max(id) FROM notes) WHERE scope = 'default'""",
    ),
    ("I12", "can still be read", "UPDATE notes SET forgotten_at = now()"),
    (
        "I12",
        "an event contains the text of a forgotten note",
        "UPDATE notes SET forgotten_at = now(), text = '', subject = '', event_date = NULL",
    ),
    (
        "I7",
        "not of one session",
        "UPDATE flushes SET session_id = 2 WHERE id = (SELECT max(flush_id) FROM compactions)",
    ),
    (
        "I7",
        "costs of a session are charged to another person",
        "UPDATE usage SET contact_id = 2 WHERE session_id = 1",
    ),
    ("I9", "ledger and the totals", "UPDATE session_totals SET cache_read_tokens = 5 WHERE session_id = 1"),
    ("I9", "ledger and the totals", "DELETE FROM usage WHERE id = (SELECT max(id) FROM usage)"),
    (
        "I9",
        "the ledger and a session's costs by purpose differ",
        "UPDATE session_spend SET calls = calls + 1 WHERE session_id = 1",
    ),
    (
        "I9",
        "the ledger and a session's costs by purpose differ",
        "DELETE FROM session_spend WHERE session_id = 2",
    ),
    (
        "I9",
        "the ledger and a session's costs by purpose differ",
        "UPDATE usage SET cost_micro = NULL WHERE id = (SELECT max(id) FROM usage)",
    ),
    ("I9", "has no totals", "DELETE FROM session_totals WHERE session_id = 2"),
    (
        "I9",
        "a conversation's total tokens are not the sum of all kinds of tokens",
        """DROP TRIGGER totals_add_up ON session_totals;
           UPDATE session_totals SET total_tokens = total_tokens + 1""",
    ),
    ("I9", "number of compactions", "UPDATE session_totals SET compaction_count = 0"),
    (
        "I2",
        "a draft is being shown or sent",
        """INSERT INTO secretary_drafts
             (session_id, turn_no, bot_id, owner_id, chat_id, state, is_automatic, expires_at, ended_at,
              is_hidden)
           VALUES (1, 4, 8, 1, 2, 'sending', true, now() + interval '1 hour', NULL, false)""",
    ),
    (
        "I2",
        "an answer that was not sent",
        """INSERT INTO secretary_drafts
             (session_id, turn_no, bot_id, owner_id, chat_id, state, is_automatic, expires_at, ended_at,
              is_hidden)
           VALUES (1, 4, 7, 1, 2, 'dropped', false, now() + interval '1 hour', now(), true)""",
    ),
    (
        "I10",
        "a draft is open although it has expired and its bot is served",
        f"""{SERVED}
           INSERT INTO secretary_drafts
             (session_id, turn_no, bot_id, owner_id, chat_id, state, is_automatic, expires_at, ended_at,
              is_hidden)
           VALUES (1, 4, 7, 1, 2, 'due', false, now() - interval '2 hours', NULL, false)""",
    ),
    (
        "I7",
        "a draft is for another chat than that of its conversation",
        """INSERT INTO secretary_drafts
             (session_id, turn_no, bot_id, owner_id, chat_id, state, is_automatic, expires_at, ended_at,
              is_hidden)
           VALUES (1, 4, 7, 1, 2, 'due', false, now() + interval '1 hour', NULL, false)""",
    ),
    (
        "I7",
        "a customer's message is stored in the conversation of another chat",
        """INSERT INTO secretary_messages
             (bot_id, owner_id, chat_id, message_id, session_id, turn_no, seq, is_customers, at)
           VALUES (7, 1, 2, 3, 1, 4, 1, true, now())""",
    ),
    (
        "I10",
        "an answer to a customer has no draft",
        f"""{SERVED}
           UPDATE addresses SET channel = 'telegram_business', account = '7', chat = '1:2'
            WHERE id = (SELECT address_id FROM turns WHERE (session_id, turn_no) = (1, 4));
           UPDATE turns SET ended_at = now() - interval '2 hours' WHERE (session_id, turn_no) = (1, 4);
           UPDATE deliveries SET state = 'queued' WHERE (session_id, turn_no) = (1, 4)""",
    ),
    ("I9", "channel of a session", "UPDATE sessions SET last_channel = 'telegram' WHERE id = 2"),
    ("I7", "another name than its person", "UPDATE sessions SET person = 'somebody else' WHERE id = 2"),
    ("I7", "shows another person", "UPDATE sessions SET person_name = 'Somebody Else' WHERE id = 2"),
    (
        "I11",
        "a disabled operator has a login place, or an operator has too many",
        """INSERT INTO operators (name, disabled_at) VALUES ('gone', now());
           INSERT INTO login_places (key, operator_id) SELECT sha256('x'), max(id) FROM operators""",
    ),
    ("I7", "listed under another name", "UPDATE session_list SET person = 'somebody else' WHERE id = 2"),
    (
        "I9",
        "a row of the conversation list is out of date, and no update of it waits",
        "DELETE FROM session_list_changes; UPDATE session_list SET next_turn = 99 WHERE id = 1",
    ),
    (
        "I9",
        "a row of the conversation list is out of date, and no update of it waits",
        "DELETE FROM session_list WHERE id = 2",
    ),
    (
        "I9",
        "a minute's count of conversations differs from the conversation list",
        "INSERT INTO listed_minutes VALUES (date_trunc('minute', now()), 1, 0)",
    ),
    (
        "I9",
        "a minute's count of conversations differs from the conversation list",
        "DELETE FROM listed_minutes",
    ),
    (
        "I10",
        "a session waits for an answer without an unended turn, or the reverse",
        "UPDATE turns SET state = 'answered', ended_at = now() WHERE session_id = 2",
    ),
    (
        "I9",
        "a reservation is held for work that has ended",
        "UPDATE reservations SET created_at = now() - interval '2 hours' WHERE state = 'held'",
    ),
    (
        "I9",
        "a cap that did not refuse it",
        """UPDATE turns SET refused_scope = 'total', error_code = 'too_long'
            WHERE session_id = 1 AND turn_no = 1""",
    ),
    ("I9", "held and ended", "UPDATE reservations SET ended_at = now() WHERE state = 'held'"),
    ("I9", "a day's spending is not the sum", "UPDATE spend_days SET reserved_micro = 0"),
    ("I9", "a day's spending is not the sum", "DELETE FROM spend_days"),
    ("I9", "negative", "UPDATE spend_days SET spent_micro = -1"),
    (
        "I9",
        "a reservation of tokens has another scope, or a person, slice, turn or job",
        "UPDATE reservations SET scopes = '{tokens,total}'",
    ),
    ("I9", "fewer scopes", "UPDATE reservations SET asked_scopes = 2"),
    (
        "I9",
        "not the total",
        """INSERT INTO reservations (session_id, contact_id, day, amount_micro, settled_micro, state, scopes,
                                     asked_scopes, ended_at)
           SELECT 1, contact_id, current_date, 5, 5, 'settled', ARRAY['contact:' || contact_id], 2, now()
             FROM sessions WHERE id = 1;
           INSERT INTO spend_days (scope, day, spent_micro)
           SELECT 'contact:' || contact_id, current_date, 5 FROM sessions WHERE id = 1
           ON CONFLICT (scope, day) DO UPDATE SET spent_micro = spend_days.spent_micro + 5""",
    ),
    (
        "I9",
        "an hour's counts differ from its tables",
        """INSERT INTO hourly_stats (hour, zone, calls, added_at)
           VALUES (date_trunc('hour', now() - interval '5 hours'), 'UTC', 1, now())""",
    ),
    (
        "I9",
        "an hour's number of people is wrong",
        """INSERT INTO hourly_stats (hour, zone, people, messages, added_at)
           VALUES (date_trunc('hour', now() - interval '5 hours'), 'UTC', 1, 1, now())""",
    ),
    (
        "I10",
        "an ended turn has no event that shows an answer or a notice",
        """UPDATE events SET seq = NULL, payload = '{"text": ""}'
            WHERE session_id = 1 AND turn_no = 4 AND seq = (
                  SELECT max(seq) FROM turn_entries WHERE session_id = 1 AND turn_no = 4)""",
    ),
    (
        "I10",
        "not marked as troubled",
        """UPDATE turns SET state = 'failed' WHERE session_id = 1
              AND turn_no = (SELECT answered_turn FROM sessions WHERE id = 1)""",
    ),
    (
        "I10",
        "not marked as troubled",
        "UPDATE jobs SET state = 'dead' WHERE id = (SELECT min(id) FROM jobs WHERE state = 'done')",
    ),
    (
        "I10",
        "a claimed turn has no process that answers it, and no time for a retry",
        "UPDATE turns SET state = 'claimed' WHERE state = 'open'",
    ),
    (
        "I10",
        "a turn is being answered out of order",
        "UPDATE turns SET state = 'claimed', ended_at = NULL WHERE turn_no = 4",
    ),
    (
        "I10",
        "a session is leased without a claimed turn, or by an unknown process",
        "UPDATE sessions SET leased_by = (SELECT max(id) FROM workers) WHERE id = 1",
    ),
    (
        "I10",
        "a session is leased without a claimed turn, or by an unknown process",
        "UPDATE sessions SET leased_by = 999",
    ),
    ("I10", "without a lease", "UPDATE jobs SET state = 'running', ended_at = NULL WHERE id = 1"),
    ("I10", "without an end", "UPDATE jobs SET ended_at = NULL"),
    (
        "I1",
        "an update waits",
        f"""{SERVED}
            INSERT INTO telegram_updates (bot_id, update_id, body, received_at)
            VALUES (7, 1, '{{}}', now() - interval '90 minutes')""",
    ),
    (
        "I2",
        "a part of an answer is being sent by a dead process",
        "UPDATE deliveries SET channel = 'telegram', state = 'sending' WHERE session_id = 1 AND part = 0",
    ),
    (
        "I2",
        "an answer is undelivered after a day although its bot is served",
        f"""{SERVED}
            UPDATE turns SET ended_at = now() - interval '2 days' WHERE session_id = 1 AND turn_no = 4;
            UPDATE deliveries SET channel = 'telegram', state = 'sent' WHERE turn_no = 4""",
    ),
    (
        "I3",
        "before an earlier one",
        """UPDATE deliveries SET channel = 'telegram', state = 'delivered', remote_id = turn_no;
           UPDATE deliveries SET state = 'queued' WHERE session_id = 1 AND turn_no = 4""",
    ),
    (
        "I3",
        "the numbers of an answer's parts have a gap",
        "UPDATE deliveries SET part = 2 WHERE session_id = 1 AND turn_no = 4",
    ),
    (
        "I5",
        "a person's message is hidden by a prune decision",
        "INSERT INTO prune_decisions (session_id, seq, form, turn_no) VALUES (1, 1, 'hide', 1)",
    ),
    ("I7", "leads to no session", "UPDATE addresses SET session_id = 999 WHERE session_id = 1"),
    (
        "I7",
        "a visitor token or recovery code opens an address of a signed-in person or another site",
        "UPDATE visitors SET identified = true",
    ),
    (
        "I7",
        "a person was merged into a merged person or a group, or without a link",
        "UPDATE contacts SET merged_into = 1 WHERE id = 2",
    ),
    (
        "I7",
        "linked persons are not merged",
        """INSERT INTO contact_links
             (kept_contact_id, joined_contact_id, kept_session_id, archived_session_id, day)
           VALUES (1, 2, 1, 2, current_date)""",
    ),
    ("I7", "archived without a link", "UPDATE sessions SET archived_at = now() WHERE id = 2"),
    ("I7", "archived session has an address", "UPDATE sessions SET archived_at = now() WHERE id = 1"),
    (
        "I7",
        "a session that is not archived belongs to a merged person",
        "UPDATE contacts SET merged_into = 1 WHERE id = 2",
    ),
    (
        "I1",
        "a new wording does not replace an earlier message of the same author",
        "UPDATE entries SET replaces_seq = 2 WHERE (session_id, seq) = (1, 1)",
    ),
    ("I7", "no first one", "UPDATE addresses SET thread = 'a' WHERE id = 1"),
    (
        "I1",
        "a replaced message has no later message that replaces it",
        "UPDATE turn_entries SET replaced_by = 99 WHERE (session_id, seq) = (1, 1)",
    ),
    (
        "I12",
        "the text of an erased message is still stored with its Telegram message id",
        """UPDATE entries SET blocks = erased_blocks(blocks) WHERE (session_id, seq) = (1, 1);
           INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, seq, turn_no, own_text)
           VALUES (1, 1, 1, 1, 1, 1, 'Miso')""",
    ),
    (
        "I1",
        "a new wording does not name the message that it replaces",
        "UPDATE turn_entries SET replaced_by = 2 WHERE (session_id, seq) = (1, 1)",
    ),
    (
        "I1",
        "former wording is pinned",
        """INSERT INTO pins (session_id, seq) VALUES (1, 1) ON CONFLICT DO NOTHING;
           UPDATE turn_entries SET replaced_by = 2 WHERE (session_id, seq) = (1, 1)""",
    ),
    (
        "I1",
        "whose question was replaced",
        "UPDATE turn_entries SET replaced_by = 99 WHERE (session_id, seq) = (1, 1)",
    ),
    (
        "I7",
        "a stream ticket has no person or address, or is valid for over 5 minutes",
        """INSERT INTO one_time_codes (code_hash, purpose, expires_at)
           VALUES (sha256('t'), 'stream', now() + interval '1 hour')""",
    ),
    (
        "I7",
        "an API key was used after it was revoked or had expired",
        """INSERT INTO api_keys (name, prefix, token_hash, scopes, revoked_at, last_used_at)
           VALUES ('x', 'evk_x', sha256('x'), '{memory:read}', now() - interval '1 day', now())""",
    ),
    (
        "I7",
        "an operator of an identity provider can also log in without the provider",
        """WITH o AS (INSERT INTO operators (name, issuer, subject) VALUES ('ida', 'https://id.example', '1')
                      RETURNING id)
           INSERT INTO login_links (token_hash, operator_id, expires_at)
           SELECT sha256('x'), id, now() + interval '1 hour' FROM o""",
    ),
    (
        "I7",
        "a disabled operator is logged in",
        """WITH o AS (INSERT INTO operators (name, disabled_at) VALUES ('ida', now()) RETURNING id)
           INSERT INTO operator_sessions (token_hash, operator_id, expires_at, how, source, browser)
           SELECT sha256('x'), id, now() + interval '1 hour', 'link', 'a', '' FROM o""",
    ),
    (
        "I7",
        "a disabled operator has a push subscription",
        """WITH o AS (INSERT INTO operators (name, disabled_at) VALUES ('ida', now()) RETURNING id)
           INSERT INTO push_subscriptions (endpoint, p256dh, auth, operator_id, login_hash)
           SELECT 'https://push.example', 'x', 'x', id, 'x' FROM o""",
    ),
    (
        "I11",
        "a person or operator has too many push subscriptions",
        """WITH o AS (INSERT INTO operators (name) VALUES ('ida') RETURNING id)
           INSERT INTO push_subscriptions (endpoint, p256dh, auth, operator_id, login_hash)
           SELECT 'https://push.example/' || n, 'x', 'x', id, 'x' FROM o, generate_series(1, 11) AS n""",
    ),
    (
        "I7",
        "an operator of an identity provider has a second factor, or one is used unconfirmed",
        """WITH o AS (INSERT INTO operators (name) VALUES ('ida') RETURNING id)
           INSERT INTO operator_factors (operator_id, key_id, sealed, last_step)
           SELECT id, 'k', 'x', 7 FROM o""",
    ),
    (
        "I7",
        "an open turn collects messages of two addresses",
        "UPDATE sessions SET open_address = 1 WHERE id = 2",
    ),
    (
        "I7",
        "a note is superseded because of a link that has ended",
        """WITH n AS (INSERT INTO notes (contact_id, scope, kind, text, hash)
                      VALUES (2, 'default', 'fact', 'x', '') RETURNING id)
           UPDATE notes SET superseded_by = n.id, contact_link_id = 1 FROM n""",
    ),
]


async def test_a_conversation_with_everything_in_it_keeps_every_promise(
    copied: asyncpg.Connection[asyncpg.Record],
) -> None:
    assert await copied.fetchval("SELECT count(*) FROM compactions WHERE active") == 2
    assert await copied.fetchval("SELECT count(*) FROM compactions WHERE NOT active") == 1
    assert await copied.fetchval("SELECT count(*) FROM turn_steps") == 1
    assert await check_invariants(copied) == []


@pytest.mark.control("S08")
@pytest.mark.parametrize(("code", "words", "statement"), BROKEN, ids=[f"{c}-{w}" for c, w, _ in BROKEN])
async def test_each_broken_promise_is_found(
    copied: asyncpg.Connection[asyncpg.Record], code: str, words: str, statement: str
) -> None:
    await copied.execute(WITHOUT_GUARDS)
    await copied.execute(statement)
    found = await check_invariants(copied)
    assert any(violation.code == code and words in violation.what for violation in found), found


async def test_a_fresh_database_breaks_nothing(database_url: str) -> None:
    fresh = await asyncpg.connect(database_url, timeout=60)
    try:
        assert await check_invariants(fresh) == []
        assert await check_activity(fresh) == []
    finally:
        await fresh.close(timeout=30)


async def test_a_violation_reads_as_a_sentence(copied: asyncpg.Connection[asyncpg.Record]) -> None:
    await copied.execute("UPDATE sessions SET next_seq = next_seq + 1 WHERE id = 2")
    found = await check_invariants(copied)
    assert [str(violation) for violation in found] == [
        "I3: the numbers of the log have a gap (session 2, next_seq 5, entries 3)"
    ]


async def test_a_flood_of_broken_rows_is_reported_in_few_lines(
    copied: asyncpg.Connection[asyncpg.Record],
) -> None:
    await copied.execute("UPDATE turns SET address_id = 2 WHERE session_id = 1")
    await copied.execute(
        """INSERT INTO turns (session_id, turn_no, channel, address_id)
           SELECT 1, 100 + n, 'web', 2 FROM generate_series(1, 100) n"""
    )
    found = [
        v for v in await check_invariants(copied) if v.what == "a turn came from an address of another person"
    ]
    assert len(found) == 20


async def test_an_open_transaction_is_noticed(
    copied: asyncpg.Connection[asyncpg.Record], database_server: DatabaseServer
) -> None:
    name = await copied.fetchval("SELECT current_database()")
    idler = await asyncpg.connect(database_server.url(name), timeout=60)
    try:
        await idler.execute("BEGIN")
        await idler.execute("SELECT 1")
        await copied.execute("SELECT pg_sleep(1.1)")
        found = await check_activity(copied)
    finally:
        await idler.close(timeout=30)
    assert [violation.code for violation in found] == ["I8"]
    assert isinstance(found[0], Violation)
    assert "idle in transaction" in str(found[0])


async def test_the_projected_request_of_the_whole_log_has_its_tool_pairs(
    seeded_database: str, database_server: DatabaseServer
) -> None:
    name = await database_server.create(template=seeded_database)
    async with running_app(settings_for(database_server.url(name), "unix:///nowhere")) as app:
        whole = await app.stores.turns.load(1, base_turn=0, through_turn=100)
    await database_server.drop(name)
    messages = (*(entry.message for entry in whole), text_message("user", "And now?"))
    assert sum(len(tool_uses(message.blocks)) for message in messages) == 1
    assert repair(messages) == messages
