"""Errors in the arguments of `./evertalk test`, reported in one line."""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

PROGRAMS = ("unit", "faults", "chaos", "local-model")
"""First words after `./evertalk test` that are neither a file nor an option of pytest."""
LEAST_FREE_MB = 1_000
"""Least free megabytes of the disk for a whole run: four PostgreSQLs with their databases, and test
folders.
"""


class OneLineParser(argparse.ArgumentParser):
    """Parser whose errors are one line that refers to `--help` for the options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"evertalk: {message} ({self.prog} --help lists the options)\n")


class OneLineErrors:
    """Plug-in of pytest that reports an error in its arguments in one line."""

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        try:
            return (yield)
        except pytest.UsageError as error:
            lines = str(error).splitlines()
            told = next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])
            raise pytest.UsageError(f"{told} (./evertalk test --help lists the options)") from None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Refuse a file that does not exist before pytest prints what it would collect."""
        for word in config.args:
            path = re.split(r"::|\[", word, maxsplit=1)[0]
            if not (config.invocation_params.dir / path).exists():
                raise pytest.UsageError(f"there is no file {path}, and no program of {', '.join(PROGRAMS)}")


def find_full_disk(folders: Sequence[Path] | None = None, *, least_mb: int = LEAST_FREE_MB) -> str | None:
    """Return what to do about a disk that is too full for a whole run; None if there is room."""
    for folder in folders or (Path(tempfile.gettempdir()),):
        free_mb = shutil.disk_usage(folder).free // 10**6
        if free_mb < least_mb:
            return (
                f"the disk of {folder} is nearly full: {free_mb:,} MB are free, and the tests need "
                f"{least_mb:,} MB. Make room, or set TMPDIR to a folder on another disk"
            )
    return None
