"""Reads the words after `./evertalk test`, and starts what they ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kit.suite.changed import NoChange, find_changed_files, find_touched_tests
from tests.kit.suite.one_line import find_full_disk
from tests.kit.suite.second_run import MOST_FLAKY

ROOT = Path(__file__).resolve().parents[3]
MOST_WORKERS = 4
"""Most processes of tests; each has its PostgreSQL and Valkey."""
OTHER_PROGRAMS = {"faults": "tests.faults", "chaos": "tests.faults.chaos", "--hunt": "tests.kit.suite.hunt"}
"""Modules, by first word, that are separate programs with separate arguments."""
HELP = Path(__file__).with_name("help.txt")
"""Help of `./evertalk test`, which the launcher shows before it installs anything."""
UNIT = ("tests/unit", "tests/seeds", "tests/test_architecture.py")
"""Folders of `./evertalk test unit`, which leaves out those of their tests that need a server."""
ALONE_FILES = 4
"""Most test files that one process runs faster than several, each of which reads all files first."""
Tell = Callable[[str], None]


def run_tests(arguments: Sequence[str], *, tell: Tell, root: Path = ROOT) -> int:
    """Check style and types and run all tests; with arguments for pytest, run only pytest."""
    if arguments and arguments[0] in ("-h", "--help"):
        sys.stdout.write(HELP.read_text("utf-8"))
        return 0
    if arguments and arguments[0] in OTHER_PROGRAMS:
        return _call([OTHER_PROGRAMS[arguments[0]], *arguments[1:]])
    is_strict = bool({"--strict", "--night"}.intersection(arguments))
    most_flaky = ["--most-flaky", str(0 if is_strict else MOST_FLAKY)]
    rest = [word for word in arguments if word != "--strict"]
    if rest[:1] == ["unit"]:
        return _call(["tests.kit.suite", *most_flaky, "--", *side_by_side(), "--unit", *UNIT, *rest[1:]])
    if rest and rest[0].partition("=")[0] == "--changed":
        return _run_changed(rest[0].partition("=")[2], [*most_flaky, "--"], rest[1:], tell=tell, root=root)
    if chooses_tests(rest):
        return _call(["tests.kit.suite", "--", *rest])
    if problem := find_full_disk():
        tell(f"evertalk: {problem}.")
        return 2
    options = ["--left-out", *most_flaky]
    if not set(rest) - {"--night"}:
        options.append("--checks")
    return _call(["tests.kit.suite", *options, "--", *side_by_side(), *rest])


def _run_changed(base: str, options: Sequence[str], rest: Sequence[str], *, tell: Tell, root: Path) -> int:
    try:
        files = find_changed_files(root, base or None)
    except NoChange as error:
        tell(f"evertalk: {error}, so there is nothing to test")
        return 0 if error.is_good else 2
    tests = find_touched_tests(files, root)
    tell(f"evertalk: {len(files)} changed files touch {len(tests)} test files")
    if not tests:
        return 0
    workers = side_by_side() if len(tests) > ALONE_FILES else []
    return _call(["tests.kit.suite", *options, *workers, "--by-day", *rest, *map(str, tests)])


def chooses_tests(arguments: Sequence[str]) -> bool:
    """Return whether the arguments choose tests, or need the terminal for one process alone."""
    return any(not word.startswith("-") or word in ("-n", "-s", "--pdb", "-x") for word in arguments)


def side_by_side() -> list[str]:
    """Return the options of xdist for a whole run.

    Each file stays in one process with servers of its own. Half of the time is waiting for other processes,
    so there are two processes more than cores. tests/conftest.py says in which order the files come.
    """
    workers = min(MOST_WORKERS, (os.cpu_count() or 1) + 2)
    return ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]


def _call(program: Sequence[str]) -> int:
    """Run a module; on Ctrl-C wait until it has stopped its servers."""
    with subprocess.Popen([sys.executable, "-m", *program], cwd=ROOT) as running:
        while True:
            try:
                return running.wait()
            except KeyboardInterrupt:
                continue
