"""Plug-ins that shorten tool results: found by entry point, kept from doing harm, reported once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from time import perf_counter

import structlog

from shared.core.session.prune_rules import Pruner
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.values.messages import storable

log = structlog.get_logger(__name__)

GROUP = "evertalk.pruners"
CALL_SECONDS = 0.25
"""A pruner is called between calls of the model; one that takes longer is not asked again."""
_SAMPLE = "An old result of a tool, long enough to be worth shortening. " * 200

Report = Callable[[str, str], None]
"""`report(name, problem)`"""


class GuardedPruner:
    """A plug-in that gave no shorter text, raised or dawdled is not asked again in this process."""

    def __init__(self, name: str, pruner: Pruner, report: Report) -> None:
        self._name = name
        self._pruner = pruner
        self._report = report
        self._off = False

    def __call__(self, tool_name: str, text: str, pruning: PruneStrategy) -> str | None:
        if self._off:
            return None
        said: list[object] = []
        began = perf_counter()
        # A thread of its own, because what never returns must not stop the process from ending.
        call = threading.Thread(target=self._call, args=(said, tool_name, text, pruning), daemon=True)
        call.start()
        call.join(CALL_SECONDS)
        took = perf_counter() - began
        answer = (
            said[0] if said and took <= CALL_SECONDS else TimeoutError(f"took longer than {CALL_SECONDS} s")
        )
        problem = _problem(answer, text)
        if problem:
            self._off = True
            self._report(self._name, problem)
            return None
        return answer if isinstance(answer, str) else None

    def _call(self, said: list[object], tool_name: str, text: str, pruning: PruneStrategy) -> None:
        try:
            said.append(self._pruner(tool_name, text, pruning))
        except Exception as error:  # noqa: BLE001  foreign code may raise anything
            said.append(error)


def load_pruners(
    found: Iterable[EntryPoint] | None = None, report: Report | None = None
) -> tuple[GuardedPruner, ...]:
    """Every installed plug-in that can be imported, in the order of their names."""
    points = entry_points(group=GROUP) if found is None else found
    tell = report or _log
    loaded: list[GuardedPruner] = []
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        try:
            pruner = point.load()
        except Exception as error:  # noqa: BLE001  foreign code may raise anything
            tell(point.name, f"cannot be imported: {type(error).__name__}: {error}")
            continue
        if not callable(pruner):
            tell(point.name, "is nothing that can be called")
            continue
        loaded.append(GuardedPruner(point.name, pruner, tell))
    return tuple(loaded)


def check_pruners(pruning: PruneStrategy, found: Iterable[EntryPoint] | None = None) -> tuple[int, list[str]]:
    """How many plug-ins work on a sample text, and what is wrong with the others."""
    wrong: list[str] = []
    pruners = load_pruners(found, lambda name, problem: wrong.append(f"{name} {problem}"))
    before = len(wrong)
    for pruner in pruners:
        pruner("sample", _SAMPLE, pruning)
    return len(pruners) - (len(wrong) - before), wrong


def _problem(answer: object, text: str) -> str:
    match answer:
        case Exception():
            return f"failed: {type(answer).__name__}: {answer}"
        case str() if len(answer) >= len(text):
            return f"gave {len(answer):,} characters for {len(text):,}"
        case str() if storable(answer) != answer:
            return "gave a text that cannot be stored"
        case str() | None:
            return ""
        case _:
            return f"gave a {type(answer).__name__} instead of a text or None"


def _log(name: str, problem: str) -> None:
    log.warning("pruner_ignored", pruner=name, problem=problem)
