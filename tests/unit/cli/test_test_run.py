"""What `./evertalk test` says before its first test, in which order it goes, what it leaves to the night."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shared import __main__ as command_line
from tests.kit.needed_programs import NEEDED, NEEDY, Needed, list_skipped, needs_programs
from tests.kit.run_order import in_order_of_weight
from tests.kit.suite.__main__ import LeftOut

TESTS = Path(__file__).resolve().parents[2]
BARE = Needed(what="A tool", tests="its tests", get="Debian: apt-get install tool", is_here=lambda: False)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Programs that were started."""
    started: list[list[str]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command[2:])
            super().__init__([sys.executable, "-c", ""])

    monkeypatch.setattr(subprocess, "Popen", Started)
    return started


def test_missing_program_is_named_before_the_first_test(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.kit.needed_programs.shutil.which", lambda *_, **__: None)
    monkeypatch.delenv("CI", raising=False)
    said = _say_what_is_left_out(capfd, night=False)
    assert "Chromium is missing: the tests in a browser (tests/browser) are skipped" in said
    assert "apt-get install chromium" in said
    assert "apt-get install postgresql pgbouncer haproxy" in said
    assert "apt-get install nodejs npm" in said
    assert "./evertalk test --night" in said


def test_run_of_the_night_leaves_nothing_to_the_night(capfd: pytest.CaptureFixture[str]) -> None:
    assert "night" not in _say_what_is_left_out(capfd, night=True)


def _say_what_is_left_out(capfd: pytest.CaptureFixture[str], *, night: bool) -> str:
    config = SimpleNamespace(getoption={"--night": night}.get)
    LeftOut().pytest_sessionstart(cast("pytest.Session", SimpleNamespace(config=config)))
    return capfd.readouterr().err


def test_help_starts_no_test(ran: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["test", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: ./evertalk test")
    assert ran == []


def test_run_of_a_named_file_says_nothing_of_others(ran: list[list[str]]) -> None:
    command_line.main(["test", "tests/unit/cli"])
    assert ran == [["tests.kit.suite", "--", "tests/unit/cli"]]


@pytest.mark.parametrize(
    ("words", "most_flaky"), [([], "3"), (["--strict"], "0"), (["--night"], "0"), (["-q"], "3")]
)
def test_whole_run_allows_flaky_tests_unless_it_is_strict(
    ran: list[list[str]], words: list[str], most_flaky: str
) -> None:
    command_line.main(["test", *words])
    [command] = ran
    assert command[1:4] == ["--left-out", "--most-flaky", most_flaky]
    assert ("--night" in command) == ("--night" in words)
    assert "--strict" not in command
    assert ("--checks" in command) == ("-q" not in words)


def test_exit_code_of_the_tests_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(subprocess.Popen[bytes]):
        def __init__(self, *_: object, **__: object) -> None:
            super().__init__([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr(subprocess, "Popen", Started)
    assert command_line.main(["test"]) == 3


def test_missing_program_skips_tests_and_in_ci_fails_them(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Needed(what="Another", tests="its tests", get="nowhere", is_here=lambda: True)
    monkeypatch.delenv("CI", raising=False)
    assert list(list_skipped([here, BARE])) == [
        "A tool is missing: its tests are skipped (Debian: apt-get install tool)"
    ]
    monkeypatch.setenv("CI", "true")
    assert list(list_skipped([BARE])) == ["A tool is missing: its tests fail (Debian: apt-get install tool)"]
    assert len({each.what for each in NEEDED}) == len(NEEDED)


def test_waiting_files_are_spread_among_computing_ones_with_quick_last() -> None:
    waiting = ["faults/a", "acceptance/a", "faults/b", "integration/a"]
    pages = ["browser/widget/a", "browser/dashboard/a", "browser/widget/b"]
    names = [*(f"unit/{name}" for name in "abcde"), *waiting, *pages]
    ordered = in_order_of_weight([TESTS / name for name in names], TESTS)
    told = " ".join(path.relative_to(TESTS).as_posix() for path in ordered)
    assert told == (
        "browser/widget/a browser/widget/b unit/b faults/a acceptance/a browser/dashboard/a integration/a "
        "unit/c faults/b unit/d unit/a unit/e"
    )


def test_tests_of_the_night_are_left_out_until_they_are_asked_for(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text("import pytest\n@pytest.mark.night\ndef test_long(): pass\ndef test_short(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = night\n")
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "tests.conftest", "-c", "pytest.ini"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(TESTS.parent)}

    def chosen(*words: str) -> str:
        done = subprocess.run(
            [*command, *words],
            cwd=tmp_path,
            env=bare,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        return done.stdout

    by_day = chosen()
    assert "test_short" in by_day
    assert "test_long" not in by_day
    assert "1 deselected" in by_day
    assert "test_long" in chosen("--night")
    assert "test_long" in chosen(str(sample))


def test_each_row_of_faults_and_controls_has_a_test_by_day() -> None:
    by_night, by_day = defaultdict[str, set[Path]](set), set[str]()
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.row(" in text or "mark.control(" in text:
            for function in ast.walk(ast.parse(text)):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    marks = {ast.unparse(one) for one in function.decorator_list}
                    rows = set(_rows(function))
                    if "pytest.mark.night" in marks:
                        for row in rows:
                            by_night[row].add(path)
                    else:
                        by_day |= rows
    assert by_night, "nothing is left to the night"
    assert by_night.keys() - by_day == set()


def _rows(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for one in function.decorator_list:
        if isinstance(one, ast.Call) and ast.unparse(one.func) in ("pytest.mark.row", "pytest.mark.control"):
            yield from (str(ast.literal_eval(argument)) for argument in one.args)


def test_unit_run_leaves_out_tests_that_need_a_server(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "def test_bare(): pass\ndef test_stored(database_url): pass\ndef test_page(whole_browser): pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = night\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "pytest_asyncio"]
    done = subprocess.run(
        [*command, "-c", "pytest.ini", "--unit"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 passed, 2 deselected" in done.stdout
    assert done.returncode == 0


def test_unit_run_is_one_of_many_processes(ran: list[list[str]]) -> None:
    command_line.main(["test", "unit", "-q"])
    [command] = ran
    assert command[:3] == ["tests.kit.suite", "--most-flaky", "3"]
    assert {"-n", "--unit", "tests/unit", "-q"} <= set(command)


def test_no_unit_test_needs_a_server(request: pytest.FixtureRequest) -> None:
    """Asks the tests of this run, as far as they stand in tests/unit."""
    chosen = [*request.session.items, *request.config.stash[NEEDY]]
    wrong = [one.nodeid for one in chosen if needs_programs(one) and one.path.is_relative_to(TESTS / "unit")]
    assert wrong == []
