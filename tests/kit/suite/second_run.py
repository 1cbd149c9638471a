"""Plug-in of pytest: runs each failed test again at the end, alone, in a fresh process.

pytest-rerunfailures and its relatives repeat a test at once, in the same process and beside the others, where
a busy machine fails it again. This plug-in lives in the process that the workers of xdist report to.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.suite.alone import MOST_CHARS, Result, run_alone

MOST_FLAKY = 3
"""Most flaky tests of a run that passes; more of them show another fault than a busy machine."""
MOST_SECOND_RUNS = 20
"""Most failed tests that are run again; more failures have another reason than a busy machine."""
ALL_SECONDS = 1_800.0
"""Seconds for all second runs together; a test for which no time is left counts as failed."""


@dataclass(slots=True, kw_only=True)
class Failure:
    """First failure of one test, and the result of its second run."""

    name: str
    load: float
    at: datetime
    reports: list[pytest.TestReport] = field(default_factory=list)
    has_crashed: bool = False
    """Whether the test crashed its process; a second run does not excuse that."""
    second: Result | None = None

    @property
    def is_flaky(self) -> bool:
        return self.second is not None and self.second.has_passed and not self.has_crashed

    @property
    def text(self) -> str:
        return "\n".join(_describe(report) for report in self.reports)[-MOST_CHARS:]

    @property
    def first_line(self) -> str:
        """First line of the error, as in pytest's own summary."""
        told = self.reports[0].longrepr
        crash = getattr(told, "reprcrash", None)
        text = str(crash.message) if crash is not None else str(told)
        return next(iter(text.strip().splitlines()), "")[:200]


class SecondRun:
    """The plug-in; `most_flaky` is the number of flaky tests with which a run still passes."""

    def __init__(self, *, most_flaky: int, record: Path) -> None:
        self._most_flaky = most_flaky
        self._record = record
        self._failures: dict[str, Failure] = {}
        self._reported: set[str] = set()
        self._lost_workers: list[str] = []
        self._internal_errors: list[str] = []
        self._flaky: list[Failure] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._record.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reported.add(report.nodeid)
        if report.failed:
            self._failure(report.nodeid).reports.append(report)

    def _failure(self, name: str) -> Failure:
        """Return the failure of a test, with the load of the moment when it first failed."""
        now = Failure(name=name, load=os.getloadavg()[0], at=datetime.now(UTC))
        return self._failures.setdefault(name, now)

    def pytest_internalerror(self, excrepr: object) -> None:
        self._internal_errors.append(str(excrepr)[-MOST_CHARS:])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error is not None:
            self._lost_workers.append(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Remember which test crashed its worker; xdist reports it as failed afterwards."""
        self._failure(crashitem).has_crashed = True
        self._lost_workers.remove(report.node.gateway.id)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        try:
            result = yield
        except Exception as error:
            add_failure(session, "pytest", f"The run broke off: {error!r}")
            raise
        if not session.config.option.collectonly:
            self._add_losses(session)
            self._run_again(session)
            self._write_record()
        return result

    def _add_losses(self, session: pytest.Session) -> None:
        """Fail the run for each loss that belongs to no test; xdist alone would report success."""
        for worker in self._lost_workers:
            add_failure(session, f"worker {worker}", "The process ended between two tests.")
        for text in self._internal_errors:
            add_failure(session, "a worker of pytest", text)
        missing = session.testscollected - len(self._reported)
        if missing > 0:
            add_failure(session, "the run", f"{missing} collected tests have no result.")
        # xdist runs a test that crashed its worker again in the next worker; the test counts as failed
        # nevertheless
        passed = _reporter(session.config).stats.get("passed", [])
        crashed = {failure.name for failure in self._failures.values() if failure.has_crashed}
        passed[:] = [report for report in passed if report.nodeid not in crashed]

    def _run_again(self, session: pytest.Session) -> None:
        if not self._failures:
            return
        reporter = _reporter(session.config)
        reporter.write_line("")
        if len(self._failures) > MOST_SECOND_RUNS:
            reporter.write_line(f"{len(self._failures)} tests failed, which is too many to run them again.")
            return
        ends, options = time.monotonic() + ALL_SECONDS, _options(session.config)
        for failure in self._failures.values():
            reporter.write(f"again, alone: {failure.name} ")
            reporter.flush()
            left = ends - time.monotonic()
            if left > 0:
                failure.second = run_alone(
                    failure.name, folder=session.config.rootpath, seconds=left, options=options
                )
            else:
                failure.second = Result(has_passed=False, output="All second runs took too long together.")
            reporter.write_line("passed" if failure.second.has_passed else "failed again")
            failure.reports[-1].sections.append((_headline(failure), failure.second.output))
        self._flaky = [failure for failure in self._failures.values() if failure.is_flaky]
        if len(self._flaky) <= self._most_flaky:
            for failure in self._flaky:
                _excuse(session, failure)
        for failure in self._flaky:
            session.config.hook.pytest_runtest_logreport(report=_flaky_report(failure))

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Let the closing line count flaky tests beside passed and failed ones."""
        return ("flaky", "", "") if getattr(report, "is_flaky", False) else None

    def _write_record(self) -> None:
        """Replace the file in one step, so that a reader finds all of it or none."""
        content = {
            "most_flaky": self._most_flaky,
            "cores": os.cpu_count(),
            "tests": [
                {
                    "name": failure.name,
                    "first_failure": failure.text,
                    "load": round(failure.load, 2),
                    "at": failure.at.isoformat(timespec="seconds"),
                }
                for failure in self._flaky
            ],
        }
        self._record.parent.mkdir(parents=True, exist_ok=True)
        beside = self._record.with_suffix(".part")
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(self._record)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, Any, Any]:
        """Print the flaky tests below pytest's own summary, where a reader looks first."""
        result = yield
        if self._flaky:
            terminalreporter.write_sep("=", "flaky: failed, then passed alone", yellow=True)
            for failure in self._flaky:
                terminalreporter.write_line(
                    f"FLAKY {failure.name} - {failure.first_line} "
                    f"(load {failure.load:.1f} on {os.cpu_count()} cores)"
                )
            terminalreporter.write_line(f"The first failures are in {self._record}.")
            if len(self._flaky) > self._most_flaky:
                allowed = "none is" if not self._most_flaky else f"at most {self._most_flaky} are"
                terminalreporter.write_line(
                    f"Of flaky tests {allowed} allowed here, so they count as failed."
                )
        return result


