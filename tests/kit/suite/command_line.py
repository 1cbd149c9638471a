"""The words after `./evertalk test`: reads them, and starts what they ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.kit.needed_programs import list_skipped
from tests.kit.suite.second_run import MOST_FLAKY

ROOT = Path(__file__).resolve().parents[3]
MOST_WORKERS = 4
"""Processes of tests; each has a PostgreSQL and a Valkey of its own."""
OTHER_PROGRAMS = {"faults": "tests.faults", "chaos": "tests.faults.chaos", "--hunt": "tests.kit.suite.hunt"}
"""First words that are programs of their own, with arguments of their own."""
Tell = Callable[[str], None]


def run_tests(arguments: Sequence[str], *, tell: Tell) -> int:
    """Check style and types and run all tests; with arguments for pytest, run only pytest."""
    if arguments and arguments[0] in OTHER_PROGRAMS:
        return _call([OTHER_PROGRAMS[arguments[0]], *arguments[1:]])
    is_strict = bool({"--strict", "--night"}.intersection(arguments))
    rest = [word for word in arguments if word != "--strict"]
    side_by_side = run_side_by_side(rest)
    if not side_by_side:
        return _call(["tests.kit.suite", "--", *rest])
    for line in list_left_out(rest):
        tell(f"evertalk: {line}")
    options = ["--most-flaky", str(0 if is_strict else MOST_FLAKY)]
    if not set(rest) - {"--night"}:
        options.append("--checks")
    return _call(["tests.kit.suite", *options, "--", *side_by_side, *rest])


def list_left_out(arguments: Sequence[str]) -> Iterator[str]:
    """Yield a line for each group of tests that this run leaves out."""
    yield from list_skipped()
    if "--night" not in arguments:
        yield "tests of the night are left out: ./evertalk test --night runs them, too"


def run_side_by_side(arguments: Sequence[str]) -> list[str]:
    """Return the options of xdist for a whole run, or none if the arguments choose tests.

    Each file stays in one process with servers of its own. Half of the time is waiting for other processes,
    so there are two processes more than cores. tests/conftest.py says in which order the files come.
    """
    chooses = any(not word.startswith("-") or word in ("-n", "-s", "--pdb", "-x") for word in arguments)
    workers = min(MOST_WORKERS, (os.cpu_count() or 1) + 2)
    return [] if chooses else ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]


def _call(program: Sequence[str]) -> int:
    """Run a module; on Ctrl-C wait until it has stopped its servers."""
    with subprocess.Popen([sys.executable, "-m", *program], cwd=ROOT) as running:
        while True:
            try:
                return running.wait()
            except KeyboardInterrupt:
                continue
