"""Abilities that a model lacks: learned from refusals, kept for a day, probed while they apply to all
sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from shared.core.verdicts.evidence import Clock, Evidence, EvidenceLog

KEPT_SECONDS = 86_400.0
"""Seconds for which a lesson is kept; then the ability is tried again, since servers are updated."""
PROBE_SECONDS = 60.0
"""Seconds until an ability missing for all sessions is probed; each failed probe doubles the wait."""
_LONGEST_PROBE_SECONDS = 3_600.0

Ability = Literal[
    "tools", "images", "json", "system", "system_blocks", "thinking", "cache", "max_tokens", "output_limit",
    "null_content", "empty_content", "alternation", "user_after_tool", "schema_keywords", "stream_options",
    "prompt_cache_options", "opaque_state",
]  # fmt: skip
"""Parts of a request that a server may refuse; `max_tokens` is the field's name, `output_limit` its value."""
_ABILITIES: tuple[Ability, ...] = get_args(Ability)
_THOUGHT = "thought_in_prompt"
_QUIET_END = "quiet_end"

_STRONGER: Mapping[Ability, Ability] = {"null_content": "empty_content"}
"""Ability to blame instead if the server refuses the same wording although the first was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingAbility:
    """Ability that a server refused, as read from its error; `number` is the limit that it named, None
    without one.
    """

    ability: Ability
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedAbility:
    """Refusal by a model's server, as operators see it; `number` is the limit that it named, None without
    one.
    """

    provider: str
    model: str
    ability: Ability
    number: int | None
    wording: str
    """Wording of the server, cut and without secrets."""
    age_seconds: float
    sessions: tuple[int, ...] = ()
    """Internal ids of the sessions that met the refusal, newest first."""
    for_all: bool = True
    """True if requests of all sessions leave the ability out."""


@dataclass(slots=True)
class _Probe:
    at: float
    pause_seconds: float


class LearnedAbilities:
    """Abilities that one model at one provider was seen to lack, kept in the memory of this process for a
    day.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._log = EvidenceLog(clock=clock, kept_seconds=KEPT_SECONDS)
        self._probes: dict[Ability, _Probe] = {}

    def learn(
        self,
        missing: MissingAbility,
        wording: str,
        *,
        session: int,
        known: Mapping[Ability, int | None],
    ) -> bool:
        """Record a refusal that a session met; return True if it changes what the session's next request
        leaves out.

        `known` are the abilities that the refused request left out already, with their limits. If it returns
        False, nothing was recorded, and a retry would be refused again.
        """
        ability, number = missing.ability, missing.number
        while ability in known and not _is_smaller(number, known[ability]):
            if ability not in _STRONGER:
                return False
            ability = _STRONGER[ability]
        self._log.record(ability, session=session, number=number, wording=wording)
        if ability not in self._probes and self._log.find_proven(ability) is not None:
            self._probes[ability] = _Probe(self._clock() + PROBE_SECONDS, PROBE_SECONDS)
        return True

    def list_missing(self, session: int) -> Mapping[Ability, int | None]:
        """Return each ability that a session's request must leave out, with the limit that the server named
        (None without).
        """
        if not self._log.list_kinds():
            return {}
        found = ((name, self._log.find(name, session=session)) for name in _ABILITIES)
        return {name: evidence.number for name, evidence in found if evidence is not None}

    def find_probe(self, session: int) -> Ability | None:
        """Return an ability that a request of this session should try again now; None if none is due.

        Only abilities that all sessions leave out are probed, and not by a session that met the refusal
        itself.
        """
        now = self._clock()
        for ability, probe in self._probes.items():
            own = self._log.find_own(ability, session=session)
            if now >= probe.at and own is None and self._log.find_proven(ability) is not None:
                return ability
        return None

    def start_probe(self, ability: Ability) -> None:
        """Record that a request tries the ability, so that no other does until the next probe.

        Each probe doubles the wait, up to an hour. Raises KeyError for an ability that is not probed.
        """
        probe = self._probes[ability]
        probe.pause_seconds = min(2.0 * probe.pause_seconds, _LONGEST_PROBE_SECONDS)
        probe.at = self._clock() + probe.pause_seconds

    def heal(self, ability: Ability) -> None:
        """Delete the evidence that the ability is missing, for all sessions, after an answer that used it."""
        self._log.forget(ability)
        self._probes.pop(ability, None)

    def note_thought_in_prompt(self, *, session: int) -> None:
        """Record for a day that a session's answers begin inside a thought, which must not be shown."""
        self._log.record(_THOUGHT, session=session)

    def begins_in_thought(self, session: int) -> bool:
        """Return whether a session's answers begin inside a thought."""
        return self._log.find(_THOUGHT, session=session) is not None

    def note_quiet_end(self, *, session: int) -> None:
        """Record for a day that a session's streams close without an end event, which is then no failure."""
        self._log.record(_QUIET_END, session=session)

    def ends_quietly(self, session: int) -> bool:
        """Return whether a session's streams close without an end event."""
        return self._log.find(_QUIET_END, session=session) is not None

    def describe(self, *, provider: str, model: str) -> tuple[LearnedAbility, ...]:
        """Return the lessons as operators see them, newest first; provider and model are copied into them."""
        found = [
            self._describe(name, evidence, provider=provider, model=model)
            for name in _ABILITIES
            if (evidence := self._log.list_fresh(name))
        ]
        return tuple(sorted(found, key=lambda one: one.age_seconds))

    def _describe(
        self, ability: Ability, evidence: list[Evidence], *, provider: str, model: str
    ) -> LearnedAbility:
        newest = evidence[0]
        return LearnedAbility(
            provider=provider, model=model, ability=ability, number=newest.number, wording=newest.wording,
            age_seconds=self._clock() - newest.at, sessions=tuple(one.session for one in evidence),
            for_all=self._log.find_proven(ability) is not None,
        )  # fmt: skip


def _is_smaller(number: int | None, known: int | None) -> bool:
    return number is not None and known is not None and number < known
