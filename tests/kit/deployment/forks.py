"""Starts processes without the seconds of importing: each is a fork of one that has imported the code."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from shared.adapters.embedded.process import die_with_parent
from tests.kit.deployment.inner_faults import afflict
from tests.kit.deployment.processes import ROOT, Process, environment
from tests.kit.temp_folders import short_folder

READY_SECONDS = 150.0
STDOUT, STDERR = 1, 2


class Hatchery:
    """Process that has imported the code and forks others: `start("bot", …)` is like `python -m bot`.

    Used by `async with`. With modules it imports only these, and `fork("tests.kit.fakes.push", …)` is like
    `python -m tests.kit.fakes.push …`.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._folder = short_folder("evh-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return str(self._folder / "socket")

    def open(self) -> None:
        """Start the process; it lives as long as its input stays open."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.deployment.forks", self.address, *self._modules],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == b"ready\n", line

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=READY_SECONDS)
            self._process = None
        with suppress(FileNotFoundError):
            Path(self.address).unlink()
        with suppress(FileNotFoundError):
            self._folder.rmdir()

    async def __aenter__(self) -> Hatchery:
        await asyncio.wait_for(asyncio.to_thread(self.open), READY_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def start(self, module: str, settings: Mapping[str, str]) -> Hatched:
        """Start a process with these settings only; all of its output is read."""
        wish = {"module": module, "environment": dict(settings), "streams": [STDOUT, STDERR]}
        return await Hatched.of(*await asyncio.to_thread(self._ask, wish))

    async def run(self, module: str, arguments: Sequence[str]) -> Hatched:
        return await Hatched.of(*await asyncio.to_thread(self._ask, _run(module, arguments)))

    def fork(self, module: str, arguments: Sequence[str]) -> Forked:
        """Start a process like `run`, for callers that do not await."""
        return Forked(*self._ask(_run(module, arguments)))

    def _ask(self, wish: Mapping[str, Any]) -> tuple[socket.socket, int]:
        """Request a process.

        Return the connection that tells its id and exit code, and a pipe with its output.
        """
        reading, writing = os.pipe()
        try:
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(READY_SECONDS)
            line.connect(self.address)
            socket.send_fds(line, [json.dumps(wish).encode()], [writing])
            line.shutdown(socket.SHUT_WR)
            line.settimeout(None)
        finally:
            os.close(writing)
        return line, reading


def _run(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    return {
        "module": module,
        "arguments": list(arguments),
        "environment": dict(os.environ),
        "streams": [STDOUT],
    }


_common: dict[tuple[str, ...], Hatchery] = {}
_one_at_a_time = threading.Lock()


def hatchery(*modules: str) -> Hatchery:
    """Return the shared hatchery for these modules, which lives as long as this process.

    The first call waits for it.
    """
    with _one_at_a_time:
        if modules not in _common:
            opened = Hatchery(*modules)
            opened.open()
            atexit.register(opened.close)
            _common[modules] = opened
        return _common[modules]


class Forked:
    """Forked process with the part of `subprocess.Popen` that fakes use."""

    def __init__(self, keeper: socket.socket, reading: int) -> None:
        self.stdout: IO[bytes] = os.fdopen(reading, "rb", buffering=0)
        self._told = keeper.makefile("rb", buffering=0)
        self._keeper = keeper
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            if not select.select([self._keeper], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(self._told.readline())
            self._told.close()
            self._keeper.close()
        return self.returncode

    def _send(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Hatched:
    """Forked process with the part of `asyncio.subprocess.Process` that the suite uses."""

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
    """Process like `Process(module, …)`, but started by a fork."""

    def __init__(
        self, hatchery: Hatchery, module: str, settings: Mapping[str, str], *, crash_point: str | None = None
    ) -> None:
        super().__init__(module, settings, crash_point=crash_point)
        self._hatchery = hatchery

    async def _launch(self, settings: Mapping[str, str]) -> Any:
        return await self._hatchery.start(self.module, environment(**settings))


# -- the process that only reads the code, and forks --------------------------------------------------------


def main(address: str, *modules: str) -> None:
    import gc

    _read(modules)
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        line, _ = listening.accept()
        dies = die_with_parent(signal.SIGKILL)
        if os.fork() == 0:
            listening.close()
            if dies is not None:
                dies()
            _keep(line)
        line.close()
    # The process that started this one has ended.
    Path(address).unlink()
    Path(address).parent.rmdir()


def _read(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    if modules:
        return
    from anthropic import AsyncAnthropic, DefaultAioHttpClient  # noqa: F401 - what the first answer loads

    from bot.aiogram_loader import load_aiogram
    from web.server.pages import Files

    for module in ("bot", "web", "worker"):
        importlib.import_module(f"{module}.__main__")
    load_aiogram()
    Files()


def _keep(line: socket.socket) -> None:
    """Fork one process, and report its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, outputs, _, _ = socket.recv_fds(line, 1024 * 1024, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    dies = die_with_parent(signal.SIGKILL)
    pid = os.fork()
    if pid == 0:
        if dies is not None:
            dies()
        line.close()
        _become(json.loads(told), outputs[0])
    os.close(outputs[0])
    line.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(wish: Mapping[str, Any], output: int) -> None:
    for stream in wish["streams"]:
        os.dup2(output, stream)
    os.close(output)
    os.setsid()
    os.environ.clear()
    os.environ.update(wish["environment"])
    afflict(wish["environment"])
    code = 1
    try:
        if "arguments" in wish:
            sys.argv[1:] = wish["arguments"]
            runpy.run_module(wish["module"], run_name="__main__", alter_sys=True)
            code = 0
        else:
            code = importlib.import_module(f"{wish['module']}.__main__").main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
