"""Store of agents; changes are compare-and-set with an audit entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg
from sqlalchemy import ColumnElement, String, cast, column, func, or_, table, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, delete, select

from shared.adapters.postgres.db.pool import Named, store_method
from shared.adapters.postgres.people.admin_store import (
    AdminStore,
    AgentTable,
    AgentVersionTable,
    SiteTable,
    TelegramBotTable,
)
from shared.config.agents import AgentRow

MOST_VERSIONS = 100
"""Maximum stored versions of one agent; older ones are deleted."""


class PostgresAgents(AdminStore):
    """Store of agents; each method is one transaction and raises StorageUnavailable.

    Changes are appended to the audit log; `by` is the actor there.
    """

    @store_method
    async def list_all(self) -> list[AgentRow]:
        """Return all agents, ordered by name."""
        return await self._rows()

    @store_method
    async def find(self, name: str) -> AgentRow | None:
        """Return the agent with this name; None if there is none."""
        return next(iter(await self._rows(col(AgentTable.name) == name)), None)

    async def _rows(self, *which: ColumnElement[bool]) -> list[AgentRow]:
        async with self._begin() as session:
            rows = await session.exec(_AGENTS.where(*which).order_by(AgentTable.name))
            return [_row(*row) for row in rows]

    @store_method
    async def create(self, name: str, config: Mapping[str, Any], *, by: str) -> bool:
        """Create an agent and store its first version; return False, without effect, if the name is taken."""
        new = insert(AgentTable).values(name=name, config=dict(config)).on_conflict_do_nothing()
        async with self._begin() as session:
            agent_id = await session.scalar(new.returning(col(AgentTable.id)))
            if agent_id is not None:
                await (await session.driver()).execute(*_KEEP(agent_id=agent_id, by=by))
                await session.audit("agent.made", by=by, about=str(agent_id))
        return agent_id is not None

    @store_method
    async def change(self, name: str, config: Mapping[str, Any], *, seen: int, by: str) -> int | None:
        """Replace an agent's config, store it as a version, and return the new version.

        Returns None, without effect, unless the agent's version is still `seen`. Of its versions the newest
        MOST_VERSIONS are kept.
        """
        change = update(AgentTable).where(col(AgentTable.name) == name, col(AgentTable.version) == seen)
        now = {"config": dict(config), "version": AgentTable.version + 1, "updated_at": func.now()}
        async with self._begin() as session:
            await (await session.driver()).execute(*_KEEP_FORMER(name=name, version=seen))
            agent: AgentTable | None = await session.scalar(change.values(now).returning(AgentTable))
            if agent is None:
                return None
            await (await session.driver()).execute(*_KEEP(agent_id=agent.id, by=by))
            await (await session.driver()).execute(
                *_LET_GO(
                    agent_id=agent.id,
                    through_version=agent.version - MOST_VERSIONS,
                )
            )
            detail = {"version": agent.version}
            await session.audit("agent.changed", by=by, about=str(agent.id), detail=detail)
        return agent.version

    @store_method
    async def list_versions(self, agent_id: int) -> list[tuple[int, str | None, datetime]]:
        """Return (version, author or None if unknown, time) of each stored version, newest first."""
        kept = select(AgentVersionTable.version, AgentVersionTable.changed_by, AgentVersionTable.changed_at)
        mine = kept.where(AgentVersionTable.agent_id == agent_id)
        async with self._begin() as session:
            return list(await session.exec(mine.order_by(col(AgentVersionTable.version).desc())))

    @store_method
    async def load_version(self, agent_id: int, version: int) -> Mapping[str, Any] | None:
        """Return the config of a version; None if that version is not stored."""
        async with self._begin() as session:
            kept = await session.get(AgentVersionTable, (agent_id, version))
        return None if kept is None else kept.config

    @store_method
    async def delete(self, name: str, *, by: str) -> bool:
        """Delete an agent with its knowledge, its versions and the API keys that are limited to it.

        Returns False, without effect, if it is unknown or if conversations, sites or bots still use it.
        """
        try:
            async with self._begin() as session:
                for statement in _FORGET:
                    await (await session.driver()).execute(*statement(name=name))
                gone = delete(AgentTable).where(col(AgentTable.name) == name).returning(col(AgentTable.id))
                agent_id = await session.scalar(gone)
                if agent_id is not None:
                    await session.audit("agent.deleted", by=by, about=str(agent_id))
        except asyncpg.ForeignKeyViolationError:
            return False
        return agent_id is not None

    @store_method
    async def move_sessions(self, agent: str, *, channel: str, account: str, by: str) -> int:
        """Assign the existing conversations of a site or bot to an agent; return the number changed.

        The agent must exist. Views of these conversations change, so that their running jobs start again.
        """
        async with self._begin() as session:
            agent_id = await session.scalar(select(AgentTable.id).where(AgentTable.name == agent))
            moved = len(
                await (await session.driver()).fetch(
                    *_MOVE(
                        agent_id=agent_id,
                        channel=channel,
                        account=account,
                    )
                )
            )
            detail = {"channel": channel, "account": account, "sessions": moved}
            await session.audit("agent.took_over", by=by, about=str(agent_id), detail=detail)
        return moved

    @store_method
    async def find_bot_id(self, name: str) -> int | None:
        """Return the id of the bot with this id or user name, with or without "@"; None if it is unknown."""
        name = name.removeprefix("@")
        number, username = cast(col(TelegramBotTable.bot_id), String), func.lower(TelegramBotTable.username)
        async with self._begin() as session:
            return await session.scalar(
                select(TelegramBotTable.bot_id).where(or_(number == name, username == name.lower()))
            )


_BOT = func.coalesce(
    func.nullif("@" + col(TelegramBotTable.username), "@"), cast(col(TelegramBotTable.bot_id), String)
)
_SESSIONS = table("sessions", column("agent_id"))
_AGENTS = select(
    AgentTable,
    select(func.count())
    .select_from(_SESSIONS)
    .where(_SESSIONS.c.agent_id == AgentTable.id)
    .scalar_subquery(),
    func.array(
        select(SiteTable.name)
        .where(SiteTable.agent_id == AgentTable.id)
        .order_by(SiteTable.name)
        .scalar_subquery()
    ),
    func.array(
        select(_BOT).where(TelegramBotTable.agent_id == AgentTable.id).order_by(_BOT).scalar_subquery()
    ),
)
_MOVE = Named("""
UPDATE sessions SET agent_id = :agent_id, view_epoch = view_epoch + 1
 WHERE agent_id <> :agent_id AND id IN (SELECT session_id FROM addresses WHERE channel = :channel
                                        AND account = :account)
