"""Fills a database with very many conversations, and with one that is very long, by a few statements."""

from __future__ import annotations

import logging
import time
from typing import TypeAlias
from uuid import UUID

import asyncpg

from tests.kit.dashboard.listing import LIST_ALL
from tests.kit.dashboard.seed import ADD_UP

_log = logging.getLogger(__name__)
Pool = asyncpg.Pool
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
SECONDS = 1800
ENTRIES_EACH = 4
FOLDED = 8
"""Turns behind each summary of the long one."""
TABLES = (
    "agents, contacts, sessions, session_totals, session_list, session_spend, addresses, turns, entry_rows, "
    "turn_entries, usage, jobs, compactions, flushes, notes, audit, audit_rows"
)

_QUICKLY = """SET LOCAL statement_timeout = 0; SET LOCAL synchronous_commit = off;
              SET LOCAL session_replication_role = replica; SET LOCAL work_mem = '256MB';
              SET LOCAL enable_nestloop = off"""
_REST_INDEXES = """
UPDATE pg_index i SET indisready = false, indisvalid = false FROM pg_class t
 WHERE t.oid = i.indrelid AND t.relkind = 'r' AND NOT i.indisprimary AND t.relname <> 'agents'
   AND (t.relname = ANY ($1) OR EXISTS (SELECT FROM pg_inherits h
        WHERE h.inhrelid = t.oid AND h.inhparent::regclass::text = ANY ($1)))
RETURNING i.indexrelid::regclass::text
"""
"""Only keys are kept up while rows are written; the others are built at the end, each from all of them."""

