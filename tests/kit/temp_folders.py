"""Folders for the servers of tests: with short paths, and in memory if there is room, because disks are
slow.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 * 2**30


def short_folder(prefix: str) -> Path:
    """Create a folder that the caller has to remove.

    Other accounts may enter it, and paths of sockets in it are short enough.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _has_room(_MEMORY) else "/tmp"))
    folder.chmod(0o755)
    return folder


def _has_room(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free >= _ROOM_BYTES
    except OSError:
        return False
