"""A plugin of pytest: runs the tests of some rows with some seeds, and notes what became of each row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

MESSAGE_CHARS = 160


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What is known of one row when its tests have run."""

    tests: int = 0
    passed: int = 0
    seconds: float = 0.0
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Test and message."""
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """`ok`, or why not."""
        for what, found in (("failed", self.failed), ("skipped", self.skipped)):
            if found:
                more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
                return f"{what}: {found[0][0]}: {found[0][1]}{more}"
        if not self.tests:
            return "no test"
        if self.passed < self.tests:
            return f"not run: {self.tests - self.passed} of {self.tests} tests"
        return "ok"


@dataclass(slots=True, kw_only=True)
class Verdicts:
    """Of all rows of one run."""

    rows: dict[str, Verdict] = field(default_factory=dict)
    broken: list[tuple[str, str]] = field(default_factory=list)
    """Files that could not be read, and why."""

    def write(self, path: Path) -> None:
        """In one step: a reader finds the whole of it, or that of before."""
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(asdict(self)))
        beside.replace(path)

    @classmethod
    def read(cls, path: Path) -> Verdicts:
        told: dict[str, Any] = json.loads(path.read_text())
        rows = {number: Verdict(**verdict) for number, verdict in told["rows"].items()}
        return cls(rows=rows, broken=told["broken"])


class Recorder:
    """Hears what became of each test."""

    def __init__(self, wanted: Sequence[str], path: Path | None = None) -> None:
        self._path = path
        self.found = Verdicts(rows={number: Verdict() for number in wanted})
        self._rows: dict[str, list[str]] = {}

    def chooses(self, item: pytest.Item) -> bool:
        rows = [number for number in numbers_of(item) if number in self.found.rows]
        for number in rows:
            self.found.rows[number].tests += 1
        self._rows[item.nodeid] = rows
        return bool(rows)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for number in self._rows.get(report.nodeid, ()):
            verdict = self.found.rows[number]
            verdict.seconds += report.duration
            if report.failed:
                verdict.failed.append((report.nodeid, _message(report)))
            elif report.skipped:
                verdict.skipped.append((report.nodeid, _why(report)))
            elif report.when == "call":
                verdict.passed += 1
        if report.when == "teardown":
            self.write()

    def write(self) -> None:
        """After each test: whoever kills the run still learns what has run until then."""
        if self._path is not None:
            self.found.write(self._path)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found.broken.append((report.nodeid, _last_line(str(report.longrepr))))


def numbers_of(item: pytest.Item) -> list[str]:
    """In their order, each once."""
    return list(dict.fromkeys(str(number) for mark in item.iter_markers("row") for number in mark.args))


def seeds_of(words: str) -> range:
    """`20` is 1 to 20, `417-420` those four. Raises ValueError."""
    first, dash, last = words.partition("-")
    found = range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
    if not found or found[0] < 1:
        raise ValueError(words)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rows of the table of faults")
    group.addoption("--rows", default="", help="run the tests of these rows only: F09,F10")
    group.addoption("--seeds", default="", help="repeat with these seeds what draws: 20, or 417-420")
    group.addoption("--verdicts", default="", help="write what became of each row into this file")


_RECORDER = pytest.StashKey[Recorder]()


def pytest_configure(config: pytest.Config) -> None:
    if wanted := [number for number in config.getoption("--rows").split(",") if number]:
        path = config.getoption("--verdicts")
        config.stash[_RECORDER] = recorder = Recorder(wanted, Path(path) if path else None)
        config.pluginmanager.register(recorder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """For the whole session: what is made once for many tests may draw, too."""
    if (words := metafunc.config.getoption("--seeds")) and "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds_of(words), ids=lambda seed: f"seed{seed}", scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    recorder = config.stash.get(_RECORDER, None)
    if recorder is not None:
        chosen = [item for item in items if recorder.chooses(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (recorder := session.config.stash.get(_RECORDER, None)) is not None:
        recorder.write()


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    words = str(crash.message) if crash is not None else _last_line(report.longreprtext)
    return next(_short(words), "")


def _why(report: pytest.TestReport) -> str:
    told = report.longrepr
    return next(_short(str(told[2] if isinstance(told, tuple) else told)), "")


def _short(words: str) -> Iterator[str]:
    for line in words.splitlines():
        if line.strip():
            yield line.strip()[:MESSAGE_CHARS]


def _last_line(words: str) -> str:
    return ["", *_short(words)][-1]
