"""Store of settings that operators change in the dashboard.

Changes are compare-and-set with an audit entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import asyncpg

from shared.adapters.encryption import CannotUnseal, Encryption, Sealed
from shared.adapters.postgres.db.connecting import CANNOT_CONNECT, connect
from shared.adapters.postgres.db.pool import Named, Pool, PoolStore, build_value, store_method
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.config.stored import StoredSetting, StoredSettings, is_sealed
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CrashPoint

CHANNEL = "evertalk_settings"
"""Name of the NOTIFY channel on which changes are announced."""
RECONNECT_SECONDS = 10.0
"""Seconds between attempts to listen again after the connection was lost."""
LISTEN_SECONDS = 2.0
"""Maximum seconds for opening the connection, and for its LISTEN."""


class PostgresStoredSettings(PoolStore):
    """Store of settings that operators change.

    Each method is one transaction and raises StorageUnavailable.
    """

    def __init__(self, pool: Pool, *, encryption: Callable[[], Encryption], crash_point: CrashPoint) -> None:
        super().__init__(pool)
        self._encryption = encryption
        self._crash_point = crash_point

    @store_method
    async def load_version(self) -> int:
        """Return the version of the newest change; 0 if no setting was ever stored."""
        return int(await self._pool.fetchval(_VERSION))

    @store_method
    async def load(self, names: frozenset[str] | None = None) -> StoredSettings:
        """Return the settings in `names`, or all if None, with decrypted secrets, to use them.

        The version is always that of the newest change of any setting. Raises CannotUnseal, which names every
        secret of these settings that the key cannot decrypt.
        """
        found = await self._load(names)
        if found.unreadable:
            raise CannotUnseal("; ".join(f"{row.name}: {row.fault}" for row in found.rows if row.fault))
        return found

    @store_method
    async def load_readable(self, names: frozenset[str] | None = None) -> StoredSettings:
        """Return the settings in `names`, or all if None, to show or change them.

        A secret that the key cannot decrypt has its `fault` and no text. The version is always that of the
        newest change of any setting.
        """
        return await self._load(names)

    @store_method
    async def change(self, changes: Mapping[str, str | None], *, seen: int, by: str) -> int | None:
        """Store settings, by environment name, in one transaction and return the new version.

        A value of None or "" removes a setting. Secrets are sealed. The change is appended to the audit log
        and announced to all processes. `seen` is the version that the operator `by` saw; if a newer one is
        stored, nothing changes and the result is None.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("LOCK TABLE stored_settings IN SHARE ROW EXCLUSIVE MODE", timeout=10)
            if await connection.fetchval(_VERSION) != seen:
                return None
            for name, text in sorted(changes.items()):
                await self._write(connection, name, text, version=seen + 1, by=by)
            self._crash_point("mid_settings")
            detail = {"names": sorted(changes), "version": seen + 1}
            await append_audit(
                connection, actor=by, action="settings.changed", about="settings", detail=detail
            )
            await connection.execute(*_ANNOUNCE(payload=str(seen + 1)))
        return seen + 1

    async def _write(self, connection: Any, name: str, text: str | None, *, version: int, by: str) -> None:
        sealed = (
            self._encryption().seal(text.encode(), about=_about(name)) if text and is_sealed(name) else None
        )
        plain = None if sealed or not text else text
        key, data = (sealed.key_id, sealed.data) if sealed else (None, None)
        await connection.execute(
            *_WRITE(
                name=name,
                value=plain,
                key_id=key,
                sealed=data,
                version=version,
                by=by,
            )
        )

    async def _load(self, names: frozenset[str] | None) -> StoredSettings:
        rows = await self._pool.fetch(_ROWS)
        found = [self._build_setting(row) for row in rows if names is None or row["name"] in names]
        return StoredSettings(version=max((row["version"] for row in rows), default=0), rows=tuple(found))

    def _build_setting(self, row: asyncpg.Record) -> StoredSetting:
        text, fault = row["value"], ""
        if row["sealed"] is not None:
            sealed = Sealed(key_id=row["key_id"], data=row["sealed"])
            try:
                text = self._encryption().open(sealed, about=_about(row["name"])).decode()
            except CannotUnseal as error:
                fault = str(error)
        return build_value(StoredSetting, row, text=text, fault=fault)


class SettingsNews:
    """Listener for changes of settings, by PostgreSQL's NOTIFY on a separate connection.

    Announcements can be lost, and a pooler drops all of them, so callers must also poll the version.
    """

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._changed = asyncio.Event()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._next_try = 0.0

    async def wait(self, seconds: float) -> None:
        """Wait until a change is announced, for `seconds` at most; raises nothing if it cannot listen.

        The caller does not learn which of both happened, and polls the version in either case.
        """
        await self._listen()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def close(self) -> None:
        """Close the connection that listens, if there is one; drop it if the server does not answer."""
        if self._connection is not None:
            with contextlib.suppress(*CANNOT_CONNECT):
                await self._connection.close(timeout=2)

    async def _listen(self) -> None:
        now = time.monotonic()
        if now < self._next_try or not (self._connection is None or self._connection.is_closed()):
            return
        self._next_try = now + RECONNECT_SECONDS
        with contextlib.suppress(StorageUnavailable, *CANNOT_CONNECT):
            self._connection = await self._open_listener()

    async def _open_listener(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return a connection that listens; one that cannot listen is closed before its error is raised."""
        connection = await connect(self._database_url, timeout=LISTEN_SECONDS)
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                await connection.add_listener(CHANNEL, lambda *_: self._changed.set())
        except BaseException:
            connection.terminate()
            raise
        return connection


def _about(name: str) -> str:
    return f"setting:{name}"


_ANNOUNCE = Named("SELECT pg_notify(:channel, :payload)", channel=CHANNEL)
_VERSION = "SELECT coalesce(max(version), 0) FROM stored_settings"
_ROWS = "SELECT * FROM stored_settings ORDER BY name"
_WRITE = Named("""
INSERT INTO stored_settings (name, value, key_id, sealed, version, changed_by)
VALUES (:name, :value, :key_id, :sealed, :version, :by)
ON CONFLICT (name) DO UPDATE SET value = :value, key_id = :key_id, sealed = :sealed, version = :version,
   changed_by = :by,
                                 changed_at = now()
""")
