"""Plug-in of pytest: checks style and types beside the tests, and counts a check that fails as a failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests.kit.suite.second_run import add_failure

QUICK = (("ruff", "check", "."), ("ruff", "format", "--check", "."))
ROOMS = ("bot", "shared", "web", "worker", "tests")


class Checks:
    """The plug-in: `quick` checks come before the first test, the `slow` one runs beside them.

    mypy uses one core for a minute. Its output comes before the summary of the tests, so that pytest's
    closing line remains the last one.
    """

    def __init__(
        self,
        root: Path,
        output: IO[bytes],
        *,
        quick: Sequence[Sequence[str]] = QUICK,
        slow: Sequence[str] | None = None,
    ) -> None:
        self._root, self._output = root, output
        self._quick = quick
        self._slow = slow or ("mypy", *(name for name in ROOMS if (root / name).is_dir()))
        self._failed: list[tuple[str, str]] = []
        self._running: subprocess.Popen[bytes] | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        for check in self._quick:
            done = subprocess.run(
                self._command(check), cwd=self._root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                check=False,
            )  # fmt: skip
            self._tell(session, check, done.stdout, done.returncode)
        self._running = subprocess.Popen(
            self._command(self._slow), cwd=self._root, stdout=self._output, stderr=subprocess.STDOUT
        )

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Wait for the slow check before failed tests run again, which want a quiet machine."""
        result = yield
        if self._running is not None:
            code = self._running.wait()
            self._output.seek(0)
            self._tell(session, self._slow, self._output.read(), code)
        for name, text in self._failed:
            add_failure(session, name, text)
        return result

    def pytest_sessionfinish(self) -> None:
        """End the slow check of an interrupted run."""
        if self._running is not None and self._running.poll() is None:
            self._running.kill()
            self._running.wait()

    def _command(self, check: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", *check]

    def _tell(self, session: pytest.Session, check: Sequence[str], output: bytes, code: int) -> None:
        name, text = " ".join(check), output.decode(errors="replace").rstrip()
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"\n$ {name}")
        reporter.write_line(text)
        if code:
            self._failed.append((name, text))
