"""State of a database's schema relative to this program's, determined without importing Alembic."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.core.values.errors import EvertalkError
from shared.runtime import read_version

LEAST_POSTGRES = 15
"""Oldest supported major version of PostgreSQL; tests of upgrades begin with it."""
VERSIONS = Path(__file__).resolve().parents[4] / "migrations" / "versions"
"""Folder of the migrations from 0044 on."""
FORMER = VERSIONS.with_name("former")
"""Folder of migrations for schemas before 0044; only data with such a schema needs them."""
BRIDGE_END = "0044"
"""Last former revision; `versions/0044_first.py` creates the same schema in an empty database."""
FLOOR = "0001"
"""Oldest schema that this version upgrades. Raise it only for a new numbered version; see CONTRIBUTING.md."""
RELEASED = VERSIONS.with_name("released.json")
"""JSON file with `floor` and `newest` of each numbered version, oldest first."""
_REVISION = re.compile(r"""^(revision|down_revision)(?:\s*:[^=]+)?\s*=\s*["']([^"']+)["']""", re.MULTILINE)


class SchemaRefused(EvertalkError):
    """Base of errors about data whose schema this program can neither upgrade nor use."""

    sentence = "This program can neither upgrade nor use the schema of the data."


class SchemaUnknown(SchemaRefused):
    """The data's revision is neither one of this program's nor a later number."""

    sentence = "Neither this program, nor a former one, nor a later one made this schema."
    code = "schema_unknown"


class SchemaTooOld(SchemaRefused):
    """The data's revision is below FLOOR; an earlier version has to upgrade the data first."""

    sentence = "An earlier version has to upgrade the data first."
    code = "schema_too_old"


class Standing(StrEnum):
    """Relation of a database's schema to that of this program.

    EMPTY: no schema. SAME: the newest revision of this program. OLDER: a revision that this program upgrades.
    BELOW_FLOOR: too old to upgrade. NEWER: a higher number, of a later version. UNKNOWN: any other revision.
    Only BELOW_FLOOR and UNKNOWN are refused.
    """

    EMPTY = "empty"
    SAME = "same"
    OLDER = "older"
    BELOW_FLOOR = "below_floor"
    NEWER = "newer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Schemas that a numbered version upgrades: from `floor` on, to `newest`, which it creates."""

    version: str
    floor: str
    newest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """Schema of a database or backup, next to what this program can upgrade.

    `found` is the revision of the data, None without a schema; `newest` and `floor` are this program's newest
    and oldest revision. `made_by` is the version that made the data, None if unknown.
    """

    found: str | None
    newest: str
    floor: str
    made_by: str | None
    known: frozenset[str]
    """Revisions that this program can upgrade, including the newest one."""

    @property
    def standing(self) -> Standing:
        """Relation of the schema to the schemas that this program can use."""
        if self.found is None:
            return Standing.EMPTY
        if self.found == self.newest:
            return Standing.SAME
        if is_newer(self.found, self.newest):
            return Standing.NEWER
        if self.found.isdigit() and self.found < self.floor:
            return Standing.BELOW_FLOOR
        return Standing.OLDER if self.found in self.known else Standing.UNKNOWN

    def describe(self) -> str:
        """Return one line for people: the schema that the data have, and what this version can do with it."""
        ours = f"this version ({read_version()})"
        by = f" of Evertalk {self.made_by}" if self.made_by else ""
        match self.standing:
            case Standing.EMPTY:
                return f"there is no schema yet, {self.newest} is the newest"
            case Standing.SAME:
                return f"schema is at revision {self.found}, the newest of {ours}"
            case Standing.OLDER:
                return f"schema is at {self.found}{by}; {ours} upgrades it to {self.newest}"
            case Standing.NEWER:
                return f"schema is at {self.found}{by}, newer than {ours}, whose schema is {self.newest}"
            case Standing.BELOW_FLOOR:
                return f"schema is at {self.found}{by}; {ours} upgrades from {self.floor} on"
            case Standing.UNKNOWN:
                known = f"it knows {self.floor} to {self.newest}"
                return f"schema is at {self.found}, which {ours} does not know; {known}"

    def describe_change(self) -> str:
        """Return the line to print after this schema was upgraded, or left as it was."""
        ours = f"{self.newest} of Evertalk {read_version()}"
        match self.standing:
            case Standing.EMPTY:
                return f"Schema {ours} is there."
            case Standing.SAME:
                return f"The {self.describe()}: nothing had to change."
            case Standing.NEWER:
                return f"The {self.describe()}: it stays as it is."
        by = f" of Evertalk {self.made_by}" if self.made_by else ""
        return f"Schema {self.found}{by} → {ours}."

    def find_refusal(self) -> SchemaRefused | None:
        """Return the error that forbids this program to use the data; None if it may use them."""
        if self.standing is Standing.BELOW_FLOOR:
            return SchemaTooOld(self.describe(), advice=self.describe_stop())
        if self.standing is Standing.UNKNOWN:
            return SchemaUnknown(
                self.describe(),
                advice="Start the program that made the data, or restore a backup of Evertalk: "
                "./evertalk restore FILE",
            )
        return None

    def refuse(self) -> None:
        """Raise SchemaUnknown or SchemaTooOld if this program must not use the data."""
        if (refusal := self.find_refusal()) is not None:
            raise refusal

    def describe_stop(self) -> str:
        """Return advice that names the version to upgrade with before this one.

        Only for data that have a schema, of a revision below the floor.
        """
        assert self.found is not None
        stop = find_stop(self.found, floor=self.floor)
        if stop is None:
            return "No version on the way is known. Start the version that made the data."
        return (
            f"Stop at Evertalk {stop} first: install it, run ./evertalk upgrade, then install this version."
        )


