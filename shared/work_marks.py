"""Marks that tell the watchdog which turn, job or update each thread of a process is working on.

The marks are in memory shared with the watchdog. Each step of a task between two awaits sets the mark of its
thread and removes it at the end. If the process hangs or dies, the marks name the work whose code was
running.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

WORK_BYTES = 96
"""Maximum bytes of the name of a piece of work.

The longest name is a message: session id and digest of its key.
"""
MAX_SLOTS = 64
"""Maximum threads that can be marked; asyncio's pool has at most 32."""
FOLDER_BYTES = 4096
"""Bytes for a path, the maximum length on Linux."""
ROUND_SECONDS = 0.5
"""Seconds between two signs of life of the event loop."""
_COUNTERS = struct.Struct("=QQB")
_SLOT = struct.Struct(f"=QQ{WORK_BYTES}s")
_SLOTS_AT = 64 + FOLDER_BYTES
_NOTHING = bytes(WORK_BYTES)

_work: ContextVar[bytes] = ContextVar("work", default=b"")
_thread = threading.local()


@dataclass(frozen=True, slots=True)
class MarkedThread:
    """Thread that is working on a named piece of work."""

    ident: int
    """Thread number that `faulthandler` prints."""
    native_id: int
    """Thread number by which the kernel counts processor time."""
    work: str


class WorkBoard:
    """Memory shared by a process and its watchdog: signs of life, marks of threads, and the data folder."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOTS_AT + MAX_SLOTS * _SLOT.size)
        self._pulses = self._rounds = 0
        self._closing = False
        self._lock = threading.Lock()
        self._used = 0

    # -- the process writes ---------------------------------------------------------------------------------

    def count_pulse(self) -> None:
        """Record that this process can run Python code."""
        self._pulses += 1
        self._write_counters()

    def count_round(self) -> None:
        """Record that the event loop runs."""
        self._rounds += 1
        self._write_counters()

    def begin_to_close(self) -> None:
        """Record that this process is ending because it was asked to."""
        self._closing = True
        self._write_counters()

    def set_folder(self, folder: str) -> None:
        """Set the folder into which faults are written."""
        self._memory[64:_SLOTS_AT] = folder.encode()[:FOLDER_BYTES].ljust(FOLDER_BYTES, b"\0")

    def open_slot(self) -> WorkSlot | None:
        """Return the slot of the calling thread, opened if needed; None if all slots are taken."""
        slot: WorkSlot | None = getattr(_thread, "slot", None)
        if slot is None:
            with self._lock:
                if self._used == MAX_SLOTS:
                    return None
                start = _SLOTS_AT + self._used * _SLOT.size
                self._used += 1
            slot = _thread.slot = WorkSlot(self._memory, start)
        return slot

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Mark the steps of all tasks and the thread calls of `loop`, and count its rounds."""
        import asyncio

        slot = self.open_slot()
        assert slot is not None, "the thread of the loop is the first that opens a slot"

        def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            return asyncio.Task(_MarkedSteps(coroutine, slot), loop=loop, **options)

        def come_round() -> None:
            self.count_round()
            loop.call_later(ROUND_SECONDS, come_round)

        loop.set_task_factory(make_task)
        loop.set_default_executor(_MarkingExecutor(self))
        come_round()

    def _write_counters(self) -> None:
        _COUNTERS.pack_into(self._memory, 0, self._pulses, self._rounds, self._closing)

    # -- the watch-dog reads --------------------------------------------------------------------------------

    def read_counters(self) -> tuple[int, int, bool]:
        """Return the number of pulses, the number of loop rounds, and whether the process is ending."""
        pulses, rounds, closing = _COUNTERS.unpack_from(self._memory, 0)
        return pulses, rounds, bool(closing)

    def read_folder(self) -> str:
        """Return the folder for faults; empty if the process has not set it."""
        return bytes(self._memory[64:_SLOTS_AT]).rstrip(b"\0").decode(errors="replace")

    def read_marks(self) -> list[MarkedThread]:
        """Return the threads that are working on a named piece of work, the event loop's first."""
        slots = (
            _SLOT.unpack_from(self._memory, _SLOTS_AT + number * _SLOT.size) for number in range(MAX_SLOTS)
        )
        return [
            MarkedThread(ident, native_id, work.rstrip(b"\0").decode(errors="replace"))
            for ident, native_id, work in slots
            if work != _NOTHING
        ]


class WorkSlot:
    """Part of the board for one thread."""

    __slots__ = ("_end", "_memory", "_start", "is_marked")

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        _SLOT.pack_into(memory, start, threading.get_ident(), threading.get_native_id(), _NOTHING)
        self._memory = memory
        self._start = start + _SLOT.size - WORK_BYTES
        self._end = start + _SLOT.size
        self.is_marked = False

    def mark(self, work: bytes) -> None:
        """Set the mark of the thread."""
        self.is_marked = True
        self._memory[self._start : self._end] = work

    def clear(self) -> None:
        """Remove the mark of the thread."""
        self._memory[self._start : self._end] = _NOTHING
        self.is_marked = False


@contextmanager
def mark_work(kind: str, *ids: object) -> Iterator[None]:
    """Mark the code in the context, and the tasks and threads that it starts, as working on `kind` and `ids`.

    The innermost mark counts. Without a board nothing is written.
    """
    work = " ".join([kind, *map(str, ids)]).encode()[:WORK_BYTES].ljust(WORK_BYTES, b"\0")
    slot: WorkSlot | None = getattr(_thread, "slot", None)
    token = _work.set(work)
    if slot is not None:
        slot.mark(work)
    try:
        yield
    finally:
        _work.reset(token)
        if slot is not None:
            if before := _work.get():
                slot.mark(before)
            else:
                slot.clear()


class _MarkedSteps(Coroutine[Any, Any, Any]):
    """Coroutine of a task whose steps mark the thread of the event loop."""

    __slots__ = ("_coroutine", "_slot")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], slot: WorkSlot) -> None:
        self._coroutine = coroutine
        self._slot = slot

    def send(self, value: Any) -> Any:
        slot = self._slot
        if work := _work.get():
            slot.mark(work)
        try:
            return self._coroutine.send(value)
        finally:
            if slot.is_marked:
                slot.clear()

    def throw(self, *error: Any) -> Any:
        slot = self._slot
        if work := _work.get():
            slot.mark(work)
        try:
            return self._coroutine.throw(*error)
        finally:
            if slot.is_marked:
                slot.clear()

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        """Return attributes of the wrapped coroutine, for libraries that inspect tasks."""
        return getattr(self._coroutine, name)


class _MarkingExecutor(ThreadPoolExecutor):
    """Thread pool of asyncio in which a call has the mark of the task that made it."""

    def __init__(self, board: WorkBoard) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._board = board

    def submit(self, call: Any, /, *arguments: Any, **named: Any) -> Any:
        if work := _work.get():
            return super().submit(self._run_marked, work, call, arguments, named)
        return super().submit(call, *arguments, **named)

    def _run_marked(self, work: bytes, call: Any, arguments: Any, named: Any) -> Any:
        if (slot := self._board.open_slot()) is None:
            return call(*arguments, **named)
        slot.mark(work)
        try:
            return call(*arguments, **named)
        finally:
            slot.clear()
