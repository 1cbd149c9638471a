"""Whether the database has the schema that this program was written for, without importing Alembic."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg

from shared.adapters.postgres.pool import store_method

LEAST_POSTGRES = 15
"""Of the server's major versions: what our statements need, and what the tests of an upgrade begin with."""
VERSIONS = Path(__file__).resolve().parents[3] / "migrations" / "versions"
_REVISION = re.compile(r"""^(revision|down_revision)(?:\s*:[^=]+)?\s*=\s*["']([^"']+)["']""", re.MULTILINE)


def newest_revision(versions: Path = VERSIONS) -> str:
    """The revision that no other one builds on."""
    named: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for path in versions.glob("*.py"):
        for kind, value in _REVISION.findall(path.read_text()):
            named[kind].add(value)
    (newest,) = named["revision"] - named["down_revision"]
    return newest


def is_newer(found: str | None, than: str) -> bool:
    """Made by a later version of the program, which only adds: revisions are numbered."""
    return found is not None and found.isdigit() and int(found) > int(than)


class PostgresReadiness:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._newest = newest_revision()

    @store_method
    async def is_migrated(self) -> bool:
        """False while the schema is older than this program; raises StorageUnavailable.

        One that is newer does for it, too: this process works on until those of the new version are there.
        """
        try:
            found = await self._pool.fetchval("SELECT version_num FROM alembic_version")
        except asyncpg.UndefinedTableError:
            return False
        return bool(found == self._newest) or is_newer(found, self._newest)
