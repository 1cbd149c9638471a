"""Files of one folder, and of nowhere else: a link that leads out of it is refused, so is what is no file."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotReadable(Exception):
    """The text says why, for an operator."""


def has_plain_name(name: str) -> bool:
    """Whether a name found on disk is text that can be stored and printed."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def regular_file(root: Path, path: Path) -> tuple[Path, int]:
    """Where the file really lies and its size; `root` is resolved. Raises NotReadable, FileNotFoundError."""
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
    """The whole file, or of a longer one its head and its tail. Raises NotReadable."""
    try:
        # A named pipe put in its place after the look must not hold us up.
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
