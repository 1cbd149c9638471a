"""A window that a few turns fill."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 9_000, "max_output": 1_000}
