"""Wrong arguments of `./evertalk test`: each gets one clear line, and nothing else."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from shared import __main__ as evertalk
from tests.kit.suite.one_line import LEAST_FREE_MB, find_full_disk

from .conftest import ROOT

OPTIONS = "(./evertalk test --help lists the options)"
LINES = {
    "--frobnicate": f"ERROR: unrecognized arguments: --frobnicate {OPTIONS}",
    "-n": f"ERROR: argument -n/--numprocesses: expected one argument {OPTIONS}",
    "tests/nix.py::test_a": "ERROR: there is no file tests/nix.py, and no program of unit, faults, chaos",
    "fault": "ERROR: there is no file fault, and no program of unit, faults, chaos, local-model",
    "--control S99": "ERROR: no control is called 'S99': they are S01 to S",
    "--control=S99": "ERROR: no control is called 'S99': they are S01 to S",
    "faults --row F99": "evertalk: argument --row: no row is called 'F99': they are F01 to F",
    "faults --frobnicate": "evertalk: unrecognized arguments: --frobnicate (evertalk test faults --help",
    "chaos --minutes soon": "evertalk: argument --minutes: 'soon' is no number of minutes between",
    "--hunt": "evertalk: the following arguments are required: NAME (evertalk test --hunt --help",
    "--hunt nix": "evertalk: no test is called 'nix'",
}


@pytest.mark.parametrize("words", LINES)
def test_wrong_argument_gets_one_line(capfd: pytest.CaptureFixture[str], words: str) -> None:
    assert evertalk.main(["test", *words.split()]) in (2, 4)
    output = capfd.readouterr()
    assert output.out == ""
    [told] = filter(None, output.err.splitlines())
    assert told.startswith(LINES[words])


def test_full_disk_is_reported_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**12, 10**12, 12 * 10**6))
    monkeypatch.setattr(subprocess, "Popen", None)
    assert evertalk.main(["test"]) == 2
    [told] = capfd.readouterr().err.splitlines()
    assert "is nearly full: 12 MB are free, and the tests need 1,000 MB. Make room" in told


def test_disk_with_just_enough_room_is_not_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**12, 0, LEAST_FREE_MB * 10**6))
    assert find_full_disk([tmp_path]) is None
    assert find_full_disk([tmp_path], least_mb=LEAST_FREE_MB + 1)


@pytest.mark.parametrize("fake", ["messages_api", "bot_api", "embeddings"])
def test_port_in_use_gets_one_line(fake: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run(
            [sys.executable, "-m", f"tests.kit.fakes.{fake}", "--port", str(taken.getsockname()[1])],
            cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    [told] = done.stderr.splitlines()
    assert told.endswith("the port is in use; --port 0 takes a free one")
