"""Health check of the process of EVERTALK_PROCESS_FILE, which it touches with each heartbeat. Containers run
`python -m shared.supervision.liveness` all day, so it imports the standard library alone. With `--ready`
it checks whether the process can store data now, as `/readyz` does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MAX_SILENCE_SECONDS = 20.0
"""A heart beats each second; a database that is away for a moment is no illness of the process."""
READY_SILENCE_SECONDS = 3.0
"""Age at which a written beat no longer shows that the database takes writes: two beats were missed."""


def touch_process_file(file: Path | None) -> None:
    """With each heartbeat that reached the database."""
    if file is not None:
        with suppress(OSError):
            os.utime(file)


def explain_unhealthy(file: str | None, *, now: float, most_seconds: float = MAX_SILENCE_SECONDS) -> str:
    """Return an empty text when the newest beat is at most `most_seconds` old."""
    if not file:
        return "EVERTALK_PROCESS_FILE is not set: nobody marks a file"
    try:
        silent = now - Path(file).stat().st_mtime
    except OSError:
        return "the process has not begun"
    return "" if silent <= most_seconds else f"no heartbeat for {silent:.0f} seconds"


def main(arguments: Sequence[str] = (), say: Callable[[str], None] = print) -> int:
    most_seconds = READY_SILENCE_SECONDS if "--ready" in arguments else MAX_SILENCE_SECONDS
    reason = explain_unhealthy(
        os.environ.get("EVERTALK_PROCESS_FILE"), now=time.time(), most_seconds=most_seconds
    )
    if reason:
        say(reason)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
