"""Reading of files inside one folder.

Links that leave it, and paths that are no regular file, are refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotReadable(Exception):
    """Raised for a file that cannot be read; the message is the reason for an operator."""


def has_plain_name(name: str) -> bool:
    """Return whether a file name is printable text that can be stored."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def regular_file(root: Path, path: Path) -> tuple[Path, int]:
    """Return the resolved path and the size in bytes of a regular file below `root`, which must be resolved.

    Raises NotReadable if the path leaves `root` or is no file, FileNotFoundError if it does not exist.
    """
    try:
        real = path.resolve(strict=True)
        found = real.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise NotReadable("is a link to nothing") from None
        raise
    except (OSError, RuntimeError) as error:
        raise NotReadable(_reason(error)) from error
    if not real.is_relative_to(root):
        raise NotReadable("leads out of the folder: a link must stay inside it")
    if not stat.S_ISREG(found.st_mode):
        raise NotReadable("is not a file")
    return real, found.st_size


def read_bytes(real: Path, *, most: int) -> bytes:
    """Return the bytes of a file; above `most` bytes only its head and its tail. Raises NotReadable."""
    try:
        # A named pipe that replaced the file after the check must not block.
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            head = file.read(most)
            size = os.fstat(descriptor).st_size
            if size <= most:
                return head
            file.seek(max(most // 2, size - most // 2))
            return head[: most // 2] + b"\n" + file.read(most // 2)
    except OSError as error:
        raise NotReadable(_reason(error)) from error


def _reason(error: Exception) -> str:
    told = getattr(error, "strerror", None)
    return f"cannot be read: {str(told).lower()}" if told else "is a link to itself"