def find_stop(found: str, *, floor: str, releases: tuple[Release, ...] | None = None) -> str | None:
    """Return the newest version that upgrades schema `found` to `floor` or later; None if none does.

    `releases` are the versions to choose from, oldest first; None means all numbered versions.
    """
    for release in reversed(load_releases() if releases is None else releases):
        if release.floor <= found <= release.newest and release.newest >= floor:
            return release.version
    return None


def find_version(revision: str) -> str | None:
    """Return the first numbered version that has a revision.

    Returns None if this program does not know the revision, or no numbered version has it yet.
    """
    if revision not in list_revisions():
        return None
    return next((release.version for release in load_releases() if revision <= release.newest), None)


@cache
def load_releases() -> tuple[Release, ...]:
    """Return the numbered versions, oldest first, read once from RELEASED."""
    released = json.loads(RELEASED.read_text())
    return tuple(
        Release(version=version, floor=one["floor"], newest=one["newest"])
        for version, one in released.items()
    )


def find_newest_revision(versions: Path = VERSIONS) -> str:
    """Return the newest revision in a folder: the one that no other builds on.

    Raises ValueError if there is not exactly one.
    """
    named = _parse_migrations(versions)
    (newest,) = named["revision"] - named["down_revision"]
    return newest


@cache
def list_revisions() -> frozenset[str]:
    """Return all revisions that this program can upgrade, former ones and the newest included."""
    return frozenset(_parse_migrations(FORMER)["revision"] | _parse_migrations(VERSIONS)["revision"])


def build_schema_state(found: str | None, *, made_by: str | None = None) -> SchemaState:
    """Return the state of data with revision `found`; None means data without a schema.

    `made_by` is the version that the data name; it counts only if no numbered version has the revision.
    """
    named = (find_version(found) or made_by) if found is not None else None
    return SchemaState(
        found=found, newest=find_newest_revision(), floor=FLOOR, made_by=named, known=list_revisions()
    )


async def load_schema_state(connection: asyncpg.Connection[asyncpg.Record]) -> SchemaState:
    """Return the state of a database's schema; reads only. Raises exceptions of asyncpg."""
    if not await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL", timeout=10):
        return build_schema_state(None)
    found: str | None = await connection.fetchval("SELECT version_num FROM alembic_version", timeout=10)
    return build_schema_state(found, made_by=await _load_made_by(connection))


async def _load_made_by(connection: asyncpg.Connection[asyncpg.Record]) -> str | None:
    """Return the version that migrated last; None for schemas before 0062, which do not store it."""
    if not await connection.fetchval("SELECT to_regclass('deployment') IS NOT NULL", timeout=10):
        return None
    stored: str | None = await connection.fetchval(
        "SELECT to_jsonb(d) ->> 'migrated_by' FROM deployment d", timeout=10
    )
    return (stored or "")[:40] or None


def _parse_migrations(versions: Path) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for path in versions.glob("*.py"):
        for kind, value in _REVISION.findall(path.read_text()):
            named[kind].add(value)
    return named


def is_newer(found: str | None, than: str) -> bool:
    """Return whether the revision `found` is a later number than `than`.

    Returns False if `found` is None or no number.
    """
    return found is not None and found.isdigit() and int(found) > int(than)


class PostgresReadiness:
    """Check whether the database's schema fits this program."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._newest = find_newest_revision()

    @store_method
    async def is_migrated(self) -> bool:
        """Return whether the schema is as new as this program's or newer. Raises StorageUnavailable.

        Returns False for a database without a schema. A newer schema is usable: processes of the old version
        work until those of the new one run.
        """
        found = await self._load_revision()
        return (found is not None and bool(found == self._newest)) or is_newer(found, self._newest)

    @store_method
    async def refuse_unknown(self) -> None:
        """Raise SchemaUnknown or SchemaTooOld if this program must not use the schema.

        A database without a schema is not refused. Call it before other tables are read. Raises
        StorageUnavailable if the database does not answer.
        """
        build_schema_state(await self._load_revision()).refuse()

    async def _load_revision(self) -> str | None:
        try:
            found: str | None = await self._pool.fetchval("SELECT version_num FROM alembic_version")
        except asyncpg.UndefinedTableError:
            return None
        return found
