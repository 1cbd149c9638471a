"""Windows of models as their servers' refusals name them, and accepted prompts that disprove them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from shared.core.verdicts.evidence import SESSIONS, Clock

BELIEVED_SECONDS = 1_800.0
"""Seconds for which a proven window is assumed; each later refusal that confirms it doubles them."""
_LONGEST_BELIEVED_SECONDS = 86_400.0
REMEMBERED_SECONDS = 86_400.0
"""Seconds after which a refusal no longer counts."""
REFUSALS = 2
"""Refusals that prove a window; they may come from one session, since the server states its own limit."""
SMALLEST_WINDOW = 1_000
"""Smallest number in a refusal that can be a window."""
LARGEST_WINDOW = 1_000_000_000
"""Largest number in a refusal that can be a window."""
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
    """Model whose provider refuses requests that should fit into its window, as operators see it."""

    provider: str
    model: str
    window: int
    """Window in tokens that is assumed at present."""
    expected: int
    """Window in tokens that the model should have."""
    sessions: tuple[int, ...] = ()
    """Internal ids of the sessions that met the refusals, newest first."""


class LearnedWindow:
    """Window in tokens of one model at one provider, learned from refusals of too long prompts.

    It is kept in the memory of this process and assumed for half an hour to a day; a larger prompt that is
    accepted disproves it.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._refusals: deque[_WindowRefusal] = deque(maxlen=_MOST_REFUSALS)
        self._belief: _Belief | None = None

    def record_accepted(self, tokens: int) -> None:
        """Record that a prompt of `tokens` tokens was accepted; refusals that named a smaller window are
        deleted.

        An assumed window that is smaller ends at once.
        """
        if any(one.maximum < tokens for one in self._refusals):
            kept = (one for one in self._refusals if one.maximum >= tokens)
            self._refusals = deque(kept, maxlen=_MOST_REFUSALS)
        if self._belief is not None and self._belief.maximum < tokens:
            self._belief = None

    def record_refused(self, maximum: int, *, session: int, is_quoted: bool = False) -> bool:
        """Record the window in tokens that a refusal names; return True if it is now assumed for every
        session.

        That needs two refusals with this number. `is_quoted` says that the number also occurs in the refused
        conversation: the server may repeat it, so three sessions must meet it. A number outside
        `SMALLEST_WINDOW` to `LARGEST_WINDOW` is ignored.
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
        """Return the window in tokens that is assumed now; None if there is none."""
        belief = self._belief
        return belief.maximum if belief is not None and self._clock() < belief.until else None

    def list_sessions(self) -> tuple[int, ...]:
        """Return the ids of sessions whose refusals named the assumed window, newest first; empty if none is
        assumed.
        """
        maximum = self.get_believed_maximum()
        found = (one.session for one in reversed(self._refusals) if one.maximum == maximum and one.session)
        return tuple(dict.fromkeys(found))

    def _is_proven(self, maximum: int) -> bool:
        oldest = self._clock() - REMEMBERED_SECONDS
        same = [one for one in self._refusals if one.maximum == maximum and one.at > oldest]
        plain = [one for one in same if not one.is_quoted]
        return len(plain) >= REFUSALS or len({one.session for one in same if one.session}) >= SESSIONS
