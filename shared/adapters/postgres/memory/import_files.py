"""Store of exports that people upload in pieces, until the worker has imported them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.core.memory.past import MOST_FILES, FileState, FoundPast, ImportFile
from shared.core.values.errors import BadInput, UnknownSession

LEASE_SECONDS = 30
"""Seconds after which another worker may claim the file of a worker that died."""


class TooManyImports(BadInput):
    """The deployment is already receiving or importing MOST_FILES files."""

    sentence = "The deployment receives as many files as it may."
    code = "too_many_imports"


class PostgresImportFiles(PoolStore):
    """Store of uploads; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def begin(self, session_id: int, *, size: int, mark: str) -> ImportFile:
        """Return the upload of this file by the session's person: an interrupted one, else a new one.

        `size` is in bytes; `mark` identifies the file. Another upload of the person is deleted, unless it is
        being imported: then that one is returned. Raises TooManyImports and UnknownSession.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            contact_id = await connection.fetchval(*_PERSON(session_id=session_id))
            if contact_id is None:
                raise UnknownSession(f"session {session_id}")
            row = await connection.fetchrow(*_FIND(contact_id=contact_id))
            if row is not None and (row["state"] == "importing" or _is_same(row, size, mark)):
                return _file(row)
            if row is not None:
                await connection.execute(*_DELETE(file_id=row["id"]))
            if await connection.fetchval(*_COUNT()) >= MOST_FILES:
                raise TooManyImports(f"{MOST_FILES} files are being imported", advice="Try again in an hour.")
            new = await connection.fetchrow(
                *_NEW(session_id=session_id, contact_id=contact_id, size=size, mark=mark)
            )
            return _file(new)

    @store_method
    async def find(self, session_id: int) -> ImportFile | None:
        """Return the newest upload of a session's person; None if there is none."""
        row = await self._pool.fetchrow(*_OF_SESSION(session_id=session_id))
        return None if row is None else _file(row)

    @store_method
    async def add_piece(self, file: ImportFile, start: int, body: bytes) -> int | None:
        """Store the piece that begins at byte `start`.

        Returns the bytes received so far, or None if the upload was deleted. A piece that is already
        stored, or would leave a gap, changes nothing.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(*_LOCK(file_id=file.id))
            if row is None:
                return None
            received: int = row["received"]
            if row["state"] != "receiving" or start != received or start + len(body) > row["size"]:
                return received
            await connection.execute(
                *_ADD(file_id=file.id, start=start, session_id=row["session_id"], body=body)
            )
            advanced: int = await connection.fetchval(*_ADVANCE(file_id=file.id, bytes=len(body)))
        return advanced

    @store_method
    async def start(self, file: ImportFile, *, me: str) -> bool:
        """Queue an examined file for import; return False, without effect, unless its state is "ready".

        `me` is the person's name in the export.
        """
        return await self._pool.fetchval(*_START(file_id=file.id, me=me)) is not None

    @store_method
    async def delete(self, file: ImportFile) -> None:
        """Delete an upload with its pieces; a worker that imports it stops at its next write."""
        await self._pool.execute(*_DELETE(file_id=file.id))

    @store_method
    async def claim(self) -> ImportFile | None:
        """Claim and return a file that waits to be examined or imported, or whose worker died.

        No other worker gets it for LEASE_SECONDS. Returns None if there is none.
        """
        row = await self._pool.fetchrow(*_CLAIM(seconds=LEASE_SECONDS))
        return None if row is None else _file(row)

    @store_method
    async def extend(self, file: ImportFile, *, stored: int) -> bool:
        """Extend the claim by LEASE_SECONDS and store the number of imported messages.

        Returns False if the claim is lost or the file was deleted.
        """
        found = await self._pool.fetchval(
            *_EXTEND(file_id=file.id, epoch=file.epoch, stored=stored, seconds=LEASE_SECONDS)
        )
        return found is not None

    @store_method
    async def exists(self, file: ImportFile) -> bool:
        """Return whether a file still exists."""
        return await self._pool.fetchval(*_EXISTS(file_id=file.id)) is not None

    @store_method
    async def load_piece(self, file: ImportFile, start: int) -> bytes | None:
        """Return the piece that begins at byte `start`; None if there is none."""
        body: bytes | None = await self._pool.fetchval(*_PIECE(file_id=file.id, start=start))
        return body

    @store_method
    async def finish(
        self, file: ImportFile, state: FileState, *, found: FoundPast | None = None, error: str = "",
        stored: int = 0,
    ) -> bool:  # fmt: skip
        """End a claim with the file's new state; return False if the claim is lost or the file was deleted.

        `found` is what the file contains, None keeps the stored value; `error` is "" without one; `stored` is
        the number of imported messages. The pieces of a file that is done or has failed are deleted.
        """
        source, numbers = (None, None) if found is None else (found.source, _numbers(found))
        async with self._pool.acquire() as connection, connection.transaction():
            ended = await connection.fetchval(
                *_FINISH(
                    file_id=file.id, epoch=file.epoch, state=state, source=source, found=numbers, error=error,
                    stored=stored,
                )
            )  # fmt: skip
            if ended is not None and state in ("done", "failed"):
                await connection.execute(*_DELETE_PIECES(file_id=file.id))
        return ended is not None


def _is_same(row: Any, size: int, mark: str) -> bool:
    return row["size"] == size and row["mark"] == mark and row["state"] not in ("done", "failed")


def _numbers(found: FoundPast) -> dict[str, Any]:
    return {
        "messages": found.messages, "chats": found.chats,
        "first_at": found.first_at and found.first_at.isoformat(),
        "last_at": found.last_at and found.last_at.isoformat(),
    }  # fmt: skip


def _file(row: Any) -> ImportFile:
    found: Mapping[str, Any] | None = row["found"]
    return ImportFile(
        id=row["id"], public_id=str(row["public_id"]), session_id=row["session_id"], size=row["size"],
        received=row["received"], state=row["state"], source=row["source"],
        found=None if found is None or row["source"] is None else FoundPast(
            source=row["source"], messages=found["messages"], chats=found["chats"],
            first_at=_moment(found["first_at"]), last_at=_moment(found["last_at"]),
        ),
        me=row["me"], error=row["error"], stored=row["stored"], epoch=row["epoch"],
    )  # fmt: skip


def _moment(at: str | None) -> datetime | None:
    return None if at is None else datetime.fromisoformat(at)


_PERSON = Named("""
SELECT r.id FROM sessions s JOIN contacts p ON p.id = s.contact_id
  JOIN contacts r ON r.id = coalesce(p.merged_into, p.id) WHERE s.id = :session_id FOR NO KEY UPDATE OF r
