"""Abilities that one model lacks: learned from refusals, kept for a day, asked again afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from shared.adapters.models.dialects.abilities import STRONGER, Ability, MissingAbility
from shared.ports import ModelCard

KEPT_SECONDS = 86_400.0
"""Servers are updated; after a day the ability is tried again, at the price of one refused request."""
_OF_THE_CARD: frozenset[Ability] = frozenset({"tools", "images", "json", "thinking", "cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedAbility:
    """One thing that a model's server refused, for operators."""

    provider: str
    model: str
    ability: Ability
    number: int | None
    wording: str
    """The server's own words, cut and without secrets."""
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lesson:
    at: float
    number: int | None
    wording: str


class LearnedAbilities:
    """Lessons of one model at one provider; an instance lives as long as its process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lessons: dict[Ability, _Lesson] = {}
        self._thought_at: float | None = None

    def learn(self, missing: MissingAbility, wording: str) -> bool:
        """Keep the lesson; return False if it was known already, so that another request changes nothing."""
        known = self.list_missing()
        ability, number = missing.ability, missing.number
        while ability in known and not _is_smaller(number, known[ability]):
            if ability not in STRONGER:
                return False
            ability = STRONGER[ability]
        self._lessons[ability] = _Lesson(at=self._clock(), number=number, wording=wording)
        return True

    def list_missing(self) -> Mapping[Ability, int | None]:
        """Return each ability that is missing today, with the limit that the server named."""
        oldest = self._clock() - KEPT_SECONDS
        self._lessons = {name: lesson for name, lesson in self._lessons.items() if lesson.at > oldest}
        return {name: lesson.number for name, lesson in self._lessons.items()}

    def note_thought_in_prompt(self) -> None:
        """Keep for a day that answers begin in the middle of a thought, so that none of it is shown."""
        self._thought_at = self._clock()

    @property
    def begins_in_thought(self) -> bool:
        return self._thought_at is not None and self._clock() - self._thought_at < KEPT_SECONDS

    def narrow(self, card: ModelCard) -> ModelCard:
        """Return the card without what is missing, and with the longest answer that the server allows."""
        missing = self.list_missing()
        if not missing:
            return card
        limit = missing.get("output_limit")
        return replace(
            card,
            capabilities=card.capabilities - (missing.keys() & _OF_THE_CARD),
            max_output=card.max_output if limit is None else min(card.max_output, limit),
        )

    def describe(self, *, provider: str, model: str) -> tuple[LearnedAbility, ...]:
        """Return the lessons for operators, the newest first."""
        self.list_missing()
        now = self._clock()
        found = [
            LearnedAbility(
                provider=provider, model=model, ability=name, number=lesson.number, wording=lesson.wording,
                age_seconds=now - lesson.at,
            )
            for name, lesson in self._lessons.items()
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda one: one.age_seconds))


def _is_smaller(number: int | None, known: int | None) -> bool:
    return number is not None and known is not None and number < known