def _options(config: pytest.Config) -> list[str]:
    """Return the options of this run that change what a test does."""
    options = ["--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    for letter, values in (
        ("-p", config.option.plugins),
        ("-o", config.option.override_ini or ()),
        ("-W", config.option.pythonwarnings or ()),
    ):
        options += [word for value in values for word in (letter, value)]
    return [*options, "--night"] if config.getoption("--night", False) else options


def add_failure(session: pytest.Session, name: str, text: str) -> None:
    """Add a failure that is no test's to the summary, the closing line and the exit code."""
    report = pytest.TestReport(
        nodeid=name, location=(name, None, name), keywords={}, outcome="failed", longrepr=text, when="call"
    )
    _reporter(session.config).stats.setdefault("failed", []).append(report)
    session.testsfailed += 1


def _excuse(session: pytest.Session, failure: Failure) -> None:
    """Take the failed reports of a test back, and count it as passed."""
    stats = _reporter(session.config).stats
    for kind in ("failed", "error"):
        kept = [report for report in stats.pop(kind, []) if report not in failure.reports]
        if kept:
            stats[kind] = kept
    session.testsfailed -= len(failure.reports)
    if failure.name not in {report.nodeid for report in stats.get("passed", [])}:
        first = failure.reports[0]
        stats.setdefault("passed", []).append(_report(first.nodeid, first.location))


def _flaky_report(failure: Failure) -> pytest.TestReport:
    report = _report(failure.name, failure.reports[0].location)
    vars(report)["is_flaky"] = True
    return report


def _report(name: str, location: tuple[str, int | None, str]) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=name, location=location, keywords={}, outcome="passed", longrepr=None, when="call"
    )


def _headline(failure: Failure) -> str:
    if failure.second is None or not failure.second.has_passed:
        return "Second run, alone: failed again"
    return f"Second run, alone: passed{', but a crashed process is not excused' * failure.has_crashed}"


def _describe(report: pytest.TestReport) -> str:
    sections = [f"{title}\n{content}" for title, content in report.sections if "Second run" not in title]
    return "\n".join([f"[{report.when}]", report.longreprtext, *sections])


def _reporter(config: pytest.Config) -> Any:
    return config.pluginmanager.get_plugin("terminalreporter")
