"""The connections to Postgres, and how its failures are told to the services."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import asyncpg

from shared.adapters.postgres.urls import asyncpg_url, place_of
from shared.core.errors import StorageUnavailable

P = ParamSpec("P")
T = TypeVar("T")

STATEMENT_SECONDS = 10.0
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.QueryCanceledError,
    asyncpg.InterfaceError,
    asyncpg.PostgresIOError,
    OSError,
    TimeoutError,
)
_NOT_FOR_US = (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_TRIES = 4


class _Connection(asyncpg.Connection):
    """Given back as it is: nothing of ours outlives a transaction, so there is nothing to reset."""

    def get_reset_query(self) -> str:
        return ""


async def open_pool(database_url: str, *, size: int = 10) -> asyncpg.Pool[asyncpg.Record]:
    """At most `size` connections, opened when they are needed; a statement has 10 seconds.

    Raises StorageUnavailable when nobody answers at that address, or not to us.
    """
    try:
        return await asyncpg.create_pool(
            asyncpg_url(database_url),
            min_size=1,
            max_size=size,
            timeout=5,
            command_timeout=STATEMENT_SECONDS,
            init=_read_json,
            connection_class=_Connection,
            server_settings={"application_name": "evertalk", "statement_timeout": "9000", "jit": "off"},
        )
    except (*_AWAY, *_NOT_FOR_US) as error:
        raise StorageUnavailable(
            f"PostgreSQL at {place_of(database_url)} cannot be used: {str(error) or type(error).__name__}"
        ) from error


async def _read_json(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=_WRITE, decoder=_read)


_WRITE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_SCAN = json.JSONDecoder().raw_decode


def _read(text: str) -> Any:
    """Postgres writes jsonb without blanks around it: a row's few bytes need no search for them."""
    return _SCAN(text)[0]


def store_method(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """One transaction, whole or not at all: a cancelled caller waits for its end, a rival is tried again.

    Raises StorageUnavailable when Postgres is away, full or too slow.
    """

    @functools.wraps(function)
    async def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        work = asyncio.ensure_future(_translated(functools.partial(function, *args, **kwargs)))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # Cutting a transaction off in mid-air leaks its connection; its few milliseconds are waited for.
            await asyncio.wait([work])
            if not work.cancelled() and work.exception() is not None:
                raise asyncio.CancelledError from work.exception()
            raise

    return whole


async def _translated(call: Callable[[], Awaitable[T]]) -> T:
    for attempt in range(1, _TRIES + 1):
        try:
            return await call()
        except _AGAIN as error:
            if attempt == _TRIES:
                raise StorageUnavailable(f"rivals kept winning: {error}") from error
            await asyncio.sleep(0.005 * attempt)
        except _AWAY as error:
            raise StorageUnavailable(f"{type(error).__name__}: {error}") from error
    raise AssertionError("unreachable")
