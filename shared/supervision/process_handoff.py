"""Whoever is started again after a process ended takes up its work without waiting for its lease."""

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
    """The id under which this process works, left in `file` for whoever comes after it.

    The file belongs to one process at a time: whoever starts it again waits for the end of the one before.
    """
    worker_id = await workers.register(role, instead_of=_read_previous_id(file))
    if file is not None:
        try:
            file.write_text(f"{worker_id}\n")
        except OSError as error:
            log.warning("process_file_write_failed", reason=str(error))
    return worker_id


def clear_process_file(file: Path | None) -> None:
    """The id is nobody's any more, or somebody else's: whoever comes next must not end it."""
    if file is not None:
        with suppress(OSError):
            file.write_text("")


def _read_previous_id(file: Path | None) -> int | None:
    if file is not None:
        with suppress(OSError, ValueError):
            return min(int(file.read_text()), MAX_ID)
    return None
