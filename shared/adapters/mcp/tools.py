"""Tools of MCP servers, offered to models from the last known list until a server has listed them again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import structlog

from shared.adapters.mcp.connection import CALL_SECONDS, FIRST_WAIT_SECONDS, McpConnection
from shared.config.secret_files import SecretEnvironment
from shared.config.settings import Settings, find_mcp_file
from shared.core.tools.mcp import (
    BorrowedTool,
    LeftOutTool,
    McpServer,
    OfferedTool,
    borrow_tools,
    resolve_collisions,
    server_names,
    servers_in,
)
from shared.core.tools.mcp_approval import (
    NAME_CHARS,
    McpApproval,
    McpToolList,
    ReviewedTools,
    build_tool_list,
    hash_source,
    hash_tool,
    name_tool,
)
from shared.core.values.errors import StorageUnavailable
from shared.core.values.messages import ToolSpec, storable
from shared.ports import Tool, ToolContext, ToolFailed, ToolOutput

log = structlog.get_logger(__name__)

KNOWN_FILE = "mcp-tools.json"
"""File in the data folder with each server's last known tools; it can be deleted without harm."""
MOST_FILE_BYTES = 1_048_576
"""Maximum bytes of the operator's file of servers; a larger one is a problem."""
LOOK_SECONDS = 5.0
"""Seconds between two checks for tools and approvals that other processes have written."""
PROBE_SECONDS = 15.0
"""Seconds that the test of one server waits for it."""


def load_servers(path: Path | None) -> tuple[tuple[McpServer, ...], tuple[str, ...]]:
    """Return the MCP servers of the operator's file and sentences about its problems.

    Both are empty without a file.
    """
    text, problem = _file_text(path)
    if problem:
        return (), (problem,)
    return servers_in(text, SecretEnvironment(os.environ)) if text else ((), ())


def _file_text(path: Path | None) -> tuple[str, str]:
    """Return the text of a file and the reason why it cannot be read; both "" without a file."""
    if path is None:
        return "", ""
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            return "", "it is larger than a mebibyte"
        return path.read_text("utf-8"), ""
    except FileNotFoundError:
        return "", ""
    except (OSError, UnicodeDecodeError) as error:
        return "", f"it cannot be read: {type(error).__name__}"


def list_servers(settings: Settings) -> tuple[tuple[McpServer, ...], tuple[str, ...]]:
    """Return the MCP servers of the file and of the settings, and sentences about problems.

    If both have a name, the file's server is used and a problem says so. Unusable servers of the settings are
    left out without a problem.
    """
    found, problems = load_servers(find_mcp_file(settings))
    if settings.mcp_servers is None:
        return found, problems
    stored, _ = servers_in(settings.mcp_servers.get_secret_value(), {})
    names = {server.name for server in found}
    doubles = tuple(f"{one.name}: the file has one of this name" for one in stored if one.name in names)
    return (*found, *(one for one in stored if one.name not in names)), (*problems, *doubles)


