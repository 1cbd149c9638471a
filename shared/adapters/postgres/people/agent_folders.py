"""Workspace folder of each agent, read at every start without SQLAlchemy."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import PoolStore, store_method


class PostgresAgentFolders(PoolStore):
    """Raises StorageUnavailable."""

    @store_method
    async def load_folders(self) -> dict[int, str]:
        """The workspace that each agent's row names; empty where it names none."""
        rows = await self._pool.fetch("SELECT id, config -> 'workspace' AS folder FROM agents")
        return {row["id"]: row["folder"] if isinstance(row["folder"], str) else "" for row in rows}
