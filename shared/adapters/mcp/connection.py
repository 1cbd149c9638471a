"""Connection to one server of the Model Context Protocol, which is restarted when it ends.

The protocol's package is large: it is imported in a thread, and only when a server is configured.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import structlog

from shared.adapters.bounded_bodies import bound_responses
from shared.adapters.certificates import describe_failure
from shared.adapters.mcp.pipes import open_pipes
from shared.adapters.mcp.results import convert_output
from shared.adapters.redirects import stay_at_origin
from shared.core.tools.mcp import McpServer, OfferedTool
from shared.core.values.errors import ModelRedirected
from shared.ports import ToolFailed, ToolOutput

log = structlog.get_logger(__name__)

START_SECONDS = 30.0
"""Maximum seconds for connecting to a server and listing its tools."""
CALL_SECONDS = 60.0
"""Maximum seconds for one request to a server."""
LOOK_SECONDS = 300.0
"""Seconds after which a server that announced no change is asked for its list of tools again."""
FIRST_WAIT_SECONDS = 10.0
"""Seconds that a call waits for a server that is being started."""
STOP_SECONDS = 8.0
"""Seconds to wait for a connection to end, before it is cancelled."""
PAUSE_LEAST, PAUSE_MOST = 1.0, 60.0
STEADY_SECONDS = 60.0
"""Seconds of running after which the next restart again waits only PAUSE_LEAST."""
MOST_PAGES = 20
"""Maximum pages of a server's list of tools; further ones are not read."""
LOGGED_LINES, LOGGED_CHARS = 40, 300

OnTools = Callable[[Sequence[OfferedTool]], Awaitable[None]]
"""Callback with all tools that a server has listed."""


