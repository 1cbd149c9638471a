"""Daily backup in a separate process, so that no other process waits for it.

Containers, which have no `up`, run `python -m shared.supervision.backup_schedule` until SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shared.adapters.embedded.process import die_with_parent

FIRST_CHECK_SECONDS = 120.0
"""Seconds from the start to the first check."""
CHECK_SECONDS = 600.0
"""Seconds between two checks."""
_PATIENCE_SECONDS = 6 * 3600.0
"""Seconds that a backup may take."""
_STOP_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL."""
_ROOT = Path(__file__).resolve().parents[2]


class BackupScheduler:
    """Scheduler of the daily backup; checks every CHECK_SECONDS whether one is due.

    `say` gets a line about each failure. `command` makes a backup if one is due; empty means `./evertalk
    backup --daily`.
    """

    def __init__(
        self, environment: Mapping[str, str], say: Callable[[str], object], *, command: Sequence[str] = ()
    ) -> None:
        self._environment = environment
        self._say = say
        self._command = command or (sys.executable, "-P", "-m", "shared", "backup", "--daily")

    async def run(self) -> None:
        """Run `run_if_due` every `CHECK_SECONDS` until cancelled, for the first time after
        `FIRST_CHECK_SECONDS`.
        """
        await asyncio.sleep(FIRST_CHECK_SECONDS)
        while True:
            await self.run_if_due()
            await asyncio.sleep(CHECK_SECONDS)

    async def run_if_due(self) -> None:
        """Run the backup command and wait for its end; the command does nothing unless a backup is due.

        A failure becomes a line for `say`, and is never raised.
        """
        try:
            code, words = await self._make_backup()
        except (OSError, TimeoutError) as error:
            self._say(f"The daily backup failed: {str(error) or type(error).__name__}")
            return
        if code:
            self._say(f"The daily backup failed: {words[-600:] or f'exit code {code}'}")

    async def _make_backup(self) -> tuple[int, str]:
        """Run the backup command; return its exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *self._command, cwd=_ROOT, env=dict(self._environment), start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, preexec_fn=die_with_parent(signal.SIGTERM),
        )  # fmt: skip
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                words, _ = await process.communicate()
        finally:
            await _end(process)
        return process.returncode or 0, words.decode(errors="replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and its process group: by SIGTERM, then by SIGKILL after _STOP_SECONDS."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)


async def run_backup_schedule(say: Callable[[str], object]) -> None:
    """Run the schedule until SIGTERM or SIGINT, which also end a running backup."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    running = asyncio.ensure_future(BackupScheduler({**os.environ, "PYTHONPATH": path}, say).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait([running])


if __name__ == "__main__":
    asyncio.run(run_backup_schedule(lambda line: sys.stderr.write(f"{line}\n")))
