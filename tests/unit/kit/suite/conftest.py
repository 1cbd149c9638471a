"""A small suite of its own for each test, run as `./evertalk test` runs the large one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
FAILS_FIRST = """
from pathlib import Path

def is_first(name):
    seen = Path(__file__).with_name(name + ".seen")
    if seen.exists():
        return False
    seen.touch()
    return True
"""
"""Begin of a sample: `is_first(name)` is true once."""
_CLOSING = re.compile(r"^=+ (.+) in [\d.]+s.* =+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one run of a small suite."""

    code: int
    output: str
    folder: Path

    @property
    def closing(self) -> dict[str, int]:
        """Counts of pytest's closing line, which must be the last line of all."""
        told = _CLOSING.match(self.output.rstrip().splitlines()[-1])
        assert told, self.output
        counts = (part.split(" ") for part in told.group(1).split(", "))
        return {kind: int(number) for number, kind in counts}

    @property
    def record(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "test-results" / "flaky.json").read_text())
        return content

    @property
    def flaky(self) -> list[str]:
        return [test["name"] for test in self.record["tests"]]


class SmallSuite:
    """A folder with tests that begin with `FAILS_FIRST`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = night\n")

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(FAILS_FIRST + dedent(content))

    def run(self, *words: str, most_flaky: int = 3, workers: int = 2, program: str = "") -> Outcome:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        side_by_side = ["-p", "xdist", "-n", str(workers), "--dist", "loadfile"] if workers else []
        command = ["-c", program] if program else ["-m", "tests.kit.suite"]
        done = subprocess.run(
            [sys.executable, *command, "--most-flaky", str(most_flaky), "--", *side_by_side, *words],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=110, check=False,
        )  # fmt: skip
        return Outcome(code=done.returncode, output=done.stdout, folder=self.folder)


@pytest.fixture
def suite(tmp_path: Path) -> SmallSuite:
    return SmallSuite(tmp_path)
