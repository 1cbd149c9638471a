"""Store of the choices for a conversation: goal, mode, model, voice and compaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.values.errors import UnknownSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    """Choices of a session, "" where none was made, and its agent's config."""

    goal: str
    mode: str
    model: str
    voice: str
    agent_config: Mapping[str, Any]


class PostgresSessionSettings(PoolStore):
    """Store of choices; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def load_chosen(self, session_id: int) -> ChosenRow:
        """Return a session's choices and its agent's config. Raises UnknownSession."""
        row = await self._pool.fetchrow(
            *_LOAD_CHOSEN(session_id=session_id),
        )
        if row is None:
            raise UnknownSession(f"session {session_id}")
        return ChosenRow(**dict(row))

    @store_method
    async def choose_goal(self, session_id: int, goal: str) -> None:
        """Store the goal of a conversation; "" means none. No effect for an unknown session."""
        await self._pool.execute(*_CHOOSE_GOAL(session_id=session_id, goal=goal))

    @store_method
    async def choose_mode(self, session_id: int, mode: str) -> None:
        """Store the mode of a conversation; "" means the agent's. No effect for an unknown session."""
        await self._pool.execute(*_CHOOSE_MODE(session_id=session_id, mode=mode))

    @store_method
    async def choose_voice(self, session_id: int, choice: str) -> None:
        """Store when answers are read aloud: "on" always, "auto" after a person's recording, "off" never."""
        await self._pool.execute(*_CHOOSE_VOICE(session_id=session_id, choice=choice))

    @store_method
    async def choose_model(self, session_id: int, model: str) -> None:
        """Store the model of a session; "" means the agent's model.

        A change raises the view's epoch, so that jobs planned for the former model are planned again.
        """
        await self._pool.execute(
            *_CHOOSE_MODEL(session_id=session_id, model=model),
        )  # fmt: skip

    @store_method
    async def choose_compaction(self, session_id: int, choice: str) -> None:
        """Store whether the session is compacted: "off", or "" for the agent's setting.

        A change raises the view's epoch, so that planned jobs are planned again.
        """
        await self._pool.execute(
            *_CHOOSE_COMPACTION(session_id=session_id, choice=choice),
        )  # fmt: skip

    @store_method
    async def choose_compaction_limit(self, session_id: int, limit: int | None) -> None:
        """Store the tokens of context from which the session is compacted; None means the agent's limit.

        A change ends a backoff of compaction, and raises the view's epoch, so that planned jobs are planned
        again.
        """
        await self._pool.execute(
            *_CHOOSE_COMPACTION_LIMIT(session_id=session_id, limit=limit),
        )  # fmt: skip


_LOAD_CHOSEN = Named("""
SELECT s.goal, s.mode, s.model, s.voice, a.config AS agent_config
  FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = :session_id
""")
_CHOOSE_GOAL = Named("UPDATE sessions SET goal = :goal WHERE id = :session_id")
_CHOOSE_MODE = Named("UPDATE sessions SET mode = :mode WHERE id = :session_id")
_CHOOSE_VOICE = Named("UPDATE sessions SET voice = :choice WHERE id = :session_id")
_CHOOSE_MODEL = Named("""
UPDATE sessions SET model = :model, view_epoch = view_epoch + 1 WHERE id = :session_id AND model <> :model
""")
_CHOOSE_COMPACTION = Named("""
UPDATE sessions SET compaction = :choice, view_epoch = view_epoch + 1
 WHERE id = :session_id AND compaction <> :choice
""")
_CHOOSE_COMPACTION_LIMIT = Named("""
UPDATE sessions SET compact_at = :limit, view_epoch = view_epoch + 1, compaction_backoff = NULL
 WHERE id = :session_id AND compact_at IS DISTINCT FROM :limit
""")
