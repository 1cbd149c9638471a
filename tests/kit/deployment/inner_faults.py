"""Faults inside a process of the fault suite: a jumping clock, a blocked loop, shortened constants.

Production code does not know them: the hatchery installs them before it runs the process's `main`.
"""

from __future__ import annotations

import importlib
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from shared.adapters.files.web_pages import FetchUrl
from shared.adapters.postgres.compaction import jobs_sql
from shared.adapters.postgres.db.pool import Named

CLOCK_SHIFTS = "FAULT_CLOCK_SHIFTS"
"""Setting with seconds, separated by commas: each SIGUSR1 sets the clock this far off, by the next number."""
BLOCK_SECONDS = "FAULT_BLOCK_SECONDS"
"""Setting with seconds for which SIGUSR2 keeps the main thread computing, so that its loop does nothing
else.
"""

POISON = "FAULT_POISON"
"""Setting `module.function=word`: a call with the word in an argument holds the interpreter's lock."""
POISON_WORD = "hemlock"

LOCAL_PAGES = "FAULT_LOCAL_PAGES"
"""Setting that allows fetching pages on the local machine, where a test serves them."""

CONSTANTS = "FAULT_CONSTANTS"
"""Setting that replaces constants, separated by commas: `worker.jobs.JOB_SECONDS=2`."""
UNKNOWN_KIND = "FAULT_UNKNOWN_KIND"
"""Setting with a kind of job that this process does not know, like an older version."""


def afflict(settings: Mapping[str, str]) -> None:
    for told in filter(None, settings.get(CONSTANTS, "").split(",")):
        _set(*told.split("="))
    if settings.get(LOCAL_PAGES):
        defaults = FetchUrl.__init__.__kwdefaults__
        assert defaults is not None
        defaults["permits"] = lambda _: True
    if poison := settings.get(POISON):
        _poison(*poison.split("="))
    if kind := settings.get(UNKNOWN_KIND):
        _forget(kind)
    if shifts := settings.get(CLOCK_SHIFTS):
        clock = _Clock()
        clock.install()
        steps = iter([float(shift) for shift in shifts.split(",")])
        signal.signal(signal.SIGUSR1, lambda *_: clock.jump(steps))
    if seconds := settings.get(BLOCK_SECONDS):
        signal.signal(signal.SIGUSR2, lambda *_: _compute(float(seconds)))


def _set(name: str, value: str) -> None:
    module, _, constant = name.rpartition(".")
    found = importlib.import_module(module)
    setattr(found, constant, type(getattr(found, constant))(float(value)))


def _poison(name: str, word: str) -> None:
    module, _, function = name.rpartition(".")
    found = importlib.import_module(module)
    healthy = getattr(found, function)

    def poisoned(*arguments: Any, **named: Any) -> Any:
        if word in repr((arguments, named)):
            re.match("(a*)*b", "a" * 60)
        return healthy(*arguments, **named)

    setattr(found, function, poisoned)


def _forget(kind: str) -> None:
    """Remove a kind of job from the statements that list due jobs and claim one."""
    for name in ("DUE_JOBS", "CLAIM_JOB"):
        statement: Named = getattr(jobs_sql, name)
        assert f", '{kind}'" in statement.sql, f"{name} does not name its kinds"
        statement.sql = statement.sql.replace(f", '{kind}'", "")


def _compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


class _Clock:
    """Wall clock that can jump; the monotonic clock is not affected, as on a real machine."""

    def __init__(self) -> None:
        self.shift = 0.0

    def jump(self, steps: Iterator[float]) -> None:
        self.shift = next(steps, self.shift)
        sys.stdout.write(f'{{"event": "clock_jumped", "seconds": {self.shift}}}\n')
        sys.stdout.flush()

    def install(self) -> None:
        true_time, true_ns = time.time, time.time_ns
        time.time = lambda: true_time() + self.shift
        time.time_ns = lambda: true_ns() + int(self.shift * 1e9)
        others = {datetime: _moments(self), date: _days(self)}
        # Modules that imported a name before have a reference to it.
        for module in [found for found in sys.modules.values() if hasattr(found, "__dict__")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, type) and value in others and module.__name__ != __name__:
                    setattr(module, name, others[value])


class _Alike(type):
    """Metaclass by which real datetimes and dates count as instances of the replaced classes."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _moments(clock: _Clock) -> type:
    class Moment(datetime, metaclass=_Alike):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=clock.shift)

    return Moment


def _days(clock: _Clock) -> type:
    class Day(date, metaclass=_Alike):
        @classmethod
        def today(cls) -> Any:
            return (datetime.now().astimezone() + timedelta(seconds=clock.shift)).date()

    return Day
