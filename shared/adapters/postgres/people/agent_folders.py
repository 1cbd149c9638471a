"""Workspace folders of agents, read at each start without SQLAlchemy."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import PoolStore, store_method


class PostgresAgentFolders(PoolStore):
    """Read-only query of folders. It raises StorageUnavailable."""

    @store_method
    async def load_folders(self) -> dict[int, str]:
        """Return the workspace folder in each agent's config, by agent id; "" if it names none."""
        rows = await self._pool.fetch("SELECT id, config -> 'workspace' AS folder FROM agents")
        return {row["id"]: row["folder"] if isinstance(row["folder"], str) else "" for row in rows}
