"""One run of pytest with the plug-ins of this package: `python -m tests.kit.suite OPTIONS -- PYTEST…`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.kit.suite.checks import Checks
from tests.kit.suite.second_run import SecondRun

ROOT = Path(__file__).resolve().parents[3]
RECORD = Path("test-results", "flaky.json")


class OneLine:
    """Plug-in of pytest: says in one line what is wrong with its arguments."""

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        try:
            return (yield)
        except pytest.UsageError as error:
            lines = str(error).splitlines()
            told = next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])
            raise pytest.UsageError(f"{told} (./evertalk test --help lists the options)") from None


def main(arguments: Sequence[str]) -> int:
    at = arguments.index("--")
    parser = argparse.ArgumentParser(prog="python -m tests.kit.suite")
    parser.add_argument("--most-flaky", type=int, help="run failed tests again, and allow so many flaky ones")
    parser.add_argument("--checks", action="store_true", help="check style and types, too")
    wish = parser.parse_args(arguments[:at])
    plugins: list[object] = [OneLine()]
    if wish.most_flaky is not None:
        plugins.append(SecondRun(most_flaky=wish.most_flaky, record=RECORD))
    with tempfile.TemporaryFile() as output:
        if wish.checks:
            plugins.append(Checks(ROOT, output))
        return int(pytest.main(list(arguments[at + 1 :]), plugins=plugins))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
