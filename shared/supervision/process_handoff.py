"""Hand-over of leases: a restarted process takes over the work of its predecessor at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)

MAX_ID = 2**63 - 1
"""Maximum of a process id, as in the database."""


class WorkerRegistry(Protocol):
    """Store in which each running process is registered under an id, with its leases."""

    async def register(self, role: str, *, instead_of: int | None = None) -> int:
        """Register this process and return its id.

        `instead_of` is a process that has surely ended, whose leases expire at once; None without one.
        """
        ...


async def take_over_process(workers: WorkerRegistry, role: str, file: Path | None) -> int:
    """Register this process in place of its predecessor, whose id `file` holds; return the new id.

    The leases of the predecessor expire at once. The new id is written to `file`; only one process at a time
    may use the file. None as `file` means no predecessor.
    """
    worker_id = await workers.register(role, instead_of=_read_previous_id(file))
    if file is not None:
        try:
            file.write_text(f"{worker_id}\n")
        except OSError as error:
            log.warning("process_file_write_failed", reason=str(error))
    return worker_id


def clear_process_file(file: Path | None) -> None:
    """Empty the process file, so that the next process takes over no leases; None does nothing."""
    if file is not None:
        with suppress(OSError):
            file.write_text("")


def _read_previous_id(file: Path | None) -> int | None:
    """Return the id in the process file; None without a valid one."""
    if file is not None:
        with suppress(OSError, ValueError):
            return min(int(file.read_text()), MAX_ID)
    return None
