"""`./evertalk test --hunt NAME`: runs one test many times on a busy machine, until it fails."""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.kit.suite.alone import run_alone
from tests.kit.suite.one_line import OneLineParser

ROOT = Path(__file__).resolve().parents[3]
MOST_RUNS = 100
MOST_MINUTES = 60
"""Minutes after which a hunt ends; busy loops end by then even without the hunt."""
_BUSY = """
import os, sys, time
parent, ends = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while os.getppid() == parent and time.monotonic() < ends:
    for _ in range(100_000):
        pass
"""


class UnknownTest(Exception):
    """No test, or more than one, has the name that was asked for."""


def main(arguments: Sequence[str], *, folder: Path = ROOT) -> int:
    parser = OneLineParser(
        prog="evertalk test --hunt", description="Run one test many times on a busy machine, until it fails."
    )
    parser.add_argument("name", metavar="NAME", help="name of a test function, or FILE::NAME")
    parser.add_argument("--runs", type=_bounded(MOST_RUNS), default=MOST_RUNS, help="most runs")
    parser.add_argument("--minutes", type=_bounded(MOST_MINUTES), default=MOST_MINUTES, help="most minutes")
    wish = parser.parse_args(arguments)
    try:
        name = find_test(wish.name, folder)
    except UnknownTest as error:
        parser.error(str(error))
    with busy_loops(os.cpu_count() or 1, seconds=wish.minutes * 60):
        return hunt(name, folder=folder, runs=wish.runs, seconds=wish.minutes * 60)


def hunt(name: str, *, folder: Path, runs: int, seconds: float) -> int:
    """Run the test until it fails, or until runs or seconds are used up; return 1 if it failed.

    A first run that does not end in that time counts as failed.
    """
    began = time.monotonic()
    for number in range(1, runs + 1):
        left = began + seconds - time.monotonic()
        result = run_alone(name, folder=folder, seconds=max(0.0, left))
        if result.is_late and number > 1:
            print(f"evertalk: {number - 1} of {runs} runs of {name} passed; the time is over", flush=True)
            return 0
        took, load = time.monotonic() - began, os.getloadavg()[0]
        if not result.has_passed:
            print(result.output)
            print(f"evertalk: {name} failed in run {number} of {runs}, after {took:.0f} s, load {load:.1f}")
            return 1
        print(f"run {number} of {runs} passed, {took:.0f} s, load {load:.1f}", flush=True)
    print(f"evertalk: all {runs} runs of {name} passed")
    return 0


@contextlib.contextmanager
def busy_loops(count: int, *, seconds: float) -> Iterator[None]:
    """Keep `count` cores busy; each loop ends with this process, and after `seconds` in any case."""
    command = [sys.executable, "-c", _BUSY, str(os.getpid()), str(seconds)]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def find_test(name: str, folder: Path) -> str:
    """Return the full name of the test that is called `name`.

    Raises: UnknownTest if there is no such test, or more than one.
    """
    file, _, inside = name.partition("::")
    if inside:
        if not (folder / file).is_file():
            raise UnknownTest(f"there is no file {file}")
        return name
    function, bracket, case = name.partition("[")
    found = [
        f"{path.relative_to(folder)}::{where}{bracket}{case}"
        for path in sorted((folder / "tests").rglob("test_*.py"))
        if f"def {function}(" in (text := path.read_text(encoding="utf-8"))
        for where in _functions(text, function)
    ]
    if not found:
        raise UnknownTest(f"no test is called {name!r}")
    if len(found) > 1:
        raise UnknownTest(f"{len(found)} tests are called {name!r}, name one: {', '.join(found)}")
    return found[0]


def _functions(text: str, name: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name:
                yield f"{node.name}::{name}" if isinstance(node, ast.ClassDef) else name


def _bounded(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isdecimal() and 1 <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {most}")

    return read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
