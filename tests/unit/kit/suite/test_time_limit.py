"""Time limit of a test: longer on a busy machine, never endless, and told with the load."""

from __future__ import annotations

import pytest

from tests.kit.suite.time_limit import MOST_TIMES, count_times

from .conftest import SmallSuite

HOOK = """
import os
import pytest
from tests.kit.suite.time_limit import set_timer
os.getloadavg = lambda: ({load}, 1.0, 1.0)
os.cpu_count = lambda: 2
@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item, settings): return set_timer(item, settings)
"""


@pytest.mark.parametrize(("load", "closing"), [(0.5, {"failed": 1}), (20.0, {"passed": 1})])
def test_time_limit_grows_with_the_load(suite: SmallSuite, load: float, closing: dict[str, int]) -> None:
    suite.write("conftest.py", HOOK.format(load=load))
    suite.write("test_a.py", "def test_slow(): import time; time.sleep(2)")
    outcome = suite.run("-p", "pytest_timeout", "-o", "timeout=1", workers=0)
    assert outcome.closing == closing
    told = "with a limit of 1 s on a quiet machine; load 0.5, 1.0, 1.0 on 2 cores" in outcome.output
    assert told == ("failed" in closing)


def test_test_that_hangs_is_ended_at_any_load(suite: SmallSuite) -> None:
    suite.write("conftest.py", HOOK.format(load=500.0))
    suite.write("test_a.py", "def test_stuck(): import time; time.sleep(600)")
    outcome = suite.run("-p", "pytest_timeout", "-o", "timeout=1", workers=0)
    assert outcome.closing == {"failed": 1}
    assert "load 500.0, 1.0, 1.0 on 2 cores" in outcome.output


@pytest.mark.parametrize(
    ("load", "times"),
    [(0.0, 1.0), (2.0, 1.0), (2.1, 1.05), (6.0, 3.0), (10.0, MOST_TIMES), (99.0, MOST_TIMES)],
)
def test_time_limit_counts_load_per_core(monkeypatch: pytest.MonkeyPatch, load: float, times: float) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert count_times() == times
