"""State of the models as running processes see it, for operators."""

from __future__ import annotations

from shared.adapters.postgres.dashboard.alerts_sql import FALLEN_BACK, FALLS_IN_A_ROW
from shared.adapters.postgres.db.connecting import connect

_NARROWED = """
SELECT p ->> 'provider', p ->> 'model', min((p ->> 'window')::bigint), max((p ->> 'expected')::bigint)
  FROM workers w, jsonb_array_elements(coalesce(w.health -> 'windows', '[]')) p
 WHERE worker_is_alive(w) GROUP BY 1, 2 ORDER BY 1, 2
"""


async def list_narrowed_windows(database_url: str) -> list[tuple[str, str, int, int]]:
    """Return (provider, model, window that refusals name, expected window), in tokens.

    They are models whose servers refuse requests below the expected window, as living processes report.
    Raises StorageUnavailable and exceptions of asyncpg.
    """
    connection = await connect(database_url)
    try:
        rows = await connection.fetch(_NARROWED, timeout=10)
    finally:
        await connection.close(timeout=5)
    return [(row[0], row[1], row[2], row[3]) for row in rows]


_LEARNED = """
SELECT p ->> 'provider', p ->> 'model', p ->> 'ability', min((p ->> 'number')::bigint)
  FROM workers w, jsonb_array_elements(coalesce(w.health -> 'learned', '[]')) p
 WHERE worker_is_alive(w)
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
_REJECTIONS = """
SELECT DISTINCT ON (1, 2) p ->> 'provider', p ->> 'model',
       coalesce(nullif(p ->> 'wording', ''), p ->> 'code'), (p ->> 'count')::bigint
  FROM workers w, jsonb_array_elements(coalesce(w.health -> 'rejections', '[]')) p
 WHERE worker_is_alive(w) ORDER BY 1, 2, 4 DESC
"""


async def list_learned_abilities(database_url: str) -> list[tuple[str, str, str, int | None]]:
    """Return (provider, model, ability that the server refused, limit) as running processes report them.

    The limit is the lowest that the server named, in output tokens; None if it named none.
    """
    connection = await connect(database_url)
    try:
        rows = await connection.fetch(_LEARNED, timeout=10)
    finally:
        await connection.close(timeout=5)
    return [(row[0], row[1], row[2], row[3]) for row in rows]


async def list_rejections(database_url: str) -> list[tuple[str, str, str, int]]:
    """Return (provider, model, the server's wording or code, count) of rejected requests by model.

    They are those of the last ten minutes, as living processes report. Raises StorageUnavailable and
    exceptions of asyncpg.
    """
    connection = await connect(database_url)
    try:
        rows = await connection.fetch(_REJECTIONS, timeout=10)
    finally:
        await connection.close(timeout=5)
    return [(row[0], row[1], row[2], row[3]) for row in rows]


async def has_no_summaries(database_url: str) -> bool:
    """Return whether the newest FALLS_IN_A_ROW summaries were all written without a model within a day.

    Raises StorageUnavailable and exceptions of asyncpg.
    """
    connection = await connect(database_url)
    try:
        fallen = int(await connection.fetchval(*FALLEN_BACK(), timeout=10))
    finally:
        await connection.close(timeout=5)
    return fallen >= FALLS_IN_A_ROW
