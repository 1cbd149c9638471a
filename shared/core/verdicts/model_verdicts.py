"""Verdicts on one model at one provider."""

from __future__ import annotations

from shared.core.verdicts.abilities import LearnedAbilities
from shared.core.verdicts.counts import LowCounts
from shared.core.verdicts.evidence import Clock
from shared.core.verdicts.rejections import Rejections
from shared.core.verdicts.windows import LearnedWindow


class ModelVerdicts:
    """Lessons about one model at one provider, in the memory of this process.

    These are missing abilities, its window, rejections, and how its server counts.
    """

    def __init__(self, *, clock: Clock) -> None:
        self.abilities = LearnedAbilities(clock=clock)
        self.window = LearnedWindow(clock=clock)
        self.rejections = Rejections(clock=clock)
        self.counts = LowCounts(clock=clock)
