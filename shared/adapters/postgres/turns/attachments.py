"""Files of a conversation: bytes in Postgres, so that no two processes need to share a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.turns.turn_sql import DESCRIBED, HEARD
from shared.adapters.postgres.turns.turns import build_usage_rows, sum_spending
from shared.core.session.turns import Described, Spending
from shared.core.values.files import Attached
from shared.ports import PictureContent, ToolFile

_SHOWN = "name", "mime", "size", "width", "height"


class PostgresAttachments:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def store(
        self, session_id: int, *, body: bytes, mime: str, name: str = "", description: str = ""
    ) -> int:
        """The id of this file in this session; the same bytes are kept once."""
        digest = hashlib.sha256(body).digest()
        attachment_id: int = await self._pool.fetchval(
            """WITH known AS (
                 SELECT id FROM attachments WHERE session_id = $1 AND sha256 = $2 LIMIT 1
               ), made AS (
                 INSERT INTO attachments (session_id, sha256, mime, size, state, body, name, description)
                 SELECT $1, $2, $3, $4, 'stored', $5, $6, $7 WHERE NOT EXISTS (SELECT FROM known) RETURNING id
               )
               SELECT id FROM known UNION ALL SELECT id FROM made""",
            session_id, digest, mime, len(body), body, name, description,
        )  # fmt: skip
        return attachment_id

    @store_method
    async def store_file(self, session_id: int, file: ToolFile) -> int:
        """The id of a file that a tool made for the person; the same file by the same name is kept once."""
        digest = hashlib.sha256(file.body).digest()
        attachment_id: int = await self._pool.fetchval(
            """WITH known AS (
                 SELECT id FROM attachments WHERE session_id = $1 AND sha256 = $2 AND name = $5
                    AND state = 'stored' LIMIT 1
               ), made AS (
                 INSERT INTO attachments (session_id, sha256, mime, size, state, body, name, width, height)
                 SELECT $1, $2, $3, length($4::bytea), 'stored', $4::bytea, $5, $6, $7
                  WHERE NOT EXISTS (SELECT FROM known) RETURNING id
               )
               SELECT id FROM known UNION ALL SELECT id FROM made""",
            session_id, digest, file.mime, file.body, file.name, file.width, file.height,
        )  # fmt: skip
        return attachment_id

    @store_method
    async def list_attached(self, ids: Sequence[int]) -> tuple[Attached, ...]:
        """Return files in this order as screens receive them; deleted ones are left out."""
        rows = await self._pool.fetch(
            """SELECT a.public_id, a.name, a.mime, a.size, a.width, a.height
                 FROM unnest($1::bigint[]) WITH ORDINALITY AS w(id, place) JOIN attachments a USING (id)
                WHERE a.state = 'stored' ORDER BY w.place""",
            list(ids),
        )
        return tuple(
            Attached(id=row["public_id"].hex, **{name: row[name] for name in _SHOWN}) for row in rows
        )

    @store_method
    async def load_body(self, session_id: int, public_id: str) -> bytes | None:
        """None when it is gone, or another conversation's."""
        body: bytes | None = await self._pool.fetchval(
            "SELECT body FROM attachments WHERE public_id = $2 AND session_id = $1 AND state = 'stored'",
            session_id, UUID(public_id),
        )  # fmt: skip
        return body

    @store_method
    async def load_pictures(self, ids: Sequence[int]) -> dict[int, PictureContent]:
        rows = await self._pool.fetch(
            "SELECT id, mime, body, description FROM attachments WHERE id = ANY ($1) AND state = 'stored'",
            list(ids),
        )
        return {
            row["id"]: PictureContent(mime=row["mime"], body=row["body"], description=row["description"])
            for row in rows
        }

    @store_method
    async def find_picture(self, session_id: int, attachment_id: int) -> str | None:
        """Its media type; None when this session has no such picture."""
        mime: str | None = await self._pool.fetchval(
            """SELECT mime FROM attachments
                WHERE id = $2 AND session_id = $1 AND state = 'stored' AND mime LIKE 'image/%'""",
            session_id, attachment_id,
        )  # fmt: skip
        return mime

    @store_method
    async def load_descriptions(self, ids: Sequence[int]) -> dict[int, str]:
        rows = await self._pool.fetch(
            "SELECT id, description FROM attachments WHERE id = ANY ($1) AND description <> ''", list(ids)
        )
        return {row["id"]: row["description"] for row in rows}

    @store_method
    async def describe(self, it: Described) -> None:
        """Store the description that later requests have instead of the picture; the first one stays."""
        cost = sum(call.cost_micro or 0 for call in it.spent)
        await self._pool.execute(
            DESCRIBED, it.session_id, it.party_id, it.turn, build_usage_rows(it.spent),
            sum_spending(it.spent), it.reservation_id, cost, it.attachment_id, it.description,
        )  # fmt: skip

    @store_method
    async def load_transcript(self, session_id: int, attachment_id: int) -> str | None:
        """Return the transcript of a recording; None if it was not transcribed yet."""
        words: str | None = await self._pool.fetchval(
            "SELECT words FROM attachments WHERE id = $2 AND session_id = $1", session_id, attachment_id
        )
        return words

    @store_method
    async def record_transcript(
        self,
        session_id: int,
        attachment_id: int,
        *,
        words: str | None,
        spent: Spending,
        reservation_id: int | None,
    ) -> None:
        """Store cost and transcript of a recording; the first transcript stays."""
        await self._pool.execute(
            HEARD, session_id, attachment_id, words, build_usage_rows([spent]), sum_spending([spent]),
            reservation_id, spent.cost_micro or 0,
        )  # fmt: skip
