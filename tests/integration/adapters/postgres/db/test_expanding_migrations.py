"""A migration only adds, so that the processes of the versions before go on working while it happens.

What no process uses any more may go two versions later: name such a revision in `CONTRACTS`
(`tests/kit/schema_contracts.py`), with the reason.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from shared.adapters.postgres.db.bridge import run_former
from shared.adapters.postgres.db.migrate import (
    build_alembic_config,
    create_engine,
    migrate,
    read_schema_state,
)
from shared.adapters.postgres.db.readiness import BRIDGE_END, is_newer, load_releases
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.operations.roles import READ_VIEWS
from tests.integration.adapters.postgres.db.schemas import add_contact, downgrade
from tests.kit.app_driver import running_app, settings_for, visit
from tests.kit.schema_contracts import find_contracts

COLUMNS = """
SELECT c.relname::text AS relation, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS must_be_given,
       a.attgenerated <> '' OR a.attidentity = 'a' AS is_generated
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
   AND c.relname <> 'alembic_version' AND a.attnum > 0 AND NOT a.attisdropped
"""
CHECKS = """
SELECT conrelid::regclass::text AS relation, conname::text AS name, pg_get_constraintdef(oid) AS rule
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype = 'c' AND conparentid = 0
"""
FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
 WHERE p.pronamespace = 'public'::regnamespace AND l.lanname <> 'c' AND p.prorettype <> 'trigger'::regtype
"""
UNIQUE = """
SELECT indrelid::regclass::text, indexrelid::regclass::text
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
"""


def before(steps: int) -> str:
    """The revision so many before the newest."""
    scripts = ScriptDirectory.from_config(build_alembic_config())
    revision = scripts.get_revision("head")
    for _ in range(steps):
        assert revision is not None
        revision = scripts.get_revision(str(revision.down_revision))
    assert revision is not None
    return str(revision.revision)


def test_revisions_are_numbered_so_that_a_program_knows_a_newer_one() -> None:
    scripts = ScriptDirectory.from_config(build_alembic_config())
    numbers = [one.revision for one in scripts.walk_revisions()]
    assert all(is_newer(later, earlier) for later, earlier in pairwise(numbers))
    assert not any(is_newer(found, numbers[0]) for found in (None, "half", *numbers))


class Schema:
    """What statements of a program rely on."""

    def __init__(
        self, columns: list[Any], checks: list[Any], functions: list[Any], unique: list[Any]
    ) -> None:
        self.columns = {
            (row["relation"], row["name"]): (row["type"], row["must_be_given"]) for row in columns
        }
        self.generated = {(row["relation"], row["name"]) for row in columns if row["is_generated"]}
        self.relations = {relation for relation, _ in self.columns}
        self.checks = {(row["relation"], row["name"]): row["rule"] for row in checks}
        self.functions = {row[0] for row in functions}
        self.unique = {(row[0], row[1]) for row in unique}

    @classmethod
    async def of(cls, connection: asyncpg.Connection) -> Schema:
        found = [await connection.fetch(statement) for statement in (COLUMNS, CHECKS, FUNCTIONS, UNIQUE)]
        return cls(*found)


def narrowed(old: Schema, new: Schema) -> list[str]:
    """Everything that a statement written for `old` may stumble over in `new`."""
    found = [f"{table}.{name} is gone" for table, name in old.columns.keys() - new.columns.keys()]
    for place, (kind, given) in old.columns.items():
        if place in new.columns and new.columns[place][0] != kind:
            found.append(f"{'.'.join(place)} is {new.columns[place][0]} now, it was {kind}")
        if place in new.columns and new.columns[place][1] and not given:
            found.append(f"{'.'.join(place)} has to be given now")
    added = [place for place in new.columns.keys() - old.columns.keys() if place[0] in old.relations]
    found += [f"{'.'.join(place)} is new and has to be given" for place in added if new.columns[place][1]]
    for place, rule in old.checks.items():
        if place in new.checks and not words(rule) <= words(new.checks[place]):
            found.append(f"{'.'.join(place)} forbids {words(rule) - words(new.checks[place])}")
    for table, index in new.unique - old.unique:
        if table in old.relations:
            found.append(f"{index} makes rows of {table} unique that were not")
    return found + [f"{function} is gone" for function in old.functions - new.functions]


