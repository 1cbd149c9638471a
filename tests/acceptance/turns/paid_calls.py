"""Scripts and queries for tests of what calls of turns cost: reservations, caps and the ledger."""

from __future__ import annotations

from typing import Any

NOTE = {"name": "save_memory", "input": {"kind": "fact", "text": "The dog is called Bertil."}}
ROUND: dict[str, Any] = {"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [NOTE]}}
"""Script entry of one round of tools."""
OPEN = "SELECT count(*) FROM reservations WHERE state = 'held'"
SPENT = "SELECT coalesce(sum(spent_micro), 0)::bigint FROM spend_days WHERE scope = 'total'"
LEDGER = "SELECT coalesce(sum(cost_micro), 0)::bigint FROM usage"
