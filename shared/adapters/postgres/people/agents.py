"""The rows of agents: made, changed by compare-and-set, each change in the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people.operator_auth import append_audit

_BY = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    id: int
    name: str
    config: Mapping[str, Any]
    version: int
    sessions: int = 0
    sites: tuple[str, ...] = ()
    bots: tuple[str, ...] = ()
    """By user name where Telegram has told it, else by number."""


class PostgresAgents:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def all(self) -> list[AgentRow]:
        rows = await self._pool.fetch(f"{_AGENTS} ORDER BY a.name")
        return [_agent(row) for row in rows]

    @store_method
    async def find(self, name: str) -> AgentRow | None:
        row = await self._pool.fetchrow(f"{_AGENTS} WHERE a.name = $1", name)
        return None if row is None else _agent(row)

    @store_method
    async def folders(self) -> dict[int, str]:
        """The workspace that each agent's row names; empty where it names none."""
        rows = await self._pool.fetch("SELECT id, config -> 'workspace' AS folder FROM agents")
        return {row["id"]: row["folder"] if isinstance(row["folder"], str) else "" for row in rows}

    @store_method
    async def create(self, name: str, config: Mapping[str, Any], *, by: str = _BY) -> bool:
        """False when there is one of that name."""
        async with self._pool.acquire() as connection, connection.transaction():
            agent_id = await connection.fetchval(
                """INSERT INTO agents (name, config) VALUES ($1, $2)
                   ON CONFLICT (name) DO NOTHING RETURNING id""",
                name, dict(config),
            )  # fmt: skip
            if agent_id is not None:
                await append_audit(connection, actor=by, action="agent.made", about=str(agent_id))
        return agent_id is not None

    @store_method
    async def change(self, name: str, config: Mapping[str, Any], *, seen: int, by: str = _BY) -> int | None:
        """The new version; None when somebody else changed or deleted the row since version `seen`."""
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                """UPDATE agents SET config = $2, version = version + 1, updated_at = now()
                    WHERE name = $1 AND version = $3 RETURNING id, version""",
                name, dict(config), seen,
            )  # fmt: skip
            if row is None:
                return None
            await append_audit(
                connection, actor=by, action="agent.changed", about=str(row["id"]),
                detail={"version": row["version"]},
            )  # fmt: skip
        version: int = row["version"]
        return version

    @store_method
    async def delete(self, name: str) -> bool:
        """False when conversations, sites or bots still have it, or there is none of that name."""
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(_FORGET_KNOWLEDGE, name)
                agent_id = await connection.fetchval("DELETE FROM agents WHERE name = $1 RETURNING id", name)
                if agent_id is not None:
                    await append_audit(connection, actor=_BY, action="agent.deleted", about=str(agent_id))
        except asyncpg.ForeignKeyViolationError:
            return False
        return agent_id is not None

    @store_method
    async def move_sessions(self, agent: str, *, channel: str, account: str) -> int:
        """Give the conversations that a site or a bot has now to an agent; how many of them."""
        async with self._pool.acquire() as connection, connection.transaction():
            agent_id = await connection.fetchval("SELECT id FROM agents WHERE name = $1", agent)
            moved: int = await connection.fetchval(
                """WITH moved AS (
                     UPDATE sessions s SET agent_id = $1, view_epoch = view_epoch + 1
                      WHERE s.agent_id <> $1 AND s.id IN (
                            SELECT session_id FROM addresses WHERE channel = $2 AND account = $3)
                     RETURNING s.id)
                   SELECT count(*) FROM moved""",
                agent_id, channel, account,
            )  # fmt: skip
            await append_audit(
                connection, actor=_BY, action="agent.took_over", about=str(agent_id),
                detail={"channel": channel, "account": account, "sessions": moved},
            )  # fmt: skip
        return moved

    @store_method
    async def bot_id(self, name: str) -> int | None:
        """By number or user name."""
        found: int | None = await self._pool.fetchval(
            "SELECT bot_id FROM telegram_bots WHERE bot_id::text = $1 OR lower(username) = lower($1)",
            name.removeprefix("@"),
        )
        return found


_AGENTS = """
SELECT a.id, a.name, a.config, a.version,
       (SELECT count(*) FROM sessions s WHERE s.agent_id = a.id) AS sessions,
       ARRAY(SELECT w.name FROM sites w WHERE w.agent_id = a.id ORDER BY 1) AS sites,
       ARRAY(SELECT coalesce(nullif('@' || b.username, '@'), b.bot_id::text)
               FROM telegram_bots b WHERE b.agent_id = a.id ORDER BY 1) AS bots
  FROM agents a
"""
_FORGET_KNOWLEDGE = "DELETE FROM knowledge WHERE agent_id = (SELECT id FROM agents WHERE name = $1)"
"""Its files say it again, should an agent of that name be made anew."""


def _agent(row: asyncpg.Record) -> AgentRow:
    return AgentRow(
        id=row["id"], name=row["name"], config=row["config"], version=row["version"],
        sessions=row["sessions"], sites=tuple(row["sites"]), bots=tuple(row["bots"]),
    )  # fmt: skip
