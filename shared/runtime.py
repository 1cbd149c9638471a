"""Runtime parts of every process: background tasks, spans of traces, crash points, garbage collection.

Below services and adapters, which both use it; knows neither settings nor any subject of the program. Begin
with `BackgroundTasks`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tomllib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import structlog

log = structlog.get_logger(__name__)

RESTART_SECONDS = 1.0
"""Seconds after which a failed loop is started again."""
_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


@cache
def read_version() -> str:
    """Return the version of this program, such as `0.2.0`."""
    return str(tomllib.loads(_PROJECT.read_text())["project"]["version"])


class BackgroundTasks:
    """Tasks of a process: short ones, which can finish at the end, and loops, which are cancelled then.

    No task is garbage-collected while it runs, and every failure is logged.
    """

    def __init__(self) -> None:
        self._short: set[asyncio.Task[None]] = set()
        self._loops: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a short task; if it fails, the error is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._short.add(task)
        task.add_done_callback(self._ended)
        return task

    def run_forever(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop, and start it again one second after it ended or failed."""
        task = asyncio.get_running_loop().create_task(_run_and_restart(loop))
        self._loops.add(task)
        task.add_done_callback(self._loops.discard)

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for the short tasks, then cancel the remaining tasks and all loops."""
        if self._short:
            await asyncio.wait(tuple(self._short), timeout=seconds)
        await self.cancel()

    async def cancel(self) -> None:
        """Cancel all tasks, and wait up to 10 seconds for them to end."""
        left = [*self._short, *self._loops]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=10)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._short.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", exc_info=error)


@contextmanager
def keep_cancellation() -> Iterator[None]:
    """Raise CancelledError at the end of the context if a Redis client has swallowed a cancellation inside
    it.

    The client uses `asyncio.wait_for`, which before Python 3.12 returns a ready result and loses a
    cancellation that arrives at the same time.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


