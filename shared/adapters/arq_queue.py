"""arq as doorbell and runner: Postgres knows what is due, Redis only says "look"."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog
from arq.connections import ArqRedis, RedisSettings, create_pool

from shared.tasks import heeding_cancellation

log = structlog.get_logger(__name__)

RUN_JOB = "run_job"
QUEUE = "evertalk:jobs"
_RING_SECONDS = 2.0


def redis_settings(redis_url: str) -> RedisSettings:
    settings = RedisSettings.from_dsn(redis_url)
    settings.conn_timeout = 2
    settings.conn_retries = 0
    return settings


def write_job(value: Any) -> bytes:
    """JSON, never pickle: whoever can write to Redis must not run code here."""
    return json.dumps(value, default=str).encode()


def read_job(raw: bytes) -> Any:
    return json.loads(raw)


class ArqDoorbell:
    """Rings for jobs; a job nobody heard of is found by the sweep."""

    def __init__(self, redis_url: str) -> None:
        self._settings = redis_settings(redis_url)
        self._pool: ArqRedis | None = None
        self.silent = 0
        """Rings that Redis did not take since the start."""

    async def ring(self, job_id: int, attempt: int) -> bool:
        """False when Redis is away, or when this very attempt is waiting there already."""
        try:
            with heeding_cancellation():
                async with asyncio.timeout(_RING_SECONDS):
                    if self._pool is None:
                        self._pool = await create_pool(
                            self._settings, job_serializer=write_job, job_deserializer=read_job,
                            default_queue_name=QUEUE,
                        )  # fmt: skip
                    rung = await self._pool.enqueue_job(RUN_JOB, job_id, _job_id=f"{job_id}:{attempt}")
                    return rung is not None
        except Exception as error:  # noqa: BLE001  a doorbell that does not ring is no reason to fail a turn
            self.silent += 1
            log.warning("doorbell_silent", job_id=job_id, reason=f"{type(error).__name__}: {error}")
            await self._forget()
            return False

    async def close(self) -> None:
        await self._forget()

    async def _forget(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(_RING_SECONDS):
                    await pool.aclose()
            except Exception as error:  # noqa: BLE001  it is gone already
                log.debug("doorbell_close_failed", reason=str(error))
