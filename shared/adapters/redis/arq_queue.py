"""Queue of arq: Redis only announces a job, and Postgres knows which jobs are due."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import structlog
from arq.connections import ArqRedis

from shared.adapters.redis.client import open_redis
from shared.core.session.turns import DueJob
from shared.runtime import keep_cancellation

log = structlog.get_logger(__name__)

FUNCTIONS: Mapping[str, str] = {
    "flush": "flush_memory",
    "compact": "compact_session",
    "tidy": "consolidate_notes",
    "import": "summarise_import",
}
"""Name of the worker's function in arq, by kind of job."""
QUEUE = "evertalk:jobs"
"""Redis key of the queue."""
_RING_SECONDS = 2.0
_CONNECT_SECONDS = 2.0
_FACTS_SECONDS = 5.0
_REST_SECONDS = 1.0
"""Seconds without announcements after a failed one, so that a Redis that hangs does not stop the sweep."""


def write_job(value: Any) -> bytes:
    """Return a value as JSON, and never as pickle: access to Redis must not allow running code here."""
    return json.dumps(value, default=str).encode()


def read_job(raw: bytes) -> Any:
    """Return the value of a job's JSON."""
    return json.loads(raw)


def open_queue(redis_url: str, queue: str = QUEUE) -> ArqRedis:
    """Return arq's client for announcing and for the worker.

    Arq's own constructor would drop TLS options and characters of passwords.
    """
    client = open_redis(ArqRedis, redis_url, socket_connect_timeout=_CONNECT_SECONDS)
    client.job_serializer, client.job_deserializer = write_job, read_job
    client.default_queue_name = queue
    return client


async def close_queue(queue: ArqRedis) -> None:
    """Close the client; raises nothing, since a vanished server has closed its side already."""
    try:
        async with asyncio.timeout(_RING_SECONDS):
            await queue.aclose()
    except Exception as error:  # noqa: BLE001
        log.debug("queue_close_failed", reason=f"{type(error).__name__}: {error}")


async def load_server_facts(redis_url: str) -> Mapping[str, Any]:
    """Return the answer of Redis to INFO. Raises the client's exceptions."""
    client = open_queue(redis_url)
    try:
        async with asyncio.timeout(_FACTS_SECONDS):
            return dict(await client.info())
    finally:
        await client.aclose()


class ArqDoorbell:
    """Announcer of due jobs; a sweep finds jobs whose announcement was lost."""

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url
        self._pool: ArqRedis | None = None
        self._not_before = 0.0
        self.silent = 0
        """Number of announcements that Redis did not accept since the start."""

    async def ring(self, job: DueJob) -> bool:
        """Announce a due job; return False if Redis is away or already holds this attempt.

        For a second after a failure no announcement is tried. A kind of a newer version is not announced: its
        jobs wait for workers of that version.
        """
        if (name := FUNCTIONS.get(job.kind)) is None:
            return False
        if time.monotonic() < self._not_before:
            self.silent += 1
            return False
        try:
            with keep_cancellation():
                async with asyncio.timeout(_RING_SECONDS):
                    if self._pool is None:
                        self._pool = open_queue(self._url)
                    key = f"{job.id}:{job.attempt}"
                    return await self._pool.enqueue_job(name, job.id, _job_id=key) is not None
        except Exception as error:  # noqa: BLE001  a doorbell that does not ring is no reason to fail a turn
            self.silent += 1
            log.warning("job_announcement_failed", job_id=job.id, reason=f"{type(error).__name__}: {error}")
            await self._forget()
            self._not_before = time.monotonic() + _REST_SECONDS
            return False

    async def close(self) -> None:
        """Close the connection to Redis if one was opened."""
        await self._forget()

    async def _forget(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await close_queue(pool)
