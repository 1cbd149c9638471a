"""Inserts rows of long conversations directly into Postgres."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from shared.adapters.postgres.turns.spend_sql import RECORD_CALLS
from tests.kit.dashboard.listing import UPDATE_ALL

ADD_UP = "INSERT INTO session_spend" + RECORD_CALLS.text.partition("INSERT INTO session_spend")[2]
"""End of a statement that adds the ledger rows of its part `u` to what their conversations spent."""
FOLD_AT = 88_000
FOLDED = 21_000
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    session_id: int
    public_id: UUID
    contact_id: int
    address_id: int


async def an_agent(connection: Connection) -> int:
    agent: int = await connection.fetchval(
        """INSERT INTO agents (name) VALUES ('default')
           ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id"""
    )
    return agent


async def a_session(
    connection: Connection,
    *,
    person: str = "",
    channel: str = "web",
    turns: int = 3,
    context: int = 0,
    limit: int = 0,
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0),
    cost_micro: int = 0,
    cost_unknown_calls: int = 0,
    compactions: int = 0,
    minutes_ago: float = 0,
) -> Seeded:
    """Insert a session in which every turn is answered.

    `tokens` are input, output, cache reads and cache writes of its calls.
    """
    contact = await connection.fetchval(
        "INSERT INTO contacts (display_name, anonymous) VALUES ($1, $2) RETURNING id", person, not person
    )
    row = await connection.fetchrow(
        """INSERT INTO sessions (contact_id, agent_id, next_turn, answered_turn, next_seq, context_tokens,
                                 context_limit, created_at, last_active_at, last_channel)
           VALUES ($1, $2, $3::bigint + 1, $3::bigint, $3::bigint * 2 + 1, $4, $5,
             now() - make_interval(days => 18),
                   now() - make_interval(secs => $6 * 60.0), $7)
           RETURNING id, public_id""",
        contact,
        await an_agent(connection),
        turns,
        context,
        limit,
        minutes_ago,
        channel if turns else "",
    )
    assert row is not None
    address = await connection.fetchval(
        """INSERT INTO addresses (channel, account, chat, contact_id, session_id)
           VALUES ($1, 'account', $2, $3, $4) RETURNING id""",
        channel,
        str(row["id"]),
        contact,
        row["id"],
    )
    await connection.execute(
        """INSERT INTO session_totals (session_id, input_tokens, output_tokens, cache_read_tokens,
                                       cache_write_tokens, cost_micro, cost_unknown_calls, compaction_count)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8)""",
        row["id"],
        *tokens,
        cost_micro,
        cost_unknown_calls,
        compactions,
    )
    await connection.execute(
        """INSERT INTO turns (session_id, turn_no, state, channel, address_id, opened_at, ended_at)
           SELECT $1, n, 'answered', $2, $3, now() - make_interval(mins => $4 - n, secs => 30),
                  now() - make_interval(mins => $4 - n)
             FROM generate_series(1, $4) n""",
        row["id"],
        channel,
        address,
        turns,
    )
    await listed(connection)
    return Seeded(session_id=row["id"], public_id=row["public_id"], contact_id=contact, address_id=address)


async def listed(connection: Connection) -> None:
    """Bring the list of sessions up to date, as the worker does within seconds."""
    await connection.execute(UPDATE_ALL)


async def talk(connection: Connection, seeded: Seeded, *, turns: int, answer: str = "") -> None:
    """Insert a question and an answer for each turn, one of them hostile.

    `answer` is the text of all answers.
    """
    for author, role, offset in (("person", "user", -1), ("assistant", "assistant", 0)):
        await connection.execute(
            """INSERT INTO entries (session_id, seq, role, author, blocks, tokens, at)
               SELECT $1, n * 2 + $4, $3, $2::text,
                      jsonb_build_array(jsonb_build_object('type', 'text', 'text',
                        CASE WHEN $7 <> '' THEN $7 WHEN n = 2 THEN $6
                             ELSE $2::text || ' says something in turn ' || n END)), 20,
                      now() - make_interval(mins => $5 - n)
                 FROM generate_series(1, $5) n""",
            seeded.session_id,
            author,
            role,
            offset,
            turns,
            HOSTILE,
            answer if author == "assistant" else "",
        )
    await connection.execute(
        """INSERT INTO turn_entries (session_id, seq, turn_no, step)
           SELECT session_id, seq, (seq + 1) / 2, seq FROM entries WHERE session_id = $1""",
        seeded.session_id,
    )


async def audits(
    connection: Connection, seeded: Seeded, *, turns: int, limit: int, growth: int = 900
) -> list[int]:
    """Insert a model call for each turn, with a growing context.

    Return the turns after which it was summarised.
    """
    context, rows = 9_000, []
    folds: list[int] = []
    for turn in range(1, turns + 1):
        context += growth
        summary = 4_200 if folds else 0
        parts = {"system": 5_000, "memory": 1_200, "summary": summary, "tools": 3_000}
        parts["history"] = max(0, round(context * 0.9) - sum(parts.values()))
        rows.append((seeded.session_id, turn, limit, context, json.dumps(parts), turns - turn))
        if context > FOLD_AT:
            folds.append(turn)
            context = FOLDED
    await connection.executemany(
        """INSERT INTO turn_context_audit (session_id, turn_id, model_alias, model_context_limit,
          input_budget,
              hard_limit, estimated_input_tokens_before, estimated_input_tokens_after_summary,
              estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, parts, created_at)
           VALUES ($1, $2, 'claude-sonnet', 200000, $3::bigint, $3::bigint + 10000, $4::bigint, $4, $4,
             $4 - 100, $4, $5::text::jsonb,
                   now() - make_interval(mins => $6::int))""",
        rows,
    )
    await connection.execute(
        "UPDATE sessions SET context_tokens = $2 WHERE id = $1", seeded.session_id, rows[-1][3]
    )
    return folds


async def summaries(connection: Connection, seeded: Seeded, *, folds: list[int], turns: int) -> list[UUID]:
    """Insert a chain of active summaries, each after a flush with one note.

    Return their ids, the newest last.
    """
    links: list[UUID] = []
    parent, start = None, 1
    for place, turn in enumerate(folds):
        flush = await connection.fetchval(
            """INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, outcome,
              note_count,
                                    model, tokens, cost_micro, ended_at)
               VALUES ($1, $2, 'limit', $3, $4, 'running', 1, 'claude-sonnet', 900, 2100,
                 now()) RETURNING id""",
            seeded.session_id,
            place,
            start,
            turn - 4,
        )
        await connection.execute(
            """INSERT INTO notes (contact_id, scope, kind, text, session_id, from_turn, through_turn,
              flush_id, hash)
               VALUES ($1, 'default', 'preference', $2, $3, $4, $5, $6, $7)""",
            seeded.contact_id,
            f"Prefers aisle seats ({place})",
            seeded.session_id,
            start,
            turn - 4,
            flush,
            hashlib.sha256(f"{seeded.contact_id}/{place}".encode()).digest(),
        )
        await connection.execute("UPDATE flushes SET outcome = 'saved' WHERE id = $1", flush)
        row = await connection.fetchrow(
            """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq,
              parent, trigger,
                   summary_text, audit, tokens, tokens_before, tokens_after, model, cost_micro,
                     duration_ms, flush_id,
                   created_at)
               VALUES ($1, 'summary', $2::bigint, $3::bigint, $2::bigint * 2 - 1, $3::bigint * 2, $4,
                 'auto', $5,
                       '{"kept_identifiers": 0.98, "dropped": 1, "language": "en"}', 4200, $6, $7,
                       'claude-haiku', 41000, 8200, $8, now() - make_interval(secs => $9 * 60.0 - 20))
               RETURNING id, public_id""",
            seeded.session_id,
            start,
            turn - 4,
            parent,
            f"They plan a trip to Lisbon.\n\nOpen: which hotel? ({place})",
            FOLD_AT + 900,
            FOLDED,
            flush,
            turns - turn,
        )
        assert row is not None
        parent, start = row["id"], turn - 3
        links.append(row["public_id"])
    await connection.execute(
        """UPDATE sessions SET head = $2, base_turn = $3::bigint - 1, flushed_turn = $3::bigint - 1,
          cycle = $4 WHERE id = $1""",
        seeded.session_id,
        parent,
        start,
        len(folds),
    )
    return links


async def spend(connection: Connection, seeded: Seeded) -> None:
    """Insert calls for three purposes, one of them with an unknown price."""
    await connection.executemany(
        """INSERT INTO usage (session_id, contact_id, turn_no, purpose, model, input_tokens, output_tokens,
                              cache_read_tokens, cache_write_tokens, cost_micro)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)""",
        [
            (
                seeded.session_id,
                seeded.contact_id,
                1,
                "chat",
                "claude-sonnet",
                1200,
                300,
                40_000,
                900,
                31_000,
            ),
            (seeded.session_id, seeded.contact_id, 2, "chat", "claude-sonnet", 900, 250, 41_000, 700, 29_500),
            (
                seeded.session_id,
                seeded.contact_id,
                None,
                "flush",
                "claude-sonnet",
                300,
                90,
                42_000,
                0,
                14_200,
            ),
            (
                seeded.session_id,
                seeded.contact_id,
                None,
                "compact",
                "claude-haiku",
                60_000,
                700,
                0,
                0,
                41_000,
            ),
            (seeded.session_id, seeded.contact_id, 3, "chat", "local", 500, 60, 0, 0, None),
        ],
    )


async def jobs(connection: Connection, seeded: Seeded) -> None:
    await connection.execute(
        """INSERT INTO jobs (kind, session_id, key, state, trigger, attempt, last_error, started_at, ended_at)
           VALUES ('compact', $1, 'c1', 'done', 'auto', 1, '', now() - interval '9 s', now()),
                  ('compact', $1, 'c2', 'dead', 'auto', 3, 'The summary was empty.',
                    now() - interval '1 min', now()),
                  ('flush', $1, 'f1', 'running', 'auto', 1, '', now() - interval '3 s', NULL),
                  ('compact', $1, 'c3', 'due', 'manual', 0, '', NULL, NULL)""",
        seeded.session_id,
    )
    await connection.execute(
        """INSERT INTO workers (role, pid, beat) VALUES ('web', 101, now()), ('worker', 102, now()),
                  ('worker', 99, now() - interval '5 min')"""
    )


async def written_along(connection: Connection) -> None:
    """Write what turns and jobs would write themselves, for rows that were inserted by hand."""
    await connection.execute("TRUNCATE session_spend")
    await connection.execute(f"WITH u AS (SELECT * FROM usage) {ADD_UP}")
    await connection.execute(
        """UPDATE sessions s SET troubled_at = now()
            WHERE EXISTS (SELECT FROM jobs j WHERE j.session_id = s.id AND j.state = 'dead')
               OR EXISTS (SELECT FROM turns t WHERE t.session_id = s.id AND t.turn_no = s.answered_turn
                             AND t.state = 'failed')"""
    )
    await connection.execute(
        """INSERT INTO turns (session_id, turn_no, channel, address_id)
           SELECT s.id, n, s.last_channel, (SELECT min(id) FROM addresses)
             FROM sessions s CROSS JOIN generate_series(s.answered_turn + 1, s.next_turn - 1) n
           ON CONFLICT DO NOTHING"""
    )
    await listed(connection)


async def a_long_session(
    connection: Connection, *, turns: int = 412, person: str = "Maria", limit: int = 100_000
) -> tuple[Seeded, list[UUID]]:
    """Insert the session that the pictures show: summarised several times, with memory, costs and a failed
    job.
    """
    async with connection.transaction():  # in one transaction, so that all rows have the same time
        seeded = await a_session(
            connection,
            person=person,
            channel="telegram",
            turns=turns,
            limit=limit,
            tokens=(610_000, 230_000, 8_700_000, 400_000),
            cost_micro=14_620_000,
        )
        await talk(connection, seeded, turns=turns)
        folds = await audits(connection, seeded, turns=turns, limit=limit)
        links = await summaries(connection, seeded, folds=folds, turns=turns)
        await connection.execute(
            "UPDATE session_totals SET compaction_count = $2 WHERE session_id = $1",
            seeded.session_id,
            len(links),
        )
        await spend(connection, seeded)
        await jobs(connection, seeded)
        await written_along(connection)
    return seeded, links
