"""PostgreSQL knows each table, column and function that a statement of the stores names."""

from __future__ import annotations

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import Named
from tests.kit.statements import find_statements


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
