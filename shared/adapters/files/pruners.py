"""Plug-ins that shorten tool results: found by entry point, and disabled at their first fault."""

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
"""Group of entry points in which plug-ins register pruners."""
CALL_SECONDS = 0.25
"""Seconds that a pruner may take, since it runs between two calls of the model; a slower one is disabled."""
_SAMPLE = "An old result of a tool, long enough to be worth shortening. " * 200

Report = Callable[[str, str], None]
"""Function that reports a fault: gets the plug-in's name and a description of the fault."""


class GuardedPruner:
    """Pruner of a plug-in, disabled in this process at its first fault.

    A fault is an exception, a call beyond CALL_SECONDS, or a text that is not shorter or cannot be stored.
    Returns the shortened text, or None if there is none.
    """

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
        # A thread of its own: a call that never returns must not keep the process from ending.
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
    """Return all pruners in `found` that can be imported, ordered by name; others are reported, else logged.

    `found` None means the installed ones.
    """
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
    """Run each installed pruner on a sample; return how many work, and a description of each fault."""
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
