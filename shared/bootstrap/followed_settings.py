"""Stored settings of a process that runs without our supervisor: read at its start, watched while it runs.
Under `./evertalk up` the supervisor passes stored settings on, so its processes read nothing here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from shared.adapters.encryption import CannotUnseal
from shared.adapters.models.catalog import ModelsFileBroken, list_entries
from shared.adapters.postgres.db.pool import Pool, open_pool
from shared.adapters.postgres.db.readiness import PostgresReadiness
from shared.bootstrap.foundation import Role
from shared.bootstrap.from_settings import build_policy, resolve_server_urls
from shared.bootstrap.stored_settings import build_stored_settings
from shared.config.bots import load_bots
from shared.config.settings import ORIGINS_NAME, BadSettings, Settings
from shared.config.stored import StoredSettings, list_storable, load_with_stored
from shared.core.session.policy import ContradictoryPolicy
from shared.core.values.errors import StorageUnavailable
from shared.supervision.process_secrets import works_with

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between looks at the version of the stored settings, as `up` looks."""
UNUSABLE = (BadSettings, CannotUnseal, ContradictoryPolicy, ModelsFileBroken)


class SettingsStore(Protocol):
    async def load_version(self) -> int: ...
    async def load(self, names: frozenset[str] | None = None) -> StoredSettings: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedSettings:
    """The settings in force, and the version of the stored ones among them; None if `up` gives them."""

    settings: Settings
    version: int | None


class SettingsFollower:
    """Compares what a process works with to what is stored; the table is the truth, so it asks the table."""

    def __init__(self, store: SettingsStore, followed: FollowedSettings, *, role: Role) -> None:
        self._store = store
        self._settings = followed.settings
        self._version = followed.version
        self._role = role

    async def wait_for_change(self, *, look_seconds: float = LOOK_SECONDS) -> Sequence[str]:
        """Return the names of changed settings once this process has to work with other values.

        Values that cannot be used change nothing: the former ones stay in force, and the log says why.
        """
        while True:
            await asyncio.sleep(look_seconds)
            try:
                if changed := await self._find_changes():
                    return changed
            except StorageUnavailable:
                continue
            except UNUSABLE as error:
                log.error("stored_settings_unusable", reason=str(error))

    async def _find_changes(self) -> Sequence[str]:
        if (version := await self._store.load_version()) == self._version:
            return ()
        try:
            found = await self._store.load(_names_for(self._role))
            wanted = await asyncio.to_thread(load_usable, found, self._role)
        except UNUSABLE:
            self._version = version
            raise
        self._version = version
        return tuple(
            name
            for name, field in list_storable().items()
            if works_with(self._role, field) and getattr(self._settings, field) != getattr(wanted, field)
        )


def load_usable(found: StoredSettings, role: Role) -> Settings:
    """Build the settings with the stored values; raises one of UNUSABLE if the process cannot use them."""
    settings = load_with_stored(found.values)
    build_policy(settings)
    list_entries(settings)
    if role == "bot":
        load_bots(settings)
    return settings


async def load_followed_settings(settings: Settings, *, role: Role) -> FollowedSettings:
    """Read the stored settings over a short connection.

    Raises BadSettings, CannotUnseal, SchemaRefused, StorageUnavailable.
    """
    if ORIGINS_NAME in os.environ:
        return FollowedSettings(settings=settings, version=None)
    pool = await open_pool(resolve_server_urls(settings)[0], size=1)
    try:
        await PostgresReadiness(pool).refuse_unknown()
        found = await build_stored_settings(pool, settings).load(_names_for(role))
    finally:
        await pool.close()
    return FollowedSettings(
        settings=await asyncio.to_thread(load_with_stored, found.values) if found.version else settings,
        version=found.version,
    )


def build_follower(pool: Pool, followed: FollowedSettings, *, role: Role) -> SettingsFollower | None:
    """Return None where the supervisor follows for its processes."""
    if followed.version is None:
        return None
    return SettingsFollower(build_stored_settings(pool, followed.settings), followed, role=role)


def _names_for(role: Role) -> frozenset[str]:
    """Return the names that the process works with: it opens no secret of another process."""
    return frozenset(name for name, field in list_storable().items() if works_with(role, field))
