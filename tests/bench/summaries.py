"""Conversations behind three summaries: what a long talk costs is measured there, too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import asyncpg

SUMMARIES = 3
TURNS_BETWEEN = 25
"""Turns before each summary, so that there is something to summarise."""
JOB_SECONDS = 120.0
SYLLABLES = ("ba", "den", "fir", "go", "lun", "mar", "ni", "os", "pel", "ra", "sto", "ti", "ulm", "ve", "wik")
Say = Callable[[str], Coroutine[Any, Any, None]]
_ASK = """
INSERT INTO jobs (kind, session_id, key, trigger, payload)
SELECT 'compact', id, $2 || '-' || id, 'manual', '{"force": true}' FROM unnest($1::bigint[]) id
RETURNING id
"""
_OPEN = "SELECT count(*) FROM jobs WHERE id = ANY($1::bigint[]) AND state NOT IN ('done', 'dead')"
_LINKS = """
SELECT session_id, count(*) AS links FROM compactions
 WHERE session_id = ANY($1::bigint[]) AND kind = 'summary' GROUP BY 1
"""


def make_sentences(rng: random.Random) -> Iterator[str]:
    """Yield sentences of words that nobody has seen, so that each turn looks for something else."""
    while True:
        made = ("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(6, 40)))
        yield f"{' '.join(made).capitalize()}."


def make_questions(rng: random.Random, said: Sequence[str]) -> Iterator[str]:
    """Yield questions with words of earlier sentences, so that recall finds something in what is hidden."""
    new = make_sentences(rng)
    while True:
        known = rng.choice(said).rstrip(".").split()
        yield f"What did I say of {' '.join(rng.sample(known, min(4, len(known))))}? {next(new)}"


async def put_behind_summaries(
    pool: asyncpg.Pool[asyncpg.Record], people: Sequence[tuple[int, Say]], sentences: Iterator[str]
) -> list[str]:
    """Talk and compact until each conversation has three summaries; return what was said.

    A worker has to run. Raises RuntimeError if a conversation has fewer summaries.
    """
    sessions = [session_id for session_id, _ in people]
    said: list[str] = []

    async def talk(say: Say) -> None:
        for _ in range(TURNS_BETWEEN):
            said.append(next(sentences))
            await say(said[-1])

    for number in range(SUMMARIES):
        await asyncio.gather(*(talk(say) for _, say in people))
        await _compact(pool, sessions, f"bench-{number}")
    links = {row["session_id"]: row["links"] for row in await pool.fetch(_LINKS, sessions)}
    if any(links.get(one, 0) < SUMMARIES for one in sessions):
        raise RuntimeError(f"not every conversation has {SUMMARIES} summaries: {links}")
    return said


async def _compact(pool: asyncpg.Pool[asyncpg.Record], sessions: Sequence[int], key: str) -> None:
    jobs = [row["id"] for row in await pool.fetch(_ASK, sessions, key)]
    async with asyncio.timeout(JOB_SECONDS):
        while await pool.fetchval(_OPEN, jobs):
            await asyncio.sleep(0.1)
