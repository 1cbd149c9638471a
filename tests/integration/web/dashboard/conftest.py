"""The dashboard for every test of this folder, as `tests.kit.dashboard.fixtures` serves it."""

from __future__ import annotations

from tests.kit.dashboard.fixtures import dashboard, stranger

__all__ = ["dashboard", "stranger"]
