"""Reads everything that a deployment has stored as one text, to search it for words that must not be
there.
"""

from __future__ import annotations

import asyncpg
from redis.asyncio import Redis

from shared.config.settings import Settings

_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'public' AND c.relkind IN ('r', 'm') ORDER BY 1
"""


async def dumped(settings: Settings) -> str:
    """Return all columns of all tables, with bytes decoded, and all keys of Redis with their values."""
    assert settings.database_url is not None
    assert settings.redis_url is not None
    tables = await tables_of(settings.database_url.get_secret_value())
    return f"{tables}\n{await keys_of(settings.redis_url.get_secret_value())}"


async def tables_of(database_url: str) -> str:
    connection = await asyncpg.connect(database_url)
    texts = []
    try:
        for (table,) in await connection.fetch(_TABLES):
            rows = await connection.fetch(f"SELECT * FROM {table}")
            texts.append(f"\n== {table}")
            texts += [" | ".join(map(_shown, row.values())) for row in rows]
    finally:
        await connection.close()
    return "\n".join(texts)


async def keys_of(redis_url: str) -> str:
    """Return all keys of Redis with their values; there are few, since pub/sub stores nothing."""
    redis = Redis.from_url(redis_url)
    try:
        return "\n".join([f"{key!r} = {_read(await redis.dump(key))}" for key in await redis.keys("*")])
    finally:
        await redis.aclose()


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return _read(bytes(value))
    if isinstance(value, str):
        return value + ("" if "\\u" not in value else value.encode().decode("unicode_escape", "replace"))
    return str(value)


def _read(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
