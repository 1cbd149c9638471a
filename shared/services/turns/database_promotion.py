"""Promotion of a database server: what a process repeats, since the new primary may lack acknowledged
rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.25


class TimelineSource(Protocol):
    @property
    def timeline(self) -> str: ...


class TimelineStore(Protocol):
    async def record_timeline(self) -> bool: ...


class PromotionWatcher:
    """Watcher of promotions; holders of data that may be lost register how to store them again."""

    def __init__(self, pulse: TimelineSource, deployment: TimelineStore) -> None:
        self._pulse = pulse
        self._deployment = deployment
        self._acts: list[Callable[[], Awaitable[object]]] = []

    def on_promotion(self, act: Callable[[], Awaitable[object]]) -> None:
        """Called after each promotion, again until it went well: it may be called more than once."""
        self._acts.append(act)

    async def watch(self) -> None:
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
