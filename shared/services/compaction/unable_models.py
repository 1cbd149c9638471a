"""What models could not do twice in a row: they are asked in another way, and again so after a day."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

Ability = Literal["json", "tools"]
UNABLE_TIMES = 2
UNABLE_SECONDS = 86_400.0


class UnableModels:
    """Shared by all silent jobs of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, Ability], tuple[int, float]] = {}
        """How often, and when last."""

    def lacks(self, model: str, ability: Ability) -> bool:
        times, at = self._seen.get((model, ability), (0, 0.0))
        return times >= UNABLE_TIMES and self._clock() - at < UNABLE_SECONDS

    def lacked_by(self, model: str) -> frozenset[Ability]:
        abilities: tuple[Ability, ...] = ("json", "tools")
        return frozenset(ability for ability in abilities if self.lacks(model, ability))

    def learn(self, model: str, ability: Ability, *, able: bool) -> None:
        times, _ = self._seen.pop((model, ability), (0, 0.0))
        if not able:
            self._seen[model, ability] = (times + 1, self._clock())

    def learn_json(self, model: str, answer: str) -> None:
        """From an answer to a request for JSON; an empty one says nothing."""
        if answer.strip():
            self.learn(model, "json", able="{" in answer)
