"""The web channel as `tests/web` starts it, for the tests of what must not be possible."""

from __future__ import annotations

from tests.web.conftest import server, starter

__all__ = ["server", "starter"]
