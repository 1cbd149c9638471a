"""Watchdog: a small process that ends a process of Evertalk when it hangs, and records what it was working
on.

C code that holds the interpreter's lock stops all threads of its process, also heartbeats, so the watchdog is
a separate process, forked before imports. It does not use the database, so an outage of PostgreSQL ends no
process. It counts time by its own rounds, so a suspended or overloaded machine ends none either.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import select
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

from shared.work_marks import MarkedThread, WorkBoard

PULSE_SECONDS = 1.0
"""Seconds between two pulses of the process."""
TICK_SECONDS = 1.0
"""Seconds between two checks; a check that comes late counts for no more."""
UNEXPLAINED_SECONDS = 2.0
"""Seconds without a pulse before the states of the threads are read, which costs one file per thread."""
SILENCE_SECONDS = 20.0
"""Seconds without a pulse after which the process is ended: none of its threads could run Python code."""
STILL_SECONDS = 30.0
"""Seconds with pulses but without a round of the event loop, after which the process is ended."""
DUMP_SECONDS = 0.5
"""Seconds to wait for the stacks of a process that is about to be ended."""
CLOSING_SECONDS = 60.0
"""Maximum seconds between the end of the event loop and the end of the process."""
FAULTS_FOLDER = "faults"
"""Folder inside the data folder for files about faults."""
MAX_FAULT_FILES = 100
"""Maximum fault files that wait to be stored; further faults are only logged."""
MAX_DUMP_BYTES = 64 * 1024
"""Maximum bytes of stacks that are kept."""
FRAMES = 6
"""Maximum frames of a stack that are recorded."""
_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_CRASH = re.compile(r"Fatal Python error: ([^\n]{1,80})")
_FILE = re.compile(r'"([^"]*)"')
_CURRENT = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)")


@cache
def start_watchdog(role: str) -> WorkBoard:
    """Fork the watchdog of this process; return the shared board on which the process marks its work.

    Call it as early as possible, before any thread exists; later calls return the same board. It also starts
    a thread that counts a pulse each second.
    """
    board = WorkBoard()
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    watched, is_first = os.getpid(), os.getpid() == 1
    forked = os.fork()
    if is_first and forked:
        # Linux does not let children kill the first process of a container, so the parent watches there.
        os.close(writing)
        _watch_as_first_process(Watchdog(forked, board, role=role, pipe=reading))
    if not is_first and not forked:
        os.close(writing)
        _watch_as_child(Watchdog(watched, board, role=role, pipe=reading))
    os.close(reading)
    # `faulthandler` writes without the interpreter's lock, so stacks reach the watchdog even after a crash.
    faulthandler.enable(writing)
    faulthandler.register(signal.SIGQUIT, writing, all_threads=True, chain=False)
    threading.Thread(target=_pulse, args=(board,), name="pulse", daemon=True).start()
    return board


def _pulse(board: WorkBoard) -> None:
    """Count a pulse each second; runs in a thread of the watched process."""
    while True:
        board.count_pulse()
        time.sleep(PULSE_SECONDS)


# -- the watch-dog's own process ----------------------------------------------------------------------------


def _watch_as_child(watchdog: Watchdog) -> NoReturn:
    """Watch the parent until it ends, then end the watchdog."""
    for number in _SIGNALS:
        # Signals are for the process; the watchdog ends when the pipe is closed.
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BaseException):
        watchdog.run()
    os._exit(0)


def _watch_as_first_process(watchdog: Watchdog) -> NoReturn:
    """Watch the child as process 1 of a container: forward signals, reap children, exit with the child's
    code.
    """
    ends: dict[int, int] = {}

    def collect(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                ends[ended[0]] = ended[1]

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(watchdog.watched, number)

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    signal.signal(signal.SIGCHLD, collect)
    collect()
    with contextlib.suppress(Exception):
        watchdog.run()
    while watchdog.watched not in ends:
        time.sleep(0.05)
        collect()
    code = os.waitstatus_to_exitcode(ends[watchdog.watched])
    os._exit(code if code >= 0 else 128 - code)


class Watchdog:
    """Watcher of one process, which it kills when it hangs; `run` returns after the process has ended."""

    def __init__(
        self,
        watched: int,
        board: WorkBoard,
        *,
        role: str,
        pipe: int,
        usage: Callable[[int], ProcessUsage | None] | None = None,
    ) -> None:
        self.watched = watched
        self._board = board
        self._role = role
        self._pipe = pipe
        self._read_usage = usage or read_usage
        self._dump = b""
        self._pulses = self._rounds = 0
        self._silent = self._still = 0.0
        self._usage: ProcessUsage | None = None
        self._first_usage: ProcessUsage | None = None
        """Usage of the process when the current silence was first examined; None while pulses arrive."""
        self._oom_kills = count_oom_kills()

    def run(self) -> None:
        """Watch until the process ends; kill it by SIGKILL if it hangs, and write a fault file if there was a
        fault.
        """
        while self._wait(TICK_SECONDS):
            if (cause := self.judge()) and not is_stopped(self.watched):
                self._end(cause)
                break
        else:
            self._explain_death()

    def judge(self) -> str:
        """Compare the counters with those of the last call; return the cause to kill the process, "" for
        none.

        Call it once a second: each call without a new pulse counts as one second, unless the process could
        not run meanwhile. Causes are `stood_still` (no pulse) and `loop_stood_still` (no round of the event
        loop).
        """
        pulses, rounds, closing = self._board.read_counters()
        if pulses != self._pulses:
            self._still = 0.0 if rounds != self._rounds or not rounds else self._still + PULSE_SECONDS
            self._silent, self._usage, self._first_usage = 0.0, None, None
        elif self._silent < UNEXPLAINED_SECONDS or self._could_run():
            self._silent += TICK_SECONDS
        self._pulses, self._rounds, self._oom_kills = pulses, rounds, count_oom_kills()
        if self._silent >= SILENCE_SECONDS:
            return "stood_still"
        if self._still >= (CLOSING_SECONDS if closing else STILL_SECONDS):
            return "loop_stood_still"
        return ""

    def _could_run(self) -> bool:
        """Return whether the process could have run since the last call."""
        usage, before = self._read_usage(self.watched), self._usage
        self._usage = usage
        self._first_usage = self._first_usage or usage
        return usage is None or usage.could_run(since=before)

    def _end(self, cause: str) -> None:
        # Read before the signal, which would interrupt a sleeping call.
        busy = self._find_busiest() if cause == "stood_still" else self._first_mark()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.watched, signal.SIGQUIT)
            end = time.monotonic() + DUMP_SECONDS
            while self._wait(0.05) and time.monotonic() < end:
                pass
        # The file is written first: in a container the watchdog ends together with the process.
        self._record(cause, busy)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.watched, signal.SIGKILL)

    def _explain_death(self) -> None:
        """Record a fault if Python crashed, or if memory ran out before the process began to end."""
        found = _CRASH.search(self._dump.decode(errors="replace"))
        if found is not None:
            self._record(f"crashed_{found[1].replace(' ', '_')}".lower(), self._find_crashed())
        elif not self._board.read_counters()[2] and count_oom_kills() > self._oom_kills:
            self._record("out_of_memory", self._first_mark())

    def _wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for output of the process and keep it.

        Return False once the process has ended.
        """
        if not select.select([self._pipe], [], [], seconds)[0]:
            return True
        chunk = os.read(self._pipe, 65536)
        self._dump = (self._dump + chunk)[:MAX_DUMP_BYTES]
        return bool(chunk)

    def _find_busiest(self) -> MarkedThread | None:
        """Return the marked thread with the most processor time during the silence; None without marks.

        Of equal threads, the event loop's is returned.
        """
        marks, before = self._board.read_marks(), self._first_usage
        now = self._read_usage(self.watched)
        if now is None or before is None:
            return marks[0] if marks else None
        used = {
            one: now.threads.get(one.native_id, 0) - before.threads.get(one.native_id, 0) for one in marks
        }
        return max(marks, key=lambda one: used[one], default=None)

    def _find_crashed(self) -> MarkedThread | None:
        """Return the marked thread that crashed; without its mark, the event loop's."""
        marks = self._board.read_marks()
        for line in self._dump.decode(errors="replace").splitlines():
            if line.startswith("Current thread") and (found := _CURRENT.match(line)):
                return next((one for one in marks if one.ident == int(found[1], 16)), None)
        return self._first_mark()

    def _first_mark(self) -> MarkedThread | None:
        return next(iter(self._board.read_marks()), None)

    def _record(self, cause: str, busy: MarkedThread | None) -> None:
        """Write a fault file, and a line to the log."""
        fault = {
            "id": str(uuid.uuid4()), "role": self._role, "cause": cause, "work": busy.work if busy else "",
            "place": find_place(self._dump.decode(errors="replace"), busy),
        }  # fmt: skip
        stored = write_fault(self._board.read_folder(), fault)
        line = {
            "event": "process_fault", "level": "error", "process": self._role, "pid": self.watched,
            "stored": stored, **fault,
        }  # fmt: skip
        with contextlib.suppress(OSError):
            os.write(2, (json.dumps(line) + "\n").encode())


