"""Counts that several processes share in Redis, in slices of time that expire soon."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from shared.adapters.redis.client import open_redis
from shared.runtime import keep_cancellation

log = structlog.get_logger(__name__)

_SECONDS = 2.0
_NAME = "evertalk:counts"


class RedisCounts:
    """Shared counts whose keys are hashed, so that no network addresses of people are stored in Redis."""

    def __init__(self, redis_url: str) -> None:
        self._client = open_redis(
            Redis, redis_url, max_connections=2, socket_connect_timeout=_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self._away = False

    async def add(
        self,
        kind: str,
        added: Mapping[str, int],
        *,
        slices: Sequence[int],
        asked: Sequence[str],
        seconds: float,
    ) -> Mapping[str, int] | None:
        """Add counts to the last of `slices`.

        Returns the sums over all slices for the keys `asked`, without zeros. None if Redis does not
        answer. Each slice expires twice `seconds` after its last change.
        """
        try:
            with keep_cancellation():
                async with asyncio.timeout(_SECONDS):
                    found = await self._add(kind, added, slices, asked, seconds)
        except (RedisError, OSError, TimeoutError) as error:
            if not self._away:
                log.warning("shared_counts_unavailable", reason=f"{type(error).__name__}: {error}")
            self._away = True
            return None
        self._away = False
        return found

    async def close(self) -> None:
        """Close the connection to Redis."""
        await self._client.aclose()

    async def _add(
        self, kind: str, added: Mapping[str, int], slices: Sequence[int], asked: Sequence[str], seconds: float
    ) -> Mapping[str, int]:
        places = [f"{_NAME}:{kind}:{one}" for one in slices]
        async with self._client.pipeline(transaction=False) as pipe:
            for key, count in added.items():
                pipe.hincrby(places[-1], _hash_key(key), count)
            pipe.expire(places[-1], int(2 * seconds) + 1)
            for place in places:
                pipe.hmget(place, [_hash_key(key) for key in asked])
            answers = (await pipe.execute())[-len(places) :]
        total = Counter[str]()
        for answer in answers:
            total.update({key: int(count) for key, count in zip(asked, answer, strict=True) if count})
        return total


def _hash_key(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
