"""Base of administration stores, which use SQLModel on the pool's connections, and their tables.

Messages do not use it: their statements are SQL. `migrations/` creates the tables; a test compares these
models with a real database. SQLAlchemy takes a second and 20 MiB to load: stores that use it are created at
their first call, see `shared/bootstrap/stores.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    DateTime,
    FetchedValue,
    ForeignKey,
    Integer,
    LargeBinary,
    Text,
    Uuid,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

from shared.adapters.postgres.db.pool import Pool, PoolStore
from shared.adapters.postgres.people.operator_auth import append_audit


class LentConnection(PoolStore):
    """Connection of the pool, wrapped for SQLAlchemy.

    No prepared statement is used beyond a transaction, so that a pooler may be in between. `close` returns
    the connection to the pool.
    """

    def __init__(self, pool: Pool, connection: Any) -> None:
        super().__init__(pool)
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def prepare(self, statement: str, *, name: str | None = None) -> Any:
        """Prepare a statement without a name, unless one is given."""
        return await self._connection.prepare(statement, name=name or "")

    async def set_type_codec(self, *_: object, **__: object) -> None:
        """Do nothing, since the pool has already set a codec that reads JSON in the same way."""

    async def close(self, timeout: float | None = None) -> None:
        """Return the connection to the pool, within `timeout` seconds."""
        await self._pool.release(self._connection, timeout=timeout)


class AdminSession(AsyncSession):
    """SQLAlchemy session of one transaction, which AdminStore begins and ends; stores never create it
    directly.

    Rows read in it keep their values after its end.
    """

    async def driver(self) -> Any:
        """Return the asyncpg connection, for SQL in the same transaction, which is begun if needed."""
        connection = await self.connection()
        lent: Any = (await connection.get_raw_connection()).driver_connection
        if not lent.is_in_transaction():
            # SQLAlchemy begins the transaction with its first statement.
            await connection.execute(select(1))
        return lent

    async def audit(
        self, action: str, *, by: str, about: str, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Append an audit entry in the same transaction, so that no change is made without it.

        `by` is the actor, `about` the object; `detail` has ids and numbers only.
        """
        await append_audit(await self.driver(), actor=by, action=action, about=about, detail=detail)


class AdminStore(PoolStore):
    """Base of stores that use SQLModel; `_begin` yields the session of one transaction.

    It raises asyncpg's exceptions in place of SQLAlchemy's, which `store_method` translates as in other
    stores.
    """

    def __init__(self, pool: Pool) -> None:
        async def lend(**_: object) -> LentConnection:
            return LentConnection(pool, await pool.acquire())

        engine = create_async_engine(
            "postgresql+asyncpg://", async_creator=lend, poolclass=NullPool, json_serializer=_as_it_is
        )
        super().__init__(pool)
        self._sessions = async_sessionmaker(engine, class_=AdminSession, expire_on_commit=False)

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AdminSession]:
        try:
            async with self._sessions.begin() as session:
                yield session
        except DBAPIError as error:
            raise error.driver_exception from error


def _as_it_is(value: object) -> object:
    """Return the value; the connection's codec writes JSON."""
    return value


def make_column(kind: Any, to: str = "", *, key: bool = False, made: bool = False) -> Any:
    """Return a table column of this type for a SQLModel table.

    `to` is the referenced column, "" for none; `key` makes it part of the primary key; `made` means that
    PostgreSQL fills it. Constraints are in the migrations only.
    """
    given = FetchedValue() if made else None
    references = [ForeignKey(to)] if to else []
    return Field(default=None, sa_column=Column(kind, *references, primary_key=key, server_default=given))


_MOMENT = DateTime(timezone=True)
_WORDS = ARRAY(Text)


class AgentTable(SQLModel, table=True):
    """Row of an agent; `version` grows with each change."""

    __tablename__ = "agents"
    id: int = make_column(BigInteger, key=True, made=True)
    name: str = make_column(Text)
    config: dict[str, Any] = make_column(JSONB, made=True)
    version: int = make_column(BigInteger, made=True)
    created_at: datetime = make_column(_MOMENT, made=True)
    updated_at: datetime = make_column(_MOMENT, made=True)


class AgentVersionTable(SQLModel, table=True):
    """Row of a stored version of an agent; `changed_by` is None if the author is unknown."""

    __tablename__ = "agent_versions"
    agent_id: int = make_column(BigInteger, "agents.id", key=True)
    version: int = make_column(BigInteger, key=True)
    config: dict[str, Any] = make_column(JSONB, made=True)
    changed_by: str | None = make_column(Text)
    changed_at: datetime = make_column(_MOMENT, made=True)


class SiteTable(SQLModel, table=True):
    """Row of a site with the web origins that may show its chat."""

    __tablename__ = "sites"
    name: str = make_column(Text, key=True)
    audience: str = make_column(Text, made=True)
    allowed_origins: list[str] = make_column(_WORDS, made=True)
    agent_id: int = make_column(BigInteger, "agents.id")
    created_at: datetime = make_column(_MOMENT, made=True)
    config: dict[str, Any] = make_column(JSONB, made=True)
    """Settings of the site, validated by `shared/config/sites.py`."""
    version: int = make_column(BigInteger, made=True)


class RefusedOriginTable(SQLModel, table=True):
    """Row of a web origin that a site refuses."""

    __tablename__ = "refused_origins"
    site: str = make_column(Text, "sites.name", key=True)
    origin: str = make_column(Text, key=True)
    refused: int = make_column(BigInteger, made=True)
    """Number of refused requests from the origin."""
    last_at: datetime = make_column(_MOMENT, made=True)