def write_fault(folder: str, fault: Mapping[str, str]) -> bool:
    """Write a fault as a JSON file into `folder`, for the next process of this data folder to store.

    Returns False if that is impossible, or `MAX_FAULT_FILES` files are there.
    """
    if not folder:
        return False
    target = Path(folder) / FAULTS_FOLDER
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sum(1 for _ in target.iterdir()) >= MAX_FAULT_FILES:
            return False
        partial = target / f"{fault['id']}.partial"
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(dict(fault), file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target / f"{fault['id']}.json")
    except OSError:
        return False
    return True


def find_place(dump: str, busy: MarkedThread | None) -> str:
    """Return up to `FRAMES` innermost frames of the thread `busy` in a dump of stacks, one per line; ""
    without a stack.

    If the thread is unknown, the frames are those of the first stack.
    """
    stacks: dict[int, list[str]] = {}
    current: list[str] = []
    for line in dump.splitlines():
        if found := _CURRENT.match(line):
            current = stacks.setdefault(int(found[1], 16), [])
        elif line.startswith("  File ") and len(current) < FRAMES:
            current.append(_FILE.sub(_shorten, line.strip()))
    found_stack = stacks.get(busy.ident) if busy is not None else None
    return "\n".join(found_stack or next((stack for stack in stacks.values() if stack), []))


