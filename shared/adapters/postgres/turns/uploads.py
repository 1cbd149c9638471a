"""Store of files that visitors upload, kept before a message refers to them, each once per conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.core.values.errors import BadInput
from shared.core.values.files import MOST_FILE_CHARS, Attached, Document, Picture, Served
from shared.core.values.messages import Block, Image
from shared.core.values.recordings import AUDIO_MIMES, Recording

REFERABLE_HOURS = 20
"""Hours in which a message may refer to an uploaded file; unused files are deleted after a day."""


class UploadLimitReached(BadInput):
    """More bytes than the limit were uploaded in one conversation within 24 hours."""

    sentence = "Too many files for one conversation in a day."
    code = "too_many_files"
    advice = "These were many files for one day. Please send more tomorrow."


class UnknownFile(BadInput):
    """A file of the message does not exist, is not of this conversation, or will be deleted soon."""

    sentence = "A file of this message is not there."
    code = "unknown_file"
    advice = "A file that comes with this message is no longer there. Please add it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpload:
    """Uploaded file for a message.

    `words` is its text or transcript; None for a picture, and for a recording without a transcript.
    """

    attachment_id: int
    attached: Attached
    words: str | None

    @property
    def picture(self) -> Block | None:
        """Image block of the file; None if it is no picture."""
        if self.words is not None or self.attached.mime in AUDIO_MIMES:
            return None
        return Image(attachment_id=self.attachment_id, mime=self.attached.mime)


class PostgresUploads(PoolStore):
    """Store of uploads; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def find_by_content(self, session_id: int, content: bytes, *, name: str) -> Attached | None:
        """Return the stored upload with the same bytes, renamed to `name` and kept for a further day.

        Returns None, without effect, if the session has none.
        """
        row = await self._pool.fetchrow(*_KNOWN(session_id=session_id, sha256=_digest(content), name=name))
        return None if row is None else _build_attached(row)

    @store_method
    async def keep(
        self,
        session_id: int,
        content: bytes,
        found: Picture | Document | Recording,
        *,
        name: str,
        most_per_day: int,
    ) -> Attached:
        """Store an uploaded file, a picture in its re-encoded form; the same bytes update the same row.

        Raises UploadLimitReached if the uploads of the last 24 hours in this session would exceed
        `most_per_day` bytes.
        """
        read: tuple[int | None, int | None, str | None]
        if isinstance(found, Picture):
            body, mime, read = found.bytes, found.mime, (found.width, found.height, None)
        elif isinstance(found, Recording):
            body, mime, read = content, found.mime, (None, None, None)
        else:
            body, mime, read = content, found.mime, (None, None, found.text)
        width, height, words = read
        row = await self._pool.fetchrow(
            *_KEEP(
                session_id=session_id, sha256=_digest(body), mime=mime, body=body, name=name,
                arrived_sha256=_digest(content), width=width, height=height, words=words,
                most_per_day=most_per_day,
            ),
        )  # fmt: skip
        if row is None:
            raise UploadLimitReached(f"session {session_id}")
        return _build_attached(row)

    @store_method
    async def load_for_message(self, session_id: int, ids: Sequence[str]) -> tuple[StoredUpload, ...]:
        """Return the files of a message in the order of `ids`, without their bytes.

        Raises UnknownFile unless all are of this session and were uploaded within REFERABLE_HOURS or shown
        before. `ids` are UUIDs as text.
        """
        wanted = [UUID(one) for one in ids]
        rows = await self._pool.fetch(*_OF_MESSAGE(session_id=session_id, public_ids=wanted))
        if len(rows) != len(wanted):
            raise UnknownFile(f"{len(wanted) - len(rows)} of {len(wanted)} files")
        return tuple(
            StoredUpload(attachment_id=row["id"], attached=_build_attached(row), words=row["words"])
            for row in rows
        )

    @store_method
    async def load_for_session(self, public_id: str, *, session_id: int) -> Served | None:
        """Return name, media type and bytes of a file; None if this session has no such file.

        An id that is no UUID counts as unknown.
        """
        return await self._load_served(_SERVED_TO_SESSION, public_id, session_id=session_id)

    @store_method
    async def load_for_operator(self, public_id: str) -> Served | None:
        """Return name, media type and bytes of a file of any session; None if it is unknown.

        The caller checks that the reader is an operator.
        """
        return await self._load_served(_SERVED, public_id)

    async def _load_served(self, statement: Named, public_id: str, **owner: int) -> Served | None:
        try:
            wanted = UUID(public_id)
        except ValueError:
            return None
        row = await self._pool.fetchrow(*statement(public_id=wanted, **owner))
        return None if row is None else Served(name=row["name"], mime=row["mime"], body=row["body"])


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _build_attached(row: asyncpg.Record) -> Attached:
    return build_value(Attached, row, id=row["public_id"].hex, cut=bool(row["cut"]))


