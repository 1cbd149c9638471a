"""Starts the process that performs the steps of a start, and asks it for one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from shared.adapters.embedded.process import die_with_parent
from shared.supervision.child_process import ROOT

_LONGEST_LINE_BYTES = 4 * 1024 * 1024
_END_SECONDS = 5.0
"""Seconds to wait for the end of the process: a cancelled backup deletes its partial file meanwhile."""


class CannotStart(Exception):
    """`up` cannot start Evertalk; the message says why, `advice` what to do."""

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class StartAssistant:
    """Child process for the steps of a start, so that the supervisor does not keep their modules loaded."""

    def __init__(self, process: asyncio.subprocess.Process, say: Callable[[str], object]) -> None:
        self._process = process
        self._say = say

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    async def migrate(self, database_url: str) -> None:
        """Have the child migrate the database to the newest schema, after a backup of an older one. Raises
        CannotStart.
        """
        await self._ask({"step": "migrate", "database_url": database_url})

    async def greet(self, environment: Mapping[str, str], *, seconds: float) -> frozenset[int]:
        """Have the child print addresses and remarks after a start that took `seconds`.

        `environment` replaces the child's. Returns the ids of bots that have not reached Telegram. Raises
        CannotStart.
        """
        return await self._ask_for_late({"step": "greet", "environment": environment, "seconds": seconds})

    async def announce(self, environment: Mapping[str, str], bots: frozenset[int]) -> frozenset[int]:
        """Have the child print the links of the bots with these ids; return those that have not reached
        Telegram.

        Raises CannotStart.
        """
        request = {"step": "announce", "environment": environment, "bots": sorted(bots)}
        return await self._ask_for_late(request)

    async def end(self) -> None:
        """Terminate the child, kill it if it does not end within 5 seconds, and wait for its end."""
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask_for_late(self, request: Mapping[str, Any]) -> frozenset[int]:
        return frozenset((await self._ask(request))["late"])

    async def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request, print the lines that arrive, and return the final answer. Raises CannotStart."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            # A process that has ended is noticed by the end of its output.
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
        while line := await self._process.stdout.readline():
            answer: Mapping[str, Any] = json.loads(line)
            match answer["kind"]:
                case "line":
                    self._say(answer["text"])
                case "refusal":
                    raise CannotStart(answer["message"], advice=answer["advice"])
                case _:
                    return answer
        code = await self._process.wait()
        raise CannotStart(
            f"the process for the step {request['step']} ended with exit code {code}",
            advice="Its last words are above; ./evertalk doctor tells more.",
        )


@asynccontextmanager
async def open_assistant(
    environment: Mapping[str, str], say: Callable[[str], object]
) -> AsyncIterator[StartAssistant]:
    """Start the child process of a start, and end it with the block; `say` gets the lines that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "shared.cli.startup"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=dict(environment),
        limit=_LONGEST_LINE_BYTES,
        start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGTERM),
    )
    assistant = StartAssistant(process, say)
    try:
        yield assistant
    finally:
        await assistant.end()
