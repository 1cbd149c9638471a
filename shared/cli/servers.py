"""The servers that a verb needs: those of the settings, of the running Evertalk, or our own for a moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.embedded.servers import are_running, build_urls
from shared.config.settings import Settings


@asynccontextmanager
async def open_servers(settings: Settings, *, redis: bool = True) -> AsyncIterator[tuple[str, str]]:
    """Yield the URLs of PostgreSQL and Redis; embedded servers are started for the block if they do not run.

    Without `redis`, embedded Redis is not started, and its URL may be empty or unreachable. Raises
    EmbeddedServerFailed.
    """
    folder = settings.data_dir / "servers"
    wanted = EmbeddedChoice(postgres=settings.embedded_postgres, redis=redis and settings.embedded_redis)
    ours, started = ("", ""), None
    if wanted.postgres or wanted.redis:
        if not are_running(folder):
            started = EmbeddedServers(folder, wanted=wanted, account=settings.servers_account)
            await started.start()
        ours = build_urls(folder)
    try:
        database, bell = settings.database_url, settings.redis_url
        yield (
            database.get_secret_value() if database else ours[0], bell.get_secret_value() if bell else ours[1]
        )  # fmt: skip
    finally:
        if started is not None:
            await started.stop()


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[str]:
    """Yield the URL of PostgreSQL; the embedded server is started for the block if it does not run."""
    async with open_servers(settings, redis=False) as (database_url, _):
        yield database_url
