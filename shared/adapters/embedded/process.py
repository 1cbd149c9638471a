"""Child processes that never outlive their parent, and the stopping of children that an earlier run left."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.embedded.process_user import ProcessUser

_LOG_LIMIT_BYTES = 10 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02


def spawn(
    command: Sequence[str | Path], *, log: Path, account: ProcessUser, death_signal: signal.Signals
) -> subprocess.Popen[bytes]:
    """Start a server in its own session, so that Ctrl-C in a terminal does not reach it.

    Call it from the main thread: Linux sends `death_signal` when the *thread* that started the child ends.
    """
    rotate(log)
    log.touch(mode=0o600)
    with log.open("ab") as output, warnings.catch_warnings():
        # Newer Pythons warn of preexec_fn in processes with threads; this function makes two system calls
        # only.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_plain_environment(),
            start_new_session=True,
            preexec_fn=die_with_parent(death_signal),
            **account.spawn_options(),
        )


def die_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """Return a function for `preexec_fn` by which Linux signals the child when this process dies.

    Returns None elsewhere.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    number = int(death_signal)
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return ask


async def stop(process: subprocess.Popen[bytes], how: signal.Signals, *, timeout_seconds: float) -> bool:
    """Send signal `how` to a process and wait for its end; kill it after `timeout_seconds`.

    Return False if it had to be killed.
    """
    if process.poll() is not None:
        return True
    process.send_signal(how)
    if await wait_until(lambda: process.poll() is not None, timeout_seconds=timeout_seconds):
        return True
    process.kill()
    await wait_until(lambda: process.poll() is not None, timeout_seconds=5)
    return False


async def stop_leftover(
    pid_file: Path, marks: Sequence[str], how: signal.Signals, *, timeout_seconds: float = 30
) -> None:
    """Stop the process of `pid_file` if it is a server of an earlier run, and wait for its end.

    It is one if all `marks` occur in its command line. Raises EmbeddedServerFailed if it does not end in
    time.
    """
    pid = _read_pid(pid_file)
    if pid is None or not is_running_as(pid, marks):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
    if not await wait_until(lambda: not is_running_as(pid, marks), timeout_seconds=timeout_seconds):
        raise EmbeddedServerFailed(
            f"process {pid} ({marks[0]}) of an earlier run does not stop",
            advice=f"Look at it with `ps -p {pid}`, end it with `kill -9 {pid}`, then try again.",
        )


def is_running_as(pid: int, marks: Sequence[str]) -> bool:
    """Return whether the process `pid` runs and its command line contains all `marks`."""
    command = _command_line(pid)
    return command is not None and all(mark in command for mark in marks)


async def wait_until(condition: Callable[[], bool], *, timeout_seconds: float) -> bool:
    """Check the condition every 20 ms; return False if it is not met within the timeout."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def rotate(log: Path, limit_bytes: int = _LOG_LIMIT_BYTES) -> None:
    """Rename a log to `….1`, replacing an older one, if it is larger than the limit."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > limit_bytes:
            log.replace(log.with_name(f"{log.name}.1"))


def tail(log: Path, chars: int = 1500) -> str:
    """Return the last `chars` characters of the log; if it is unreadable, a text with the reason."""
    try:
        return log.read_text(errors="replace")[-chars:].strip()
    except OSError as error:
        return f"(no log: {error})"


def read_log_since(log: Path, offset: int, chars: int = 65_536) -> str:
    """Return at most `chars` bytes of the log after byte `offset`; from its start if it was rotated.

    Returns "" if unreadable.
    """
    try:
        with log.open("rb") as file:
            file.seek(offset if log.stat().st_size >= offset else 0)
            return file.read(chars).decode(errors="replace")
    except OSError:
        return ""


def size_of(log: Path) -> int:
    """Return the size of the log in bytes; 0 if it does not exist."""
    return log.stat().st_size if log.exists() else 0


def _read_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _command_line(pid: int) -> str | None:
    """Return the command line of a process; None if it does not run or is a zombie."""
    proc = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        with contextlib.suppress(OSError):
            return proc.read_bytes().replace(b"\0", b" ").decode(errors="replace") or None
        return None
    shown = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "stat=,command="], capture_output=True, text=True, timeout=10
    )
    state, _, command = shown.stdout.strip().partition(" ")
    return command.strip() if command and not state.startswith("Z") else None


def _plain_environment() -> Mapping[str, str]:
    """Return the environment for servers: PATH, locale C and UTC, without the operator's PGDATA."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
