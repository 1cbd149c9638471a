"""One run of pytest with the plug-ins of this package: `python -m tests.kit.suite OPTIONS -- PYTEST…`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.needed_programs import list_skipped
from tests.kit.suite.checks import Checks
from tests.kit.suite.one_line import OneLineErrors
from tests.kit.suite.second_run import SecondRun

ROOT = Path(__file__).resolve().parents[3]
RECORD = Path("test-results", "flaky.json")


class LeftOut:
    """Plug-in of pytest that lists, before the first test, the tests that a whole run leaves out."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        left_out = [*list_skipped()]
        if not session.config.getoption("--night"):
            left_out.append("tests of the night are left out: ./evertalk test --night runs them, too")
        for line in left_out:
            print(f"evertalk: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    at = arguments.index("--")
    parser = argparse.ArgumentParser(prog="python -m tests.kit.suite")
    parser.add_argument("--most-flaky", type=int, help="run failed tests again, and allow so many flaky ones")
    parser.add_argument("--left-out", action="store_true", help="name the tests that are left out")
    parser.add_argument("--checks", action="store_true", help="check style and types, too")
    wish = parser.parse_args(arguments[:at])
    plugins: list[object] = [OneLineErrors()]
    if wish.left_out:
        plugins.append(LeftOut())
    if wish.most_flaky is not None:
        plugins.append(SecondRun(most_flaky=wish.most_flaky, record=RECORD))
    with tempfile.TemporaryFile() as output:
        if wish.checks:
            plugins.append(Checks(ROOT, output))
        return int(pytest.main(list(arguments[at + 1 :]), plugins=plugins))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
