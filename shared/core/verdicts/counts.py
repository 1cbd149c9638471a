"""Sessions in which a model's server reported fewer tokens than were sent."""

from __future__ import annotations

from shared.core.verdicts.evidence import Clock, EvidenceLog

KEPT_SECONDS = 86_400.0
"""Seconds for which a low count is remembered."""
_KIND = "low_count"


class LowCounts:
    """Sessions in which a model's server reported too few tokens; while this applies, even plausible counts
    are ignored.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._log = EvidenceLog(clock=clock, kept_seconds=KEPT_SECONDS)

    def record(self, *, session: int) -> None:
        """Record that a count was too low for what the session had sent."""
        self._log.record(_KIND, session=session)

    def are_suspected(self, *, session: int) -> bool:
        """Return whether counts of this session should be ignored: it met a low count within a day, or three
        others did.
        """
        return self._log.find(_KIND, session=session) is not None

    def clear(self) -> None:
        """Forget all evidence, after a count was right for plain text, whose tokens are predictable."""
        self._log.forget(_KIND)
