"""MCP server as a child process that exchanges one message per line; the length of lines is limited.

The package's own client has no such limit. As there, the server is a process group that is stopped by closing
its input, then by signals.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from shared.adapters.bounded_bodies import MOST_EVENT_BYTES, describe_bound
from shared.core.tools.mcp import McpServer

EXIT_SECONDS = 2.0
"""Seconds to wait for a server to exit after its input was closed, and again after SIGTERM."""
_LOOK_SECONDS = 0.01

log = structlog.get_logger(__name__)


class LineTooLong(ValueError):
    """Raised for a line of a server beyond the limit; the rest of its output was not read."""


class LineReader:
    """Splitter of output into lines; a line has at most `most` bytes."""

    def __init__(self, most: int = MOST_EVENT_BYTES) -> None:
        self._most = most
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the lines that this piece completes.

        Raises LineTooLong if the incomplete line exceeds the limit.
        """
        *ended, rest = piece.split(b"\n")
        for part in ended:
            line = b"".join([*self._begun, part])
            self._begun, self._size = [], 0
            yield line
        self._begun.append(rest)
        self._size += len(rest)
        if self._size > self._most:
            raise LineTooLong(describe_bound(self._most))


@asynccontextmanager
async def open_pipes(
    server: McpServer, *, errors: Any, on_problem: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server and yield the pair of streams for the package's client; stop it at the end.

    `on_problem` is called with the reason if its output is no longer read. Raises OSError if it cannot be
    started.
    """
    anyio = await asyncio.to_thread(importlib.import_module, "anyio")
    package = await asyncio.to_thread(importlib.import_module, "mcp.client.stdio")
    process = await anyio.open_process(
        [server.command, *server.args],
        env=_environment(package.get_default_environment(), server.env),
        stderr=errors,
        cwd=server.cwd,
        start_new_session=True,
    )
    incoming, from_server = anyio.create_memory_object_stream(0)
    outgoing, to_server = anyio.create_memory_object_stream(0)
    closed = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)

    async def read() -> None:
        reader = LineReader()
        with suppress(*closed):
            async with incoming:
                try:
                    async for piece in process.stdout:
                        for line in reader.feed(piece):
                            await incoming.send(_parse(package, line))
                except LineTooLong as error:
                    log.warning("mcp_line_too_long", server=server.name, most=MOST_EVENT_BYTES)
                    on_problem(str(error))
            async for _ in process.stdout:  # a server that is still writing could not end
                pass

    async def write() -> None:
        with suppress(*closed):
            async with to_server:
                async for message in to_server:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(f"{text}\n".encode())
        with suppress(*closed):
            await incoming.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield from_server, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                from_server.close()
                outgoing.close()
                await _stop(process, closed)
                incoming.close()
            tasks.cancel_scope.cancel()


def _environment(usual: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    return {**usual, **own}


def _parse(package: Any, line: bytes) -> Any:
    """Return the message in a line, or an exception that the session reports if it is none."""
    return package._parse_line(line.decode("utf-8", "replace"))


async def _stop(process: Any, closed: tuple[type[Exception], ...]) -> None:
    """Close the server's input, wait for its end, and terminate its process group if it does not end."""
    with suppress(*closed):
        await process.stdin.aclose()
    if not await _has_ended(process):
        utilities = importlib.import_module("mcp.os.posix.utilities")
        await utilities.terminate_posix_process_tree(process, EXIT_SECONDS)
        await _has_ended(process)
    with suppress(*closed):
        await process.stdout.aclose()
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _has_ended(process: Any) -> bool:
    """Return whether the process ends within EXIT_SECONDS.

    It polls, since `wait` also waits for pipes, which a grandchild may hold open.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(EXIT_SECONDS):
            while process.returncode is None:  # noqa: ASYNC110  the process tells nobody
                await asyncio.sleep(_LOOK_SECONDS)
    return process.returncode is not None
