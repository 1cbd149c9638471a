"""Pool of connections to Postgres, named parameters, and translation of errors."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

import asyncpg
import structlog

from shared.adapters.postgres.db.connecting import CANNOT_CONNECT, HostConnector, build_unavailable
from shared.adapters.postgres.db.pooler import probe_pooler_at
from shared.adapters.postgres.db.urls import build_driver_url
from shared.core.values.errors import EvertalkError, StorageUnavailable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from asyncpg.pool import PoolConnectionProxy


log = structlog.get_logger(__name__)

ANSWER_SECONDS = 3.0
"""Seconds that the trial connection of `WatchedPool.can_write` may take."""


class WatchedPool(asyncpg.Pool):
    """Pool that counts the connections that broke.

    Names with `_` are internals of asyncpg, whose version is pinned.
    """

    lost = 0
    """Number of connections that broke since the start."""

    async def _get_new_connection(self) -> Any:
        connection = await cast("Any", super())._get_new_connection()
        connection.add_termination_listener(self._count)
        return connection

    def _count(self, connection: Any) -> None:
        """Count a broken connection, but not idle ones that the pool closes."""
        if isinstance(connection, asyncpg.pool.PoolConnectionProxy) or not connection._aborted:
            self.lost += 1

    async def can_write(self) -> bool:
        """Return whether a new connection, opened for this check only, is to a server that accepts writes.

        Returns False for every failure, also if the check takes longer than ANSWER_SECONDS.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await cast("Any", super())._get_new_connection()
                try:
                    return bool(await connection.fetchval("SELECT NOT pg_is_in_recovery()"))
                finally:
                    connection.terminate()
        except Exception as error:  # noqa: BLE001  whatever it is, this was no answer
            log.debug("storage_ping_failed", reason=f"{type(error).__name__}: {error}")
            return False

    async def has_been_healthy(self, *, since: int) -> bool:
        """Return whether no connection broke since the count was `since`, and a new connection can write."""
        return self.lost == since and await self.can_write() and self.lost == since


async def blame_storage_first(pool: object, error: Exception, *, since: int) -> None:
    """Raise StorageUnavailable for `error` unless storage was healthy throughout.

    `since` is the result of `count_lost` from before the failed work. Healthy means that no connection broke
    since then and that a new connection can write now. Otherwise returns, and the caller raises `error`
    itself. Also returns at once for an EvertalkError and for a pool that is no WatchedPool. Unless `error` is
    one of PostgreSQL's, all connections of the pool are replaced, since their state is unknown.
    """
    if not isinstance(pool, WatchedPool) or isinstance(error, EvertalkError):
        return
    was_healthy = await pool.has_been_healthy(since=since)
    if not isinstance(error, asyncpg.PostgresError):
        # A connection in a state that its driver did not expect may be in the pool; it must not be used
        # again.
        await pool.expire_connections()
    if not was_healthy:
        reason = f"{type(error).__name__}: {error}"
        log.warning("storage_failed_unexpectedly", reason=reason)
        raise StorageUnavailable(reason) from error


@asynccontextmanager
async def storage_limiter(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[None]:
    """Raise StorageUnavailable instead of an unexpected exception if storage failed within the block.

    Other exceptions pass unchanged, as `blame_storage_first` decides.
    """
    since = count_lost(pool)
    try:
        yield
    except Exception as error:
        await blame_storage_first(pool, error, since=since)
        raise


def count_lost(pool: object) -> int:
    """Return the number of connections of a pool that broke so far; 0 for other pools."""
    return pool.lost if isinstance(pool, WatchedPool) else 0


_MARK = re.compile(
    r"""
    (?<!\w)[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "[^"]*"    # texts and quoted names
  | \$[a-z_]*\$.*?\$[a-z_]*\$ | --[^\n]* | /\*.*?\*/            # bodies and comments
  | :: | := | (?<![\w:]):(?P<name>[a-z]\w*)                        # casts, assignments, parameters
  | (?P<fault>\$\d+|(?<!\w)[eE]'|['"])
    """,
    re.VERBOSE | re.DOTALL,
)
"""Pattern of named parameters outside of texts, comments and casts; in slices write `[1 : :most]`."""


Constant: TypeAlias = bool | int | float | str | Sequence[str]


def render_literal(value: Constant) -> str:
    """Return a value as an SQL literal.

    A negative number is in parentheses; a sequence of texts becomes a `text[]` array.
    """
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value) if value >= 0 else f"({value})"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return f"ARRAY[{', '.join(map(render_literal, value))}]::text[]"


