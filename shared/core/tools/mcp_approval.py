"""Approval of changed MCP tool lists: which changes need an administrator, and which tools wait for one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.core.tools.mcp import McpServer, OfferedTool
from shared.core.values.messages import storable

McpApproval = Literal["writing", "always", "never"]
MAX_LISTED_TOOLS = 512
"""Most tools of one server that are reviewed; further ones wait. A model is offered up to 64 per server."""
MAX_APPROVED_TOOLS = 1_024
"""Most approved tools that are remembered, including those that the server no longer lists."""
MAX_NAMED_TOOLS = 20
NAME_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolList:
    """Tools of a server as one process has seen them, as hashes by name."""

    server: str
    source: str
    hashes: Mapping[str, str]
    can_write: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedTools:
    """Hashes of approved tools by name; the others wait if `needs_approval`."""

    approved: Mapping[str, str]
    needs_approval: bool


def hash_tool(tool: OfferedTool) -> str:
    """Return a hash of a tool's name, description, input schema and annotations."""
    whole = [tool.name, tool.description, tool.schema, dict(tool.annotations)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:32]


def name_tool(tool: OfferedTool) -> str:
    """Return a tool's name as it is stored: at most `NAME_CHARS` characters that the database accepts."""
    return storable(tool.name)[:NAME_CHARS]


def hash_source(server: McpServer) -> str:
    """Return a hash of a server's address or program, without keys in headers and variables, which may be
    renewed.
    """
    whole = [server.name, server.url, server.command, server.args]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def build_tool_list(server: McpServer, tools: Sequence[OfferedTool]) -> McpToolList:
    """Return a server's tools as hashes by name, sorted, so that two processes make equal lists."""
    pairs = sorted((name_tool(tool), hash_tool(tool)) for tool in tools)[:MAX_LISTED_TOOLS]
    return McpToolList(
        server=server.name,
        source=hash_source(server),
        hashes=dict(pairs),
        can_write=not all(tool.read_only for tool in tools),
    )


def needs_approval(rule: McpApproval, *, could_write: bool, can_write: bool) -> bool:
    """Return whether a server's changed list of tools needs approval by this rule.

    `could_write` and `can_write` say that the former or the new list has tools that write. A server that
    could write before counts as writing, since it may merely call itself read-only.
    """
    return rule == "always" or (rule == "writing" and (could_write or can_write))


def find_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of tools that are new, different or gone."""
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def find_waiting(seen: Mapping[str, str], approved: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of tools that were seen with another hash than the approved one."""
    return tuple(sorted(name for name, found in seen.items() if approved.get(name) != found))


def approve_all(approved: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
    """Return the approved hashes with those of `seen` added; above the limit, tools that are gone are
    forgotten.
    """
    merged = {**approved, **seen}
    return merged if len(merged) <= MAX_APPROVED_TOOLS else dict(seen)
