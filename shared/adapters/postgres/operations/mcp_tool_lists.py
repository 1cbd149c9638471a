"""Store of MCP servers' tool lists and approvals, with an audit entry for each change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.core.tools.mcp_approval import (
    MAX_NAMED_TOOLS,
    McpApproval,
    McpToolList,
    ReviewedTools,
    approve_all,
    find_changes,
    find_waiting,
    needs_approval,
)

_FIRST = Named("""
INSERT INTO mcp_tool_lists (server, source, seen, approved, can_write)
VALUES (:server, :source, :hashes, :hashes, :can_write) ON CONFLICT (server, source) DO NOTHING
   RETURNING server
""")
_LOCK = Named("SELECT * FROM mcp_tool_lists WHERE server = :server AND source = :source FOR UPDATE")
_CHANGE = Named("""
UPDATE mcp_tool_lists SET seen = :hashes, approved = :approved, can_write = :can_write,
   needs_approval = :waits,
       changed = CASE WHEN :named::jsonb = '[]' THEN changed ELSE :named END,
       changed_at = CASE WHEN :named::jsonb = '[]' THEN changed_at ELSE now() END
 WHERE server = :server AND source = :source
""")
_ALL = "SELECT * FROM mcp_tool_lists ORDER BY server, source"
_OF_SERVER = Named("SELECT * FROM mcp_tool_lists WHERE server = :server ORDER BY source FOR UPDATE")
_APPROVE = Named("""
UPDATE mcp_tool_lists SET approved = :approved, needs_approval = false WHERE server = :server
   AND source = :source
""")


class PostgresMcpToolLists(PoolStore):
    """Store of tool lists; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def review(self, found: McpToolList, *, rule: McpApproval) -> ReviewedTools:
        """Store a list that a process has received from a server, and return which of its tools are approved.

        The first list of a server and source is approved at once; later changes are approved unless `rule`
        requires an operator's approval. A change is appended to the audit log once, even if two processes see
        it.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            key = {"server": found.server, "source": found.source}
            hashes = dict(found.hashes)
            if await connection.fetchval(*_FIRST(**key, hashes=hashes, can_write=found.can_write)):
                return ReviewedTools(approved=hashes, needs_approval=False)
            (row,) = await connection.fetch(*_LOCK(**key))
            changes = find_changes(row["seen"], hashes)
            waits = needs_approval(rule, could_write=row["can_write"], can_write=found.can_write)
            waits = waits and bool(find_waiting(hashes, row["approved"]))
            approved = row["approved"] if waits else approve_all(row["approved"], hashes)
            # A server that could write before is not trusted when it declares all its tools read-only.
            can_write = row["can_write"] or found.can_write
            if not changes and (waits, approved) == (row["needs_approval"], row["approved"]):
                return ReviewedTools(approved=approved, needs_approval=waits)
            named = list(changes[:MAX_NAMED_TOOLS])
            change = _CHANGE(
                **key, hashes=hashes, approved=approved, can_write=can_write, waits=waits, named=named
            )
            await connection.execute(*change)
            if changes:
                detail = {
                    "tools": len(changes), "waiting": len(find_waiting(hashes, approved)),
                    "hashes": [hashes[name] for name in named if name in hashes],
                }  # fmt: skip
                await append_audit(
                    connection, actor="system", action="mcp.tools_changed", about=found.server, detail=detail
                )
        return ReviewedTools(approved=approved, needs_approval=waits)

    @store_method
    async def load(self) -> Mapping[tuple[str, str], ReviewedTools]:
        """Return the approved tools of all servers by (server, source).

        The source identifies the server's configuration.
        """
        return {
            (row["server"], row["source"]): ReviewedTools(
                approved=row["approved"], needs_approval=row["needs_approval"]
            )
            for row in await self._pool.fetch(_ALL)
        }

    @store_method
    async def list_changes(self) -> Mapping[str, Mapping[str, Any]]:
        """Return, by server, `{waiting, mark, changed, changed_at}`.

        `waiting` are names of tools that wait for approval, and `mark` identifies that state for `approve`.
        `changed` are the tools of the last change, and `changed_at` is None if the list never changed.
        """
        rows = await self._pool.fetch(_ALL)
        return {
            name: _describe([row for row in rows if row["server"] == name])
            for name in {row["server"] for row in rows}
        }

    @store_method
    async def approve(self, server: str, *, mark: str, by: str) -> bool:
        """Approve all waiting tools of a server, and append that to the audit log.

        `by` is the operator's name. Returns False, without effect, if none waits or if they are no longer
        those that `mark` identifies.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(*_OF_SERVER(server=server))
            shown = _describe(rows)
            if shown["mark"] != mark or not shown["waiting"]:
                return False
            for row in rows:
                approved = approve_all(row["approved"], row["seen"])
                await connection.execute(*_APPROVE(server=server, source=row["source"], approved=approved))
            detail = {"tools": len(shown["waiting"]), "mark": mark}
            await append_audit(connection, actor=by, action="mcp.tools_approved", about=server, detail=detail)
        return True


def _describe(rows: list[Any]) -> dict[str, Any]:
    waiting: dict[str, list[str]] = {}
    for row in rows:
        if row["needs_approval"]:
            for name in find_waiting(row["seen"], row["approved"]):
                waiting.setdefault(name, []).append(row["seen"][name])
    mark = hashlib.sha256(json.dumps(waiting, sort_keys=True).encode()).hexdigest()[:32]
    last = max((row for row in rows if row["changed_at"]), key=lambda row: row["changed_at"], default=None)
    return {
        "waiting": sorted(waiting), "mark": mark,
        "changed": list(last["changed"]) if last else [], "changed_at": last["changed_at"] if last else None,
    }  # fmt: skip