class Named:
    """SQL statement with named parameters: `await pool.fetch(*STATEMENT(site=…, seconds=…))`.

    A call returns the SQL text and the values in the order of their numbers. PostgreSQL's numbers `$1`, `$2`
    are assigned once, when the module is imported, so that a statement has the same text, and the same plan,
    at each call. A call with a missing or unknown name raises TypeError. A `$1` in the statement, or a text
    that does not end, raises ValueError at import.

    `constants` are names whose values never change, such as limits of the core. The statement contains them
    as literals, and its calls do not pass them. A constant that the statement does not use raises TypeError.
    """

    def __init__(self, statement: str, /, **constants: Constant) -> None:
        self.text = statement
        self._constants = {name: render_literal(value) for name, value in constants.items()}
        self._named: set[str] = set()
        self._places: dict[str, int] = {}
        self.sql = _MARK.sub(self._number, statement)
        if unused := constants.keys() - self._named:
            raise TypeError(f"not in the statement: {sorted(unused)}")

    def _number(self, found: re.Match[str]) -> str:
        if fault := found["fault"]:
            start = found.start()
            raise ValueError(f"{fault} at: {found.string[max(0, start - 60) : start + 20]}")
        name = found["name"]
        if not name:
            return found.group()
        self._named.add(name)
        if name in self._constants:
            return self._constants[name]
        return f"${self._places.setdefault(name, len(self._places) + 1)}"

    def __call__(self, **values: object) -> tuple[str, *tuple[object, ...]]:
        if values.keys() != self._places.keys():
            raise TypeError(f"given: {sorted(values)}, wanted: {sorted(self._places)}")
        return self.sql, *(values[name] for name in self._places)

    def rehearse(self, **values: object) -> tuple[str, *tuple[object, ...]]:
        """Return the call with NULL for each missing value, for preparing the statement without effect.

        Raises TypeError for an unknown name.
        """
        return self(**(dict.fromkeys(self._places) | values))


class Arguments:
    """Named arguments of a statement whose conditions depend on a query."""

    def __init__(self, **values: object) -> None:
        self.values = values

    def bind(self, condition: str, **values: object) -> str:
        """Return a condition as it is, and keep the values of its named parameters for `render`."""
        self.values |= values
        return condition

    def render(self, statement: str) -> tuple[str, Sequence[object]]:
        """Return the statement with `$1`, `$2` … for the named parameters, and the values in their order.

        Raises TypeError if a name of the statement has no value, or a value is not used.
        """
        sql, *values = Named(statement)(**self.values)
        return sql, values


P = ParamSpec("P")
T = TypeVar("T")

STATEMENT_SECONDS = 10.0
"""Seconds after which the driver cancels a statement; the server's own limit is one second less."""
QUERIES_PER_CONNECTION = 50_000
"""Number of statements after which the pool replaces a connection."""
_NAME = {"application_name": "evertalk"}
_OF_A_SESSION = {"statement_timeout": "9000", "jit": "off"}
_PREPARED = 100
_LONGEST_PREPARED = 32 * 1024
"""Maximum bytes of a statement that stays prepared.

The longest has 16 KiB, above the driver's default of 15.
"""
ACQUIRE_SECONDS = 5.0
"""Maximum seconds that a statement waits for a connection."""
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
"""Exceptions that mean: the database is unavailable, full, too slow or read-only."""
_AGAIN = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    # A newer revision has changed a table under a prepared statement.
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
)
"""Exceptions after which a transaction is repeated."""
_TRIES = 4


class _Pool(WatchedPool):
    """Pool with a limited wait for connections.

    Names with `_` are internals of asyncpg, whose version is pinned.
    """

    longest_wait = 0.0
    """Longest wait in seconds since the last call of `measure_longest_wait`."""

    async def _acquire(self, timeout: float | None) -> Any:
        """Acquire a connection; only a call that has to wait gets a timeout.

        A timeout costs a task: 26 µs of the 196 µs of CPU of a small statement.
        """
        acquire = cast("Any", super())._acquire
        if timeout is not None or not cast("Any", self)._queue.empty():
            return await acquire(timeout)
        began = time.monotonic()
        try:
            return await acquire(ACQUIRE_SECONDS)
        finally:
            self.longest_wait = max(self.longest_wait, time.monotonic() - began)


class _Connection(asyncpg.Connection):
    """Connection that is not reset between uses, since no state outlives a transaction."""

    def get_reset_query(self) -> str:
        return ""


