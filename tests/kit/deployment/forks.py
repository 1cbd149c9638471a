"""Processes without the seconds of importing: each is a fork of one that has only read the code."""

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
    """`async with Hatchery() as hatchery`; `start("bot", …)` is `python -m bot` from its `main` on.

    With modules it reads these, and `fork("tests.kit.fakes.push", …)` is `python -m tests.kit.fakes.push …`.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._folder = short_folder("evh-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return str(self._folder / "socket")

    def open(self) -> None:
        """It lives as long as we hold its input."""
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
        """With these settings alone; all that it says is read."""
        wish = {"module": module, "environment": dict(settings), "streams": [STDOUT, STDERR]}
        return await Hatched.of(*await asyncio.to_thread(self._ask, wish))

    async def run(self, module: str, arguments: Sequence[str]) -> Hatched:
        return await Hatched.of(*await asyncio.to_thread(self._ask, _run(module, arguments)))

    def fork(self, module: str, arguments: Sequence[str]) -> Forked:
        """The same, for who does not await."""
        return Forked(*self._ask(_run(module, arguments)))

    def _ask(self, wish: Mapping[str, Any]) -> tuple[socket.socket, int]:
        """A line that tells the number of the process and how it ended, and what it writes."""
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
    """One of each kind for this process, as long as it lives; the first who asks waits for it."""
    with _one_at_a_time:
        if modules not in _common:
            opened = Hatchery(*modules)
            opened.open()
            atexit.register(opened.close)
            _common[modules] = opened
        return _common[modules]


class Forked:
    """What of `subprocess.Popen` a stand-in uses."""

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
    # Whoever wanted us has gone.
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
    """Starts one process, and says how it ended."""
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
