"""Choices for a conversation: its goal, its mode, its model, and whether it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.core.values.errors import UnknownSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    goal: str
    mode: str
    model: str
    voice: str
    agent_config: Mapping[str, Any]


class PostgresSessionSettings:
    """Each method is one transaction; raises UnknownSession, StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def load_chosen(self, session_id: int) -> ChosenRow:
        row = await self._pool.fetchrow(
            """SELECT s.goal, s.mode, s.model, s.voice, a.config AS agent_config
                 FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = $1""",
            session_id,
        )
        if row is None:
            raise UnknownSession(f"session {session_id}")
        return ChosenRow(**dict(row))

    @store_method
    async def choose_goal(self, session_id: int, goal: str) -> None:
        await self._pool.execute("UPDATE sessions SET goal = $2 WHERE id = $1", session_id, goal)

    @store_method
    async def choose_mode(self, session_id: int, mode: str) -> None:
        await self._pool.execute("UPDATE sessions SET mode = $2 WHERE id = $1", session_id, mode)

    @store_method
    async def choose_voice(self, session_id: int, choice: str) -> None:
        await self._pool.execute("UPDATE sessions SET voice = $2 WHERE id = $1", session_id, choice)

    @store_method
    async def choose_model(self, session_id: int, model: str) -> None:
        """Choose a model; the view's epoch rises, so that jobs planned for the former model are planned
        again.
        """
        await self._pool.execute(
            "UPDATE sessions SET model = $2, view_epoch = view_epoch + 1 WHERE id = $1 AND model <> $2",
            session_id, model,
        )  # fmt: skip

    @store_method
    async def choose_compaction(self, session_id: int, choice: str) -> None:
        """Choose `off` or an empty text; waiting jobs of the former choice are planned again."""
        await self._pool.execute(
            """UPDATE sessions SET compaction = $2, view_epoch = view_epoch + 1
                WHERE id = $1 AND compaction <> $2""",
            session_id, choice,
        )  # fmt: skip

    @store_method
    async def choose_compaction_limit(self, session_id: int, limit: int | None) -> None:
        """Choose a limit in tokens, or None for the agent's own; waiting jobs are planned again."""
        await self._pool.execute(
            """UPDATE sessions SET compact_at = $2, view_epoch = view_epoch + 1, compaction_rest = NULL
                WHERE id = $1 AND compact_at IS DISTINCT FROM $2""",
            session_id, limit,
        )  # fmt: skip
