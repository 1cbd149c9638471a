"""What every store begins with: the pool, by which its methods are one transaction and tell what fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from asyncpg.pool import PoolConnectionProxy

Record: TypeAlias = asyncpg.Record
Connection: TypeAlias = "PoolConnectionProxy[Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Value = TypeVar("Value", bound="DataclassInstance")


def value_from(kind: type[Value], row: asyncpg.Record | Mapping[str, Any], **given: Any) -> Value:
    """Each field is the column of its name, unless it is `given`. Raises KeyError for a column that lacks."""
    return kind(**{one.name: row[one.name] for one in fields(kind) if one.name not in given}, **given)


class PoolStore:
    """Its methods are `store_method`s, which raise StorageUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
