"""Reads entries of the audit log without their time and hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AuditEntry:
    actor: str
    action: str
    about: str
    detail: Any


async def read_audit(pool: Any, *, after: int = 0) -> list[AuditEntry]:
    """Return the entries with an id greater than `after`, oldest first."""
    rows = await pool.fetch(
        "SELECT actor, action, object, detail FROM audit WHERE id > $1 ORDER BY id", after
    )
    return [AuditEntry(*row) for row in rows]
