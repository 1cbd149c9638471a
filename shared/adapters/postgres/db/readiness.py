"""Whether the database has the schema that this program was written for, without importing Alembic."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.core.values.errors import EvertalkError

LEAST_POSTGRES = 15
"""Of the server's major versions: what our statements need, and what the tests of an upgrade begin with."""
VERSIONS = Path(__file__).resolve().parents[4] / "migrations" / "versions"
_REVISION = re.compile(r"""^(revision|down_revision)(?:\s*:[^=]+)?\s*=\s*["']([^"']+)["']""", re.MULTILINE)


class SchemaUnknown(EvertalkError):
    """Neither a schema of this program, of one before it, nor of a later one."""

    code = "schema_unknown"

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the data have the schema {found}, which this version ({find_newest_revision()}) does not know",
            advice="Start the version that made them, or put back a backup of ours: ./evertalk restore FILE",
        )


def find_newest_revision(versions: Path = VERSIONS) -> str:
    """The revision that no other one builds on."""
    named = _parse_migrations(versions)
    (newest,) = named["revision"] - named["down_revision"]
    return newest


def refuse_unknown(found: str | None) -> None:
    """Raises SchemaUnknown; no schema at all is a beginning."""
    if (
        found is None
        or found in _parse_migrations(VERSIONS)["revision"]
        or is_newer(found, find_newest_revision())
    ):
        return
    raise SchemaUnknown(found)


def _parse_migrations(versions: Path) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for path in versions.glob("*.py"):
        for kind, value in _REVISION.findall(path.read_text()):
            named[kind].add(value)
    return named


def is_newer(found: str | None, than: str) -> bool:
    """Made by a later version of the program, which only adds: revisions are numbered."""
    return found is not None and found.isdigit() and int(found) > int(than)


class PostgresReadiness:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._newest = find_newest_revision()

    @store_method
    async def is_migrated(self) -> bool:
        """False while the schema is older than this program; raises StorageUnavailable.

        One that is newer does for it, too: this process works on until those of the new version are there.
        """
        found = await self._load_revision()
        return (found is not None and bool(found == self._newest)) or is_newer(found, self._newest)

    @store_method
    async def refuse_unknown(self) -> None:
        """Raises SchemaUnknown before anything is asked of tables that may not be there."""
        refuse_unknown(await self._load_revision())

    async def _load_revision(self) -> str | None:
        try:
            found: str | None = await self._pool.fetchval("SELECT version_num FROM alembic_version")
        except asyncpg.UndefinedTableError:
            return None
        return found
