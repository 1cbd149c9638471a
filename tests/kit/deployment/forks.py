"""Processes without the seconds of importing: each is a fork of one that has only read the code."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shared.adapters.embedded.process import die_with_parent
from tests.kit.deployment.inner_faults import afflict
from tests.kit.deployment.processes import ROOT, Process, environment
from tests.kit.temp_folders import short_folder

READY_SECONDS = 150.0


class Hatchery:
    """`async with Hatchery() as hatchery`; `start("bot", …)` is `python -m bot` from its `main` on."""

    def __init__(self) -> None:
        self._folder = short_folder("evh-")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return str(self._folder / "socket")

    async def __aenter__(self) -> Hatchery:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.kit.deployment.forks", self.address, cwd=ROOT, env=environment(),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), READY_SECONDS)
        assert line == b"ready\n", line
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            await asyncio.wait_for(self._process.wait(), READY_SECONDS)
        with suppress(FileNotFoundError):
            Path(self.address).unlink()
        self._folder.rmdir()

    async def start(self, module: str, settings: Mapping[str, str]) -> Hatched:
        reading, writing = os.pipe()
        try:
            line = await asyncio.to_thread(_asked, self.address, module, settings, writing)
        finally:
            os.close(writing)
        return await Hatched.of(line, reading)


class Hatched:
    """What of `asyncio.subprocess.Process` the suite uses."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended: asyncio.Task[int] | None = None

    @classmethod
    async def of(cls, keeper: socket.socket, reading: int) -> Hatched:
        loop = asyncio.get_running_loop()
        stdout = asyncio.StreamReader(limit=1024 * 1024)
        pipe = os.fdopen(reading, "rb", buffering=0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), pipe)
        told, writer = await asyncio.open_connection(sock=keeper)
        hatched = cls(int(await asyncio.wait_for(told.readline(), READY_SECONDS)), stdout)
        hatched._ended = asyncio.create_task(hatched._wait(told, writer))
        return hatched

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        assert self._ended is not None
        return await asyncio.shield(self._ended)

    async def _wait(self, told: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        self.returncode = int(await told.readline())
        writer.close()
        return self.returncode


class HatchedProcess(Process):
    """As `Process(module, …)`, sooner."""

    def __init__(
        self, hatchery: Hatchery, module: str, settings: Mapping[str, str], *, crash_point: str | None = None
    ) -> None:
        super().__init__(module, settings, crash_point=crash_point)
        self._hatchery = hatchery

    async def _launch(self, settings: Mapping[str, str]) -> Any:
        return await self._hatchery.start(self.module, settings)


def _asked(address: str, module: str, settings: Mapping[str, str], output: int) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(READY_SECONDS)
    line.connect(address)
    socket.send_fds(line, [json.dumps([module, environment(**settings)]).encode()], [output])
    line.shutdown(socket.SHUT_WR)
    line.settimeout(None)
    return line


# -- the process that only reads the code, and forks --------------------------------------------------------


def main(address: str) -> None:
    import gc

    from anthropic import AsyncAnthropic, DefaultAioHttpClient  # noqa: F401 - what the first answer loads

    from bot.telegram.client.aiogram_loader import load_aiogram
    from web.server.pages import Files

    for module in ("bot", "web", "worker"):
        importlib.import_module(f"{module}.__main__")
    load_aiogram()
    Files()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        line, _ = listening.accept()
        dies = die_with_parent(signal.SIGKILL)
        if os.fork() == 0:
            listening.close()
            if dies is not None:
                dies()
            _keep(line)
        line.close()


def _keep(line: socket.socket) -> None:
    """Starts one process, and says how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, outputs, _, _ = socket.recv_fds(line, 1024 * 1024, 1)
    dies = die_with_parent(signal.SIGKILL)
    pid = os.fork()
    if pid == 0:
        if dies is not None:
            dies()
        module, settings = json.loads(told)
        _become(module, settings, outputs[0], line)
    os.close(outputs[0])
    line.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(module: str, settings: dict[str, str], output: int, line: socket.socket) -> None:
    run = importlib.import_module(f"{module}.__main__").main
    line.close()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.setsid()
    os.environ.clear()
    os.environ.update(settings)
    afflict(settings)
    code = 1
    try:
        code = run()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
