"""How sure this process may be that it alone serves a bot: as long as its lease was seen a moment ago."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from shared.services.turns.session_service import LEASE_SECONDS

VALID_SECONDS = LEASE_SECONDS - 1.0
"""A process that was stopped for longer may have been replaced, and looks at its lease before all else."""


class LeaseGuard:
    """The runner tells it each look at the lease; what one process only may do waits for `sure`."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._seen_at: float | None = None
        self._seen = asyncio.Event()

    def mark_held(self, *, asked_at: float) -> None:
        """It was ours when Postgres was asked; `asked_at` is `now()` before that."""
        self._seen_at = asked_at
        self._seen.set()

    def mark_lost(self) -> None:
        self._seen_at = None

    @property
    def is_valid(self) -> bool:
        return self._seen_at is not None and self.now() - self._seen_at < VALID_SECONDS

    async def wait_until_valid(self) -> None:
        while not self.is_valid:
            self._seen.clear()
            await self._seen.wait()