def _shorten(file: re.Match[str]) -> str:
    """Return the last three parts of a path."""
    return "/".join(file[1].split("/")[-3:])


# Facts about a process from the system, as far as there is /proc.


class ProcessUsage:
    """Processor time of each thread of a process in clock ticks, and the states of the threads."""

    def __init__(self, threads: Mapping[int, int], states: str) -> None:
        self.threads = threads
        self._states = states

    def could_run(self, *, since: ProcessUsage | None) -> bool:
        """Return whether the process used the processor after `since`, or all its threads sleep voluntarily.

        False if a thread is suspended, waits for a disk, or is ready but gets no processor. `since` is an
        earlier measurement; None if there is none, so that only the present states of the threads count.
        """
        if since is not None and sum(self.threads.values()) > sum(since.threads.values()):
            return True
        return not set(self._states) & set("RDTtXZ")


def read_usage(pid: int) -> ProcessUsage | None:
    """Return processor time and states of a process's threads; None without /proc, or if the process has
    ended.
    """
    threads, states = {}, ""
    try:
        for entry in os.scandir(f"/proc/{pid}/task"):
            told = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            states += told[0]
            threads[int(entry.name)] = int(told[11]) + int(told[12])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessUsage(threads, states)


def is_stopped(pid: int) -> bool:
    """Return whether `ps` shows that a process is suspended; False where there is /proc, which `read_usage`
    reads.
    """
    if Path("/proc/self").is_dir():
        return False
    with contextlib.suppress(OSError), os.popen(f"ps -o stat= -p {pid:d}") as told:  # noqa: S605
        return told.read().strip().startswith("T")
    return False


def count_oom_kills() -> int:
    """Return the number of processes that the system has killed for lack of memory; 0 if it does not tell."""
    with contextlib.suppress(OSError, ValueError), Path("/proc/vmstat").open(encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    return 0
