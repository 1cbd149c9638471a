"""`./evertalk up` as a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 180
"""Seconds for a process on a busy machine to print a line."""
_numbers = count(1)


@pytest.fixture
def environment(run_folder: Path) -> dict[str, str]:
    folder = run_folder / f"up{next(_numbers)}"
    folder.mkdir(mode=0o755)
    return {**os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(folder / "data")}


def start_up(environment: dict[str, str]) -> tuple[subprocess.Popen[str], list[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "shared", "up"],
        env={**environment, "EVERTALK_HTTP_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    )
    assert process.stdout is not None
    impatience = threading.Timer(PATIENCE_SECONDS, process.terminate)
    impatience.start()
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if "Ctrl-C" in line:
            break
    impatience.cancel()
    assert process.poll() is None, "\n".join(lines)
    return process, lines


@pytest.fixture
def stopped() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
