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
"""Rule for changed tool lists: approval if the server can write, always, or never."""
MAX_LISTED_TOOLS = 512
"""Most tools of one server that are reviewed; further ones wait. A model is offered up to 64 per server."""
MAX_APPROVED_TOOLS = 1_024
"""Most approved tools that are remembered, including those that the server no longer lists."""
MAX_NAMED_TOOLS = 20
"""Most tools that a message about a change names."""
NAME_CHARS = 100
"""Most characters of a tool's name as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolList:
    """Tools of a server as one process has seen them: hashes by the name of the tool.

    `source` is the hash of the server's address or program; `can_write` is True unless the server declares
    all tools as read-only.
    """

    server: str
    source: str
    hashes: Mapping[str, str]
    can_write: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedTools:
    """Hashes of a server's approved tools by name.

    If `needs_approval` is True, tools without an equal hash wait for an administrator.
    """

    approved: Mapping[str, str]
    needs_approval: bool


def hash_tool(tool: OfferedTool) -> str:
    """Return the first 32 hexadecimal digits of a SHA-256 over name, description, schema and annotations of a
    tool.
    """
    whole = [tool.name, tool.description, tool.schema, dict(tool.annotations)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:32]


def name_tool(tool: OfferedTool) -> str:
    """Return a tool's name as it is stored: at most `NAME_CHARS` characters that the database accepts."""
    return storable(tool.name)[:NAME_CHARS]


def hash_source(server: McpServer) -> str:
    """Return a SHA-256 of a server's name, address and program with its arguments, in hexadecimal digits.

    Headers and variables are left out, since keys in them may be renewed.
    """
    whole = [server.name, server.url, server.command, server.args]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def build_tool_list(server: McpServer, tools: Sequence[OfferedTool]) -> McpToolList:
    """Return a server's tools as hashes by name, sorted, at most `MAX_LISTED_TOOLS`.

    Two processes that see the same tools make equal lists.
    """
    pairs = sorted((name_tool(tool), hash_tool(tool)) for tool in tools)[:MAX_LISTED_TOOLS]
    return McpToolList(
        server=server.name,
        source=hash_source(server),
        hashes=dict(pairs),
        can_write=not all(tool.read_only for tool in tools),
    )


def needs_approval(rule: McpApproval, *, could_write: bool, can_write: bool) -> bool:
    """Return whether a server's changed list of tools needs approval by this rule.

    `could_write` and `can_write` say that the former and the new list have tools that write; either is enough
    for the rule `writing`, since a server may merely call itself read-only.
    """
    return rule == "always" or (rule == "writing" and (could_write or can_write))


def find_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of tools that were added, changed or removed between two lists of a server, sorted.

    Both map names to hashes; whether a tool is approved does not matter, see `find_waiting`.
    """
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def find_waiting(seen: Mapping[str, str], approved: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of tools in `seen` whose hash is not the approved one, new tools included, sorted."""
    return tuple(sorted(name for name, found in seen.items() if approved.get(name) != found))


def approve_all(approved: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
    """Return the approved hashes with those of `seen` added or replaced; nothing is stored.

    Above `MAX_APPROVED_TOOLS` only those of `seen` are returned.
    """
    merged = {**approved, **seen}
    return merged if len(merged) <= MAX_APPROVED_TOOLS else dict(seen)