async def _run_and_restart(loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            await loop()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("loop_failed", loop=getattr(loop, "__qualname__", "loop"))
        await asyncio.sleep(RESTART_SECONDS)


# -- spans of what takes time: ids and numbers, never what was said -----------------------------------------

SpanName = Literal["turn", "job", "delivery"]
Attribute = str | int | float | bool
"""Value of a span's attribute: ids and numbers, never texts of people."""


class TraceSpan(Protocol):
    """Span of a trace."""

    def set_attributes(self, **attributes: Attribute) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """Properties of a model call before it starts; `server` is empty for a model in this process."""

    model: str
    wire: str
    server: str = ""
    port: int = 0
    max_tokens: int = 0


class ModelCallSpan(Protocol):
    """Span of a model call."""

    def note_first_chunk(self) -> None:
        """Record that the first piece of the answer has arrived; later calls have no effect."""
        ...

    def note_reply(
        self,
        *,
        model: str,
        request_id: str,
        finish_reason: str,
        input_tokens: int,
        output_tokens: int,
        cache_read_tokens: int,
        cache_write_tokens: int,
        known: bool,
    ) -> None:
        """Record the complete answer.

        `input_tokens` excludes tokens read from or written to the cache. With `known` False the provider
        counted no tokens, and the numbers are ignored.
        """
        ...


class Tracer(Protocol):
    """Creator of spans."""

    def span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> AbstractContextManager[TraceSpan]:
        """Open a span that lasts as long as the context; an exception marks it as failed.

        A span that is opened inside another one becomes a part of it.
        """
        ...

    def model_call(self, call: ModelCall) -> AbstractContextManager[ModelCallSpan]:
        """Open a span for a model call; its tokens and its duration in seconds also become metrics.

        An exception marks it as failed.
        """
        ...

    def close(self) -> None:
        """Send all spans that were not sent yet, and stop; this can take seconds."""
        ...


class _NoSpan:
    __slots__ = ()

    def set_attributes(self, **attributes: Attribute) -> None:
        return None

    def note_first_chunk(self) -> None:
        return None

    def note_reply(self, **reply: Attribute) -> None:
        return None


class NullTracer:
    """Tracer of a process that sends no traces; all of its spans do nothing."""

    __slots__ = ()
    _block = nullcontext(_NoSpan())

    def span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> AbstractContextManager[TraceSpan]:
        return self._block

    def model_call(self, call: ModelCall) -> AbstractContextManager[ModelCallSpan]:
        return self._block

    def close(self) -> None:
        return None


NULL_TRACER = NullTracer()


# -- crash points: where the fault suite ends a process, as hard as a power cut -----------------------------

CrashPoint = Callable[[str], None]
"""Function that is called with the name of a crash point when the code passes it."""

CRASH_POINTS = (
    "before_accept",
    "after_process_fault",
    "after_accept",
    "after_ack",
    "after_edit",
    "after_reword",
    "after_claim",
    "before_model",
    "after_tokens_held",
    "mid_stream",
    "after_model",
    "after_tool_calls",
    "after_note",
    "after_tool_run",
    "after_tool_results",
    "after_answer",
    "after_delivered",
    "after_put_back",
    "after_slice",
    "before_reminder",
    "after_reminder",
    "after_sample",
    "after_link",
    "after_feedback",
    "after_read",
    "after_ask_human",
    "after_handover",
    "after_operator_reply",
    "mid_login",
    "mid_settings",
    "mid_follow",
    "after_job_claim",
    "after_flush_model",
    "after_flush",
    "after_summary_model",
    "before_compaction",
    "after_compaction",
    "after_tidy",
    "before_hearing",
    "after_hearing",
    "after_speech",
    "before_voice_note",
    "after_voice_note",
    "after_work_change",
    "before_indexing",
    "mid_listing",
    "mid_counting",
    "telegram_after_store",
    "telegram_before_bubble",
    "telegram_after_bubble",
    "telegram_before_send",
    "telegram_after_send",
    "telegram_before_edit",
    "telegram_after_edit",
    "telegram_after_part",
    "telegram_before_notice",
    "telegram_after_notice",
    "telegram_after_search",
    "telegram_after_press",
    "telegram_before_word",
    "telegram_after_word",
    "telegram_before_guest",
    "telegram_after_guest",
    "telegram_before_draft",
    "telegram_after_draft",
    "telegram_after_approval",
    "telegram_before_customer",
    "telegram_after_customer",
    "mid_erasure",
    "mid_import",
    "import_looked",
    "import_stored",
    "before_import_summary",
    "after_import_summary",
    "mid_fork",
    "before_alert_opens",
    "after_alert_opens",
    "before_alert_send",
    "after_alert_send",
    "before_hook_send",
    "after_hook_send",
    "before_push",
    "after_push",
    "backup_after_dump",
    "backup_before_name",
    "restore_before_swap",
    "restore_mid_swap",
)
"""Names of all crash points, at which the fault suite can end a process."""
_EXIT_CODE = 9


def ignore_crash_point(_name: str) -> None:
    """Do nothing; the crash point function outside of the fault suite."""


def build_crash_point(point: str | None) -> CrashPoint:
    """Return a function that ends this process at the crash point `point`.

    None returns one that does nothing. `name` ends the process at the first passing, `name:3` at the third.
    Raises ValueError for an unknown name.
    """
    if not point:
        return ignore_crash_point
    name, _, nth = point.partition(":")
    if name not in CRASH_POINTS:
        raise ValueError(f"no crash point is called {name!r}; there are {', '.join(CRASH_POINTS)}")
    left = [int(nth or 1)]

    def passing(here: str) -> None:
        if here == name:
            left[0] -= 1
            if left[0] == 0:
                os._exit(_EXIT_CODE)

    return passing


# -- garbage collection: modules are loaded without a look for garbage between them -------------------------


@contextmanager
def pause_gc() -> Iterator[None]:
    """Disable garbage collection while the context is open, which shortens the import of modules by a fifth.

    Can be used in a thread. The end of a nested context enables garbage collection for the outer one, too.
    """
    gc.disable()
    try:
        yield
    finally:
        freeze_loaded_objects()


def freeze_loaded_objects() -> None:
    """Exclude all existing objects from later garbage collections, and enable garbage collection."""
    gc.freeze()
    gc.enable()