def words(rule: str) -> set[str]:
    """The values that a rule such as `kind IN ('a', 'b')` names."""
    return set(re.findall(r"'([^']+)'", rule))


@pytest.mark.row("F52")
@pytest.mark.parametrize("steps", [1, 2])
async def test_statements_of_the_versions_before_go_on_working(empty_database_url: str, steps: int) -> None:
    if cause := find_contracts(after=before(steps)):
        pytest.skip(cause)
    await migrate(empty_database_url, revision=before(steps))
    connection = await asyncpg.connect(empty_database_url)
    old = await Schema.of(connection)
    await migrate(empty_database_url)
    new = await Schema.of(connection)
    assert narrowed(old, new) == []
    for relation in old.relations:
        names = ", ".join(f'"{name}"' for table, name in old.columns if table == relation)
        await connection.prepare(f"SELECT {names} FROM {relation}")
        if relation not in READ_VIEWS:
            given = [name for table, name in old.columns.keys() - old.generated if table == relation]
            names = ", ".join(f'"{name}"' for name in given)
            await connection.prepare(f"INSERT INTO {relation} ({names}) SELECT {names} FROM {relation}")
    await connection.close()


@pytest.mark.row("F52")
@pytest.mark.parametrize("former", ["0036", *(one.newest for one in load_releases())])
async def test_statements_of_a_numbered_version_still_work(empty_database_url: str, former: str) -> None:
    """Processes of that version may still run while its data are upgraded."""
    if cause := find_contracts(after=former):
        pytest.skip(cause)
    if former < BRIDGE_END:
        engine = create_engine(empty_database_url)
        async with engine.begin() as running:
            await running.run_sync(run_former, former)
        await engine.dispose()
    else:
        await migrate(empty_database_url, revision=former)
    connection = await asyncpg.connect(empty_database_url)
    old = await Schema.of(connection)
    await migrate(empty_database_url)
    assert narrowed(old, await Schema.of(connection)) == []
    await connection.close()


@pytest.mark.row("F52")
async def test_a_life_before_the_change_goes_on_after_it(database_url: str, redis_url: str) -> None:
    settings = settings_for(database_url, redis_url)
    async with running_app(settings) as app:
        guest = await visit(app)
        await guest.ask("Please remember that my cat is called Miso.")
        await app.erasure.erase_messages(guest.session_id, [2], "person")
    connection = await asyncpg.connect(database_url)
    for steps in (1, 2):
        await downgrade(database_url, before(steps))
        assert (await read_schema_state(database_url)).found == before(steps)
    # What a process of that version does meanwhile.
    await add_contact(connection, "Ada")
    rows = await connection.fetch("SELECT session_id, seq, blocks FROM entries ORDER BY 1, 2")
    await connection.reload_schema_state()
    await migrate(database_url)
    assert await connection.fetch("SELECT session_id, seq, blocks FROM entries ORDER BY 1, 2") == rows
    assert [str(line) for line in await check_invariants(connection)] == []
    await connection.close()
    async with running_app(settings) as app:
        assert await (await visit(app)).ask("Are you still there?")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER TABLE contacts DROP COLUMN display_name CASCADE", "contacts.display_name is gone"),
        ("ALTER TABLE contacts ADD COLUMN shoe_size INT NOT NULL", "is new and has to be given"),
        ("ALTER TABLE contacts ALTER COLUMN display_name TYPE VARCHAR(20)", "character varying(20) now"),
        ("CREATE UNIQUE INDEX one_name ON contacts (display_name)", "makes rows of contacts unique"),
        ("DROP FUNCTION name_pieces(text) CASCADE", "name_pieces(text) is gone"),
    ],
)
async def test_what_would_break_the_versions_before_is_noticed(
    empty_database_url: str, change: str, told: str
) -> None:
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute("CREATE TABLE contacts (id bigint, display_name text)")
    await connection.execute("CREATE FUNCTION name_pieces(text) RETURNS text LANGUAGE sql AS 'SELECT $1'")
    old = await Schema.of(connection)
    await connection.execute(change)
    assert told in " ".join(narrowed(old, await Schema.of(connection)))
    await connection.close()
