"""Servers of the Model Context Protocol, for operators: add, test, approve tools, remove."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.encryption import CannotUnseal
from shared.adapters.mcp.tools import load_servers, probe_servers
from shared.adapters.postgres.operations.mcp_tool_lists import PostgresMcpToolLists
from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.config.settings import Settings, find_mcp_file
from shared.config.stored import StoredSettings
from shared.core.context.agents import AllowedTools
from shared.core.tools.mcp import McpServer, servers_in
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import Seen, build_stale_refusal, parse_version
from web.dashboard.setup.settings import check_changes
from web.rest.kinds import describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import PostgresAgents

router = OperationRouter()
SETTING = "EVERTALK_MCP_SERVERS"
"""Name of the stored setting with the MCP servers that operators add."""
_UNCHANGED: Mapping[str, Any] = {"changed": [], "changed_at": None, "waiting": [], "mark": ""}
ServerName = Annotated[
    str, describe("name of an MCP server", json_schema_extra={"minLength": 1, "maxLength": 32})
]
Url = Annotated[str, Field(min_length=1, max_length=500)]
Headers = Annotated[
    dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=2_000)]] | None,
    Field(max_length=10, description="header values by name; null keeps the stored values of this address"),
]

McpServerShown = TypedDict("McpServerShown", {
    "name": str, "from": Literal["file", "stored"],
    "where": Annotated[str, describe("address without secrets, or the command that starts the server")],
    "headers": Annotated[list[str], describe("names of the headers, without values")],
    "running": Annotated[bool, describe("true if this process uses the stored settings")],
    "changed": Annotated[list[str], describe("tools changed by the last update of the list, at most 20")],
    "changed_at": datetime | None,
    "waiting": Annotated[list[str], describe("changed tools that wait for the approval of an admin")],
    "mark": Annotated[str, describe("hash of the tools that wait for approval; send it to approve them")],
})  # fmt: skip
McpServers = TypedDict("McpServers", {
    "servers": list[McpServerShown], "problems": list[str], "version": int,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTested:
    ok: bool
    problem: str
    tools: list[str]
    left_out: Annotated[list[str], describe("tools that cannot be offered to a model, with the reason")]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHandlers:
    """Handlers of MCP servers."""

    stored_settings: PostgresStoredSettings
    mcp_tool_lists: PostgresMcpToolLists
    settings: Settings
    agents: PostgresAgents

    @router.on("GET /mcp-servers", McpServers, role="viewer", refusals=(503,))
    async def list_mcp_servers(self, authed: AuthedRequest) -> Reply:
        """List MCP servers of file and database.

        The answer has no secrets.
        """
        return await self._whole(await self._load_servers())

    @router.on(
        "PUT /mcp-servers/{server}", McpServers, role="admin", body="McpServerSettings", strict=True,
        refusals=(409, 422, 428, 503),
    )  # fmt: skip
    async def keep_mcp_server(
        self,
        authed: AuthedRequest,
        server: ServerName,
        *,
        url: Url,
        headers: Headers = None,
        if_match: Seen = "",
    ) -> Reply:
        """Create or change an MCP server.

        Running processes follow within two seconds.
        """
        found = await self._load_all()
        stored = _stored(found)
        return await self._keep(
            authed, found, {**stored, server: _settings(stored, server, url, headers)}, if_match
        )

    @router.on(
        "DELETE /mcp-servers/{server}", McpServers, role="admin", refusals=(404, 409, 428, 503),
        missing="There is nothing at this address.",
    )  # fmt: skip
    async def remove_mcp_server(
        self, authed: AuthedRequest, server: ServerName, *, if_match: Seen = ""
    ) -> Reply:
        """Delete a stored MCP server.

        Servers of the file cannot be deleted here. Refused while an agent uses the server.
        """
        found = await self._load_all()
        stored = _stored(found)
        if stored.pop(server, None) is None:
            return None
        if agents := await self._agents_naming(server):
            words = "Agents use this server by name: take it out of their tools first."
            raise HttpRefusal(409, "server_in_use", words, agents=agents)
        return await self._keep(authed, found, stored, if_match)

    @router.on(
        "POST /mcp-servers/{server}/approval", McpServers, role="admin", body="McpApprovalGiven", strict=True,
        refusals=(409, 503),
    )  # fmt: skip
    async def approve_mcp_tools(
        self,
        authed: AuthedRequest,
        server: ServerName,
        *,
        mark: Annotated[str, Field(min_length=1, max_length=64)],
    ) -> Reply:
        """Approve all changed tools of a server."""
        store = self.mcp_tool_lists
        if not await store.approve(server, mark=mark, by=authed.operator.name):
            words = "The tools of this server have changed again. Look at them once more."
            raise HttpRefusal(409, "tools_changed", words)
        return await self._whole(await self._load_servers())

    @router.on(
        "POST /mcp-test", role="admin", body="McpServerTest", strict=True, refusals=(422, 503)
    )  # fmt: skip
    async def try_mcp_server(
        self,
        authed: AuthedRequest, *, server: Annotated[str, Field(min_length=1, max_length=32)], url: Url,
        headers: Headers = None,
    ) -> McpTested:  # fmt: skip
        """Test an MCP server and list its tools.

        Connects once, for at most 15 seconds. Nothing is stored.
        """
        settings = _settings(_stored(await self._load_servers()), server, url, headers)
        found, problems = servers_in(json.dumps({"mcpServers": {server: settings}}), {})
        if problems:
            raise HttpRefusal(
                422, "bad_server", "This cannot be used; nothing was changed.", problems=problems
            )
        await authed.record("mcp.tested", server)
        probed = await probe_servers(found[0])
        left_out = [f"{tool.name}: {tool.reason}" for tool in probed.left_out]
        return McpTested(
            ok=probed.reached, problem=probed.problem, tools=list(probed.tools), left_out=left_out
        )

    async def _load_servers(self) -> StoredSettings:
        """Return the stored setting with the servers alone; no other secret is decrypted."""
        return _check_readable(await self.stored_settings.load_readable(frozenset({SETTING})))

    async def _load_all(self) -> StoredSettings:
        """Return all stored settings, which a change is checked with."""
        return _check_readable(await self.stored_settings.load_readable())

    async def _agents_naming(self, server: str) -> list[str]:
        """Return names of agents that use a stored server; empty if the MCP file also has this server."""
        of_file, _ = await asyncio.to_thread(load_servers, find_mcp_file(self.settings))
        if any(one.name == server for one in of_file):
            return []
        rows = await self.agents.list_all()
        return [
            row.name for row in rows if server in (AllowedTools.of(row.config.get("tools")).servers or ())
        ]

    async def _keep(
        self, authed: AuthedRequest, found: StoredSettings, servers: Mapping[str, Any], if_match: str
    ) -> Reply:
        seen = parse_version(if_match)
        text = json.dumps({"mcpServers": servers}, sort_keys=True) if servers else None
        if found.version == seen:
            await check_changes(found, {SETTING: text})
            store = self.stored_settings
            if await store.change({SETTING: text}, seen=seen, by=authed.operator.name) is not None:
                return await self._whole(await self._load_servers())
        raise build_stale_refusal(yours=sorted(servers), theirs=await self._whole(await self._load_servers()))

    async def _whole(self, found: StoredSettings) -> dict[str, Any]:
        settings = self.settings
        of_file, problems = await asyncio.to_thread(load_servers, find_mcp_file(settings))
        text, running = found.values.get(SETTING), settings.mcp_servers
        stored, _ = servers_in(text, {}) if text else ((), ())
        held = {one.name: one for one in servers_in(running.get_secret_value(), {})[0]} if running else {}
        changes = await self.mcp_tool_lists.list_changes()
        shown = [
            *(_shown(one, origin="file", running=True) for one in of_file),
            *(_shown(one, origin="stored", running=held.get(one.name) == one) for one in stored),
        ]
        return {
            "servers": [{**one, **changes.get(one["name"], _UNCHANGED)} for one in shown],
            "problems": list(problems),
            "version": found.version,
        }


def _check_readable(found: StoredSettings) -> StoredSettings:
    """Return `found`. Raises HttpRefusal 503 if the servers cannot be decrypted: they would be lost."""
    if SETTING in found.unreadable:
        raise HttpRefusal(503, CannotUnseal.code, CannotUnseal.advice)
    return found


def _settings(
    stored: Mapping[str, Any], server: str, url: str, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return a server's settings to store; `headers` None keeps the stored headers.

    The masked address that operators see stands for the stored one. Raises HttpRefusal 422 if headers would
    be kept for another scheme or host, so that secrets are not sent there.
    """
    former, url = stored.get(server, {}), url.strip()
    if former and url == _plain_address(former["url"]):
        url = former["url"]
    if headers is None and former.get("headers"):
        if _origin(former["url"]) != _origin(url):
            words = "Enter the headers again for a new address: they are not sent to another one."
            raise HttpRefusal(422, "headers_needed", words)
        headers = former["headers"]
    return {"url": url, **({"headers": dict(headers)} if headers else {})}


def _origin(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return "", url
    return parts.scheme, parts.netloc


def _plain_address(url: str) -> str:
    """Return an address without user name, password and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _stored(found: StoredSettings) -> dict[str, Any]:
    text = found.values.get(SETTING)
    return dict(json.loads(text)["mcpServers"]) if text else {}


def _shown(server: McpServer, *, origin: str, running: bool) -> dict[str, Any]:
    return {
        "name": server.name, "from": origin,
        "where": _plain_address(server.url) if server.url else server.command,
        "headers": sorted(server.headers),
        "running": running,
    }  # fmt: skip