_AGENTS = "INSERT INTO agents (name) SELECT 'agent ' || n FROM generate_series(1, 5) n ON CONFLICT DO NOTHING"
_CONTACTS = """
INSERT INTO contacts (display_name, anonymous)
SELECT CASE WHEN n % 5 = 0 THEN ''
            ELSE (ARRAY['Maria', 'Jonas', 'Aylin', 'Noah', 'Олена', 'Chidi', '美咲', 'Zoë'])[1 + n % 8] || ' '
                 || (ARRAY['Silva', 'Weber', 'Yilmaz', 'Novak', 'Okafor', 'Rossi', 'Dubois'])[1 + n / 8 % 7]
                 || ' ' || to_hex(n * 2654435761 % 4294967296) END, n % 5 = 0
  FROM generate_series(1, $1::bigint) n
"""
_SESSIONS = """
INSERT INTO sessions (contact_id, agent_id, next_turn, answered_turn, next_seq, context_tokens, context_limit,
                      troubled_at, last_channel, person, person_name, person_kind, person_anonymous,
                      created_at, last_active_at)
SELECT p.n, 1 + p.n * 7 % (SELECT count(*) FROM agents), 3 + (p.n % 5000 = 0)::int, 2, 5,
       p.n * 7919 % 199999,
       CASE WHEN p.n % 11 > 0 THEN 200000 ELSE 0 END,
       CASE WHEN p.n % 25 = 0 OR p.n % 40 = 0 THEN now() END, (ARRAY['web', 'telegram', 'web'])[1 + p.n % 3],
       lower(x.display_name), x.display_name, x.kind, x.anonymous,
       now() - interval '90 days', now() - p.n * 6151 % 7776000 * interval '1 s'
  FROM generate_series(1, $1::bigint) p(n) JOIN contacts x ON x.id = p.n ORDER BY p.n
"""
_ADDRESSES = """
INSERT INTO addresses (channel, account, chat, contact_id, session_id)
SELECT last_channel, CASE WHEN last_channel = 'web' THEN 'default' ELSE '77' END, 'c' || id, contact_id, id
  FROM sessions
"""
_TOTALS = """
INSERT INTO session_totals (session_id, total_tokens, input_tokens, output_tokens, cache_read_tokens,
                            cache_write_tokens, cost_micro, cost_unknown_calls, compaction_count)
SELECT n, n * 31 % 90000 + n * 17 % 30000 + n * 53 % 900000 + n * 13 % 9000,
       n * 31 % 90000, n * 17 % 30000, n * 53 % 900000, n * 13 % 9000,
       CASE WHEN n % 50 = 0 THEN 0 ELSE n * 97 % 9000000 END, (n % 50 = 0)::int, n % 7
  FROM generate_series(1, $1::bigint) n
"""
_TURNS = """
INSERT INTO turns (session_id, turn_no, state, channel, address_id, opened_at, claimed_at, ended_at)
SELECT s.id, t, CASE WHEN s.id % 25 = 0 THEN 'failed' ELSE 'answered' END, s.last_channel, a.id,
       s.last_active_at - interval '9 s', s.last_active_at - interval '8 s', s.last_active_at
  FROM sessions s JOIN addresses a ON a.session_id = s.id CROSS JOIN generate_series(1, 2) t
 ORDER BY s.last_active_at, s.id, t
"""
"""In the order of time, as turns write them: an index of ranges of blocks finds an hour only so."""
_WAITING = """
INSERT INTO turns (session_id, turn_no, channel, address_id, opened_at)
SELECT s.id, 3, s.last_channel, a.id, s.last_active_at
  FROM sessions s JOIN addresses a ON a.session_id = s.id WHERE s.next_turn = 4
"""
# Into the table itself: no trigger of the view of the log is heard while rows are poured in.
_ENTRIES = f"""
INSERT INTO entry_rows (session_id, seq, author, words, tokens, at)
SELECT s.id, q, CASE WHEN q % 2 = 1 THEN 'person' ELSE 'assistant' END, 'What shall we eat today?', 8,
       s.last_active_at
  FROM sessions s CROSS JOIN generate_series(1, {ENTRIES_EACH}) q
 ORDER BY s.last_active_at, s.id, q
"""
_ORDER = """
INSERT INTO turn_entries (session_id, seq, turn_no, step)
SELECT session_id, seq, (seq + 1) / 2, 2 - seq % 2 FROM entry_rows ORDER BY at, session_id, seq
"""
_USAGE = """
INSERT INTO usage (at, session_id, contact_id, turn_no, purpose, model, input_tokens, output_tokens,
                   cache_read_tokens, cache_write_tokens, cost_micro)
SELECT s.last_active_at, s.id, s.contact_id, t, 'chat', 'claude-sonnet-5-5', 900, 120, 9000, 500, 4400
  FROM sessions s CROSS JOIN generate_series(1, 2) t
 ORDER BY s.last_active_at, s.id, t
"""
_JOBS = """
INSERT INTO jobs (kind, session_id, key, state, created_at, ended_at)
SELECT 'compact', id, 'k' || id, CASE WHEN id % 40 = 0 THEN 'dead' ELSE 'done' END, last_active_at,
       last_active_at
  FROM sessions WHERE id % 10 = 0 ORDER BY last_active_at, id
"""
_AUDITS = """
INSERT INTO audit_rows (session_id, turn_id, created_at, model_alias, model_context_limit, input_budget,
    hard_limit, estimated_input_tokens_before, estimated_input_tokens_after_summary,
    estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, parts)
SELECT session_id, turn_no, ended_at, 'claude-sonnet-5-5', 200000, 180000, 190000, 900, 900, 900, 880, 900,
       '{"system": 500, "memory": 100, "summary": 0, "tools": 100, "history": 200}'
  FROM turns WHERE turn_no = 2 ORDER BY ended_at, session_id
"""
_NOTES = """
INSERT INTO notes (contact_id, scope, kind, text, session_id, hash)
SELECT n, 'default', 'fact', 'Likes ' || (ARRAY['tea', 'coffee', 'water', 'cocoa'])[1 + n % 4]
       || ' with number ' || to_hex(n * 2654435761 % 4294967296) || ' on the card, and wants an answer.', n,
       sha256(n::text::bytea)
  FROM generate_series(1, $1::bigint) n
"""
_LISTED = (
    "INSERT INTO unindexed_notes SELECT id FROM notes",
    "INSERT INTO due_tidyings SELECT contact_id, created_at, true FROM notes",
)
"""What the triggers of notes list; no trigger is heard while rows are poured in."""
_MINUTES = """
INSERT INTO listed_minutes
SELECT date_trunc('minute', last_active_at), count(*),
       count(*) FILTER (WHERE context_limit > 0 AND context_tokens * 100.0 / nullif(context_limit, 0) >= 90),
       true
  FROM session_list WHERE last_active_at > now() - interval '25 hours' GROUP BY 1
"""
QUEUES = "listed_minutes, unindexed_notes, due_tidyings, left_sessions, session_list_changes, hour_turns"
_SPEND = f"WITH u AS (SELECT * FROM usage ORDER BY session_id) {ADD_UP}"
_LONG = (
    """UPDATE sessions SET next_turn = $2::bigint + 1, answered_turn = $2, next_seq = 2 * $2::bigint + 1
        WHERE id = $1""",
    """INSERT INTO turns (session_id, turn_no, state, channel, address_id, opened_at, claimed_at, ended_at)
       SELECT $1, n, 'answered', 'web', (SELECT min(id) FROM addresses WHERE session_id = $1),
              now() - interval '9 s', now() - interval '8 s', now() FROM generate_series(3, $2::bigint) n""",
    """INSERT INTO entry_rows (session_id, seq, author, words, tokens)
       SELECT $1, n, CASE WHEN n % 2 = 1 THEN 'person' ELSE 'assistant' END, 'Message ' || n, 8
         FROM generate_series(5, 2 * $2::bigint) n""",
    """INSERT INTO turn_entries (session_id, seq, turn_no, step)
       SELECT $1, n, (n + 1) / 2, 2 - n % 2 FROM generate_series(5, 2 * $2::bigint) n""",
    """INSERT INTO usage (session_id, contact_id, turn_no, purpose, model, input_tokens, output_tokens,
                          cache_read_tokens, cache_write_tokens, cost_micro)
       SELECT $1, $1, n, 'chat', 'claude-sonnet-5-5', 900, 120, 9000, 500, 4400
         FROM generate_series(3, $2::bigint) n""",
    """INSERT INTO audit_rows (session_id, turn_id, model_alias, model_context_limit, input_budget,
              hard_limit, estimated_input_tokens_before, estimated_input_tokens_after_summary,
              estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, parts)
       SELECT $1, n, 'claude-sonnet-5-5', 200000, 180000, 190000, 900, 900, 900, 880, n * 7919 % 180000,
              '{"system": 500, "memory": 100, "summary": 0, "tools": 100, "history": 200}'
         FROM generate_series(3, $2::bigint) n""",
    f"""INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, outcome, ended_at)
        SELECT $1, n, 'limit', n - {FOLDED - 1}, n, 'nothing', now()
          FROM generate_series({FOLDED}, $2::bigint - 1, {FOLDED}) n""",
    f"""INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger,
                          summary_text, tokens, tokens_before, tokens_after, model, cost_micro, duration_ms)
        SELECT $1, 'summary', n - {FOLDED - 1}, n, 2 * n - {2 * FOLDED - 1}, 2 * n, 'auto',
               repeat('They spoke of meals and of the weather. ', 20), 400, 90000, 9000, 'claude-haiku', 900,
               7000
          FROM generate_series({FOLDED}, $2::bigint - 1, {FOLDED}) n""",
    f"""INSERT INTO jobs (kind, session_id, key, state, created_at, ended_at)
        SELECT 'compact', $1, 'long' || n, 'done', now(), now()
          FROM generate_series({FOLDED}, $2::bigint - 1, {FOLDED}) n""",
    f"""UPDATE sessions s SET head = (SELECT max(id) FROM compactions WHERE session_id = s.id),
              base_turn = ($2::bigint - 1) / {FOLDED} * {FOLDED},
              flushed_turn = ($2::bigint - 1) / {FOLDED} * {FOLDED}
        WHERE id = $1""",
    """UPDATE session_totals SET compaction_count = (SELECT count(*) FROM compactions WHERE session_id = $1)
        WHERE session_id = $1 AND $2 > 0""",
    f"""WITH u AS (SELECT * FROM usage WHERE session_id = $1 AND turn_no > 2 AND $2 > 0) {ADD_UP}""",
)


