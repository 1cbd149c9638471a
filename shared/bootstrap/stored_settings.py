"""Opens single stores for short tasks: stored settings, and the list of Telegram bots."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.adapters.encryption import Encryption
from shared.adapters.postgres.dashboard.telegram import PostgresTelegramBots
from shared.adapters.postgres.db.pool import Pool, open_pool
from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.config.settings import Settings, resolve_secret_key
from shared.config.stored import load_with_stored
from shared.runtime import build_crash_point


def build_stored_settings(pool: Pool, settings: Settings) -> PostgresStoredSettings:
    """Return the store of settings that are kept in the database.

    The secret key is read, or created, only to encrypt or decrypt a secret.
    """
    return PostgresStoredSettings(
        pool,
        encryption=functools.cache(lambda: Encryption(resolve_secret_key(settings))),
        crash_point=build_crash_point(settings.crash_point),
    )


async def load_in_force(database_url: str, settings: Settings) -> Settings:
    """Return the settings that running processes use: the stored ones, or `settings` if none are stored.

    The URLs of database and Redis and the data folder always come from `settings`. Raises BadSettings,
    CannotUnseal and StorageUnavailable.
    """
    async with open_stored_settings(database_url, settings) as store:
        found = await store.load()
    if not found.version:
        return settings
    kept = {name: getattr(settings, name) for name in ("database_url", "redis_url", "data_dir")}
    return await asyncio.to_thread(load_with_stored, found.values, **kept)


@asynccontextmanager
async def open_stored_settings(
    database_url: str, settings: Settings
) -> AsyncIterator[PostgresStoredSettings]:
    """Open the store of settings over a separate connection, which is closed at the end of the context.

    The secret key comes from `settings`. Raises StorageUnavailable.
    """
    pool = await open_pool(database_url, size=1)
    try:
        yield build_stored_settings(pool, settings)
    finally:
        await pool.close()


@asynccontextmanager
async def open_telegram_bots(database_url: str) -> AsyncIterator[PostgresTelegramBots]:
    """Open the store of Telegram bots over a separate connection, which is closed at the end of the context.

    Raises StorageUnavailable.
    """
    pool = await open_pool(database_url, size=1)
    try:
        yield PostgresTelegramBots(pool)
    finally:
        await pool.close()
