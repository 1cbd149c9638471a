"""Client of the sandbox, a child process with limited memory and time that opens one untrusted file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

import structlog

from shared.core.values.errors import EvertalkError
from shared.core.values.files import DocumentKind

log = structlog.get_logger(__name__)

OPEN_SECONDS = 20.0
"""Maximum seconds of real time for opening one file, unless the caller sets another limit."""
LEAST_CPU_SECONDS = 6
"""Minimum CPU seconds that a file gets."""
MOST_CPU_SECONDS = 30
"""Maximum CPU seconds that a file gets."""
BYTES_PER_CPU_SECOND = 50_000
"""Bytes of a file for which it gets one more CPU second.

A small file that takes long is not worth reading.
"""
AT_ONCE = 2
"""Maximum pictures opened at once, and likewise of all other files; each takes a process."""
WAIT_SECONDS = 30.0
"""Seconds that a file waits for its turn."""
BUDGET_SECONDS = 60.0
"""Period in seconds over which the time that a sender's files take is summed."""
FAILED_SECONDS = 600.0
"""Seconds for which a file that could not be opened is not tried again."""
MOST_FAILED = 1_000
"""Maximum files that are remembered as failed."""
_SENDERS_BEFORE_TIDYING = 10_000
ROOT = Path(__file__).resolve().parents[3]
"""Folder of the program, in which the child process starts."""

Kind = Literal["picture", "chart", "scans"] | DocumentKind
"""Way in which the sandbox process opens content; `chart` draws numbers."""
Opened = tuple[dict[str, Any] | None, bytes]
"""Head and bytes of the sandbox's answer; a head of None means that the file cannot be opened."""


class SenderThrottled(EvertalkError):
    """Raised if the files of a sender took too much time within the last minute."""

    sentence = "Files of one sender have taken too much time lately."
    code = "files_took_long"
    advice = "The last files took long to open. Try again in a minute."

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"{retry_after_seconds:.0f} s")
        self.retry_after_seconds = retry_after_seconds


class SandboxClient:
    """Client of the sandbox: opens few files at once, one per sender, and none that failed recently."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places = {drawn: asyncio.Semaphore(AT_ONCE) for drawn in (True, False)}
        self._senders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._spent: dict[str, list[tuple[float, float]]] = {}
        self._failed: dict[bytes, float] = {}

    async def open(
        self,
        kind: Kind,
        content: bytes,
        *,
        sender: str,
        seconds: float = OPEN_SECONDS,
        most_seconds: float = float("inf"),
    ) -> Opened:
        """Open a file.

        Returns the head and bytes of the sandbox's answer, or (None, b"") if it cannot be opened.
        `seconds` limits this file, `most_seconds` all files of `sender` in a minute. Raises
        SenderThrottled above that, and TimeoutError if no place becomes free in WAIT_SECONDS.
        """
        key = hashlib.sha256(kind.encode() + content).digest()
        if self._has_failed_lately(key):
            return None, b""
        own, held = self._senders.setdefault(sender, asyncio.Lock()), []
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                for door in (own, self._places[kind == "picture"]):
                    await door.acquire()
                    held.append(door)
            return await self._open(kind, content, key, sender, seconds, most_seconds)
        finally:
            for door in held:
                door.release()

    async def _open(
        self, kind: Kind, content: bytes, key: bytes, sender: str, seconds: float, most_seconds: float
    ) -> Opened:
        if self._has_failed_lately(key):  # by the same file, which was opened while this one waited
            return None, b""
        spent = self._recent(sender)
        if sum(took for _, took in spent) >= most_seconds:
            raise SenderThrottled(max(1.0, spent[0][0] + BUDGET_SECONDS - self._clock()))
        began = self._clock()
        try:
            head, body = await open_in_sandbox(kind, content, seconds=seconds)
        finally:
            self._spend(sender, self._clock() - began)
        if head is None:
            self._remember_failed(key)
        return head, body

    def _recent(self, sender: str) -> list[tuple[float, float]]:
        since = self._clock() - BUDGET_SECONDS
        return [one for one in self._spent.get(sender, ()) if one[0] > since]

    def _spend(self, sender: str, took: float) -> None:
        if len(self._spent) >= _SENDERS_BEFORE_TIDYING:
            self._spent = {one: known for one in self._spent if (known := self._recent(one))}
        self._spent[sender] = [*self._recent(sender), (self._clock(), took)]

    def _has_failed_lately(self, key: bytes) -> bool:
        at = self._failed.get(key)
        if at is None or self._clock() - at >= FAILED_SECONDS:
            return False
        log.info("file_refused_as_known_to_fail", seconds_ago=round(self._clock() - at))
        return True

    def _remember_failed(self, key: bytes) -> None:
        self._failed.pop(key, None)
        self._failed[key] = self._clock()
        while len(self._failed) > MOST_FAILED:
            del self._failed[next(iter(self._failed))]


def _bare_environment() -> dict[str, str]:
    """Return an environment with only PATH and locale, without keys and tokens."""
    return {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}


def cpu_seconds(size: int) -> int:
    """Return the CPU seconds for a file of `size` bytes."""
    return min(MOST_CPU_SECONDS, LEAST_CPU_SECONDS + size // BYTES_PER_CPU_SECOND)


async def open_in_sandbox(kind: Kind, content: bytes, *, seconds: float = OPEN_SECONDS) -> Opened:
    """Open a file in a new process.

    Returns its head and bytes, or (None, b"") if it fails or takes too long.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared.adapters.files.sandbox_worker", kind, str(cpu_seconds(len(content))),
        cwd=ROOT, env=_bare_environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        out, _ = await asyncio.wait_for(process.communicate(content), seconds)
    except TimeoutError:
        log.warning("file_reading_timed_out", kind=kind, size=len(content))
        return None, b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    line, _, body = out.partition(b"\n")
    if (ended_by := -(process.returncode or 0)) > 0:
        log.warning("file_reader_killed", kind=kind, size=len(content), signal=ended_by)
    if process.returncode != 0 or not line:
        return None, b""
    head = json.loads(line)
    return (head, body) if isinstance(head, dict) else (None, b"")
