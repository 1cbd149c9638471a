"""Circuit breakers of a service for each session, and for all sessions."""

from __future__ import annotations

from collections import OrderedDict

from shared.core.verdicts.breaker import Breaker, BreakerState
from shared.core.verdicts.evidence import Clock

_MOST_SESSIONS = 100
"""Most sessions with a breaker; the oldest one is dropped above that."""


class SessionBreakers:
    """Circuit breakers of one account: one shared by all sessions, and one for each that fails.

    The session is None for calls outside of sessions. A session whose calls fail is paused alone; in the
    shared breaker all its failures count as one.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._shared = Breaker(clock=clock)
        self._own: OrderedDict[int, Breaker] = OrderedDict()

    def admit(self, session: int | None = None) -> None:
        """Raise an error while the service or the session is paused; every ten seconds one call is let
        through as a probe.

        Raises ModelRefusedAccount if the account is refused, ModelUnavailable if the service fails.
        """
        self._shared.admit(session)
        if session is not None and session in self._own:
            self._own[session].admit()

    def record_success(self, session: int | None = None) -> None:
        """Record that the service responded, even if it refused this one request; this ends every pause.

        Pauses of other single sessions stay.
        """
        self._shared.record_success()
        if session is not None and session in self._own:
            self._own[session].record_success()

    def record_failure(self, reason: str, *, session: int | None = None, answered: bool = False) -> None:
        """Record a failed call in the shared breaker and in that of the session.

        `answered` says that the server itself reported the failure.
        """
        self._shared.record_failure(reason, session=session, answered=answered)
        if session is None:
            return
        own = self._own.pop(session, None) or Breaker(clock=self._clock)
        own.record_failure(reason, answered=answered)
        self._own[session] = own
        if len(self._own) > _MOST_SESSIONS:
            self._own.popitem(last=False)

    def record_refusal(self, reason: str, *, session: int | None = None) -> None:
        """Record a refusal of the account in the shared breaker, see `Breaker.record_refusal`."""
        self._shared.record_refusal(reason, session=session)

    def get_state(self) -> BreakerState:
        """Return the state of the shared breaker, without pauses of single sessions."""
        return self._shared.get_state()
