"""Whether the process of EVERTALK_PROCESS_FILE is well: it marks that file with each of its heartbeats.

A container asks `python -m shared.supervision.liveness` all day: it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MAX_SILENCE_SECONDS = 20.0
"""A heart beats each second; a database that is away for a moment is no illness of the process."""


def touch_process_file(file: Path | None) -> None:
    """With each heartbeat that reached the database."""
    if file is not None:
        with suppress(OSError):
            os.utime(file)


def explain_unhealthy(file: str | None, *, now: float) -> str:
    """Empty when the process is well."""
    if not file:
        return "EVERTALK_PROCESS_FILE is not set: nobody marks a file"
    try:
        silent = now - Path(file).stat().st_mtime
    except OSError:
        return "the process has not begun"
    return "" if silent <= MAX_SILENCE_SECONDS else f"no heartbeat for {silent:.0f} seconds"


def main(say: Callable[[str], None] = print) -> int:
    reason = explain_unhealthy(os.environ.get("EVERTALK_PROCESS_FILE"), now=time.time())
    if reason:
        say(reason)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main())
