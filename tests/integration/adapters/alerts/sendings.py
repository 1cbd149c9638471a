"""An alert as it is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shared.core.ops.alerts import Alert, Sending

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def sending(**more: Any) -> Sending:
    alert = Alert(
        public_id="11111111-2222-3333-4444-555555555555", kind="disk_low", key="data",
        detail={"free_bytes": 2**30, "total_bytes": 2**36}, opened_at=AT,
    )  # fmt: skip
    given: dict[str, Any] = {"send_id": 1, "send_key": "key-1", "target": "webhook", "phase": "opened"}
    return Sending(alert=alert, **{**given, "attempt": 1, **more})
