"""The hunt for a flaky test: how often it runs, what it says, and that nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.suite.alone import Result
from tests.kit.suite.hunt import _BUSY, busy_loops, find_test, hunt, main

from .conftest import FAILS_FIRST, SmallSuite


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.usefixtures("bare")
def test_hunt_ends_at_the_first_failure(suite: SmallSuite, capfd: pytest.CaptureFixture[str]) -> None:
    suite.write(
        "test_a.py",
        """
        def test_shaky():
            assert is_first("one") or is_first("two"), "the third time"
        """,
    )
    assert hunt("test_a.py::test_shaky", folder=suite.folder, runs=9, seconds=100) == 1
    output = capfd.readouterr().out
    assert "the third time" in output
    assert "evertalk: test_a.py::test_shaky failed in run 3 of 9" in output


@pytest.mark.usefixtures("bare")
def test_hunt_of_a_good_test_passes(suite: SmallSuite, capfd: pytest.CaptureFixture[str]) -> None:
    suite.write("test_a.py", "def test_well(): pass")
    assert hunt("test_a.py::test_well", folder=suite.folder, runs=2, seconds=100) == 0
    assert "all 2 runs of test_a.py::test_well passed" in capfd.readouterr().out


@pytest.mark.usefixtures("bare")
def test_hunt_ends_a_test_that_never_ends(suite: SmallSuite, capfd: pytest.CaptureFixture[str]) -> None:
    suite.write("test_a.py", "def test_stuck(): import time; time.sleep(600)")
    assert hunt("test_a.py::test_stuck", folder=suite.folder, runs=2, seconds=3) == 1
    assert "did not end within 3 s" in capfd.readouterr().out


def test_end_of_the_time_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = iter([Result(has_passed=True, output=""), Result(has_passed=False, output="", is_late=True)])
    monkeypatch.setattr("tests.kit.suite.hunt.run_alone", lambda *_, **__: next(results))
    assert hunt("test_a.py::test_well", folder=tmp_path, runs=3, seconds=10) == 0
    assert "1 of 3 runs of test_a.py::test_well passed; the time is over" in capfd.readouterr().out


def test_busy_loops_end_with_the_hunt() -> None:
    others = set(_children())
    with busy_loops(2, seconds=60):
        loops = set(_children()) - others
        assert len(loops) == 2
    assert not loops & set(_children())


@pytest.mark.parametrize("ends_by", ["time", "death of the hunt"])
def test_busy_loop_ends_without_help(ends_by: str) -> None:
    seconds = "0.1" if ends_by == "time" else "600"
    starts_loop = (
        "import os, subprocess, sys, time\n"
        "loop = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid()), sys.argv[2]])\n"
        "print(loop.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starts_loop, _BUSY, seconds], stdout=subprocess.PIPE, text=True
    ) as hunting:
        assert hunting.stdout is not None
        loop = int(hunting.stdout.readline())
        if ends_by != "time":
            hunting.kill()
        for _ in range(600):
            if not _runs(loop):
                break
            time.sleep(0.1)
        else:
            os.kill(loop, signal.SIGKILL)
            pytest.fail("the loop did not end")
        hunting.kill()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["test_nowhere"], "evertalk: no test is called 'test_nowhere'"),
        (["tests/nowhere.py::test_a"], "evertalk: there is no file tests/nowhere.py"),
        (["test_twin"], "evertalk: 2 tests are called 'test_twin', name one: tests/test_a.py::test_twin"),
        (["test_twin", "--runs", "101"], "evertalk: argument --runs: '101' is no number from 1 to 100"),
        ([], "evertalk: the following arguments are required: NAME"),
    ],
)
def test_wrong_name_gets_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / "tests" / name).write_text(FAILS_FIRST + "def test_twin(): pass\n")
    with pytest.raises(SystemExit) as ended:
        main(words, folder=tmp_path)
    assert ended.value.code == 2
    [told] = capfd.readouterr().err.splitlines()
    assert told.startswith(line)


def test_test_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        "class TestHouse:\n    async def test_inside(self): pass\ndef test_case(): pass\n"
    )
    assert find_test("test_inside", tmp_path) == "tests/test_a.py::TestHouse::test_inside"
    assert find_test("test_case[1]", tmp_path) == "tests/test_a.py::test_case[1]"


def _children() -> list[int]:
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdecimal() and _parent(folder) == os.getpid()
    ]


def _parent(folder: Path) -> int:
    try:
        return int(folder.joinpath("stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
