"""Data of every schema that a commit of this repository ever made can be brought to the newest one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from alembic import command
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from shared.adapters.postgres.db.bridge import RENUMBERED, build_config, run_former
from shared.adapters.postgres.db.migrate import create_engine, migrate, read_schema_state
from shared.adapters.postgres.db.readiness import BRIDGE_END, FORMER, VERSIONS, find_newest_revision
from tests.conftest import DatabaseServer
from tests.integration.adapters.postgres.db.schemas import schema_of
from tests.kit.former_schemas import NoHistory, list_former_schemas
from tests.kit.night import rest_at_night


async def run_in(database_url: str, work: Callable[[Connection], None]) -> None:
    engine = create_engine(database_url)
    async with engine.begin() as connection:
        await connection.run_sync(work)
    await engine.dispose()


def upgrade_by(versions: Path, revision: str) -> Callable[[Connection], None]:
    """Run the migrations of one folder, as the program that they come from did."""

    def upgrade(connection: Connection) -> None:
        config = build_config(versions)
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    return upgrade


def run_alone(versions: Path, revision: str) -> Callable[[Connection], None]:
    """Run one migration without those before it, and store its number."""

    def run(connection: Connection) -> None:
        script = ScriptDirectory.from_config(build_config(versions)).get_revision(revision)
        with Operations.context(MigrationContext.configure(connection)):
            script.module.upgrade()
        store_number(revision)(connection)

    return run


def store_number(revision: str) -> Callable[[Connection], None]:
    def store(connection: Connection) -> None:
        connection.execute(text("UPDATE alembic_version SET version_num = :number"), {"number": revision})

    return store


async def sorted_schema_of(database_url: str) -> list[list[str]]:
    """Return each statement with sorted lines: columns may stand in another order."""
    statements = (await schema_of(database_url)).split(";\n")
    return sorted(sorted(line.rstrip(",") for line in one.splitlines()) for one in statements)


REVISIONS = ("0001", "0007", "0015", "0028", "0036", "0043", BRIDGE_END)


@pytest.mark.parametrize("revision", rest_at_night(REVISIONS, by_day=("0001", "0028", BRIDGE_END)))
async def test_schema_before_the_first_file_becomes_the_newest(
    revision: str, database_url: str, empty_database_url: str
) -> None:
    await run_in(empty_database_url, lambda connection: run_former(connection, revision))
    assert (await read_schema_state(empty_database_url)).found == revision
    await migrate(empty_database_url)
    assert (await read_schema_state(empty_database_url)).found == find_newest_revision()
    assert await schema_of(empty_database_url) == await schema_of(database_url)


@pytest.mark.parametrize(
    ("folder", "base", "alone"),
    [
        (FORMER, "0002", "0006"),
        (FORMER, "0007", "0015"),
        (FORMER, "0030", "0032"),
        (VERSIONS, "0055", "0057"),
    ],
)
async def test_renumbered_database_gets_the_migrations_that_it_lacks(
    folder: Path, base: str, alone: str, database_url: str, empty_database_url: str
) -> None:
    await run_in(empty_database_url, upgrade_by(folder, base))
    await run_in(empty_database_url, run_alone(folder, alone))
    await migrate(empty_database_url)
    assert await sorted_schema_of(empty_database_url) == await sorted_schema_of(database_url)


async def test_database_with_the_number_of_another_migration_is_upgraded(
    database_url: str, empty_database_url: str
) -> None:
    """The number 0054 once belonged to the migration that is 0048 now."""
    await run_in(empty_database_url, upgrade_by(VERSIONS, "0046"))
    await run_in(empty_database_url, run_alone(VERSIONS, "0048"))
    await run_in(empty_database_url, store_number("0054"))
    await migrate(empty_database_url)
    assert await sorted_schema_of(empty_database_url) == await sorted_schema_of(database_url)


async def test_mark_is_true_from_its_migration_on(empty_database_url: str) -> None:
    for group in RENUMBERED:
        if group.folder == VERSIONS:
            await run_in(empty_database_url, lambda connection: run_former(connection, BRIDGE_END))
        scripts = ScriptDirectory.from_config(build_config(group.folder))
        for script in reversed(list(scripts.walk_revisions())):
            await run_in(empty_database_url, upgrade_by(group.folder, script.revision))
            if script.revision in group.marks:
                found = await find_marks(empty_database_url, group.marks)
                assert found == {one for one in group.marks if one <= script.revision}
            if script.revision == max(group.marks):
                break


async def find_marks(database_url: str, marks: Mapping[str, str]) -> set[str]:
    found: set[str] = set()

    def ask(connection: Connection) -> None:
        found.update(one for one, mark in marks.items() if connection.scalar(text(f"SELECT {mark}")))

    await run_in(database_url, ask)
    return found


@pytest.mark.night
@pytest.mark.timeout(900)
async def test_schema_of_each_former_commit_becomes_the_newest(
    database_server: DatabaseServer, database_url: str, tmp_path: Path
) -> None:
    try:
        history = list_former_schemas()
    except NoHistory as error:
        pytest.skip(f"former migrations cannot be had: {error}")
    newest = await sorted_schema_of(database_url)
    different = []
    for schema in history:
        name = await database_server.create(template="template0")
        url = database_server.url(name)
        await run_in(url, upgrade_by(schema.unpack(tmp_path / schema.name), "head"))
        assert (await read_schema_state(url)).found == schema.newest
        await migrate(url)
        if await sorted_schema_of(url) != newest:
            different.append(schema.name)
        await database_server.drop(name)
    assert (different, len(history) > 70) == ([], True)
