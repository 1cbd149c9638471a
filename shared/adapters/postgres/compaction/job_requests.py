"""Jobs inserted by the transaction that changes a session's view: late flushes, upgrades of digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.adapters.postgres.compaction import jobs_sql as sql
from shared.adapters.postgres.db.pool import Connection
from shared.core.compaction.jobs import LATE
from shared.core.verdicts.summaries import unusable_models

LATE_SECONDS = 300.0
"""Seconds until the late flush after turns were hidden singly, so that one flush reads several."""
UPGRADE_SECONDS = 60.0
"""Seconds until the first attempt to replace a digest by a summary."""
UPGRADE_UNUSABLE_SECONDS = 900.0
"""Seconds until that attempt if a model has answered unusably, since it will hardly do better soon."""


async def request_late_flush(connection: Connection, session_id: int, *, delay_seconds: float) -> None:
    """Insert a flush job that reads, from the log, hidden turns that no flush has read.

    The job is due after `delay_seconds`; none is inserted if such a job waits. The caller commits.
    """
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
    """Insert a job that replaces a digest by a summary; none if one waits. The caller commits.

    `audit` is the digest's: if it shows unusable answers of a model, the job is due after
    UPGRADE_UNUSABLE_SECONDS, else after UPGRADE_SECONDS.
    """
    is_unusable = bool(unusable_models(audit.get("attempts", ())))
    await connection.execute(
        *sql.ASK_JOB_LATER(
            kind="compact", session_id=session_id, key=f"upgrade:{session_id}:{compaction_id}",
            trigger="upgrade", payload={"compaction": compaction_id},
            delay_seconds=UPGRADE_UNUSABLE_SECONDS if is_unusable else UPGRADE_SECONDS,
        )
    )  # fmt: skip


def build_late_key(session_id: int) -> str:
    """Return the natural key of a session's late flush; one such job exists at a time."""
    return f"flush:{session_id}:{LATE}"