async def open_pool(database_url: str, *, size: int = 10) -> asyncpg.Pool[asyncpg.Record]:
    """Open a pool of at most `size` connections; each statement may take STATEMENT_SECONDS.

    A first connection finds out whether a pooler is in between. Behind a pooler the settings of the role
    apply, and statements stay prepared only if the pooler supports that. Raises StorageUnavailable if no
    server accepts connections.
    """
    between = await probe_pooler_at(database_url)
    try:
        return await _Pool(
            build_driver_url(database_url),
            init_size=None,
            min_size=1,
            max_size=size,
            max_queries=QUERIES_PER_CONNECTION,
            max_inactive_connection_lifetime=300.0,
            connect=cast("Any", HostConnector(database_url)),
            setup=None,
            init=_read_json,
            reset=None,
            loop=None,
            connection_class=_Connection,
            record_class=asyncpg.Record,
            timeout=5,
            command_timeout=STATEMENT_SECONDS,
            server_settings=_NAME if between.pooler else _NAME | _OF_A_SESSION,
            statement_cache_size=_PREPARED if between.keeps_prepared else 0,
            max_cacheable_statement_size=_LONGEST_PREPARED,
        )
    except CANNOT_CONNECT as error:
        raise build_unavailable(database_url, error) from error


def measure_longest_wait(pool: asyncpg.Pool[asyncpg.Record]) -> float:
    """Return the longest wait for a connection in seconds since the last call, and reset it to 0.0.

    A long wait means that all connections are in use. Returns 0.0 for a pool that `open_pool` did not open.
    """
    if not isinstance(pool, _Pool):
        return 0.0
    longest, pool.longest_wait = pool.longest_wait, 0.0
    return longest


async def _read_json(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=_WRITE, decoder=read_json)


_WRITE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_SCAN = json.JSONDecoder().raw_decode


def read_json(text: str) -> Any:
    """Return the value of a jsonb text, in which PostgreSQL writes no surrounding blanks."""
    return _SCAN(text)[0]


def store_method(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a method of a store: finish it, repeat it after a conflict, translate its errors.

    The method runs to its end even if its caller is cancelled; then CancelledError is raised. After a
    deadlock, a serialization conflict or a changed table the whole method is called again, at most 4 times in
    all. It raises StorageUnavailable if PostgreSQL is unreachable, full, too slow or read-only, if conflicts
    persist, and for unexpected errors unless storage was healthy throughout. An EvertalkError and an
    asyncpg.DataError pass unchanged.
    """

    @functools.wraps(function)
    async def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        pool = _find_pool(args[0]) if args else None
        work = asyncio.ensure_future(_translate_errors(functools.partial(function, *args, **kwargs), pool))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # Cancelling a transaction in the middle would leak its connection; waiting takes milliseconds.
            await asyncio.wait([work])
            if not work.cancelled() and work.exception() is not None:
                raise asyncio.CancelledError from work.exception()
            raise

    return whole


def _find_pool(first: object) -> Any:
    """Return the pool of a store, or the argument itself if it is a pool; None for anything else."""
    return first if isinstance(first, asyncpg.Pool) else getattr(first, "_pool", None)


async def _translate_errors(call: Callable[[], Awaitable[T]], pool: asyncpg.Pool[asyncpg.Record] | None) -> T:
    since = count_lost(pool)
    for attempt in range(1, _TRIES + 1):
        try:
            return await call()
        except (EvertalkError, asyncpg.DataError):
            raise
        except _AGAIN as error:
            if attempt == _TRIES:
                raise StorageUnavailable(f"rivals kept winning: {error}") from error
            await asyncio.sleep(0.005 * attempt)
        except _AWAY as error:
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError) and pool is not None:
                # The server is no longer the primary; new connections find the new one at the same address.
                await pool.expire_connections()
            raise StorageUnavailable(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            await blame_storage_first(pool, error, since=since)
            raise
    raise AssertionError("unreachable")


Record: TypeAlias = asyncpg.Record
Connection: TypeAlias = "PoolConnectionProxy[Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Value = TypeVar("Value", bound="DataclassInstance")


def build_value(kind: type[Value], row: asyncpg.Record | Mapping[str, Any], **given: Any) -> Value:
    """Return a dataclass of type `kind` whose fields have the values of the row's columns of the same names.

    `given` supplies or replaces fields. Raises KeyError if a column is missing.
    """
    return kind(**{one.name: row[one.name] for one in fields(kind) if one.name not in given}, **given)


class PoolStore:
    """Base of stores on a pool, `self._pool`; their public methods are decorated with `store_method`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
