"""Runs `python -m web`, `bot` and `worker` like the supervisor: a process that ends is started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from shared.adapters.embedded.process import die_with_parent

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 90.0
STOP_SECONDS = 45.0
"""Seconds for a process to stop: answers may take ten, cancelled ones ten more, and machines may be busy."""
READ_SECONDS = 10.0
"""Seconds to read the last lines of a process that has ended."""
CRASHED = 9
"""Exit code of a process that reached its crash point."""
_EVENT = re.compile(rb'"event": "([^"]*)"')


def environment(**settings: str) -> dict[str, str]:
    """Return the environment for a process: this one's with JSON logs and the given settings."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "EVERTALK_LOG_FORMAT": "json", **settings}


class Process:
    """Process that is ready when its context is entered.

    If it ends it is started again without its crash point.
    """

    def __init__(
        self,
        module: str,
        settings: Mapping[str, str],
        *,
        crash_point: str | None = None,
        program: Path = ROOT,
    ) -> None:
        self.module = module
        self.exits: list[int] = []
        self.fell_at: float | None = None
        """Monotonic time at which it last ended without being asked; None if it never did."""
        self.lines: deque[str] = deque(maxlen=400)
        """Newest lines of its output."""
        self.events: Counter[str] = Counter()
        """Number of log lines by event, since its first start."""
        self._settings = dict(settings)
        self._program = program
        self._crash_point = crash_point
        self.crash_point_after_restart: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start without waiting until it is ready; the caller must call `stop`."""
        self._keeping = asyncio.create_task(self._keep())

    async def __aenter__(self) -> Process:
        self.begin()
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            await self.stop()
            raise AssertionError(f"{self.module} was not ready in time:\n{self.words()}") from None
        except asyncio.CancelledError:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process runs now; False between its end and its next start."""
        return self._process is not None and self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    async def kill_for_good(self) -> None:
        """Kill it without starting it again."""
        assert self._keeping is not None
        assert self._process is not None
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        self.fell_at = time.monotonic()
        self.kill()
        await asyncio.wait_for(self._process.wait(), STOP_SECONDS)

    async def crashed(self, *, within_seconds: float = START_SECONDS) -> None:
        """Wait until it has reached its crash point."""
        try:
            async with asyncio.timeout(within_seconds):
                while not self.exits:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.module} never crashed:\n{self.words()}") from None

    async def until_event(self, event: str, *, times: int = 1) -> None:
        """Wait until it has logged this event `times` times."""
        end = time.monotonic() + START_SECONDS
        while self.events[event] < times:
            assert time.monotonic() < end, self.words()
            await asyncio.sleep(0.05)

    def words(self) -> str:
        return "\n".join(self.lines)

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        reading = asyncio.create_task(self._read(process))
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
            raise AssertionError(f"{self.module} did not stop:\n{self.words()}") from None
        finally:
            await asyncio.wait([reading], timeout=READ_SECONDS)
            reading.cancel()

    async def _keep(self) -> None:
        while True:
            process = await self._started()
            await self._read(process)
            self.exits.append(await process.wait())
            self.fell_at = time.monotonic()
            self._crash_point = self.crash_point_after_restart

    async def _started(self) -> asyncio.subprocess.Process:
        """Start it.

        If this is cancelled meanwhile, remember the started process, so that it can be stopped.
        """
        starting = asyncio.ensure_future(self._start())
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting
            raise
        return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        settings = dict(self._settings)
        if self._crash_point:
            settings["EVERTALK_CRASH_POINT"] = self._crash_point
        return await self._launch(settings)

    async def _launch(self, settings: Mapping[str, str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", self.module,
            cwd=self._program, env=environment(**settings), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1024 * 1024,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )  # fmt: skip

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self.lines.append(line.decode(errors="replace").rstrip())
            if event := _EVENT.search(line):
                self.events[event[1].decode()] += 1
            if b'_ready"' in line:
                self._ready.set()


def passing(point: str, chance: Random, *, most: int = 4) -> str:
    """Return the crash point with a random number from 1 to `most`: one of its first passings."""
    return f"{point.partition(':')[0]}:{chance.randint(1, most)}"


def first_or_drawn(point: str, seed: int, *, most: int = 4) -> str:
    """Return the crash point unchanged for seed 1, for other seeds one of its first passings."""
    return point if seed == 1 else passing(point, Random(f"{seed} {point}"), most=most)


async def ended(module: str, settings: Mapping[str, str]) -> tuple[int, str]:
    """Run a process that is expected to refuse its start; return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module,
        cwd=ROOT, env=environment(**settings), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), START_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise AssertionError(f"{module} started although it should not") from None
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


def logged(processes: Sequence[Process], event: str) -> int:
    """Return how many log lines of this event the processes have written."""
    return sum(process.events[event] for process in processes)