_KNOWN = Named(
    """
UPDATE attachments a SET name = :name, created_at = greatest(now(), created_at)
 WHERE session_id = :session_id AND arrived_sha256 = :sha256 AND state = 'stored'
RETURNING a.id, a.public_id, a.name, a.mime, a.size, a.width, a.height, a.words,
       length(a.words) > :most_chars AND a.mime NOT LIKE 'audio/%' AS cut
""",
    most_chars=MOST_FILE_CHARS,
)
"""Rename a file that is stored already; `cut` says that a request has it in part."""
_KEEP = Named(
    """
INSERT INTO attachments AS a (session_id, sha256, mime, size, state, body, name, arrived_sha256,
                              width, height, words)
SELECT :session_id, :sha256, :mime, length(:body::bytea), 'stored', :body::bytea, :name, :arrived_sha256,
       :width, :height, :words
 WHERE (SELECT coalesce(sum(size), 0) FROM attachments
         WHERE session_id = :session_id
           AND created_at > now() - interval '1 day') + length(:body::bytea) <= :most_per_day::bigint
ON CONFLICT (session_id, arrived_sha256) DO UPDATE SET name = excluded.name, created_at = now()
RETURNING a.id, a.public_id, a.name, a.mime, a.size, a.width, a.height, a.words,
       length(a.words) > :most_chars AND a.mime NOT LIKE 'audio/%' AS cut
""",
    most_chars=MOST_FILE_CHARS,
)
"""Insert an uploaded file if the day's limit allows it; the same bytes again update the same row."""
_OF_MESSAGE = Named(
    """
SELECT a.id, a.public_id, a.name, a.mime, a.size, a.width, a.height, a.words,
       length(a.words) > :most_chars AND a.mime NOT LIKE 'audio/%' AS cut
  FROM unnest(:public_ids::uuid[]) WITH ORDINALITY AS w(public_id, place)
  JOIN attachments a USING (public_id)
 WHERE a.session_id = :session_id AND a.state = 'stored' AND a.arrived_sha256 IS NOT NULL
   AND (a.created_at > now() - make_interval(hours => :referable_hours) OR EXISTS (
         SELECT FROM entries e WHERE e.session_id = :session_id
            AND e.blocks @> jsonb_build_array(jsonb_build_object('attachment_id', a.id))))
 ORDER BY w.place
""",
    most_chars=MOST_FILE_CHARS,
    referable_hours=REFERABLE_HOURS,
)
"""Select the files that a message names, in its order: recent or already shown in the session."""
_SERVED = Named("""
SELECT name, mime, body FROM attachments
 WHERE public_id = :public_id AND state = 'stored' AND body IS NOT NULL
""")
_SERVED_TO_SESSION = Named("""
SELECT name, mime, body FROM attachments
 WHERE public_id = :public_id AND state = 'stored' AND body IS NOT NULL AND session_id = :session_id
""")
