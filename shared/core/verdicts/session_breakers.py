"""Pauses of a service for one conversation, and for all conversations."""

from __future__ import annotations

from collections import OrderedDict

from shared.core.verdicts.breaker import Breaker, BreakerState
from shared.core.verdicts.evidence import Clock

_MOST_SESSIONS = 100
"""Sessions whose failures are kept; the service then asks again for the oldest one."""


class SessionBreakers:
    """Breakers of one account: one shared by all conversations, and one for each that fails.

    The session is None for calls outside conversations. A conversation whose calls fail is paused alone; in
    the shared breaker, all its failures count as one.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._shared = Breaker(clock=clock)
        self._own: OrderedDict[int, Breaker] = OrderedDict()

    def admit(self, session: int | None = None) -> None:
        """Raise at once while the service or the session is paused, except for a probe every ten seconds.

        Raises: ModelRefusedAccount if the account is refused, ModelUnavailable if the service fails.
        """
        self._shared.admit(session)
        if session is not None and session in self._own:
            self._own[session].admit()

    def record_success(self, session: int | None = None) -> None:
        """Note that the service answered, even if it refused this one request."""
        self._shared.record_success()
        if session is not None and session in self._own:
            self._own[session].record_success()

    def record_failure(self, reason: str, *, session: int | None = None, answered: bool = False) -> None:
        """Count a failure; `answered` is true if the server itself said so."""
        self._shared.record_failure(reason, session=session, answered=answered)
        if session is None:
            return
        own = self._own.pop(session, None) or Breaker(clock=self._clock)
        own.record_failure(reason, answered=answered)
        self._own[session] = own
        if len(self._own) > _MOST_SESSIONS:
            self._own.popitem(last=False)

    def record_refusal(self, reason: str, *, session: int | None = None) -> None:
        """Note a refusal of the account, which pauses its session; refusals in three sessions pause all."""
        self._shared.record_refusal(reason, session=session)

    def get_state(self) -> BreakerState:
        """Return the state of the shared breaker, without pauses of single conversations after failures."""
        return self._shared.get_state()
