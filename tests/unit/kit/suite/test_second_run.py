"""Second runs of failed tests: what makes a run green, what keeps it red, and what its last line says."""

from __future__ import annotations

import pytest

from tests.kit.suite.second_run import MOST_SECOND_RUNS

from .conftest import SmallSuite

FLAKY = """
def test_well(): pass
def test_shaky(): assert not is_first("shaky"), "too late"
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_test_that_fails_once_is_flaky_and_leaves_the_run_green(suite: SmallSuite, workers: int) -> None:
    suite.write("test_a.py", FLAKY)
    outcome = suite.run(workers=workers)
    assert outcome.code == 0
    assert outcome.closing == {"passed": 2, "flaky": 1}
    [test] = outcome.record["tests"]
    assert test["name"] == "test_a.py::test_shaky"
    assert "too late" in test["first_failure"]
    assert test["load"] >= 0
    assert test["at"]
    closing_lines = outcome.output.splitlines()[-4:]
    assert any(line.startswith("FLAKY test_a.py::test_shaky - AssertionError") for line in closing_lines)
    assert any("(load " in line for line in closing_lines)


def test_test_that_fails_twice_fails_the_run_with_both_outputs(suite: SmallSuite) -> None:
    suite.write(
        "test_a.py",
        """
        def test_well(): pass
        def test_broken():
            print("the first time" if is_first("broken") else "the second time")
            raise AssertionError
        """,
    )
    outcome = suite.run()
    assert outcome.code == 1
    assert outcome.closing == {"failed": 1, "passed": 1}
    assert outcome.flaky == []
    assert "Second run, alone: failed again" in outcome.output
    assert outcome.output.index("the first time") < outcome.output.index("the second time")


@pytest.mark.parametrize(("number", "code"), [(3, 0), (4, 1)])
def test_fourth_flaky_test_makes_the_run_red(suite: SmallSuite, number: int, code: int) -> None:
    for name in range(number):
        suite.write(f"test_{name}.py", f"def test_shaky(): assert not is_first('{name}')")
    outcome = suite.run()
    assert outcome.code == code
    assert outcome.closing == ({"flaky": 3, "passed": 3} if code == 0 else {"flaky": 4, "failed": 4})
    assert len(outcome.flaky) == number


def test_strict_run_allows_no_flaky_test(suite: SmallSuite) -> None:
    suite.write("test_a.py", FLAKY)
    outcome = suite.run(most_flaky=0)
    assert outcome.code == 1
    assert outcome.closing == {"failed": 1, "passed": 1, "flaky": 1}
    assert "none is allowed here" in outcome.output


def test_flaky_test_excuses_no_broken_one(suite: SmallSuite) -> None:
    suite.write("test_a.py", FLAKY + "def test_broken(): assert False\n")
    outcome = suite.run()
    assert outcome.code == 1
    assert outcome.closing == {"failed": 1, "passed": 2, "flaky": 1}


@pytest.mark.parametrize("place", ["before", "after"])
def test_fixture_that_fails_once_makes_its_test_flaky(suite: SmallSuite, place: str) -> None:
    suite.write(
        "test_a.py",
        f"""
        import pytest
        @pytest.fixture
        def house():
            assert "{place}" != "before" or not is_first("before")
            yield
            assert "{place}" != "after" or not is_first("after")
        def test_in_a_house(house): pass
        """,
    )
    outcome = suite.run()
    assert outcome.code == 0
    assert outcome.closing == {"passed": 1, "flaky": 1}


def test_crash_of_a_worker_is_not_excused(suite: SmallSuite) -> None:
    suite.write(
        "test_a.py",
        """
        import os
        def test_well(): pass
        def test_crash():
            if is_first("crash"): os._exit(3)
        def test_later(): pass
        """,
    )
    outcome = suite.run()
    assert outcome.code == 1
    assert outcome.closing == {"failed": 1, "passed": 2}
    assert "passed, but a crashed process is not excused" in outcome.output
    assert outcome.flaky == []


def test_crash_of_a_worker_after_its_tests_is_red(suite: SmallSuite) -> None:
    suite.write(
        "conftest.py",
        """
        import os
        def pytest_sessionfinish():
            if "PYTEST_XDIST_WORKER" in os.environ and is_first("end"): os._exit(3)
        """,
    )
    suite.write("test_a.py", "def test_well(): pass")
    outcome = suite.run()
    assert outcome.code == 1
    assert outcome.closing == {"failed": 1, "passed": 1}


def test_internal_error_of_a_worker_stands_in_the_closing_line(suite: SmallSuite) -> None:
    suite.write(
        "conftest.py",
        """
        import os
        def pytest_runtest_protocol():
            if "PYTEST_XDIST_WORKER" in os.environ: raise RuntimeError
        """,
    )
    suite.write("test_a.py", "def test_well(): pass")
    outcome = suite.run()
    assert outcome.code != 0
    assert outcome.closing.keys() == {"failed"}


def test_file_that_cannot_be_read_is_not_excused(suite: SmallSuite) -> None:
    suite.write("test_a.py", "assert not is_first('a')\ndef test_well(): pass")
    suite.write("test_b.py", "def test_well(): pass")
    outcome = suite.run(workers=1)
    assert outcome.code == 1
    assert outcome.closing == {"passed": 1, "error": 1}
    assert outcome.flaky == []


def test_skip_in_the_second_run_excuses_nothing(suite: SmallSuite) -> None:
    suite.write(
        "test_a.py",
        """
        import pytest
        def test_shy():
            assert not is_first("shy")
            pytest.skip("not now")
        """,
    )
    outcome = suite.run()
    assert outcome.code == 1
    assert outcome.closing == {"failed": 1}


def test_many_failures_are_not_run_again(suite: SmallSuite) -> None:
    suite.write(
        "test_a.py",
        f"""
        import pytest
        @pytest.mark.parametrize("number", range({MOST_SECOND_RUNS + 1}))
        def test_shaky(number): assert not is_first(str(number))
        """,
    )
    outcome = suite.run()
    assert outcome.code == 1
    assert outcome.closing == {"failed": MOST_SECOND_RUNS + 1}
    assert "too many to run them again" in outcome.output


def test_case_with_odd_characters_runs_again(suite: SmallSuite) -> None:
    suite.write(
        "test_a.py",
        """
        import pytest
        @pytest.mark.parametrize("words", ["a::b", "[ü", "-x", "two words"])
        def test_odd(words): assert words != "[ü" or not is_first("odd")
        """,
    )
    outcome = suite.run()
    assert outcome.code == 0
    assert outcome.closing == {"passed": 4, "flaky": 1}


def test_record_of_a_green_run_names_no_test_of_the_run_before(suite: SmallSuite) -> None:
    suite.write("test_a.py", FLAKY)
    assert suite.run().flaky == ["test_a.py::test_shaky"]
    outcome = suite.run()
    assert outcome.closing == {"passed": 2}
    assert outcome.flaky == []
