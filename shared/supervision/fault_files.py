"""Stores the faults that watchdogs have written into the data folder.

Called at the next start of a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import structlog

from shared.core.ops.process_faults import ProcessFault, parse_fault
from shared.runtime import CrashPoint
from shared.supervision.watchdog import FAULTS_FOLDER

log = structlog.get_logger(__name__)


class FaultStore(Protocol):
    """Store of processes' faults; returns False if the fault was stored before."""

    async def record(self, fault: ProcessFault) -> bool: ...


async def store_faults(store: FaultStore, folder: Path, *, crash_point: CrashPoint) -> None:
    """Store each fault file of the data folder in the database, then delete it; log each new fault.

    Unreadable files are logged and deleted. Repeating the call has no effect. Raises StorageUnavailable,
    after which the remaining files stay.
    """
    for file in _list_files(folder):
        try:
            fault = parse_fault(file.read_bytes())
        except FileNotFoundError:
            continue  # another process of this data folder has just stored the fault
        except (OSError, ValueError, KeyError) as error:
            log.warning("process_fault_unreadable", file=file.name, reason=str(error))
        else:
            recorded = await store.record(fault)
            crash_point("after_process_fault")
            if recorded:
                log.error("process_fault_recorded", role=fault.role, cause=fault.cause, work=fault.work)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("process_fault_not_deleted", file=file.name, reason=str(error))


def _list_files(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted((folder / FAULTS_FOLDER).glob("*.json"))
    except OSError as error:
        log.warning("process_faults_unreadable", reason=str(error))
