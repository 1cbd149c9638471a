"""`./evertalk test faults`: tries the rows of the table, and prints a line for each."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.lengths import AT_LENGTH
from tests.faults.rows import NUMBERS, ROWS
from tests.faults.verdicts import Verdict, Verdicts, seeds_of
from tests.kit.markers import marked
from tests.kit.suite.one_line import OneLineParser

ROOT = Path(__file__).resolve().parents[2]
FAULT_CHARS = 75
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


def main(arguments: Sequence[str]) -> int:
    asked = _read(arguments)
    marks = marked("row")
    files = sorted({path for number in asked.row for path in marks.get(number, ())})
    if asked.at_length:
        os.environ[AT_LENGTH] = "1"
    found = _tried(asked.row, asked.seeds, files) if files else Verdicts()
    for row in ROWS:
        if row.number in asked.row:
            print(f"{row.number}  {_one_line(row.fault, found.rows.get(row.number))}", flush=True)
    for path, why in found.broken:
        print(f"evertalk: {path} cannot be read: {why}", file=sys.stderr)
    good = sum(verdict.reason == "ok" for verdict in found.rows.values())
    print(f"evertalk: {good} of {len(asked.row)} rows ok", file=sys.stderr)
    return 0 if good == len(asked.row) and not found.broken else 1


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = OneLineParser(
        prog="evertalk test faults", description="Try the faults of docs/faults.md; a line for each row."
    )
    parser.add_argument(
        "--row", nargs="+", action="extend", type=_number, metavar="F09", help="these rows only"
    )
    parser.add_argument(
        "--seeds", type=_seeds, metavar="N",
        help="draw places, moments and orders anew for each seed from 1 to N, or of N-M; 1000 fill a night",
    )  # fmt: skip
    parser.add_argument(
        "--at-length", action="store_true",
        help="what a night has time for: outages of minutes, a storm of ten",
    )  # fmt: skip
    asked = parser.parse_args(arguments)
    asked.row = sorted(set(asked.row or NUMBERS))
    asked.seeds = asked.seeds or ""
    return asked


def _number(word: str) -> str:
    number = f"F{word[1:]:0>2}" if word[:1] in "Ff" else word
    if number not in NUMBERS:
        raise argparse.ArgumentTypeError(
            f"no row is called {word!r}: they are {NUMBERS[0]} to {NUMBERS[-1]}, see docs/faults.md"
        )
    return number


def _seeds(words: str) -> str:
    try:
        seeds_of(words)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{words!r} is neither a number of seeds (20) nor a range of them (417-420), from 1 on"
        ) from None
    return words


def _tried(rows: Sequence[str], seeds: str, files: Sequence[Path]) -> Verdicts:
    """By pytest, which talks to the other stream: this one is for the table."""
    with tempfile.TemporaryDirectory(prefix="evertalk-faults-") as folder:
        told = Path(folder) / "verdicts.json"
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "tests.faults.verdicts",
            # The first test of all would pay for starting everything, and a slow machine for nothing.
            "-o", "timeout_func_only=true",
            f"--rows={','.join(rows)}", f"--seeds={seeds}", f"--verdicts={told}",
            *map(str, files),
        ]  # fmt: skip
        with subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr.fileno()) as running:
            _wait(running)
        found = Verdicts.read(told) if told.exists() else Verdicts()
    if running.returncode not in _ENDED:
        found.broken.append(("the run", f"pytest ended with {running.returncode}; its own words are above"))
    return found


def _wait(running: subprocess.Popen[bytes]) -> None:
    """Whoever presses Ctrl-C ends pytest with it, and sees the table of what has run until then."""
    while True:
        try:
            running.wait()
            return
        except KeyboardInterrupt:
            continue


def _one_line(fault: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return f"{fault:<{FAULT_CHARS}}  not run"
    tests = f"{verdict.tests} test{'s' * (verdict.tests != 1)}"
    return f"{fault:<{FAULT_CHARS}}  {tests:>10}  {verdict.seconds:7.1f} s  {verdict.reason}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
