"""Store of a conversation's files: bytes in Postgres, so that processes need no shared disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.turns.turns import settle_calls
from shared.core.session.turns import Described, Spending
from shared.core.values.files import Attached
from shared.ports import PictureContent, ToolFile

_SHOWN = "name", "mime", "size", "width", "height"


class PostgresAttachments(PoolStore):
    """Store of files; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def store(
        self, session_id: int, *, body: bytes, mime: str, name: str = "", description: str = ""
    ) -> int:
        """Store a file and return its id; the same bytes in the same session are stored once.

        A known file keeps its former name and description.
        """
        digest = hashlib.sha256(body).digest()
        attachment_id: int = await self._pool.fetchval(
            *_STORE(
                session_id=session_id, sha256=digest, mime=mime, size=len(body), body=body, name=name,
                description=description,
            ),
        )  # fmt: skip
        return attachment_id

    @store_method
    async def store_file(self, session_id: int, file: ToolFile) -> int:
        """Store a file that a tool made and return its id.

        The same bytes with the same name are stored once per session.
        """
        digest = hashlib.sha256(file.body).digest()
        attachment_id: int = await self._pool.fetchval(
            *_STORE_FILE(
                session_id=session_id, sha256=digest, mime=file.mime, body=file.body, name=file.name,
                width=file.width, height=file.height,
            ),
        )  # fmt: skip
        return attachment_id

    @store_method
    async def list_attached(self, ids: Sequence[int]) -> tuple[Attached, ...]:
        """Return the files with these ids, in this order and without their bytes.

        Deleted files are left out.
        """
        rows = await self._pool.fetch(
            *_ATTACHED(ids=list(ids)),
        )
        return tuple(
            Attached(id=row["public_id"].hex, **{name: row[name] for name in _SHOWN}) for row in rows
        )

    @store_method
    async def load_body(self, session_id: int, public_id: str) -> bytes | None:
        """Return the bytes of a file; None if it was deleted or is not of this session.

        `public_id` is a UUID as text; raises ValueError for another text.
        """
        body: bytes | None = await self._pool.fetchval(
            *_BODY(session_id=session_id, public_id=UUID(public_id)),
        )  # fmt: skip
        return body

    @store_method
    async def load_pictures(self, ids: Sequence[int]) -> dict[int, PictureContent]:
        """Return files by id with media type, bytes and description; deleted files are left out."""
        rows = await self._pool.fetch(
            *_PICTURES(ids=list(ids)),
        )
        return {
            row["id"]: PictureContent(mime=row["mime"], body=row["body"], description=row["description"])
            for row in rows
        }

    @store_method
    async def find_picture(self, session_id: int, attachment_id: int) -> str | None:
        """Return the media type of a picture; None if this session has no such picture."""
        mime: str | None = await self._pool.fetchval(
            *_FIND_PICTURE(session_id=session_id, attachment_id=attachment_id),
        )  # fmt: skip
        return mime

    @store_method
    async def load_descriptions(self, ids: Sequence[int]) -> dict[int, str]:
        """Return descriptions by id; files without one are left out."""
        rows = await self._pool.fetch(*_DESCRIPTIONS(ids=list(ids)))
        return {row["id"]: row["description"] for row in rows}

    @store_method
    async def describe(self, it: Described) -> None:
        """Store the description of a picture, and book the model calls that wrote it.

        Later requests contain the description instead of the picture. An existing description stays. The
        reservation of budget is settled with the cost.
        """
        cost = sum(call.cost_micro or 0 for call in it.spent)
        async with self._pool.acquire() as connection, connection.transaction():
            await settle_calls(
                connection, it.spent, reservation_id=it.reservation_id, settled_micro=cost,
                session_id=it.session_id, contact_id=it.contact_id, turn=it.turn,
            )  # fmt: skip
            await connection.execute(
                *_KEEP_DESCRIPTION(attachment_id=it.attachment_id, description=it.description)
            )

    @store_method
    async def load_transcript(self, session_id: int, attachment_id: int) -> str | None:
        """Return the transcript of a recording; None if it is not transcribed or not of this session."""
        words: str | None = await self._pool.fetchval(
            *_TRANSCRIPT(session_id=session_id, attachment_id=attachment_id)
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
        """Book the cost and, unless `words` is None, store the transcript of a recording.

        An existing transcript stays. `reservation_id` is the reservation of budget that the cost settles,
        None if there is none.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await settle_calls(
                connection, [spent], reservation_id=reservation_id, settled_micro=spent.cost_micro or 0,
                session_id=session_id, contact_id=None, purpose="transcribe",
            )  # fmt: skip
            await connection.execute(
                *_KEEP_TRANSCRIPT(attachment_id=attachment_id, session_id=session_id, words=words)
            )


_KEEP_DESCRIPTION = Named("""
UPDATE attachments SET description = :description WHERE id = :attachment_id AND description = ''
""")
_KEEP_TRANSCRIPT = Named("""
UPDATE attachments SET words = :words
 WHERE id = :attachment_id AND session_id = :session_id AND words IS NULL
""")
_STORE = Named("""
WITH known AS (
  SELECT id FROM attachments WHERE session_id = :session_id AND sha256 = :sha256 LIMIT 1
), made AS (
  INSERT INTO attachments (session_id, sha256, mime, size, state, body, name, description)
  SELECT :session_id, :sha256, :mime, :size, 'stored', :body, :name, :description
     WHERE NOT EXISTS (SELECT FROM known) RETURNING id
)
SELECT id FROM known UNION ALL SELECT id FROM made
""")
"""Insert a file of a session, once per content."""
_STORE_FILE = Named("""
WITH known AS (
  SELECT id FROM attachments WHERE session_id = :session_id AND sha256 = :sha256 AND name = :name
     AND state = 'stored' LIMIT 1
), made AS (
  INSERT INTO attachments (session_id, sha256, mime, size, state, body, name, width, height)
  SELECT :session_id, :sha256, :mime, length(:body::bytea), 'stored', :body::bytea, :name, :width, :height
   WHERE NOT EXISTS (SELECT FROM known) RETURNING id
)
SELECT id FROM known UNION ALL SELECT id FROM made
""")
"""Insert a file of a session, once per content and name."""
_ATTACHED = Named("""
SELECT a.public_id, a.name, a.mime, a.size, a.width, a.height
  FROM unnest(:ids::bigint[]) WITH ORDINALITY AS w(id, place) JOIN attachments a USING (id)
 WHERE a.state = 'stored' ORDER BY w.place
""")
_BODY = Named("""
SELECT body FROM attachments WHERE public_id = :public_id AND session_id = :session_id AND state = 'stored'
""")
_PICTURES = Named("""
SELECT id, mime, body, description FROM attachments WHERE id = ANY (:ids) AND state = 'stored'
""")
_FIND_PICTURE = Named("""
SELECT mime FROM attachments
 WHERE id = :attachment_id AND session_id = :session_id AND state = 'stored' AND mime LIKE 'image/%'
""")
_DESCRIPTIONS = Named("SELECT id, description FROM attachments WHERE id = ANY (:ids) AND description <> ''")
_TRANSCRIPT = Named("SELECT words FROM attachments WHERE id = :attachment_id AND session_id = :session_id")
