"""Evidence of faults by session, and the rule when it applies to every session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SESSIONS = 3
"""Different sessions that must meet a fault before it applies to all, since one session's text
may cause it.
"""
_MOST_SESSIONS = 20
"""Most sessions kept per kind of fault."""

Clock = Callable[[], float]
"""Function that returns the time in seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Newest fault of one kind in one session; `times` counts faults in a row."""

    kind: str
    session: int
    """Internal id of the session; 0 for calls outside of sessions."""
    at: float
    """Clock time of the newest fault, in seconds."""
    times: int = 1
    number: int | None = None
    """Limit that the server named; None without one."""
    wording: str = ""
    """Wording of the server, without secrets."""


class EvidenceLog:
    """Evidence of faults about one subject, such as a model at a provider, in the memory of this process.

    A fault applies to the session that met it, and to all once three sessions have met it.
    """

    def __init__(self, *, clock: Clock, kept_seconds: float) -> None:
        self._clock = clock
        self._kept_seconds = kept_seconds
        self._kinds: dict[str, dict[int, Evidence]] = {}

    def record(self, kind: str, *, session: int, number: int | None = None, wording: str = "") -> Evidence:
        """Record a fault in a session; return its evidence, whose `times` counts faults in a row.

        Only the 20 sessions with the newest faults are kept for each kind.
        """
        sessions = self._kinds.setdefault(kind, {})
        former = self.find_own(kind, session=session)
        times = 1 if former is None else former.times + 1
        sessions.pop(session, None)
        found = Evidence(
            kind=kind, session=session, at=self._clock(), times=times, number=number, wording=wording
        )
        sessions[session] = found
        if len(sessions) > _MOST_SESSIONS:
            del sessions[next(iter(sessions))]
        return found

    def find_own(self, kind: str, *, session: int) -> Evidence | None:
        """Return a session's own newest evidence of a kind; None if there is none, or if it is too old."""
        found = self._kinds.get(kind, {}).get(session)
        return found if found is not None and self._is_fresh(found) else None

    def find(self, kind: str, *, session: int) -> Evidence | None:
        """Return the evidence that applies to a session; None if none does.

        It is the session's own, else the newest of a kind that applies to all.
        """
        own = self.find_own(kind, session=session)
        return own if own is not None else self.find_proven(kind)

    def find_proven(self, kind: str) -> Evidence | None:
        """Return the newest evidence of a kind that applies to all sessions; None before three sessions met
        it.

        Calls outside of sessions do not count.
        """
        found = [one for one in self.list_fresh(kind) if one.session != 0]
        return found[0] if len(found) >= SESSIONS else None

    def list_fresh(self, kind: str) -> list[Evidence]:
        """Return the evidence of a kind that is not too old, one entry per session, newest first."""
        kept = self._kinds.get(kind, {}).values()
        return [one for one in reversed(kept) if self._is_fresh(one)]

    def list_kinds(self) -> tuple[str, ...]:
        """Return all kinds that have evidence, also where it is too old."""
        return tuple(self._kinds)

    def forget(self, kind: str) -> None:
        """Delete the evidence of a kind from all sessions, after an answer has disproved the fault."""
        self._kinds.pop(kind, None)

    def forget_session(self, session: int) -> None:
        """Delete all evidence of a session."""
        for sessions in self._kinds.values():
            sessions.pop(session, None)

    def _is_fresh(self, one: Evidence) -> bool:
        return self._clock() - one.at < self._kept_seconds
