"""What `evertalk doctor` says about backups: whether there is a fresh one, and why there is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.adapters.embedded.atomic_swap import JOURNAL
from shared.cli.backup import find_last_backup, read_last_failure
from shared.config.settings import Settings
from shared.diagnostics.findings import Finding

_LATE = timedelta(days=2)


async def check_backups(settings: Settings) -> list[Finding]:
    """Says nothing of servers elsewhere: who runs them copies them."""
    if not settings.embedded_postgres:
        return []
    found = [_state(settings, datetime.now(UTC))]
    if (settings.data_dir / JOURNAL).exists():
        what = "a restore was cut off while it put files in their places"
        found.append(Finding(level="warn", what=what, advice="./evertalk up brings it to its end."))
    return found


def _state(settings: Settings, now: datetime) -> Finding:
    folder = settings.backups
    last = find_last_backup(settings, now=now)
    if (failure := read_last_failure(settings)) is not None:
        what = f"the last daily backup failed: {failure}"
        return Finding(level="warn", what=what, advice="Mend the reason, then run ./evertalk backup.")
    if settings.backup_keep == 0:
        what = f"no backups are made by themselves{f'; the newest is of {last:%Y-%m-%d}' if last else ''}"
        return Finding(level="warn", what=what, advice="Set EVERTALK_BACKUP_KEEP=7, or copy them yourself.")
    if last is None:
        if not (settings.data_dir / "servers" / "pg").exists():
            return Finding(level="ok", what="nothing to back up yet")
        advice = "The running system makes one within minutes; ./evertalk backup makes one now."
        return Finding(level="warn", what="there is no backup yet", advice=advice)
    what = f"the newest backup is of {last:%Y-%m-%d %H:%M} UTC, in {folder}"
    if now - last > _LATE:
        advice = "Evertalk makes one each day while it runs; ./evertalk backup makes one now."
        return Finding(level="warn", what=what, advice=advice)
    return Finding(level="ok", what=what)
