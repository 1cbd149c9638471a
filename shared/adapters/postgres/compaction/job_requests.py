"""Jobs that a change of the view asks for in its own transaction: late flushes, upgrades of digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.adapters.postgres.compaction import jobs_sql as sql
from shared.adapters.postgres.db.pool import Connection
from shared.core.compaction.jobs import LATE
from shared.core.verdicts.summaries import unusable_models

LATE_SECONDS = 300.0
"""Seconds to wait after turns were hidden singly, so that one flush reads several."""
UPGRADE_SECONDS = 60.0
UPGRADE_UNUSABLE_SECONDS = 900.0
"""Where a model answered, and not as it should, it will hardly do better in a minute."""


async def request_late_flush(connection: Connection, session_id: int, *, delay_seconds: float) -> None:
    """Turns were hidden that no flush has read: they are read from the log, later but surely."""
    await connection.execute(
        *sql.ASK_JOB_LATER(
            kind="flush",
            session_id=session_id,
            key=build_late_key(session_id),
            trigger=LATE,
            payload={"threshold": LATE},
            delay_seconds=delay_seconds,
        ),
    )


async def request_upgrade(
    connection: Connection, session_id: int, compaction_id: int, audit: Mapping[str, Any]
) -> None:
    """A digest stands in for a summary until a model can write one."""
    is_unusable = bool(unusable_models(audit.get("attempts", ())))
    await connection.execute(
        *sql.ASK_JOB_LATER(
            kind="compact", session_id=session_id, key=f"upgrade:{session_id}:{compaction_id}",
            trigger="upgrade", payload={"compaction": compaction_id},
            delay_seconds=UPGRADE_UNUSABLE_SECONDS if is_unusable else UPGRADE_SECONDS,
        )
    )  # fmt: skip


def build_late_key(session_id: int) -> str:
    return f"flush:{session_id}:{LATE}"