RETURNING id
""")
_FORGET = (
    Named("DELETE FROM knowledge WHERE agent_id = (SELECT id FROM agents WHERE name = :name)"),
    Named("DELETE FROM agent_versions WHERE agent_id = (SELECT id FROM agents WHERE name = :name)"),
)
"""Delete the agent's knowledge and versions.

If an agent of this name returns, its folder is indexed again.
"""
_KEEP = Named("""
INSERT INTO agent_versions (agent_id, version, config, changed_at, changed_by)
SELECT id, version, config, updated_at, :by FROM agents WHERE id = :agent_id
""")
_KEEP_FORMER = Named("""
INSERT INTO agent_versions (agent_id, version, config, changed_at, changed_by)
SELECT id, version, config, updated_at, NULL FROM agents WHERE name = :name AND version = :version
ON CONFLICT DO NOTHING
""")
"""Store the present version of an agent that was created before versions were stored."""
_LET_GO = Named("DELETE FROM agent_versions WHERE agent_id = :agent_id AND version <= :through_version")


def _row(agent: AgentTable, sessions: int, sites: Sequence[str], bots: Sequence[str]) -> AgentRow:
    return AgentRow(
        id=agent.id, name=agent.name, config=agent.config, version=agent.version,
        sessions=sessions, sites=tuple(sites), bots=tuple(bots),
    )  # fmt: skip
