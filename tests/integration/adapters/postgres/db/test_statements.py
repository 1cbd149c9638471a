"""PostgreSQL knows each table, column and function that a statement of the stores names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import asyncpg
import pytest

import shared.adapters.postgres
from shared.adapters.postgres.db.pool import Named


def list_statements(value: object) -> Iterator[Named]:
    """Yield a statement, or those in a table of statements."""
    if isinstance(value, Named):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from list_statements(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from list_statements(one)


def find_statements() -> dict[str, Named]:
    package = shared.adapters.postgres
    found = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for number, statement in enumerate(list_statements(value)):
                found[f"{module.name}.{name}[{number}]"] = statement
    return found


async def test_every_statement_of_the_stores_can_be_prepared(database_url: str) -> None:
    statements = {statement.sql: name for name, statement in find_statements().items()}
    assert len(statements) > 500
    connection = await asyncpg.connect(database_url, statement_cache_size=0)
    refused = {}
    for sql, name in statements.items():
        try:
            await connection.prepare(sql)
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    await connection.close()
    assert refused == {}


async def test_statement_with_an_unknown_column_cannot_be_prepared(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    with pytest.raises(asyncpg.UndefinedColumnError):
        await connection.prepare(Named("SELECT party_id FROM sessions WHERE id = :session_id").sql)
    await connection.close()
