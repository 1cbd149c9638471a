"""Stored settings of a process: loaded at its start, and followed while it runs.

Under `./evertalk up` the supervisor sends each process its new environment, so that no process gets a secret
of another. Without it, a process reads the table, whose changes PostgreSQL announces.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from shared.adapters.encryption import CannotUnseal
from shared.adapters.models.catalog import ModelsFileBroken, list_entries
from shared.adapters.postgres.db.pool import Pool, open_pool
from shared.adapters.postgres.db.readiness import PostgresReadiness
from shared.adapters.postgres.people.stored_settings import SettingsNews
from shared.bootstrap.configured_parts import Role
from shared.bootstrap.from_settings import build_policy, resolve_server_urls
from shared.bootstrap.stored_settings import build_stored_settings
from shared.config.bots import load_bots
from shared.config.settings import ORIGINS_NAME, BadSettings, Settings, list_setting_names, load_settings
from shared.config.stored import StoredSettings, list_storable, load_with_stored
from shared.core.session.policy import ContradictoryPolicy
from shared.core.values.errors import StorageUnavailable
from shared.supervision.given_environment import GivenEnvironment
from shared.supervision.process_secrets import works_with

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two checks of the version of the stored settings.

An announcement brings a check forward.
"""
UNUSABLE = (BadSettings, CannotUnseal, ContradictoryPolicy, ModelsFileBroken)
"""Errors that mean that a process cannot use its settings."""


class SettingsStore(Protocol):
    """Store of the settings that are kept in the database.

    `load_version` returns the version of the newest change, 0 if none was ever stored. `load` returns the
    stored values, of `names` only unless None; raises CannotUnseal.
    """

    async def load_version(self) -> int: ...
    async def load(self, names: frozenset[str] | None = None) -> StoredSettings: ...


class ChangeNews(Protocol):
    """Connection on which changes of the stored settings are announced."""

    async def wait(self, seconds: float) -> None:
        """Return when a change was announced, or after `seconds`."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedSettings:
    """Settings in force, and the version of the stored ones among them; None if the supervisor provides
    them.
    """

    settings: Settings
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChange:
    """New settings that a process must use, and the names of the environment variables that differ."""

    settings: Settings
    names: Sequence[str]


class ChangeFollower(Protocol):
    """Source from which a running process learns of changed settings."""

    async def wait_for_change(self) -> SettingsChange:
        """Return the next settings that differ from those in force and can be used; wait without limit."""

    async def close(self) -> None: ...


class PollOnly:
    """Substitute for announcements that only waits until the next check."""

    async def wait(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


class SettingsFollower:
    """Follower of the table with stored settings; an announcement only triggers a check."""

    def __init__(
        self,
        store: SettingsStore,
        followed: FollowedSettings,
        *,
        role: Role,
        news: ChangeNews | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._store = store
        self._settings = followed.settings
        self._version = followed.version
        self._role: Role = role
        self._news = news or PollOnly()
        self._look_seconds = look_seconds

    async def wait_for_change(self) -> SettingsChange:
        """Return the next stored settings that differ from those in force for this role; wait without limit.

        Values that cannot be used are logged, and the former settings stay in force. An unavailable database
        is waited for.
        """
        while True:
            await self._news.wait(self._look_seconds)
            try:
                if (change := await self._find_change()) is not None:
                    return change
            except StorageUnavailable:
                continue
            except UNUSABLE as error:
                log.error("stored_settings_unusable", reason=str(error))

    async def close(self) -> None:
        """Close the connection for announcements."""
        await self._news.close()

    async def _find_change(self) -> SettingsChange | None:
        if (version := await self._store.load_version()) == self._version:
            return None
        try:
            found = await self._store.load(_list_names(self._role))
            wanted = await asyncio.to_thread(load_usable, found, self._role)
        except UNUSABLE:
            self._version = version
            raise
        self._version = version
        names = list_changes(self._settings, wanted, self._role)
        if names:
            self._settings = wanted
        return SettingsChange(settings=wanted, names=names) if names else None


class EnvironmentFollower:
    """Follower of the environment that the supervisor sends on standard input."""

    def __init__(self, settings: Settings, given: GivenEnvironment, *, role: Role) -> None:
        self._settings = settings
        self._given = given
        self._role: Role = role

    async def wait_for_change(self) -> SettingsChange:
        """Apply each environment that arrives, and return the next settings that differ and can be used.

        Settings that cannot be used are logged; the former ones stay in force.
        """
        while True:
            apply_environment(json.loads(await self._given.read()))
            try:
                wanted = await asyncio.to_thread(load_settings)
                check_usable(wanted, self._role)
            except UNUSABLE as error:
                log.error("stored_settings_unusable", reason=str(error))
                continue
            if names := list_changes(self._settings, wanted, self._role):
                self._settings = wanted
                return SettingsChange(settings=wanted, names=names)

    async def close(self) -> None:
        """Stop reading standard input."""
        self._given.close()


def apply_environment(changes: Mapping[str, str | None]) -> None:
    """Set environment variables of this process; the value None deletes one."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def list_changes(former: Settings, wanted: Settings, role: Role) -> tuple[str, ...]:
    """Return the environment variables of settings that a process of this role uses and that differ."""
    return tuple(
        name
        for field, name in list_setting_names().items()
        if works_with(role, field) and getattr(former, field) != getattr(wanted, field)
    )


def load_usable(found: StoredSettings, role: Role) -> Settings:
    """Return the settings of this process, replaced by the stored values where there are any.

    Raises one of UNUSABLE if a process of this role cannot use them.
    """
    settings = load_with_stored(found.values)
    check_usable(settings, role)
    return settings


def check_usable(settings: Settings, role: Role) -> None:
    """Check settings for a process of this role: policy, models and, for the bot, its bots; return nothing.

    Raises one of UNUSABLE if a process cannot use them.
    """
    build_policy(settings)
    list_entries(settings)
    if role == "bot":
        load_bots(settings)


async def load_followed_settings(settings: Settings, *, role: Role) -> FollowedSettings:
    """Return `settings` with the stored values, which are loaded over a short connection.

    Under the supervisor, which has merged them already, `settings` is returned with None as version. Raises
    BadSettings, CannotUnseal, SchemaRefused and StorageUnavailable.
    """
    if ORIGINS_NAME in os.environ:
        return FollowedSettings(settings=settings, version=None)
    pool = await open_pool(resolve_server_urls(settings)[0], size=1)
    try:
        await PostgresReadiness(pool).refuse_unknown()
        found = await build_stored_settings(pool, settings).load(_list_names(role))
    finally:
        await pool.close()
    return FollowedSettings(
        settings=await asyncio.to_thread(load_with_stored, found.values) if found.version else settings,
        version=found.version,
    )


def build_follower(pool: Pool, followed: FollowedSettings, *, role: Role) -> ChangeFollower | None:
    """Return the follower of changed settings: of the supervisor's lines, or of the table if there is no
    supervisor.

    None if a supervisor started this process without a pipe for them.
    """
    if followed.version is None:
        given = GivenEnvironment.open()
        return None if given is None else EnvironmentFollower(followed.settings, given, role=role)
    store = build_stored_settings(pool, followed.settings)
    news = SettingsNews(resolve_server_urls(followed.settings)[0])
    return SettingsFollower(store, followed, role=role, news=news)


def _list_names(role: Role) -> frozenset[str]:
    """Return the names of settings that a process of this role uses; it decrypts no other secrets."""
    return frozenset(name for name, field in list_storable().items() if works_with(role, field))
