"""An answer that takes a while, and how calls are counted that a crash cut off."""

from __future__ import annotations

ABORTED = "SELECT count(*) FROM usage WHERE status = 'aborted' AND NOT known AND cost_micro IS NULL"
"""Calls that nobody lived to tell the cost of."""
SLOW_ANSWER = " ".join(f"word{number}" for number in range(60))
