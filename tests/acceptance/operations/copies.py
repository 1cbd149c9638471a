"""Crash points of backups and restores, and how messages are counted."""

from __future__ import annotations

COPY_POINTS = (
    "backup_after_dump",
    "backup_before_name",
    "restore_before_swap",
    "restore_mid_swap",
)
MESSAGES = "SELECT count(*)::int FROM entries"


def silent(_line: str) -> None:
    return None
