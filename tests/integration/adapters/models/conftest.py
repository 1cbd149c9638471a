"""What a process has loaded before its first turn, so that no deadline of a test pays for it."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture(scope="session", autouse=True)
def sdk() -> None:
    """Two seconds, whichever test of these is a worker's first."""
    importlib.import_module("anthropic")
