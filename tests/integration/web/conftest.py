"""The web channel for every test of this folder, as `tests.kit.web.fixtures` starts it."""

from __future__ import annotations

from tests.kit.web.fixtures import server, starter

__all__ = ["server", "starter"]