class McpConnection:
    """Connection to one MCP server, held by a task that connects again after each failure.

    `start` is called once, `close` at the end. `problem` is the last failure; a successful start clears it.
    """

    def __init__(self, server: McpServer, *, on_tools: OnTools) -> None:
        self.server = server
        self._on_tools = on_tools
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self._ready = asyncio.Event()
        self._tried = asyncio.Event()
        """Set when the first attempt to connect has succeeded or failed."""
        self._over = asyncio.Event()
        """Set when the connection has ended or must end."""
        self._changed = asyncio.Event()
        self._closing = False
        self.problem = ""

    def start(self) -> None:
        """Start the task that connects, and connects again after failures."""
        self._task = asyncio.ensure_future(self._supervise())

    async def close(self) -> None:
        """Close the connection and wait for its task; a server process that does not end is killed."""
        self._closing = True
        self._over.set()
        if self._task is None:
            return
        if not self._ready.is_set():
            self._task.cancel()
        done, _ = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=STOP_SECONDS)

    async def wait_until_tried(self, seconds: float) -> bool:
        """Wait up to `seconds` for the first attempt to connect; return whether the server is ready."""
        try:
            async with asyncio.timeout(seconds):
                await self._tried.wait()
        except TimeoutError:
            return False
        return self._ready.is_set()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Run a tool of the server and return its output.

        Waits FIRST_WAIT_SECONDS for a server that is being started. Raises ToolFailed, with a sentence for
        the model, if the server is not there, is lost, refuses, or the tool reports an error.
        """
        await self.wait_until_tried(FIRST_WAIT_SECONDS)
        client = self._client
        if client is None or not self._ready.is_set():
            raise ToolFailed(
                f"The server {self.server.name} is not there at the moment. It is being started again; "
                "go on without it, or try later."
            )
        from mcp.shared.exceptions import MCPError

        try:
            return convert_output(await client.call_tool(tool, dict(arguments)))
        except MCPError as error:
            if self._over.is_set() or "closed" in str(error).casefold():
                self._over.set()
                why = f" ({self.problem})" if self.problem else ""
                raise ToolFailed(f"The server {self.server.name} ended while the tool ran{why}.") from error
            raise ToolFailed(f"The server {self.server.name} refused: {str(error)[:1_000]}") from error
        except ToolFailed:
            raise
        except Exception as error:
            # The package raises errors of its transports, which are of several kinds.
            log.info("mcp_call_failed", server=self.server.name, error=type(error).__name__)
            self._over.set()
            raise ToolFailed(f"The server {self.server.name} was lost while the tool ran.") from error

    async def _supervise(self) -> None:
        pause = PAUSE_LEAST
        loop = asyncio.get_running_loop()
        while not self._is_closing():
            began = loop.time()
            self._over.clear()
            try:
                await self._once()
            except asyncio.CancelledError:
                raise
            except BaseExceptionGroup as group:
                self._record_failure(_find_first_error(group))
            except Exception as error:  # noqa: BLE001 - whatever a server does, it is begun again
                self._record_failure(error)
            finally:
                self._client = None
                self._ready.clear()
                self._tried.set()
            if self._is_closing():
                return
            pause = PAUSE_LEAST if loop.time() - began > STEADY_SECONDS else pause
            log.warning("mcp_server_ended", server=self.server.name, again_in=round(pause, 1))
            self._over.clear()
            await self._back_off(pause * random.uniform(0.8, 1.2))
            pause = min(PAUSE_MOST, pause * 2)

    def _is_closing(self) -> bool:
        return self._closing

    async def _back_off(self, seconds: float) -> None:
        """Wait `seconds`; return earlier if the connection ends or is closed."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    def _record_failure(self, error: BaseException) -> None:
        self.problem = _describe_error(error)
        log.warning("mcp_server_failed", server=self.server.name, error=self.problem)

    async def _once(self) -> None:
        module = await asyncio.to_thread(importlib.import_module, "mcp.client.client")
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(START_SECONDS):
                transport = await self._transport(stack)
                client = module.Client(
                    WatchedTransport(transport, self._over),
                    read_timeout_seconds=CALL_SECONDS,
                    message_handler=self._handle_message,
                    cache=None,
                )
                await stack.enter_async_context(client)
                await self._list(client)
            self._client, self.problem = client, ""
            self._ready.set()
            self._tried.set()
            log.info("mcp_server_ready", server=self.server.name)
            await self._watch(client)
            self._ready.clear()

    async def _watch(self, client: Any) -> None:
        """Wait until the connection ends; list the tools again after each change, and every LOOK_SECONDS."""
        hearing = asyncio.ensure_future(self._hear_changes(client))
        try:
            await self._until_over(client)
        finally:
            hearing.cancel()
            await asyncio.wait([hearing], timeout=STOP_SECONDS)

    async def _hear_changes(self, client: Any) -> None:
        """Set `_changed` at each change of the tool list that the server announces.

        Returns at once if the server has no such stream. Older servers announce changes without a stream;
        `_handle_message` handles these.
        """
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()
        except Exception as error:  # noqa: BLE001 - then the list is read now and then
            log.debug("mcp_changes_unavailable", server=self.server.name, error=type(error).__name__)

    async def _until_over(self, client: Any) -> None:
        while not self._over.is_set():
            over = asyncio.ensure_future(self._over.wait())
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([over, changed], timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                over.cancel()
                changed.cancel()
            if not self._over.is_set():
                self._changed.clear()
                async with asyncio.timeout(START_SECONDS):
                    await self._list(client)

    async def _handle_message(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._changed.set()

    async def _list(self, client: Any) -> None:
        found: list[OfferedTool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [_parse_tool(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        await self._on_tools(found)

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self.server.url:
            return await self._open_http(stack)
        errors = await stack.enter_async_context(_Errors(self.server.name))
        return open_pipes(self.server, errors=errors, on_problem=self._record_problem)

    def _record_problem(self, problem: str) -> None:
        self.problem = problem

    async def _open_http(self, stack: AsyncExitStack) -> Any:
        http = await asyncio.to_thread(importlib.import_module, "mcp.client.streamable_http")
        clients = importlib.import_module("mcp.shared._httpx_utils")
        client = bound_responses(
            clients.create_mcp_http_client(headers=dict(self.server.headers)), endless_streams=True
        )
        stay_at_origin(client, self.server.url)
        await stack.enter_async_context(client)
        return http.streamable_http_client(self.server.url, http_client=client)


class WatchedTransport:
    """Transport that sets `over` when the server's stream ends.

    The package reports the end only to pending calls.
    """

    def __init__(self, transport: Any, over: asyncio.Event) -> None:
        self._transport = transport
        self._over = over

    async def __aenter__(self) -> tuple[Any, Any]:
        read, write = await self._transport.__aenter__()
        return _WatchedStream(read, self._over), write

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._transport.__aexit__(*raised)


class _WatchedStream:
    def __init__(self, stream: Any, over: asyncio.Event) -> None:
        self._stream = stream
        self._over = over

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._over.set()
            raise

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._stream.__aexit__(*raised)


class _Errors:
    """Standard error of a server: its first LOGGED_LINES lines are logged, the rest is dropped."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Any:
        from_server, to_us = os.pipe()
        loop = asyncio.get_running_loop()
        stream = asyncio.StreamReader(limit=65_536)
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(from_server, "rb", buffering=0)
        )
        self._file = os.fdopen(to_us, "w")
        self._reader = asyncio.ensure_future(self._read(stream))
        return self._file

    async def __aexit__(self, *_: Any) -> None:
        self._file.close()
        self._transport.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self, stream: asyncio.StreamReader) -> None:
        lines = 0
        while True:
            piece = await stream.read(65_536)
            if not piece:
                return
            for line in piece.decode("utf-8", "replace").splitlines():
                lines += 1
                if line.strip() and lines <= LOGGED_LINES:
                    log.info("mcp_server_stderr", server=self._server, line=line[:LOGGED_CHARS])


def _parse_tool(tool: Any) -> OfferedTool:
    hints = tool.annotations
    harmless = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
    return OfferedTool(
        name=str(tool.name),
        description=str(tool.description or ""),
        schema=tool.input_schema,
        idempotent=harmless,
        annotations={} if hints is None else hints.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def _find_first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _find_first_error(first) if isinstance(first, BaseExceptionGroup) else first


def _describe_error(error: BaseException) -> str:
    """Return a description of an error without addresses, which may contain keys."""
    if isinstance(error, TimeoutError):
        return f"it was not ready within {START_SECONDS:g} seconds"
    if isinstance(error, FileNotFoundError):
        return "its program was not found"
    if isinstance(error, ModelRedirected):
        return str(error)
    name = describe_failure(error)
    return f"{name}: {str(error)[:200]}" if name == "MCPError" else name
