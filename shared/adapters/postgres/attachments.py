"""Files of a conversation: bytes in Postgres, so that no two processes need to share a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import asyncpg

from shared.adapters.postgres.pool import store_method
from shared.adapters.postgres.turn_sql import DESCRIBED
from shared.adapters.postgres.turns import sums_of, usage_rows
from shared.core.turns import Spending
from shared.ports import Picture


class PostgresAttachments:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def store(self, session_id: int, *, body: bytes, mime: str, name: str = "") -> int:
        """The id of this file in this session; the same bytes are kept once."""
        digest = hashlib.sha256(body).digest()
        attachment_id: int = await self._pool.fetchval(
            """WITH known AS (
                 SELECT id FROM attachments WHERE session_id = $1 AND sha256 = $2 LIMIT 1
               ), made AS (
                 INSERT INTO attachments (session_id, sha256, mime, size, state, body, name)
                 SELECT $1, $2, $3, $4, 'stored', $5, $6 WHERE NOT EXISTS (SELECT FROM known) RETURNING id
               )
               SELECT id FROM known UNION ALL SELECT id FROM made""",
            session_id, digest, mime, len(body), body, name,
        )  # fmt: skip
        return attachment_id

    @store_method
    async def pictures(self, ids: Sequence[int]) -> dict[int, Picture]:
        rows = await self._pool.fetch(
            "SELECT id, mime, body, description FROM attachments WHERE id = ANY ($1) AND state = 'stored'",
            list(ids),
        )
        return {
            row["id"]: Picture(mime=row["mime"], body=row["body"], description=row["description"])
            for row in rows
        }

    @store_method
    async def descriptions(self, ids: Sequence[int]) -> dict[int, str]:
        rows = await self._pool.fetch(
            "SELECT id, description FROM attachments WHERE id = ANY ($1) AND description <> ''", list(ids)
        )
        return {row["id"]: row["description"] for row in rows}

    @store_method
    async def describe(
        self,
        attachment_id: int,
        description: str,
        *,
        session_id: int,
        party_id: int,
        turn: int,
        spent: Sequence[Spending],
        reservation_id: int | None,
    ) -> None:
        """What later turns, summaries and memory see instead of the picture, and what it cost."""
        await self._pool.execute(
            DESCRIBED, session_id, party_id, turn, usage_rows(spent), sums_of(spent), reservation_id,
            sum(call.cost_micro or 0 for call in spent), attachment_id, description,
        )  # fmt: skip
