"""SQLModel over the pool's connections, for what operators change: nobody's message waits for it.

SQLAlchemy takes a second and 20 MiB to load: stores that use it are built when they are first asked, see
`shared/bootstrap/stores.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool
from sqlmodel.ext.asyncio.session import AsyncSession

from shared.adapters.postgres.db.store import Pool
from shared.adapters.postgres.people.operator_auth import append_audit


class LentConnection:
    """What SQLAlchemy does with a connection of ours. It prepares no statement that outlives its transaction,
    so that a pooler may be in between, and gives the connection back in place of closing it.
    """

    def __init__(self, pool: Pool, connection: Any) -> None:
        self._pool = pool
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def prepare(self, statement: str, *, name: str | None = None) -> Any:
        return await self._connection.prepare(statement, name=name or "")

    async def set_type_codec(self, *_: object, **__: object) -> None:
        """The pool has set its own, which read JSON in the same way."""

    async def close(self, timeout: float | None = None) -> None:
        await self._pool.release(self._connection, timeout=timeout)


class AdminSession(AsyncSession):
    """One transaction. What is read in it are rows of `schema`, which stay as they are after its end."""

    async def driver(self) -> Any:
        """The connection, for a statement of SQL in the same transaction."""
        connection = await self.connection()
        lent: Any = (await connection.get_raw_connection()).driver_connection
        if not lent.is_in_transaction():
            # SQLAlchemy begins it with its own first statement.
            await connection.execute(select(1))
        return lent

    async def audit(
        self, action: str, *, by: str, about: str, detail: Mapping[str, Any] | None = None
    ) -> None:
        """In the same transaction: what cannot be put on record is not done."""
        await append_audit(await self.driver(), actor=by, action=action, about=about, detail=detail)


class AdminStore:
    """Its methods are store methods: what fails is the driver's own error, as with a statement of SQL."""

    def __init__(self, pool: Pool) -> None:
        async def lend(**_: object) -> LentConnection:
            return LentConnection(pool, await pool.acquire())

        engine = create_async_engine(
            "postgresql+asyncpg://", async_creator=lend, poolclass=NullPool, json_serializer=_as_it_is
        )
        self._pool = pool
        self._sessions = async_sessionmaker(engine, class_=AdminSession, expire_on_commit=False)

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AdminSession]:
        try:
            async with self._sessions.begin() as session:
                yield session
        except DBAPIError as error:
            raise error.driver_exception from error


def _as_it_is(value: object) -> object:
    """The connection's own codec writes JSON."""
    return value
