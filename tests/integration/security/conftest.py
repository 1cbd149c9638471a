"""The web channel as `tests/integration/web` starts it, for the tests of what must not be possible."""

from __future__ import annotations

from tests.kit.web.fixtures import server, starter

__all__ = ["server", "starter"]
