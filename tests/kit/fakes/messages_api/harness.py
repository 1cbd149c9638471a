"""Runs the fake of the Messages API as a process for a test, and calls its controls."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import subprocess
import time
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.kit.deployment.forks import Forked
from tests.kit.fakes.forked import fork
from tests.kit.fakes.messages_api.shapes import Json

START_SECONDS = 90.0
STOP_SECONDS = 20.0
CONTROL_SECONDS = 60.0


class FakeDidNotStart(RuntimeError):
    """The process ended or stayed silent instead of printing its port."""


WIRES = {"messages": "messages_api", "openai": "chat_completions", "responses": "responses"}
"""Package of the fake that serves each wire format, by the name that a model's entry uses."""


class RunningFake:
    """The fake as a process.

    Use `async with running_fake() as fake`, or `start()` and `close()` where nothing asynchronous runs yet.
    """

    def __init__(
        self, *, window: int | None = None, port: int = 0, seed: int = 0, wire: str = "messages"
    ) -> None:
        self._module = f"tests.kit.fakes.{WIRES[wire]}"
        self._arguments = ["--port", str(port), "--seed", str(seed), "--parent-pid", str(os.getpid())]
        if window is not None:
            self._arguments += ["--window", str(window)]
        self._process: Forked | None = None
        self.port = port

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise FakeDidNotStart("not started")
        return self._process.pid

    def start(self) -> None:
        self._process = fork(self._module, self._arguments)
        try:
            self.port = int(json.loads(self._first_line())["port"])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, whatever it is doing; does nothing if it has ended already."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
        process.stdout.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        await asyncio.to_thread(self.close)

    async def script(self, rules: list[Json]) -> None:
        """Replace the rules of misbehaviour; `faults` describes a rule."""
        await self._control("POST", "script", {"rules": rules})

    async def reset(self) -> None:
        """Return to the state after the start: windows, cache, script, clock, pace, and an empty journal."""
        await self._control("POST", "reset", {})

    async def set_window(self, model: str, tokens: int) -> None:
        """Set the context window of a model, in tokens; an unknown name adds the model."""
        await self._control("POST", "window", {"model": model, "tokens": tokens})

    async def advance_clock(self, seconds: float) -> None:
        """Advance the clock that the prompt cache uses."""
        await self._control("POST", "clock", {"advance_seconds": seconds})

    async def set_pace(self, ms: float) -> None:
        """Set the pause between the deltas of a stream, in milliseconds."""
        await self._control("POST", "pace", {"ms": ms})

    async def requests(self, *, since: int = 0) -> list[Json]:
        """Return the received requests with an id above `since`."""
        found: list[Json] = await self._control("GET", f"requests?since={since}")
        return found

    async def usage(self) -> Json:
        """Return the sum of tokens that the provider would bill."""
        found: Json = await self._control("GET", "usage")
        return found

    async def warnings(self) -> list[Json]:
        found: list[Json] = await self._control("GET", "warnings")
        return found

    async def rules(self) -> list[Json]:
        """Return the rules of the script, each with how often it was met and used."""
        found: list[Json] = await self._control("GET", "script")
        return found

    async def _control(self, method: str, what: str, wish: Json | None = None) -> Any:
        timeout = aiohttp.ClientTimeout(total=CONTROL_SECONDS)
        url = f"{self.base_url}/control/{what}"
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, json=wish) as response,
        ):
            found = await response.json()
            if response.status != 200:
                raise ValueError(found["error"])
            return found

    def _first_line(self) -> bytes:
        process = self._process
        if process is None:
            raise FakeDidNotStart("no output to read")
        until = time.monotonic() + START_SECONDS
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise FakeDidNotStart(f"silent for {START_SECONDS:g} s")
                part = os.read(process.stdout.fileno(), 4_096)
                if not part:
                    raise FakeDidNotStart(f"ended with {process.wait(STOP_SECONDS)}")
                line += part
        return line


def running_fake(
    *, window: int | None = None, port: int = 0, seed: int = 0, wire: str = "messages"
) -> RunningFake:
    """Return a fake that is not started yet; `wire` is a key of `WIRES`."""
    return RunningFake(window=window, port=port, seed=seed, wire=wire)
