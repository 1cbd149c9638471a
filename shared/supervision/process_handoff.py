"""Hand-off of leases: a restarted process takes over the work of its predecessor at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)

MAX_ID = 2**63 - 1


class WorkerRegistry(Protocol):
    async def register(self, role: str, *, instead_of: int | None = None) -> int: ...


async def take_over_process(workers: WorkerRegistry, role: str, file: Path | None) -> int:
    """Register this process in place of its predecessor, and return its id, written to `file` for the next
    one.

    One process at a time has the file: a restart waits for the end of the former process.
    """
    worker_id = await workers.register(role, instead_of=_read_previous_id(file))
    if file is not None:
        try:
            file.write_text(f"{worker_id}\n")
        except OSError as error:
            log.warning("process_file_write_failed", reason=str(error))
    return worker_id


def clear_process_file(file: Path | None) -> None:
    """Clear the id, so that the next process does not end a stranger's leases."""
    if file is not None:
        with suppress(OSError):
            file.write_text("")


def _read_previous_id(file: Path | None) -> int | None:
    if file is not None:
        with suppress(OSError, ValueError):
            return min(int(file.read_text()), MAX_ID)
    return None
