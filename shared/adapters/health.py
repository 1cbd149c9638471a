"""What a process knows, told with each heartbeat: how providers answer, free disk, screens, lost rings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.adapters.models.breaker import BreakerState

DISK_SECONDS = 30.0


class Health:
    """Call it for what is so now; `states` are breakers by base URL, `folder` is where the data lives.

    `failed_backup` is a file that is there while the daily backup fails.
    """

    def __init__(
        self,
        states: Callable[[], Mapping[str, BreakerState]],
        folder: Path,
        *,
        failed_backup: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = states
        self._folder = folder
        self._failed_backup = failed_backup
        self._clock = clock
        self._disk: dict[str, int] | None = None
        self._looked_at: float | None = None
        self._screens: Callable[[], Mapping[str, int]] = dict
        self._redis_errors: Callable[[], Mapping[str, int]] = dict

    def count_screens(self, screens: Callable[[], Mapping[str, int]]) -> None:
        """Open ones of this process, by kind."""
        self._screens = screens

    def count_redis_errors(self, errors: Callable[[], Mapping[str, int]]) -> None:
        """What Redis did not take from this process since its start, by kind."""
        self._redis_errors = errors

    def __call__(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        asked = [_told(url, state) for url, state in self._states().items() if state.open or state.calls]
        if asked:
            found["providers"] = asked
        if disk := self._room():
            found["disk"] = disk
        if screens := self._screens():
            found["screens"] = dict(screens)
        if errors := {kind: number for kind, number in self._redis_errors().items() if number}:
            found["redis_errors"] = errors
        if self._failed_backup is not None and self._failed_backup.exists():
            found["backup_failed"] = True
        return found

    def _room(self) -> dict[str, int] | None:
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= DISK_SECONDS:
            self._looked_at = now
            self._disk = _room_of(self._folder)
        return self._disk


def _told(url: str, state: BreakerState) -> dict[str, Any]:
    """The host alone: an address may hold a key."""
    return {
        "provider": urlsplit(url).hostname or "provider",
        "open": state.open,
        "refused": state.account_refused,
        "calls": state.calls,
        "failures": state.failures,
        "open_seconds": round(state.open_seconds),
    }


def _room_of(folder: Path) -> dict[str, int] | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return {"free": usage.free, "total": usage.total}
