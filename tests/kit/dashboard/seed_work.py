"""Inserts jobs in every state, and deliveries with every kind of doubt."""

from __future__ import annotations

import asyncpg

from tests.kit.dashboard import seed


async def jobs(pool: asyncpg.Pool[asyncpg.Record], *, dead: int = 3) -> seed.Seeded:
    """Insert `dead` failed jobs with separate keys, one that waits after an error, one due, one running, one
    done.
    """
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, person="Maria", turns=4)
        await connection.execute(
            "INSERT INTO workers (role, pid, beat) VALUES ('worker', 102, now() + interval '1 min')"
        )
        await connection.execute(
            """INSERT INTO jobs (kind, session_id, key, state, attempt, faults, last_error,
                                 started_at, ended_at)
               SELECT 'compact', $1, 'dead:' || n, 'dead', 3, 3, 'The summary was empty.',
                      now() - interval '1 min', now() FROM generate_series(1, $2::int) n""",
            seeded.session_id, dead,
        )  # fmt: skip
        await connection.execute(
            """INSERT INTO jobs (kind, session_id, key, state, attempt, last_error, due_at, started_at,
                                 ended_at, leased_by, trigger)
               VALUES ('compact', $1, 'later', 'due', 1, 'Busy.', now() + interval '1 hour', now(),
                       NULL, NULL, 'limit'),
                      ('flush', $1, 'due', 'due', 0, '', now() - interval '5 min', NULL, NULL, NULL, 'soft'),
                      ('flush', $1, 'late', 'due', 0, '', now(), NULL, NULL, NULL, 'late'),
                      ('tidy', $1, 'runs', 'running', 1, '', now(), now(), NULL,
                       (SELECT max(id) FROM workers), 'daily'),
                      ('compact', $1, 'done', 'done', 1, '', now(), now() - interval '9 s', now(),
                       NULL, 'limit')""",
            seeded.session_id,
        )
    return seeded


async def doubts(pool: asyncpg.Pool[asyncpg.Record]) -> seed.Seeded:
    """Insert deliveries: turn 1 has arrived, turn 2 may have, turn 3 never will, and its last part is surely
    lost.
    """
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, person="Bob", channel="telegram", turns=3)
        await connection.execute(
            """INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state, error,
                                       created_at)
               VALUES ($1, 1, 0, 'telegram', $2, 'delivered', '', now() - interval '3 min'),
                      ($1, 2, 0, 'telegram', $2, 'uncertain', 'the connection broke',
                       now() - interval '2 min'),
                      ($1, 3, 0, 'telegram', $2, 'dead', 'chat not found', now() - interval '1 min'),
                      ($1, 3, 1, 'telegram', $2, 'dead', 'chat not found', now() - interval '1 min')""",
            seeded.session_id, seeded.address_id,
        )  # fmt: skip
    return seeded
