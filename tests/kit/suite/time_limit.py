"""Time limit of a test: longer while the machine is busy; its message names the load."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest
import pytest_timeout

MOST_TIMES = 5.0
"""Most times that the limit of a quiet machine is multiplied by; a test that takes longer hangs."""


def set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Start the timer of pytest-timeout; return None where pytest-timeout's default timer is needed.

    When the limit is reached, the load decides whether the test gets more time: at a load of 6 on 2 cores a
    test has three times as long.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if settings.method != "signal" or not is_main:
        return None
    began = time.monotonic()

    def check(*_: object) -> None:
        __tracebackhide__ = True
        took = time.monotonic() - began
        left = settings.timeout * count_times() - took
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left)
        elif settings.disable_debugger_detection or not pytest_timeout.is_debugging():
            pytest_timeout.dump_stacks(item.config.get_terminal_writer())
            pytest.fail(
                f"Timeout: {took:.0f} s, with a limit of {settings.timeout:.0f} s on a quiet machine; "
                f"{describe_load()}"
            )

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    vars(item)["cancel_timeout"] = cancel
    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


def count_times() -> float:
    """Return how many times longer than on a quiet machine a test may take now."""
    return min(MOST_TIMES, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def describe_load() -> str:
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"load {loads} on {os.cpu_count()} cores"
