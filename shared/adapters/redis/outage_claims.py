"""Agreement in Redis on which process notifies operators that the database accepts no writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.adapters.redis.client import open_redis
from shared.core.ops.alerts import AlertOutcomeUnknown, AlertRefused, NotSent, Outage, Outcome, Sent

log = structlog.get_logger(__name__)

KEY = "evertalk:outage"
"""Redis hash with the outage under `event`, and the outcome under the name of each target."""
KEEP_SECONDS = 2 * 86_400
"""Seconds after which Redis forgets an outage whose end no process has recorded."""
CALL_SECONDS = 2.0
"""Maximum seconds of one call of Redis."""
_EVENT = "event"
_SENDING = "sending"
_AWAY = (RedisError, OSError, TimeoutError)
_KINDS: Mapping[str, type[Sent | NotSent | AlertRefused | AlertOutcomeUnknown]] = {
    kind.__name__: kind for kind in (Sent, NotSent, AlertRefused, AlertOutcomeUnknown)
}


class RedisOutageClaims:
    """Claims on notifications about an outage.

    Methods return None if Redis does not answer, and raise nothing.
    """

    def __init__(self, url: str) -> None:
        self._client: Any = open_redis(Redis, url, socket_connect_timeout=CALL_SECONDS)

    async def open(self, outage: Outage, *, not_before: datetime | None) -> Outage | None:
        """Return the outage that all processes agree on, `outage` if none is stored; None without Redis.

        A stored one opened before `not_before`, unless None, has ended and is replaced.
        """
        text = json.dumps(
            {"id": outage.public_id, "at": outage.opened_at.isoformat(), "detail": dict(outage.detail)}
        )
        if (there := await self.load()) is not None and not_before and there[0].opened_at < not_before:
            await self.clear()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._client.hsetnx(KEY, _EVENT, text)
                await self._client.expire(KEY, KEEP_SECONDS)
                found = await self._client.hget(KEY, _EVENT)
        except _AWAY as error:
            log.warning("outage_claims_unavailable", reason=f"{type(error).__name__}: {error}")
            return None
        return _read_outage(found)

    async def claim(self, target: str) -> bool | None:
        """Claim the notification of a target.

        Returns whether this process must send it, None if Redis does not answer.
        """
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return bool(await self._client.hsetnx(KEY, target, _SENDING))
        except _AWAY:
            return None

    async def note(self, target: str, outcome: Outcome) -> None:
        """Store the outcome of a target's notification until the outage is recorded; raises nothing."""
        text = json.dumps([type(outcome).__name__, getattr(outcome, "code", "")])
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._client.hset(KEY, target, text)
        except _AWAY as error:
            log.warning("outage_claims_unavailable", reason=f"{type(error).__name__}: {error}")

    async def load(self) -> tuple[Outage, Mapping[str, Outcome | None]] | None:
        """Return the outage and the outcome by target, None where unknown.

        Returns None if there is no outage or no answer.
        """
        try:
            async with asyncio.timeout(CALL_SECONDS):
                rows: dict[bytes, bytes] = await self._client.hgetall(KEY)
        except _AWAY:
            return None
        if (outage := _read_outage(rows.pop(_EVENT.encode(), None))) is None:
            return None
        return outage, {target.decode(): _read_outcome(text) for target, text in rows.items()}

    async def clear(self) -> bool | None:
        """Delete the outage; return whether there was one, None if Redis does not answer."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return bool(await self._client.delete(KEY))
        except _AWAY:
            return None

    async def close(self) -> None:
        """Close the connection to Redis; errors are only logged."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._client.aclose()
        except _AWAY as error:
            log.debug("redis_close_failed", reason=str(error))


def _read_outage(text: Any) -> Outage | None:
    """Return the outage in a text; None if it is none."""
    try:
        found = json.loads(text)
        return Outage(
            public_id=str(found["id"]), opened_at=datetime.fromisoformat(found["at"]), detail=found["detail"]
        )
    except (TypeError, ValueError, KeyError):
        return None


def _read_outcome(text: bytes) -> Outcome | None:
    if text == _SENDING.encode():
        return None
    try:
        kind, code = json.loads(text)
        return Sent() if kind == Sent.__name__ else _KINDS[kind](code=code)  # type: ignore[call-arg]
    except (TypeError, ValueError, KeyError):
        return None
