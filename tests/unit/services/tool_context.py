"""What a tool is told of the turn that calls it."""

from __future__ import annotations

from shared.ports import ToolContext

CONTEXT = ToolContext(session_id=1, contact_id=1, scope="default", turn=1, key="1:1:t")
