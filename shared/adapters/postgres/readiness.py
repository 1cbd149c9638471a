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


class PostgresReadiness:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._newest = newest_revision()

    @store_method
    async def is_migrated(self) -> bool:
        """False while the schema is older or newer than this program; raises StorageUnavailable."""
        try:
            found = await self._pool.fetchval("SELECT version_num FROM alembic_version")
        except asyncpg.UndefinedTableError:
            return False
        return bool(found == self._newest)