async def seed(pool: Pool, *, sessions: int, longest: int, entries: int, days: int = 90) -> None:
    """Write conversations of two turns each over some days, some of which fail, wait or have a failed job.

    One of them, `longest`, has a log of `entries` messages.
    """
    placed = _SESSIONS.replace("7776000", str(days * 86_400))
    async with pool.acquire() as connection:
        indexes = await connection.fetch(_REST_INDEXES, TABLES.split(", "))
        await _run(
            connection,
            _AGENTS, _CONTACTS, placed, _ADDRESSES, _TOTALS, _TURNS, _WAITING, _ENTRIES, _ORDER, _USAGE,
            _SPEND, _JOBS, _AUDITS, _NOTES, *_LISTED, given=(sessions,),
        )  # fmt: skip
        await _run(connection, *_LONG, LIST_ALL, _MINUTES, given=(longest, entries // 2))
        for table in ("entry_rows", "turn_entries", "turns", "usage"):
            assert await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})"), f"{table} is empty"
        await _build(connection, [name for (name,) in indexes])
    await settle(pool)


async def _run(connection: Connection, *statements: str, given: tuple[int, ...]) -> None:
    async with connection.transaction():
        await connection.execute(_QUICKLY)
        for statement in statements:
            await _timed(connection, statement, *given[: 2 if "$2" in statement else int("$1" in statement)])


async def _build(connection: Connection, indexes: list[str]) -> None:
    await connection.execute("SET statement_timeout = 0; SET maintenance_work_mem = '512MB'")
    for name in indexes:
        await _timed(connection, f"REINDEX INDEX {name}")
    await connection.execute("SET statement_timeout = 9000; RESET maintenance_work_mem")


async def _timed(connection: Connection, statement: str, *given: int) -> None:
    began = time.monotonic()
    await connection.execute(statement, *given, timeout=SECONDS)
    _log.info("%6.1f s  %s", time.monotonic() - began, " ".join(statement.split())[:70])


async def settle(pool: Pool) -> None:
    """As a database is that has been running for a while."""
    async with pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await _timed(connection, f"VACUUM (ANALYZE) {TABLES}, {QUEUES}")
        await connection.execute("SET statement_timeout = 9000")


async def public_id(pool: Pool, session_id: int) -> UUID:
    found: UUID = await pool.fetchval("SELECT public_id FROM sessions WHERE id = $1", session_id)
    return found
