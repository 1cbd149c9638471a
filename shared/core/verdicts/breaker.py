"""Circuit breaker: pauses calls to a provider that keeps failing or refuses its account, with probes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from shared.core.values.errors import ModelRefusedAccount, ModelUnavailable
from shared.core.verdicts.evidence import SESSIONS, Clock

REMEMBERED_CALLS = 20
"""Most recent calls on which the breaker decides."""
REMEMBERED_SECONDS = 30.0
"""Seconds for which a call counts when the breaker decides whether to open."""
FEWEST_CALLS = 5
"""Fewest recent calls that can open the breaker."""
FAILED_SHARE = 0.5
"""Share of failed recent calls from which the breaker opens."""
PROBE_EVERY_SECONDS = 10.0
"""Seconds between two probes while calls are paused."""
REFUSALS = 2
"""Refusals in a row, after recent successes, that pause a session; a single one may concern its
own request.
"""
_REFUSED_SECONDS = 3_600.0
"""Seconds after which a session's refusal no longer counts against the account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """State of a breaker for the dashboard; `calls` and `failures` are those of the last 30 seconds.

    Without a pause of all sessions, `open_seconds` and `probe_in_seconds` are 0; `reason` is empty without a
    cause.
    """

    open: bool
    """True if calls of all sessions are paused."""
    account_refused: bool
    """True if the account was refused, even to a single session."""
    reason: str
    calls: int
    failures: int
    open_seconds: float
    probe_in_seconds: float
    sessions: tuple[int, ...] = ()
    """Internal ids of the sessions that met the failures or refusals, newest first."""


@dataclass(slots=True, kw_only=True)
class _AccountRefusal:
    """Refusals of the account that one session has met."""

    at: float
    times: int
    reason: str
    next_probe: float


class Breaker:
    """Circuit breaker of one account at a provider, in the memory of this process.

    Call `admit()` before each attempt, then record its outcome. All failures of one session count as one, so
    that it cannot pause the provider for others. The session is None for a service without sessions; a
    refusal can then pause all calls at once.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._outcomes: deque[tuple[float, bool, int | None]] = deque(maxlen=REMEMBERED_CALLS)
        self._refusals: dict[int | None, _AccountRefusal] = {}
        self._opened_at: float | None = None
        self._next_probe = 0.0
        self._refused = False
        self._reason = ""
        self._answered = False

    def admit(self, session: int | None = None) -> None:
        """Raise an error if calls are paused; every ten seconds one call is let through as a probe.

        Raises ModelRefusedAccount if the account is refused, to all or to this session, ModelUnavailable if
        the provider fails.
        """
        now = self._clock()
        if self._opened_at is None:
            self._admit_refused(now, session)
            return
        if now >= self._next_probe:
            self._next_probe = now + PROBE_EVERY_SECONDS
            return
        if self._refused:
            raise ModelRefusedAccount(self._reason)
        error = ModelUnavailable(f"not asked again so soon: {self._reason}")
        error.answered = self._answered
        raise error

    def _admit_refused(self, now: float, session: int | None) -> None:
        """Raise ModelRefusedAccount if refusals pause the session, except for a probe every ten seconds."""
        own = self._refusals.get(session)
        if own is None or not self._pauses(own, now):
            return
        if now < own.next_probe:
            raise ModelRefusedAccount(own.reason)
        own.next_probe = now + PROBE_EVERY_SECONDS

    @property
    def is_open(self) -> bool:
        """True if calls of all sessions are paused."""
        return self._opened_at is not None

    def record_success(self) -> None:
        """Record that the provider responded, even if it refused this one request.

        This ends every pause and forgets all refusals.
        """
        self._refusals.clear()
        if self._opened_at is not None:
            self._opened_at, self._refused, self._reason = None, False, ""
            self._outcomes.clear()
        self._outcomes.append((self._clock(), True, None))

    def record_failure(self, reason: str, *, session: int | None = None, answered: bool = False) -> None:
        """Record a failed call; if half of at least five recent calls failed, calls of all sessions pause.

        Failures of one session count as one, since its requests may be the cause. `answered` says that the
        server itself reported the failure.
        """
        now = self._clock()
        self._answered = answered
        if session is not None:
            again = [one for one in self._outcomes if one[1] or one[2] != session]
            self._outcomes = deque(again, maxlen=REMEMBERED_CALLS)
        self._outcomes.append((now, False, session))
        calls, failures = self._recent(now)
        if self._opened_at is None and calls >= FEWEST_CALLS and failures >= calls * FAILED_SHARE:
            self._open(now, reason)

    def record_refusal(self, reason: str, *, session: int | None = None) -> None:
        """Record a refusal of the account, which pauses the session if no recent call succeeded, or at the
        second one.

        Refusals in three sessions within an hour pause all. Without a session, all pause instead of one.
        """
        now = self._clock()
        kept = self._refusals
        kept = {one: refusal for one, refusal in kept.items() if now - refusal.at < _REFUSED_SECONDS}
        times = kept[session].times + 1 if session in kept else 1
        kept[session] = _AccountRefusal(
            at=now, times=times, reason=reason, next_probe=now + PROBE_EVERY_SECONDS
        )
        self._refusals = kept
        sessions = [one for one in kept if one]
        is_proven = (session is None and self._pauses(kept[session], now)) or len(sessions) >= SESSIONS
        if self._opened_at is None and not is_proven:
            return
        self._refused = True
        if self._opened_at is None:
            self._open(now, reason)
        self._reason = reason

    def get_state(self) -> BreakerState:
        """Return the state for the dashboard and for alerts."""
        now = self._clock()
        calls, failures = self._recent(now)
        opened = self._opened_at
        refusals = [one for one in self._refusals.values() if self._pauses(one, now)]
        reason = self._reason or (refusals[-1].reason if refusals else "")
        return BreakerState(
            open=opened is not None,
            account_refused=self._refused or (opened is None and bool(refusals)),
            reason=reason,
            calls=calls,
            failures=failures,
            open_seconds=0.0 if opened is None else now - opened,
            probe_in_seconds=0.0 if opened is None else max(0.0, self._next_probe - now),
            sessions=self._list_sessions(),
        )

    def _list_sessions(self) -> tuple[int, ...]:
        refused = [one for one in reversed(self._refusals) if one]
        failed = [one for _, good, one in reversed(self._outcomes) if not good and one]
        return tuple(dict.fromkeys((*refused, *failed)))

    def _pauses(self, refusal: _AccountRefusal, now: float) -> bool:
        """Return whether a refusal pauses its session: it was repeated, or no recent call succeeded."""
        calls, failures = self._recent(now)
        return calls <= failures or refusal.times >= REFUSALS

    def _open(self, now: float, reason: str) -> None:
        self._opened_at, self._reason = now, reason
        self._next_probe = now + PROBE_EVERY_SECONDS

    def _recent(self, now: float) -> tuple[int, int]:
        recent = [good for at, good, _ in self._outcomes if now - at <= REMEMBERED_SECONDS]
        return len(recent), recent.count(False)
