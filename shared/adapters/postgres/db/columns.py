"""Column shapes that the tables share: 64-bit ids, UTC times by Postgres' clock, JSON, micro-dollars."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID
from sqlmodel import Field


def identity() -> Column[int]:
    return Column(BigInteger, primary_key=True, autoincrement=True)


def big(*, key: bool = False, null: bool = False, default: str | None = None, to: str | None = None) -> Any:
    arguments = [ForeignKey(to)] if to else []
    return Column(
        BigInteger,
        *arguments,
        primary_key=key,
        nullable=null,
        autoincrement=False if key else "auto",
        server_default=text(default) if default is not None else None,
    )


def small(*, null: bool = False, default: str | None = None, key: bool = False) -> Any:
    return Column(
        Integer,
        primary_key=key,
        nullable=null,
        autoincrement=False if key else "auto",
        server_default=text(default) if default is not None else None,
    )


def words(*, null: bool = False, default: str | None = None, key: bool = False, unique: bool = False) -> Any:
    return Column(
        Text,
        primary_key=key,
        nullable=null,
        unique=unique or None,
        server_default=text(f"'{default}'") if default is not None else None,
    )


def moment(*, null: bool = False, key: bool = False, now: bool = True) -> Any:
    return Column(
        DateTime(timezone=True),
        primary_key=key,
        nullable=null,
        server_default=text("now()") if now and not null else None,
    )


def json(*, null: bool = False, default: str | None = "{}") -> Any:
    return Column(
        JSONB,
        nullable=null,
        server_default=text(f"'{default}'::jsonb") if default is not None and not null else None,
    )


def flag(*, default: bool = False) -> Any:
    return Column(Boolean, nullable=False, server_default=text("true" if default else "false"))


def digest(*, key: bool = False, null: bool = False, unique: bool = False) -> Any:
    return Column(LargeBinary, primary_key=key, nullable=null, unique=unique or None)


def public_id(*, unique: bool = True, made: bool = True) -> Any:
    """Not `made` by Postgres, it is another row's."""
    default = text("gen_random_uuid()") if made else None
    return Column(UUID(as_uuid=True), nullable=False, unique=unique or None, server_default=default)


def field(column: Any) -> Any:
    return Field(default=None, sa_column=column)


def belongs(table: str, *columns: str, name: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(columns, [f"{table}.{column}" for column in columns], name=name)


def text_list(*, default: str | None = None) -> Any:
    return Column(ARRAY(Text), nullable=False, server_default=text(default) if default else None)


def small_list() -> Any:
    return Column(ARRAY(Integer), nullable=False, server_default=text("'{}'"))


def one_of(column: str, *values: str, name: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=name)
