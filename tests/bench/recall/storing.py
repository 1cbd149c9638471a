"""Puts a conversation into Postgres as if it had been talked and hidden, and makes it searchable."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg

from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.core.values.messages import Text, block_to_json
from tests.bench.recall.data import Conversation

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

ROWS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    session_id: int
    contact_id: int
    agent: str
    last_turn: int
    seqs: Mapping[str, int]
    turns: Mapping[str, int]


async def store(pool: Pool, talk: Conversation) -> Stored:
    """All of it hidden, nothing searchable yet; the person and the assistant are called as in the talk."""
    agent = await pool.fetchrow(
        "INSERT INTO agents (name, config) VALUES ($1, $2) RETURNING id, name",
        f"of-{talk.name}", {"name": talk.assistant},
    )  # fmt: skip
    assert agent is not None
    contact = await pool.fetchval("INSERT INTO contacts (display_name) VALUES ($1) RETURNING id", talk.person)
    session = await pool.fetchval(
        "INSERT INTO sessions (contact_id, agent_id) VALUES ($1, $2) RETURNING id", contact, agent["id"]
    )
    address = await pool.fetchval(
        """INSERT INTO addresses (channel, account, chat, contact_id, session_id)
           VALUES ('web', 'bench', $1, $2, $3) RETURNING id""",
        talk.name, contact, session,
    )  # fmt: skip
    turns = _turns(talk)
    await _write(pool, talk, session, address, turns)
    last = max(turns.values())
    await pool.execute(
        """UPDATE sessions SET next_seq = $2, next_turn = $3 + 1, answered_turn = $3, base_turn = $3
            WHERE id = $1""",
        session, len(talk.said) + 1, last,
    )  # fmt: skip
    seqs = {message.id: seq for seq, message in enumerate(talk.said, start=1)}
    return Stored(
        session_id=session, contact_id=contact, agent=agent["name"], last_turn=last, seqs=seqs, turns=turns
    )


async def make_searchable(pool: Pool, session_id: int) -> None:
    index = PostgresRecallIndex(pool)
    while await index.index_session(session_id):
        pass
    while await index.index_notes():
        pass


async def note_facts(pool: Pool, talk: Conversation, stored: Stored) -> None:
    """What somebody observed, as notes that name the turns they were made from."""
    rows = [
        {
            "text": fact.text,
            "hash": hashlib.sha256(fact.text.encode()).hexdigest(),
            "first": min(stored.turns[place] for place in fact.evidence),
            "last": max(stored.turns[place] for place in fact.evidence),
        }
        for fact in talk.facts
        if fact.evidence
    ]
    await pool.execute(
        """INSERT INTO notes (contact_id, scope, kind, text, hash, session_id, from_turn, through_turn)
           SELECT $1, $2, 'fact', x.text, decode(x.hash, 'hex'), $3, x.first, x.last
             FROM jsonb_to_recordset($4::jsonb) AS x(text text, hash text, first bigint, last bigint)
           ON CONFLICT DO NOTHING""",
        stored.contact_id, stored.agent, stored.session_id, rows,
    )  # fmt: skip


def _turns(talk: Conversation) -> dict[str, int]:
    """A turn begins where the person speaks after the assistant."""
    turns: dict[str, int] = {}
    turn, answered = 1, False
    for message in talk.said:
        if message.by_person and answered:
            turn, answered = turn + 1, False
        answered = answered or not message.by_person
        turns[message.id] = turn
    return turns


async def _write(
    pool: Pool, talk: Conversation, session: int, address: int, turns: Mapping[str, int]
) -> None:
    rows = [
        {
            "seq": seq,
            "turn": turns[message.id],
            "role": "user" if message.by_person else "assistant",
            "author": "person" if message.by_person else "assistant",
            "blocks": [block_to_json(Text(text=message.text))],
            "tokens": len(message.text) // 4,
            "at": message.at.isoformat(),
        }
        for seq, message in enumerate(talk.said, start=1)
    ]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        await pool.execute(_WRITE, session, address, rows[start : start + ROWS_AT_ONCE], timeout=60)


_WRITE = """
WITH x AS (
  SELECT * FROM jsonb_to_recordset($3::jsonb) AS x(seq bigint, turn bigint, role text, author text,
                                                   blocks jsonb, tokens int, at timestamptz)
), t AS (
  INSERT INTO turns (session_id, turn_no, state, channel, address_id, opened_at, ended_at)
  SELECT $1, turn, 'answered', 'web', $2, min(at), max(at) FROM x GROUP BY turn ON CONFLICT DO NOTHING
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, at)
  SELECT $1, seq, role, author, blocks, tokens, at FROM x
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, turn, seq FROM x
"""
