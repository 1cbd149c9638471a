"""Models whose server counts fewer tokens than were sent: which sessions have met it."""

from __future__ import annotations

from shared.core.verdicts.evidence import Clock, EvidenceLog

KEPT_SECONDS = 86_400.0
"""Seconds for which a low count is kept against the model's server."""
_KIND = "low_count"


class LowCounts:
    """Evidence of counts that were too low; then even counts that look possible are not believed."""

    def __init__(self, *, clock: Clock) -> None:
        self._log = EvidenceLog(clock=clock, kept_seconds=KEPT_SECONDS)

    def record(self, *, session: int) -> None:
        """Keep that a count was too low for what the session had sent."""
        self._log.record(_KIND, session=session)

    def are_suspected(self, *, session: int) -> bool:
        """Return whether counts of this session are not believed."""
        return self._log.find(_KIND, session=session) is not None

    def clear(self) -> None:
        """Forget all: a count was right for plain text, whose tokens hardly depend on the vocabulary."""
        self._log.forget(_KIND)
