"""Store that reads the log of erasures, and repeats erasures in a restored database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.memory.notes import erase_notes
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.core.privacy.erasures import AGAIN, Erased

_PAGE = 1_000
"""Entries of one page."""
_OVERLAP = 200
"""Number of ids before the last read one that are read again.

An id is given when an erasure begins, but visible at its commit.
"""


class PostgresErasureLog(PoolStore):
    """Store of the log of erasures. It raises StorageUnavailable."""

    @store_method
    async def is_kept(self) -> bool:
        """Return whether the schema has the log.

        Returns False for old schemas, which a backup before an upgrade meets.
        """
        return bool(await self._pool.fetchval("SELECT to_regclass('erasures') IS NOT NULL"))

    @store_method
    async def list_since(self, number: int) -> tuple[list[Erased], int]:
        """Return a page of log entries after the id `number`, and the number for the next page.

        At the end, that is the same number. A page repeats some entries before `number`, which may have been
        committed late. Repetitions of erasures are left out.
        """
        rows = await self._pool.fetch(*_SINCE(after=max(0, number - _OVERLAP), again=AGAIN, limit=_PAGE))
        last = max((row["id"] for row in rows), default=number)
        return [_parse_entry(row) for row in rows], max(last, number)

    async def list_all(self) -> list[Erased]:
        """Return all entries of the log, each once, oldest first."""
        found: dict[Any, Erased] = {}
        number = 0
        while True:
            page, last = await self.list_since(number)
            found |= {one.key: one for one in page}
            if last == number:
                return list(found.values())
            number = last

    async def reapply(self, logged: Sequence[Erased]) -> int:
        """Repeat the erasures of `logged` that this database lacks, oldest first, and return their number.

        Each is stored in the log, and unfinished erasures are completed. The database must not be in use.
        """
        known = {one.key for one in await self.list_all()}
        missing = sorted((one for one in logged if one.key not in known), key=lambda one: one.at)
        for one in missing:
            await self._reapply_one(one)
            await self._pool.execute(
                *_KEEP(at=one.at, contact_hash=one.contact, scope=one.scope, about=dict(one.about))
            )
        await self._finish()
        return len(missing)

    async def _reapply_one(self, one: Erased) -> None:
        match one.scope:
            case "everything":
                for digest in {one.contact, *map(bytes.fromhex, one.about.get("family", ()))}:
                    await self._erase_person(digest)
            case "retention" | "import":
                if (session := await self._session(one)) is not None:
                    await self._erasure.start_erasure(session, actor=AGAIN, scope=one.scope)
                    await self._finish()
            case "messages":
                if (session := await self._session(one)) is not None:
                    await self._erasure.erase_messages(session, list(one.about["seqs"]), actor=AGAIN)
            case "notes":
                await self._notes(one)

    async def _erase_person(self, digest: bytes) -> None:
        for row in await self._pool.fetch(*_SESSION_OF_CONTACT(contact_hash=digest)):
            await self._erasure.start_erasure(row["id"], actor=AGAIN)
            await self._finish()

    async def _session(self, one: Erased) -> int | None:
        public_id = one.about.get("session")
        if public_id is None:
            return None
        found: int | None = await self._pool.fetchval(*_SESSION(public_id=UUID(public_id)))
        return found

    async def _notes(self, one: Erased) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            ids = [UUID(public_id) for public_id in one.about.get("notes", ())]
            rows = await connection.fetch(*_NOTES(public_ids=ids))
            for contact_id in {row["contact_id"] for row in rows}:
                mine = [row for row in rows if row["contact_id"] == contact_id]
                await erase_notes(connection, contact_id, mine, actor=AGAIN)

    async def _finish(self) -> None:
        for erasure_id in await self._erasure.list_running():
            while await self._erasure.advance(erasure_id) is None:
                pass

    @property
    def _erasure(self) -> PostgresErasure:
        return PostgresErasure(self._pool)


def _parse_entry(row: asyncpg.Record) -> Erased:
    return Erased(
        at=row["at"], contact=bytes(row["contact_hash"]), scope=row["scope"], about=row["about"] or {}
    )


_SINCE = Named("""
SELECT e.id, e.at, coalesce(x.r ->> 'contact_hash', x.r ->> 'party_hash')::bytea AS contact_hash, e.scope,
       x.r -> 'about' AS about
  FROM erasures e CROSS JOIN LATERAL (SELECT to_jsonb(e)) AS x(r)
 WHERE e.id > :after AND e.actor <> :again ORDER BY e.id LIMIT :limit
""")
"""Select entries, also of a schema with former column names or without `about`."""

_KEEP = Named("""
INSERT INTO erasures (at, contact_hash, actor, scope, state, about, finished_at)
VALUES (:at, :contact_hash, 'log', :scope, 'done', :about, clock_timestamp())
""")
"""Insert the entry of a repeated erasure, so that later backups have it."""

_SESSION_OF_CONTACT = Named("""
SELECT min(s.id) AS id FROM contacts p
  JOIN sessions s ON s.contact_id IN (SELECT contact_family(coalesce(p.merged_into, p.id)))
 WHERE sha256(convert_to('evertalk.erasures:' || p.public_id::text, 'UTF8')) = :contact_hash
HAVING min(s.id) IS NOT NULL
""")

_SESSION = Named("SELECT id FROM sessions WHERE public_id = :public_id")

_NOTES = Named("SELECT * FROM notes WHERE public_id = ANY (:public_ids::uuid[]) AND text <> '' ORDER BY id")
