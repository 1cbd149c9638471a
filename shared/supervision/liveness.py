"""Health check of a process by the age of EVERTALK_PROCESS_FILE, which the process touches with each
heartbeat.

Containers run `python -m shared.supervision.liveness` all day, so it imports only the standard library. With
`--ready` it checks whether the process can store data now, like `/readyz`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MAX_SILENCE_SECONDS = 20.0
"""Maximum seconds since the last heartbeat.

There is one each second, and short database outages are tolerated.
"""
READY_SILENCE_SECONDS = 3.0
"""Maximum seconds since the last heartbeat for `--ready`; a greater age means that two beats were missed."""


def touch_process_file(file: Path | None) -> None:
    """Set the modification time of the process file to now; called after each heartbeat that was stored.

    None does nothing; errors of the file system are ignored.
    """
    if file is not None:
        with suppress(OSError):
            os.utime(file)


def explain_unhealthy(file: str | None, *, now: float, most_seconds: float = MAX_SILENCE_SECONDS) -> str:
    """Return why a process counts as unhealthy; empty if its last heartbeat is at most `most_seconds` old.

    `file` is the path of the process file, `now` the time in seconds since 1970.
    """
    if not file:
        return "EVERTALK_PROCESS_FILE is not set: nobody marks a file"
    try:
        silent = now - Path(file).stat().st_mtime
    except OSError:
        return "the process has not begun"
    return "" if silent <= most_seconds else f"no heartbeat for {silent:.0f} seconds"


def main(arguments: Sequence[str] = (), say: Callable[[str], None] = print) -> int:
    """Print why the process of `EVERTALK_PROCESS_FILE` is unhealthy, if it is; return exit code 0 if healthy,
    else 1.
    """
    most_seconds = READY_SILENCE_SECONDS if "--ready" in arguments else MAX_SILENCE_SECONDS
    reason = explain_unhealthy(
        os.environ.get("EVERTALK_PROCESS_FILE"), now=time.time(), most_seconds=most_seconds
    )
    if reason:
        say(reason)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