def list_server_names(settings: Settings, stored: str | None = None) -> frozenset[str]:
    """Return the names of MCP servers in the file, the settings and `stored`, including unusable servers."""
    given = settings.mcp_servers.get_secret_value() if settings.mcp_servers else ""
    texts = (_file_text(find_mcp_file(settings))[0], given, stored or "")
    return frozenset().union(*map(server_names, texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """Tool of an MCP server; a tool without `link` can be shown to a model but raises ToolFailed when run."""

    borrowed: BorrowedTool
    link: McpConnection | None
    waits: Callable[[], bool] = bool
    """Function that returns whether the tool was changed by its server and is not approved yet."""

    @property
    def spec(self) -> ToolSpec:
        """Specification of the tool, as models get it."""
        return self.borrowed.spec

    @property
    def server(self) -> str:
        """Name of the tool's server."""
        return self.borrowed.server

    @property
    def idempotent(self) -> bool:
        """Whether the server declares the tool as read-only or safe to repeat."""
        return self.borrowed.idempotent

    @property
    def timeout_seconds(self) -> float:
        """Seconds after which a call is given up, including the wait for the server's start."""
        return CALL_SECONDS + FIRST_WAIT_SECONDS

    def subject(self, arguments: Mapping[str, Any]) -> str:
        """Return `server: tool` for display; the arguments are not shown."""
        return f"{self.borrowed.server}: {self.borrowed.name}"

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        """Call the tool on its server, after a wait for a server that is being started; return its output.

        Raises ToolFailed, with a sentence for the model, if the server is not reached, refuses, or is lost
        during the call (the tool may have run), if the tool reports an error, or if a change of it is not
        approved yet.
        """
        if self.link is None:
            raise ToolFailed(f"The server {self.borrowed.server} is not reached from here.")
        await self.link.wait_until_tried(FIRST_WAIT_SECONDS)
        if self.waits():
            raise ToolFailed(
                f"{self.spec.name} was not run: the server {self.borrowed.server} has changed this tool, and "
                "an administrator has not approved the change yet. Continue without it."
            )
        return await self.link.call(self.borrowed.name, arguments)


class McpToolReviews(Protocol):
    """Store of servers' tool lists and of what is approved of them, shared by all processes.

    Asked when a list arrives and at intervals, not when a tool runs. Raises StorageUnavailable.
    """

    async def review(self, found: McpToolList, *, rule: McpApproval) -> ReviewedTools:
        """Store a server's present tool list under its approval rule, and return the reviewed tools."""
        ...

    async def load(self) -> Mapping[tuple[str, str], ReviewedTools]:
        """Return the reviewed tools by (server, source); the source identifies the server's configuration."""
        ...


class McpTools:
    """MCP servers and their tools, for processes that answer people; one connection per server.

    Without `reviews` every tool is approved.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        known: Path,
        reviews: McpToolReviews | None = None,
        rule: McpApproval = "writing",
    ) -> None:
        self._reviews, self._rule = reviews, rule
        self._unreviewed: set[str] = set()
        self._waiting: dict[str, frozenset[str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._servers = {server.name: server for server in servers}
        self._known = known
        self._offered = _read_known(known, self._servers)
        self._links = {
            server.name: McpConnection(server, on_tools=partial(self._record_tools, server.name))
            for server in servers
        }
        self._told: tuple[LeftOutTool, ...] = ()
        self.version = 0
        self._tools = self._make_tools()

    def start(self) -> None:
        """Start the connections in the background, and follow approvals of other processes."""
        for link in self._links.values():
            link.start()
        if self._reviews is not None:
            self._looking = asyncio.ensure_future(self._follow_approvals(self._reviews))

    async def close(self) -> None:
        """Close the connections to all servers and wait for their ends."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def tools(self) -> Sequence[Tool]:
        """Return the tools that models may be offered; `version` grows when they change."""
        return self._tools

    async def check_ready(self, seconds: float) -> dict[str, bool]:
        """Wait up to `seconds` for the first attempt of each connection; return whether each server is ready,
        by name.
        """
        names = list(self._links)
        found = await asyncio.gather(*(self._links[name].wait_until_tried(seconds) for name in names))
        return dict(zip(names, found, strict=True))

    async def _record_tools(self, server: str, tools: Sequence[OfferedTool]) -> None:
        is_same = self._offered.get(server) == tuple(tools)
        if is_same and server in self._waiting and server not in self._unreviewed:
            return
        reviewed = await self._review(server, tools)
        if reviewed is None:
            hashes = {name_tool(tool): hash_tool(tool) for tool in self._offered.get(server, ())}
            hashes = {name: found for name, found in hashes.items() if name not in self._list_waiting(server)}
            self._unreviewed.add(server)
            reviewed = ReviewedTools(approved=hashes, needs_approval=True)
        else:
            self._unreviewed.discard(server)
        self._set_tools(server, tools, reviewed)

    async def _review(self, server: str, tools: Sequence[OfferedTool]) -> ReviewedTools | None:
        """Store a server's tool list and return what is approved; None if the database does not answer."""
        found = build_tool_list(self._servers[server], tools)
        if self._reviews is None:
            return ReviewedTools(approved=found.hashes, needs_approval=False)
        try:
            return await self._reviews.review(found, rule=self._rule)
        except StorageUnavailable as error:
            log.warning("mcp_tool_review_failed", server=server, reason=type(error).__name__)
            return None

    def _list_waiting(self, server: str) -> frozenset[str]:
        return self._waiting.get(server, frozenset())

    def _set_tools(self, server: str, tools: Sequence[OfferedTool], reviewed: ReviewedTools) -> None:
        waiting = frozenset(
            name_tool(tool)
            for tool in tools
            if reviewed.needs_approval and reviewed.approved.get(name_tool(tool)) != hash_tool(tool)
        )
        is_same = self._offered.get(server) == tuple(tools) and self._list_waiting(server) == waiting
        self._offered[server], self._waiting[server] = tuple(tools), waiting
        if is_same:
            return
        if waiting:
            log.warning("mcp_tools_wait_for_approval", server=server, tools=len(waiting))
        self._tools = self._make_tools()
        self.version += 1
        approved = {
            name: tuple(tool for tool in listed if name_tool(tool) not in self._list_waiting(name))
            for name, listed in self._offered.items()
        }
        _write_known(self._known, self._servers, approved)

    async def _follow_approvals(self, reviews: McpToolReviews) -> None:
        """Every LOOK_SECONDS, apply approvals of other processes and repeat reviews that failed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                for server in tuple(self._unreviewed):
                    await self._record_tools(server, self._offered[server])
                if any(self._waiting.values()):
                    self._apply(await reviews.load())
            except StorageUnavailable as error:
                log.warning("mcp_approvals_unreadable", reason=type(error).__name__)

    def _apply(self, found: Mapping[tuple[str, str], ReviewedTools]) -> None:
        for server, waiting in tuple(self._waiting.items()):
            reviewed = found.get((server, hash_source(self._servers[server])))
            if waiting and reviewed is not None and server not in self._unreviewed:
                # A list that waits for approval here is not approved by a newer list that another process
                # reported.
                held = ReviewedTools(approved=reviewed.approved, needs_approval=True)
                self._set_tools(server, self._offered[server], held)

    def _make_tools(self) -> tuple[Tool, ...]:
        found, left_out = build_borrowed_tools(self._offered)
        for tool in left_out:
            if tool not in self._told:
                log.warning("mcp_tool_left_out", server=tool.server, tool=tool.name, reason=tool.reason)
        self._told = left_out
        return tuple(
            McpTool(borrowed=tool, link=self._links[tool.server], waits=partial(self._waits, tool))
            for tool in found
        )

    def _waits(self, tool: BorrowedTool) -> bool:
        return storable(tool.name)[:NAME_CHARS] in self._list_waiting(tool.server)


class KnownMcpTools:
    """Last known tools of MCP servers, for processes that only repeat them in requests.

    No server is connected.
    """

    def __init__(self, servers: Sequence[McpServer], *, known: Path) -> None:
        self._servers = {server.name: server for server in servers}
        self._known = known
        self._looked: float | None = None
        self._stamp: tuple[int, int] | None = None
        self._tools: tuple[Tool, ...] = ()
        self._version = 0

    @property
    def version(self) -> int:
        """Number that grows when the tools change."""
        self._look()
        return self._version

    def tools(self) -> Sequence[Tool]:
        """Return the last known tools; their file is examined at most every LOOK_SECONDS."""
        self._look()
        return self._tools

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._looked is not None and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            about = self._known.stat()
        except OSError:
            return
        stamp = (about.st_mtime_ns, about.st_size)
        if stamp != self._stamp:
            self._stamp = stamp
            found, _ = build_borrowed_tools(_read_known(self._known, self._servers))
            self._tools = tuple(McpTool(borrowed=tool, link=None) for tool in found)
            self._version += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbe:
    """Result of the doctor's test of one MCP server; `problem` is "" if it was reached."""

    server: str
    reached: bool
    problem: str
    tools: tuple[str, ...]
    left_out: tuple[LeftOutTool, ...]


async def probe_servers(server: McpServer, *, seconds: float = PROBE_SECONDS) -> ServerProbe:
    """Start or connect one server, list its tools, and stop it. Raises nothing if it fails."""
    offered: list[OfferedTool] = []

    async def keep(tools: Sequence[OfferedTool]) -> None:
        offered.extend(tools)

    link = McpConnection(server, on_tools=keep)
    link.start()
    try:
        reached = await link.wait_until_tried(seconds)
    finally:
        await link.close()
    problem = "" if reached else link.problem or f"it was not ready within {seconds:g} seconds"
    found, left_out = drop_invalid(*borrow_tools(server.name, offered)) if reached else ((), ())
    names = tuple(tool.spec.name for tool in found)
    return ServerProbe(server=server.name, reached=reached, problem=problem, tools=names, left_out=left_out)


def build_borrowed_tools(
    offered: Mapping[str, Sequence[OfferedTool]],
) -> tuple[tuple[BorrowedTool, ...], tuple[LeftOutTool, ...]]:
    """Return the tools of all servers that can be offered to a model, and those left out with the reason."""
    found: list[BorrowedTool] = []
    left_out: list[LeftOutTool] = []
    for server in sorted(offered):
        some, others = drop_invalid(*borrow_tools(server, offered[server]))
        found += some
        left_out += others
    return resolve_collisions(found), tuple(left_out)


def drop_invalid(
    found: Sequence[BorrowedTool], left_out: Sequence[LeftOutTool]
) -> tuple[tuple[BorrowedTool, ...], tuple[LeftOutTool, ...]]:
    """Return the tools with a valid schema, and those left out with the reason.

    A provider would refuse the whole request for one broken schema.
    """
    faults = {tool.spec.name: _schema_fault(tool.spec.input_schema) for tool in found}
    broken = tuple(
        LeftOutTool(server=tool.server, name=tool.name, reason=f"its schema is broken: {fault}")
        for tool in found
        if (fault := faults[tool.spec.name])
    )
    return tuple(tool for tool in found if not faults[tool.spec.name]), (*left_out, *broken)


def _schema_fault(schema: Mapping[str, Any]) -> str:
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        return error.message[:200]
    except RecursionError:
        return "it is nested too deeply"
    return ""


def _read_known(path: Path, servers: Mapping[str, McpServer]) -> dict[str, tuple[OfferedTool, ...]]:
    """Return the last known tools by server, if its configuration is unchanged.

    Empty if there is no file of tools.
    """
    try:
        stored = json.loads(path.read_text("utf-8"))
        return {
            name: tuple(OfferedTool(**tool) for tool in stored[name]["tools"])
            for name in sorted(servers)
            if name in stored and stored[name]["fingerprint"] == servers[name].fingerprint
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _write_known(
    path: Path, servers: Mapping[str, McpServer], offered: Mapping[str, Sequence[OfferedTool]]
) -> None:
    """Replace the file of known tools atomically; a failure is only logged."""
    body = {
        name: {
            "fingerprint": servers[name].fingerprint,
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "schema": tool.schema,
                    "idempotent": tool.idempotent,
                    "annotations": dict(tool.annotations),
                }
                for tool in offered[name]
            ],
        }
        for name in sorted(offered)
        if name in servers
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(body), "utf-8")
        draft.replace(path)
    except (OSError, ValueError) as error:
        log.warning("mcp_tools_write_failed", reason=type(error).__name__)
