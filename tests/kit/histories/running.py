"""Plays many histories, counts the checks, and keeps the first history that breaks each promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kit.histories.history import play_seed, preset_of, script_of, smallest
from tests.kit.histories.promises import Broken, Judge, Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    seed: int
    how: str
    preset: str
    script: tuple[tuple[str, int], ...]
    """The deeds that are needed to break the promise, each with its seed."""

    def __str__(self) -> str:
        deeds = ", ".join(f"({name!r}, {seed})" for name, seed in self.script)
        again = f"play([{deeds}], Judge(), preset={self.preset!r})"
        return f"seed {self.seed}: {self.how}\n    {again}"


@dataclass(slots=True)
class Findings:
    judge: Judge = field(default_factory=Judge)
    histories: int = 0
    broken: dict[Promise, Break] = field(default_factory=dict)
    failures: int = 0

    def add(self, other: Findings) -> None:
        self.judge.looked += other.judge.looked
        self.histories += other.histories
        self.failures += other.failures
        for promise, broken in other.broken.items():
            self.broken.setdefault(promise, broken)


def run(seeds: Iterable[int]) -> Findings:
    findings = Findings()
    for seed in seeds:
        findings.histories += 1
        try:
            play_seed(seed, findings.judge)
        except Broken as broken:
            findings.failures += 1
            if broken.promise not in findings.broken:
                findings.broken[broken.promise] = _shortest(seed, broken)
    return findings


def _shortest(seed: int, broken: Broken) -> Break:
    preset = preset_of(seed)
    script = smallest(script_of(seed), preset, broken.promise)
    return Break(seed=seed, how=str(broken), preset=preset, script=tuple(script))
