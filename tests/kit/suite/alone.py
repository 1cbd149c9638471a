"""Runs one test in a new process, and returns whether it passed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

MOST_CHARS = 50_000
"""Most characters kept of one output, from its end."""
PARTING_SECONDS = 60
"""Seconds that an interrupted test has to stop its servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one test."""

    has_passed: bool
    """Whether the test passed; False for a skipped test, too, since it shows nothing."""
    output: str
    is_late: bool = False
    """Whether the test was ended because its time was over."""


def run_alone(name: str, *, folder: Path, seconds: float, options: Sequence[str] = ()) -> Result:
    """Run the test `name` from `folder` for at most `seconds`."""
    with tempfile.TemporaryDirectory(prefix="evertalk-alone-") as place, tempfile.TemporaryFile() as output:
        results = Path(place) / "results.xml"
        command = [sys.executable, "-m", "pytest", *options, "-q", "-p", "no:cacheprovider"]
        # A file and no pipe: a server that outlives its test would keep a pipe open.
        with subprocess.Popen(
            [*command, f"--junitxml={results}", name],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        ) as running:  # fmt: skip
            is_late = not _ends(running, seconds)
        output.seek(0)
        text = output.read().decode(errors="replace")[-MOST_CHARS:]
        if is_late:
            late = f"The test did not end within {seconds:.0f} s."
            return Result(has_passed=False, is_late=True, output=f"{text}\n{late}")
        return Result(has_passed=running.returncode == 0 and _has_passed(results), output=text)


def _ends(running: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the process; return False if its time is over.

    It is interrupted then, and when this process is interrupted.
    """
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    else:
        return True
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(PARTING_SECONDS)
            running.kill()


def _has_passed(results: Path) -> bool:
    try:
        suites = list(ET.parse(results).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        return False
    ran = sum(int(suite.get("tests", 0)) for suite in suites)
    return ran > 0 and not any(
        int(suite.get(kind, 0)) for suite in suites for kind in ("failures", "errors", "skipped")
    )
