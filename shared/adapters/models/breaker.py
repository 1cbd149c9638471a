"""Stops calling a provider that keeps failing, and looks now and then whether it is back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from shared.core.values.errors import ModelRefusedAccount, ModelUnavailable

REMEMBERED_CALLS = 20
REMEMBERED_SECONDS = 30.0
FEWEST_CALLS = 5
FAILED_SHARE = 0.5
PROBE_EVERY_SECONDS = 10.0
REFUSALS = 2
"""In a row, of an account that was served just before: a single one may be about its own request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """For the dashboard; `calls` and `failures` are those of the last 30 seconds."""

    open: bool
    account_refused: bool
    reason: str
    calls: int
    failures: int
    open_seconds: float
    probe_in_seconds: float


class Breaker:
    """One provider's account. Ask `admit()` before each attempt, then tell how it went."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outcomes: deque[tuple[float, bool, int]] = deque(maxlen=REMEMBERED_CALLS)
        self._opened_at: float | None = None
        self._next_probe = 0.0
        self._refused = False
        self._refusals = 0
        self._reason = ""
        self._answered = False

    def admit(self) -> None:
        """Raises at once while the provider is out, except for one probe every ten seconds."""
        if self._opened_at is None:
            return
        now = self._clock()
        if now >= self._next_probe:
            self._next_probe = now + PROBE_EVERY_SECONDS
            return
        if self._refused:
            raise ModelRefusedAccount(self._reason)
        error = ModelUnavailable(f"not asked again so soon: {self._reason}")
        error.answered = self._answered
        raise error

    def record_success(self) -> None:
        """The provider answered, be it with a refusal of this one request."""
        self._refusals = 0
        if self._opened_at is not None:
            self._opened_at, self._refused, self._reason = None, False, ""
            self._outcomes.clear()
        self._outcomes.append((self._clock(), True, 0))

    def record_failure(self, reason: str, *, conversation: int = 0, answered: bool = False) -> None:
        """Count a failure; one conversation's count once, since it may be that only its requests fail.

        `answered` is true if the server itself said so.
        """
        now = self._clock()
        self._answered = answered
        if conversation:
            again = [one for one in self._outcomes if one[1] or one[2] != conversation]
            self._outcomes = deque(again, maxlen=REMEMBERED_CALLS)
        self._outcomes.append((now, False, conversation))
        calls, failures = self._recent(now)
        if self._opened_at is None and calls >= FEWEST_CALLS and failures >= calls * FAILED_SHARE:
            self._open(now, reason)

    def record_refusal(self, reason: str) -> None:
        """The account is refused: more calls would all fail."""
        now = self._clock()
        self._refusals += 1
        calls, failures = self._recent(now)
        if self._opened_at is None and calls > failures and self._refusals < REFUSALS:
            return
        self._refused = True
        if self._opened_at is None:
            self._open(now, reason)
        self._reason = reason

    def get_state(self) -> BreakerState:
        now = self._clock()
        calls, failures = self._recent(now)
        opened = self._opened_at
        return BreakerState(
            open=opened is not None,
            account_refused=self._refused,
            reason=self._reason,
            calls=calls,
            failures=failures,
            open_seconds=0.0 if opened is None else now - opened,
            probe_in_seconds=0.0 if opened is None else max(0.0, self._next_probe - now),
        )

    def _open(self, now: float, reason: str) -> None:
        self._opened_at, self._reason = now, reason
        self._next_probe = now + PROBE_EVERY_SECONDS

    def _recent(self, now: float) -> tuple[int, int]:
        recent = [good for at, good, _ in self._outcomes if now - at <= REMEMBERED_SECONDS]
        return len(recent), recent.count(False)
