"""Reaction to a promoted database server, which may lack rows that were acknowledged before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.25
"""Seconds between two looks at the timeline."""


class TimelineSource(Protocol):
    """Source of the database's timeline, which changes when another server becomes primary; "" if unknown."""

    @property
    def timeline(self) -> str: ...


class TimelineStore(Protocol):
    """Store of the newest timeline that any process has seen.

    `record_timeline` returns True to a single process after each change; screens then reload. Raises
    StorageUnavailable.
    """

    async def record_timeline(self) -> bool: ...


class PromotionWatcher:
    """Watcher that calls registered functions when another database server has become the primary."""

    def __init__(self, pulse: TimelineSource, deployment: TimelineStore) -> None:
        self._pulse = pulse
        self._deployment = deployment
        self._acts: list[Callable[[], Awaitable[object]]] = []

    def on_promotion(self, act: Callable[[], Awaitable[object]]) -> None:
        """Register a function to call after each promotion; functions are called in the order of
        registration.

        If one raises StorageUnavailable, all are called again 0.25 seconds later, so each must allow
        repetition.
        """
        self._acts.append(act)

    async def watch(self) -> None:
        """Look at the database's timeline every 0.25 seconds until cancelled; after a change, call the
        registered functions.

        At the start they are called only if no process has recorded the present timeline yet.
        """
        known = ""
        while True:
            timeline = self._pulse.timeline
            if timeline != known:
                try:
                    raised = await self._deployment.record_timeline()
                    if known or raised:
                        log.warning("database_promoted", timeline=timeline, before=known)
                        for act in self._acts:
                            await act()
                    known = timeline
                except StorageUnavailable as error:
                    log.warning("promotion_storage_unavailable", reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)
