"""Runs `python -m web` and `python -m worker` as the supervisor would: who falls is started again."""

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
"""An answer may end for ten seconds, what is cancelled then for ten more, and machines may be busy."""
READ_SECONDS = 10.0
"""For the last lines of a process that has ended."""
CRASHED = 9
"""The exit code of a process that met its crash point."""
_EVENT = re.compile(rb'"event": "([^"]*)"')


def environment(**settings: str) -> dict[str, str]:
    """Ours without anybody's own settings, and with these."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "EVERTALK_LOG_FORMAT": "json", **settings}


class Process:
    """`async with Process("web", …)`, ready when entered; when it ends it is started, without crash point."""

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
        """On the monotonic clock, the last time that it ended unasked."""
        self.lines: deque[str] = deque(maxlen=400)
        """The newest ones."""
        self.events: Counter[str] = Counter()
        """How often it wrote each, from its first line on."""
        self._settings = dict(settings)
        self._program = program
        self._crash_point = crash_point
        self.crash_point_after_restart: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start without waiting until it is ready; `stop` belongs to it."""
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
        """False between an end and the next start."""
        return self._process is not None and self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    async def kill_for_good(self) -> None:
        """Nobody starts it again."""
        assert self._keeping is not None
        assert self._process is not None
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        self.fell_at = time.monotonic()
        self.kill()
        await asyncio.wait_for(self._process.wait(), STOP_SECONDS)

    async def crashed(self, *, within_seconds: float = START_SECONDS) -> None:
        """Wait until it has met its crash point."""
        try:
            async with asyncio.timeout(within_seconds):
                while not self.exits:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.module} never crashed:\n{self.words()}") from None

    async def until_event(self, event: str, *, times: int = 1) -> None:
        """Wait until it has written this event so often."""
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
        """Whoever stops this in the middle of a start has a process to stop, too."""
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
    """One of the first times that the code passes this place."""
    return f"{point.partition(':')[0]}:{chance.randint(1, most)}"


def first_or_drawn(point: str, seed: int, *, most: int = 4) -> str:
    """With the first seed the place as it is named, with others one of its passings."""
    return point if seed == 1 else passing(point, Random(f"{seed} {point}"), most=most)


async def ended(module: str, settings: Mapping[str, str]) -> tuple[int, str]:
    """A process that is expected to refuse to start: its exit code and its words."""
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
    """How often one of these wrote such a line."""
    return sum(process.events[event] for process in processes)
