"""Windows of models as their servers' refusals name them, and prompts that disprove such a number."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from shared.core.verdicts.evidence import SESSIONS, Clock

BELIEVED_SECONDS = 1_800.0
"""Seconds for which a proven number is believed; each later refusal that confirms it doubles them."""
_LONGEST_BELIEVED_SECONDS = 86_400.0
REMEMBERED_SECONDS = 86_400.0
"""Seconds after which a refusal proves nothing any more."""
REFUSALS = 2
"""Refusals that prove a number: a server says it of itself, so that one session is enough."""
SMALLEST_WINDOW = 1_000
"""A smaller number in a refusal is surely something else."""
LARGEST_WINDOW = 1_000_000_000
_MOST_REFUSALS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowRefusal:
    at: float
    maximum: int
    session: int
    is_quoted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Belief:
    maximum: int
    until: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedWindow:
    """Model whose provider keeps refusing requests that should fit its window."""

    provider: str
    model: str
    window: int
    """Tokens that a request has at most while the number is believed."""
    expected: int
    sessions: tuple[int, ...] = ()
    """Internal numbers of the sessions that met the refusals, newest first."""


class LearnedWindow:
    """Window in tokens of one model at one provider, learned from refusals of prompts that were too long.

    The number is believed for a time; a larger prompt that is accepted later disproves it.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._refusals: deque[_WindowRefusal] = deque(maxlen=_MOST_REFUSALS)
        self._belief: _Belief | None = None

    def record_accepted(self, tokens: int) -> None:
        """Forget each learned number that an accepted prompt of `tokens` tokens exceeds.

        Refusals after this call are not checked against it.
        """
        if any(one.maximum < tokens for one in self._refusals):
            kept = (one for one in self._refusals if one.maximum >= tokens)
            self._refusals = deque(kept, maxlen=_MOST_REFUSALS)
        if self._belief is not None and self._belief.maximum < tokens:
            self._belief = None

    def record_refused(self, maximum: int, *, session: int, is_quoted: bool = False) -> bool:
        """Record the window in tokens that a refusal names; return True if every session believes it now.

        `is_quoted` is true for a number that stands in the refused conversation itself: the server may have
        repeated it, so three different sessions must meet it. A number outside `SMALLEST_WINDOW` to
        `LARGEST_WINDOW` is ignored.
        """
        if not SMALLEST_WINDOW <= maximum <= LARGEST_WINDOW:
            return False
        now = self._clock()
        self._refusals.append(_WindowRefusal(at=now, maximum=maximum, session=session, is_quoted=is_quoted))
        if not self._is_proven(maximum):
            return False
        former = self._belief
        seconds = BELIEVED_SECONDS
        if former is not None and former.maximum == maximum:
            renewed = 2.0 * former.seconds if now >= former.until else former.seconds
            seconds = min(renewed, _LONGEST_BELIEVED_SECONDS)
        self._belief = _Belief(maximum=maximum, until=now + seconds, seconds=seconds)
        return True

    def get_believed_maximum(self) -> int | None:
        """Return the window in tokens that is believed now; None if there is none or its time has passed."""
        belief = self._belief
        return belief.maximum if belief is not None and self._clock() < belief.until else None

    def list_sessions(self) -> tuple[int, ...]:
        """Return the sessions whose refusals named the believed number, newest first."""
        maximum = self.get_believed_maximum()
        found = (one.session for one in reversed(self._refusals) if one.maximum == maximum and one.session)
        return tuple(dict.fromkeys(found))

    def _is_proven(self, maximum: int) -> bool:
        oldest = self._clock() - REMEMBERED_SECONDS
        same = [one for one in self._refusals if one.maximum == maximum and one.at > oldest]
        plain = [one for one in same if not one.is_quoted]
        return len(plain) >= REFUSALS or len({one.session for one in same if one.session}) >= SESSIONS
