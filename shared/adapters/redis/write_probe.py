"""Trial of what Redis is used for: sets a key, publishes an announcement and receives it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from shared.adapters.redis.announcer import build_channel_prefix
from shared.adapters.redis.client import open_redis

RedisRefusalKind = Literal["full", "replica", "disk", "replicas", "forbidden", "unheard", "other"]
"""Reason of a refusal; `disk` cannot save, `replicas` lacks replicas, `unheard` lost an announcement."""
PROBE_SECONDS = 5.0
"""Maximum seconds for the whole probe."""
_KEY_SECONDS = 10
REDIS_REFUSALS: Mapping[RedisRefusalKind, str] = {
    "full": "Raise maxmemory there, or find what fills it (INFO memory, MEMORY STATS). Evertalk needs a "
    "few megabytes; people are answered meanwhile, and background jobs are found in PostgreSQL, later.",
    "replica": "REDIS_URL leads to a read-only replica: name the primary.",
    "disk": "Redis cannot save to its disk and refuses writes: make room there, and read its log.",
    "replicas": "It wants replicas that are not connected: start them, or lower min-replicas-to-write.",
    "forbidden": "Its account needs the rights ~* &* +@all: ACL SETUSER …",
    "unheard": "Something between drops what is published: REDIS_URL must lead to one server, not to a proxy "
    "that shares connections.",
    "other": "Check REDIS_URL, and the log of that server.",
}
"""Advice for operators, by kind of refusal."""


class RedisRefused(Exception):
    """Raised if Redis answers but refuses an operation.

    `kind` is the reason, `deed` is "keys" or "announcements", `words` is the server's text.
    """

    def __init__(self, kind: RedisRefusalKind, deed: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.deed = deed
        self.words = words


async def probe_redis_writes(url: str) -> None:
    """Test setting a key and receiving an announcement.

    Raises RedisRefused, and the client's errors without an answer.
    """
    client = open_redis(Redis, url, socket_connect_timeout=PROBE_SECONDS)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await _set_key(client)
            await _hear_announcement(client)
    finally:
        await client.aclose()


async def _set_key(client: Redis) -> None:
    name = f"evertalk:probe:{secrets.token_hex(8)}"
    try:
        await client.set(name, "1", ex=_KEY_SECONDS)
        await client.delete(name)
    except AuthenticationError:
        raise
    except ResponseError as error:
        raise RedisRefused(_kind_of(error), "keys", str(error)) from error


async def _hear_announcement(client: Redis) -> None:
    channel, mark = f"{build_channel_prefix(client)}probe", secrets.token_hex(8)
    pubsub: Any = client.pubsub()
    try:
        await pubsub.subscribe(channel)
        await pubsub.get_message(timeout=PROBE_SECONDS)
        await client.publish(channel, mark)
        async with asyncio.timeout(PROBE_SECONDS / 2):
            while (await pubsub.get_message(timeout=PROBE_SECONDS) or {}).get("data") != mark.encode():
                continue
    except ResponseError as error:
        raise RedisRefused(_kind_of(error), "announcements", str(error)) from error
    except TimeoutError:
        words = "what was published did not arrive"
        raise RedisRefused("unheard", "announcements", words) from None
    finally:
        await pubsub.aclose()


def _kind_of(error: ResponseError) -> RedisRefusalKind:
    match error:
        case OutOfMemoryError():
            return "full"
        case ReadOnlyError():
            return "replica"
        case NoPermissionError():
            return "forbidden"
    words = str(error)
    if words.startswith("MISCONF"):
        return "disk"
    return "replicas" if words.startswith("NOREPLICAS") else "other"
