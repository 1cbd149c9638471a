"""When automatic compaction rests, after failures or where it does not help, and models that cannot do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

BREAKER_FAILURES = 3
BREAKER_SECONDS = 900.0
"""After three failures in a row, background compaction of a session rests this long."""
THRASH_TIMES = 3
THRASH_TURNS = 3
"""Above the limit again within so many turns after a compaction, so many times in a row: it does not help."""
THRASH_LEAST_BUDGET = 4_000
"""A policy or a window that allows less wants a summary every few turns; that is no thrashing."""
BACKOFF_TURNS = 20
"""After so many turns the conversation is another one, so that no rest is for ever."""
NOTHING_TURNS = 5
SAME_LIMIT = 0.1
"""A limit is learned with the ratio of each turn; so small a change of it changes nothing."""
UNUSABLE_TIMES = 3
UNUSABLE_SECONDS, UNUSABLE_SECONDS_MOST = 900.0, 21_600.0
"""A model whose answers could not be used in so many summaries in a row is not asked for so long; each
further one doubles it."""
EXCUSED = frozenset(
    {
        "model_unavailable", "model_busy", "model_refused_account", "cap_reached", "prompt_too_long",
        "content_refused",
    }
)  # fmt: skip
"""Failures that say nothing of whether a model can write a summary: nobody answered, or not this."""
BY_SIZE = frozenset({"limit", "overflow"})
MANUAL = "manual"

BackoffReason = Literal["thrashing", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionBackoff:
    """Automatic compaction stops until one of these has changed, somebody compacts, or turns have passed."""

    reason: BackoffReason
    limit: int
    model: str
    pins: tuple[int, ...]
    until_turn: int

    def holds(self, *, limit: int, model: str, pins: tuple[int, ...], turn: int) -> bool:
        same = (self.model, self.pins) == (model, pins)
        near = abs(limit - self.limit) <= SAME_LIMIT * self.limit
        return same and near and turn < self.until_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How an earlier compaction job of the session ended."""

    trigger: str
    state: str
    faults: int
    outcome: Mapping[str, Any]
    age_seconds: float

    @property
    def committed(self) -> bool:
        return "link" in self.outcome

    @property
    def failures(self) -> int:
        """Attempts that broke, and a digest that stands in for a summary which no model could write."""
        if self.state == "dead" and "nothing" not in self.outcome:
            return max(1, self.faults)
        return int(self.committed and self.outcome.get("kind") == "digest")

    @property
    def tells_nothing(self) -> bool:
        """A job that never came to ask a model says nothing about how it would have gone."""
        return "nothing" in self.outcome or bool(self.outcome.get("resting"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEnd:
    """How the summary of some range came to be, in any conversation."""

    model: str
    """Who wrote it; empty for a digest."""
    unusable: frozenset[str]
    """Models whose answers could not be used."""
    age_seconds: float


def unusable_models(attempts: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Of the attempts that a summary's audit tells, those of models that answered, and not as they should."""
    return frozenset(
        str(attempt["model"])
        for attempt in attempts
        if attempt.get("step") != "commit" and str(attempt.get("fault", "")).partition(":")[0] not in EXCUSED
    )


def unusable_seconds(written: Sequence[SummaryEnd], model: str) -> float:
    """Seconds that a model still rests whose summaries cannot be used; `written` are newest first."""
    failures, newest = 0, 0.0
    for end in written:
        if end.model == model:
            break
        if model in end.unusable:
            newest = newest if failures else end.age_seconds
            failures += 1
    if failures < UNUSABLE_TIMES:
        return 0.0
    rest = min(UNUSABLE_SECONDS_MOST, UNUSABLE_SECONDS * 2.0 ** (failures - UNUSABLE_TIMES))
    return max(0.0, rest - newest)


def breaker_seconds(ends: Sequence[JobEnd]) -> float:
    """Seconds that background compaction still rests; `ends` are the session's jobs, newest first."""
    failures, newest = 0, None
    for end in ends:
        if end.trigger == MANUAL or end.tells_nothing:
            continue
        if not end.failures:
            break
        newest = end.age_seconds if newest is None else newest
        failures += end.failures
    if newest is None or failures < BREAKER_FAILURES:
        return 0.0
    return max(0.0, BREAKER_SECONDS - newest)


def is_thrashing(ends: Sequence[JobEnd], *, now_turn: int) -> bool:
    """Whether the last compactions by size were each followed by the next need within a few turns."""
    later = now_turn
    times = 0
    for end in ends:
        if not end.committed:
            continue
        at = end.outcome.get("at_turn")
        if end.trigger not in BY_SIZE or not isinstance(at, int) or later - at > THRASH_TURNS:
            return False
        times += 1
        later = at
        if times == THRASH_TIMES:
            return True
    return False


def backoff_from_json(raw: Mapping[str, Any] | None) -> CompactionBackoff | None:
    if raw is None:
        return None
    return CompactionBackoff(
        reason=raw["reason"],
        limit=raw["limit"],
        model=raw["model"],
        pins=tuple(raw["pins"]),
        until_turn=raw["until_turn"],
    )


def backoff_to_json(rest: CompactionBackoff) -> dict[str, Any]:
    return {
        "reason": rest.reason,
        "limit": rest.limit,
        "model": rest.model,
        "pins": list(rest.pins),
        "until_turn": rest.until_turn,
    }