class SiteSecretTable(SQLModel, table=True):
    """Row of a site's secret in one of its slots, sealed with the key `key_id`."""

    __tablename__ = "site_secrets"
    site: str = make_column(Text, "sites.name", key=True)
    slot: int = make_column(Integer, key=True)
    secret_id: str = make_column(Text)
    key_id: str = make_column(Text)
    sealed: bytes = make_column(LargeBinary)
    created_at: datetime = make_column(_MOMENT, made=True)


class TelegramBotTable(SQLModel, table=True):
    """Row of a Telegram bot; its token is stored elsewhere."""

    __tablename__ = "telegram_bots"
    bot_id: int = make_column(BigInteger, key=True)
    username: str = make_column(Text, made=True)
    agent_id: int = make_column(BigInteger, "agents.id")
    audience: str = make_column(Text, made=True)
    access: str = make_column(Text, made=True)
    mode: str = make_column(Text, made=True)
    problem: str = make_column(Text, made=True)
    heard_at: datetime | None = make_column(_MOMENT)
    created_at: datetime = make_column(_MOMENT, made=True)
    profile: dict[str, Any] = make_column(JSONB, made=True)


class OperatorTable(SQLModel, table=True):
    """Operator; one of an identity provider has `issuer` and `subject` and no password."""

    __tablename__ = "operators"
    id: int = make_column(BigInteger, key=True, made=True)
    name: str = make_column(Text)
    role: str = make_column(Text, made=True)
    password_hash: str | None = make_column(Text)
    created_at: datetime = make_column(_MOMENT, made=True)
    disabled_at: datetime | None = make_column(_MOMENT)
    public_id: UUID = make_column(Uuid, made=True)
    version: int = make_column(Integer, made=True)
    issuer: str | None = make_column(Text)
    subject: str | None = make_column(Text)
    last_login_at: datetime | None = make_column(_MOMENT)
    display_name: str = make_column(Text, made=True)
    """Name that people see; login names are visible to operators only."""
    checklist_hidden_at: datetime | None = make_column(_MOMENT)


class OperatorPictureTable(SQLModel, table=True):
    """Row of an operator's picture; `key` is part of its URL."""

    __tablename__ = "operator_pictures"
    operator_id: int = make_column(BigInteger, "operators.id", key=True)
    key: str = make_column(Text)
    content: bytes = make_column(LargeBinary)


class OperatorSessionTable(SQLModel, table=True):
    """Row of an operator's login, found by the hash of its token."""

    __tablename__ = "operator_sessions"
    token_hash: bytes = make_column(LargeBinary, key=True)
    operator_id: int = make_column(BigInteger, "operators.id")
    created_at: datetime = make_column(_MOMENT, made=True)
    seen_at: datetime = make_column(_MOMENT, made=True)
    expires_at: datetime = make_column(_MOMENT)
    public_id: UUID = make_column(Uuid, made=True)
    how: str = make_column(Text, made=True)
    source: str = make_column(Text, made=True)
    browser: str = make_column(Text, made=True)


class LoginTriesTable(SQLModel, table=True):
    """Row of failed logins by a hashed key; None in `refused_until` refuses nothing."""

    __tablename__ = "login_tries"
    key: bytes = make_column(LargeBinary, key=True)
    operator_id: int | None = make_column(BigInteger, "operators.id")
    failures: int = make_column(Integer, made=True)
    last_at: datetime = make_column(_MOMENT, made=True)
    refused_until: datetime | None = make_column(_MOMENT)


class LoginPlaceTable(SQLModel, table=True):
    """Row of a network from which an operator has logged in, as a keyed hash."""

    __tablename__ = "login_places"
    key: bytes = make_column(LargeBinary, key=True)
    operator_id: int = make_column(BigInteger, "operators.id")
    at: datetime = make_column(_MOMENT, made=True)


class LoginLinkTable(SQLModel, table=True):
    """Row of a link for one login, found by the hash of its token."""

    __tablename__ = "login_links"
    token_hash: bytes = make_column(LargeBinary, key=True)
    operator_id: int = make_column(BigInteger, "operators.id")
    created_at: datetime = make_column(_MOMENT, made=True)
    expires_at: datetime = make_column(_MOMENT)
    used_at: datetime | None = make_column(_MOMENT)


class OperatorStepTable(SQLModel, table=True):
    """Row of a login that waits for its second factor."""

    __tablename__ = "operator_steps"
    token_hash: bytes = make_column(LargeBinary, key=True)
    operator_id: int = make_column(BigInteger, "operators.id")
    how: str = make_column(Text)
    created_at: datetime = make_column(_MOMENT, made=True)
    expires_at: datetime = make_column(_MOMENT)


class ApiKeyTable(SQLModel, table=True):
    """Row of an API key, found by the hash of its token; `site` or `agent_id` None does not limit it."""

    __tablename__ = "api_keys"
    id: int = make_column(BigInteger, key=True, made=True)
    name: str = make_column(Text)
    prefix: str = make_column(Text)
    token_hash: bytes = make_column(LargeBinary)
    scopes: list[str] = make_column(_WORDS)
    site: str | None = make_column(Text, "sites.name")
    agent_id: int | None = make_column(BigInteger, "agents.id")
    created_at: datetime = make_column(_MOMENT, made=True)
    expires_at: datetime | None = make_column(_MOMENT)
    last_used_at: datetime | None = make_column(_MOMENT)
    revoked_at: datetime | None = make_column(_MOMENT)
