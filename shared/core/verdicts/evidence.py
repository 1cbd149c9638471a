"""Evidence of faults by session, and the rule when it counts for every session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SESSIONS = 3
"""Different sessions that must have met the same fault before it counts for all: one text may cause it."""
_MOST_SESSIONS = 20
"""Sessions kept for a kind. With more than `SESSIONS` the verdict holds for all in any case."""

Clock = Callable[[], float]
"""Source of the current time in seconds; it never goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of one kind from one session; `times` in a row."""

    kind: str
    session: int
    """Internal number of the session; 0 for calls that belong to none."""
    at: float
    """Clock time of the newest fault."""
    times: int = 1
    number: int | None = None
    """Limit that the server named."""
    wording: str = ""
    """Server's own wording, without secrets."""


class EvidenceLog:
    """Evidence of one subject, such as a model at a provider."""

    def __init__(self, *, clock: Clock, kept_seconds: float) -> None:
        self._clock = clock
        self._kept_seconds = kept_seconds
        self._kinds: dict[str, dict[int, Evidence]] = {}

    def record(self, kind: str, *, session: int, number: int | None = None, wording: str = "") -> Evidence:
        """Keep a fault of a session, and return it with the number of times in a row."""
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
        """Return a session's own evidence of a kind; None if there is none, or it is too old."""
        found = self._kinds.get(kind, {}).get(session)
        return found if found is not None and self._is_fresh(found) else None

    def find(self, kind: str, *, session: int) -> Evidence | None:
        """Return the evidence that counts for a session: its own, else the newest of a kind proven for all.

        None if there is neither.
        """
        own = self.find_own(kind, session=session)
        return own if own is not None else self.find_proven(kind)

    def find_proven(self, kind: str) -> Evidence | None:
        """Return the newest evidence of a kind that counts for all; None before three sessions met it."""
        found = [one for one in self.list_fresh(kind) if one.session != 0]
        return found[0] if len(found) >= SESSIONS else None

    def list_fresh(self, kind: str) -> list[Evidence]:
        """Return the evidence of a kind that is not too old, one entry per session, newest first."""
        kept = self._kinds.get(kind, {}).values()
        return [one for one in reversed(kept) if self._is_fresh(one)]

    def list_kinds(self) -> tuple[str, ...]:
        """Return all kinds that have evidence."""
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