""")
"""Select a session's person and lock the row, so that only one upload is begun."""
_FIND = Named("SELECT * FROM import_files WHERE contact_id = :contact_id FOR UPDATE")
_COUNT = Named("SELECT count(*) FROM import_files WHERE state NOT IN ('done', 'failed')")
_NEW = Named("""
INSERT INTO import_files (session_id, contact_id, size, mark)
VALUES (:session_id, :contact_id, :size, :mark) RETURNING *
""")
_OF_SESSION = Named("""
SELECT f.* FROM import_files f JOIN contacts r ON r.id = f.contact_id
  JOIN sessions s ON s.id = :session_id AND s.contact_id IN (SELECT contact_family(r.id))
 ORDER BY f.id DESC LIMIT 1
""")
_LOCK = Named("SELECT * FROM import_files WHERE id = :file_id FOR UPDATE")
_ADD = Named("""
INSERT INTO import_pieces (file_id, start, session_id, body) VALUES (:file_id, :start, :session_id, :body)
""")
_ADVANCE = Named("""
UPDATE import_files SET received = received + :bytes, touched_at = now(),
       state = CASE WHEN received + :bytes = size THEN 'looking' ELSE state END
 WHERE id = :file_id RETURNING received
""")
_START = Named("""
UPDATE import_files SET state = 'importing', me = :me, touched_at = now(), leased_until = NULL
 WHERE id = :file_id AND state = 'ready' RETURNING id
""")
_DELETE = Named("DELETE FROM import_files WHERE id = :file_id")
_CLAIM = Named("""
UPDATE import_files f SET epoch = epoch + 1, leased_until = now() + make_interval(secs => :seconds)
 WHERE id = (SELECT id FROM import_files
              WHERE state IN ('looking', 'importing') AND coalesce(leased_until, '-infinity') < now()
              ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *
""")
"""Claim a file for one worker; later writes must carry the epoch of the claim."""
_EXTEND = Named("""
UPDATE import_files SET leased_until = now() + make_interval(secs => :seconds), touched_at = now(),
       stored = greatest(stored, :stored)
 WHERE id = :file_id AND epoch = :epoch RETURNING id
""")
_EXISTS = Named("SELECT id FROM import_files WHERE id = :file_id")
_PIECE = Named("SELECT body FROM import_pieces WHERE file_id = :file_id AND start = :start")
_FINISH = Named("""
UPDATE import_files SET state = :state, source = coalesce(:source, source), found = coalesce(:found, found),
       error = :error, stored = greatest(stored, :stored), leased_until = NULL, touched_at = now()
 WHERE id = :file_id AND epoch = :epoch RETURNING id
""")
_DELETE_PIECES = Named("DELETE FROM import_pieces WHERE file_id = :file_id")
