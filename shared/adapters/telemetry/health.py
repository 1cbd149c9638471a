"""Health of a process, stored with each heartbeat: providers, free disk, screens, lost announcements."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.core.verdicts.abilities import LearnedAbility
from shared.core.verdicts.breaker import BreakerState
from shared.core.verdicts.rejections import Rejection
from shared.core.verdicts.windows import NarrowedWindow

DISK_SECONDS = 30.0
"""Seconds for which a measurement of free disk space is reused."""
REASON_CHARS = 80
"""Maximum characters of a provider's reason in the report."""
MOST_LESSONS = 50
"""Maximum lessons and rejections in a heartbeat; one process rarely asks more models."""
MOST_SESSIONS = 5
"""Maximum sessions that an alert of a provider or a model names."""
MOST_TURNS = 200
"""Maximum sessions that a heartbeat lists; with more, the database does not compare its leases."""
_STATUS = re.compile(r"\A(?:[1-5]\d\d|[A-Za-z]{3,40})\Z")
_CODE = re.compile(
    r"\b[a-z]{2,20}(?:_[a-z]{2,20}){0,2}_(?:error|quota|exceeded|limit|funds|credits|key|disabled)\b"
)
_SUBJECTS = {
    "billing": re.compile(r"credit|balance|billing|payment|purchase", re.IGNORECASE),
    "a quota": re.compile(r"quota|usage limit", re.IGNORECASE),
    "a closed account": re.compile(r"disabled|suspended|deactivated", re.IGNORECASE),
    "the key": re.compile(r"api[ -_]?key|authentication|credential|unauthori[sz]ed", re.IGNORECASE),
}


class Health:
    """Health report of this process; call it to build the report of this moment as a JSON object.

    `states` returns circuit breakers by base URL. `narrowed` returns models that refuse requests within their
    window. `learned` and `rejected` return what model servers refused. `folder` is the data folder, whose
    free disk space is reported. `failed_backup` is a file that exists while the daily backup fails. `marks`
    returns values by which the database compares hosts.
    """

    def __init__(
        self,
        states: Callable[[], Mapping[str, BreakerState]],
        folder: Path,
        *,
        narrowed: Callable[[], Sequence[NarrowedWindow]] = tuple,
        learned: Callable[[], Sequence[LearnedAbility]] = tuple,
        rejected: Callable[[], Sequence[Rejection]] = tuple,
        failed_backup: Path | None = None,
        marks: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = states
        self._narrowed = narrowed
        self._learned = learned
        self._rejected = rejected
        self._folder = folder
        self._failed_backup = failed_backup
        self._marks = marks
        self._clock = clock
        self._disk: dict[str, int] | None = None
        self._looked_at: float | None = None
        self._screens: Callable[[], Mapping[str, int]] = dict
        self._redis_errors: Callable[[], Mapping[str, int]] = dict
        self._turns: Callable[[], Collection[int]] | None = None

    def follow(self, other: Health) -> None:
        """Report the providers and models of `other`, which was built from newer settings."""
        self._states = other._states
        self._narrowed = other._narrowed
        self._learned = other._learned
        self._rejected = other._rejected

    def count_screens(self, screens: Callable[[], Mapping[str, int]]) -> None:
        """Register the function that returns the open screens of this process by kind."""
        self._screens = screens

    def count_redis_errors(self, errors: Callable[[], Mapping[str, int]]) -> None:
        """Register the function that returns failed Redis calls of this process by kind."""
        self._redis_errors = errors

    def watch_turns(self, at_work: Callable[[], Collection[int]]) -> None:
        """Register the function that returns the sessions in work; other leases of this process are stale."""
        self._turns = at_work

    def __call__(self) -> dict[str, Any]:
        """Return the report as a JSON object; sections without content are left out."""
        found: dict[str, Any] = {}
        asked = [
            _build_provider_state(url, state)
            for url, state in self._states().items()
            if state.open or state.account_refused or state.calls
        ]
        if asked:
            found["providers"] = asked
        if narrowed := [asdict(one) for one in self._narrowed()]:
            found["windows"] = narrowed
        if lessons := self._learned():
            found["learned"] = [_build_lesson(one) for one in lessons[:MOST_LESSONS]]
        if rejections := [asdict(one) for one in self._rejected()[:MOST_LESSONS]]:
            found["rejections"] = rejections
        if disk := self._room():
            found["disk"] = disk
        if screens := self._screens():
            found["screens"] = dict(screens)
        if errors := {kind: number for kind, number in self._redis_errors().items() if number}:
            found["redis_errors"] = errors
        if self._failed_backup is not None and self._failed_backup.exists():
            found["backup_failed"] = True
        if self._turns is not None and len(turns := self._turns()) <= MOST_TURNS:
            found["turns"] = sorted(turns)
        if marks := self._marks():
            found["same"] = marks
        return found

    def _room(self) -> dict[str, int] | None:
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= DISK_SECONDS:
            self._looked_at = now
            self._disk = _measure_room(self._folder)
        return self._disk


def _build_lesson(lesson: LearnedAbility) -> dict[str, Any]:
    """Return what a model server refused, without the server's words, which may repeat a request."""
    return {
        "provider": lesson.provider, "model": lesson.model,
        "ability": lesson.ability, "number": lesson.number, "for_all": lesson.for_all,
        "sessions": list(lesson.sessions[:MOST_SESSIONS]),
    }  # fmt: skip


def _build_provider_state(url: str, state: BreakerState) -> dict[str, Any]:
    """Return the state of a provider under its host name only, since its address may hold a key."""
    found: dict[str, Any] = {
        "provider": urlsplit(url).hostname or "provider",
        "open": state.open,
        "refused": state.account_refused,
        "calls": state.calls,
        "failures": state.failures,
        "open_seconds": round(state.open_seconds),
    }
    if sessions := state.sessions[:MOST_SESSIONS]:
        found["sessions"] = list(sessions)
    reason = redact_reason(state)
    return {**found, "reason": reason} if reason else found


def redact_reason(state: BreakerState) -> str:
    """Return why a provider is unavailable; the provider's own message is left out, since it may hold a key.

    An example is `400 invalid_request_error, about billing`. The text is empty while the provider is
    available.
    """
    if not (state.open or state.account_refused):
        return ""
    head, colon, words = state.reason.partition(":")
    if not colon and not state.account_refused:
        return head[:REASON_CHARS]  # no answer at all: these words are ours
    codes = [*_STATUS.findall(head), *dict.fromkeys(_CODE.findall(words))][:3]
    about = [f"about {subject}" for subject, of in _SUBJECTS.items() if of.search(state.reason)][:1]
    return ", ".join([*([" ".join(codes)] if codes else []), *about])[:REASON_CHARS]


def _measure_room(folder: Path) -> dict[str, int] | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return {"free": usage.free, "total": usage.total}
