"""A role may do just what the table of grants says, and the whole program works as one that owns nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.read_models import Insights
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.partitions import MONTHS_OF, ensure_month_partitions
from shared.adapters.postgres.operations.dump import dump
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.operations.roles import (
    ALL,
    ONLY_ADDED,
    ONLY_ERASED,
    READ_VIEWS,
    SECRET,
    VIEWS_OF_TABLES,
    Role,
    list_privileges,
    render_roles_sql,
)
from shared.adapters.postgres.people.operator_auth import Operators, create_login_link
from shared.adapters.postgres.privacy.retention import RULES, PostgresRetention
from shared.core.values.errors import BadInput
from tests.acceptance.long_talks import FACTS, FILLER
from tests.conftest import DatabaseServer
from tests.kit.app_driver import running_app, settings_for, visit
from tests.kit.catalogue import load_columns
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.statements import find_statements

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_prefixes = count(1)
ROLES: tuple[Role, ...] = ("app", "erase", "migrate", "readonly")

FORBIDDEN = (
    "CREATE TABLE mine (id int)",
    "CREATE TEMPORARY TABLE mine (id int)",
    "CREATE SCHEMA mine",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE EXTENSION pg_trgm",
    "CREATE ROLE mine",
    "ALTER TABLE notes ADD COLUMN mine int",
    "ALTER TABLE entry_rows DISABLE TRIGGER entries_are_only_added",
    "ALTER TABLE audit DISABLE TRIGGER ALL",
    "DROP TABLE notes",
    "DROP TRIGGER audit_is_only_added ON audit",
    "TRUNCATE notes",
    "SET session_replication_role = replica",
    "SELECT pg_read_file('/etc/passwd')",
    "COPY (SELECT 1) TO PROGRAM 'true'",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A database whose administrator has made the roles; `of` is its address as one of them."""

    url: str
    prefix: str

    def of(self, role: Role) -> str:
        return re.sub(r"//[^@]*@", f"//{self.prefix}_{role}@", self.url)


@pytest.fixture
async def with_roles(database_url: str, database_server: DatabaseServer) -> AsyncIterator[House]:
    made = House(url=database_url, prefix=f"house_{next(_prefixes)}")
    connection = await asyncpg.connect(database_url)
    for _ in range(2):
        await connection.execute(render_roles_sql(made.prefix))  # a second time changes nothing
    yield made
    await connection.execute("REASSIGN OWNED BY " + f"{made.prefix}_migrate TO current_user")
    for role in ROLES:
        await connection.execute(f"DROP OWNED BY {made.prefix}_{role}")
    for role in ROLES:
        await connection.execute(f"DROP ROLE {made.prefix}_{role}")
    await connection.close()


@pytest.fixture
async def app_role(with_roles: House) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(with_roles.of("app"))
    yield connection
    await connection.close()


@pytest.mark.control("S39")
async def test_each_role_may_do_with_each_table_what_the_matrix_says(with_roles: House) -> None:
    assert set(RULES) == set(await load_columns(with_roles.url))
    connection = await asyncpg.connect(with_roles.url)
    for role in ROLES:
        for table in (*RULES, *VIEWS_OF_TABLES):
            may = [
                privilege
                for privilege in (*ALL, "TRUNCATE", "REFERENCES", "TRIGGER")
                if await connection.fetchval(
                    "SELECT has_table_privilege($1, $2, $3)", f"{with_roles.prefix}_{role}", table, privilege
                )
            ]
            owner = ["TRUNCATE", "REFERENCES", "TRIGGER"] if role == "migrate" else []
            assert may == [*list_privileges(role, VIEWS_OF_TABLES.get(table, table)), *owner], (role, table)
    for role in ROLES:
        rights = await connection.fetchrow(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles "
            "WHERE rolname = $1",
            f"{with_roles.prefix}_{role}",
        )
        assert rights is not None
        assert not any(rights.values())
    await connection.close()


@pytest.mark.control("S39")
async def test_each_role_reads_the_views(with_roles: House) -> None:
    connection = await asyncpg.connect(with_roles.url)
    found = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace"
    )
    assert {row["relname"] for row in found} == {*VIEWS_OF_TABLES, *READ_VIEWS}
    secret = await connection.fetch(
        "SELECT DISTINCT r.ev_class::regclass::text AS view FROM pg_depend d "
        "JOIN pg_rewrite r ON r.oid = d.objid WHERE d.refobjid = ANY ($1::text[]::regclass[])",
        sorted(SECRET),
    )
    assert secret == []
    for role in ROLES:
        for view in READ_VIEWS:
            assert await connection.fetchval(
                "SELECT has_table_privilege($1, $2, 'SELECT')", f"{with_roles.prefix}_{role}", view
            ), (role, view)
    await connection.close()


@pytest.mark.control("S39")
async def test_the_app_has_the_right_to_each_statement_of_the_stores(
    with_roles: House, app_role: Connection
) -> None:
    refused = {}
    for name, statement in find_statements().items():
        if statement.sql.lstrip().startswith("CREATE TEMPORARY"):
            continue  # PREPARE knows no such statement, and the probe goes on without it.
        transaction = app_role.transaction()
        await transaction.start()
        try:
            if ".privacy.erasure" in name:
                await app_role.execute(f"SET LOCAL ROLE {with_roles.prefix}_erase")
            await app_role.execute(f"PREPARE asked AS {statement.sql}")
            nulls = ", ".join(["NULL"] * (len(statement.rehearse()) - 1))
            await app_role.execute(f"EXPLAIN EXECUTE asked{f' ({nulls})' if nulls else ''}")
        except asyncpg.InsufficientPrivilegeError as error:
            refused[name] = str(error)
        finally:
            await transaction.rollback()
            await app_role.execute("DEALLOCATE ALL")
    assert refused == {}


@pytest.mark.control("S39")
async def test_the_app_cannot_change_the_schema_nor_reach_the_machine(app_role: Connection) -> None:
    for change in FORBIDDEN:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await app_role.execute(change)


@pytest.mark.control("S14", "S39")
async def test_the_app_cannot_change_what_is_only_added(app_role: Connection) -> None:
    for table in sorted(ONLY_ADDED | ONLY_ERASED):
        await cannot_be_changed(app_role, table)


async def cannot_be_changed(app_role: Connection, table: str) -> None:
    column = {"audit": "actor", "entry_rows": "author", "usage": "model", "audit_rows": "model_alias"}
    months = MONTHS_OF.get(table)
    places = [table, f"{months}_other"] if months else [table]
    if months:
        newest = await app_role.fetchval(
            "SELECT max(relname) FROM pg_class WHERE relkind = 'r' AND relname LIKE $1", f"{months}_2%"
        )
        places.append(newest)
    await app_role.execute("SELECT set_config('evertalk.erasing', 'yes', false)")
    for place in places:
        changes = [f"UPDATE {place} SET {column[table]} = 'eve'", f"TRUNCATE {place}"]
        if not place.endswith("_other"):
            changes.append(f"DELETE FROM {place}")
        for change in changes:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app_role.execute(change)


@pytest.mark.control("S39")
async def test_who_only_reads_sees_no_hash_and_writes_nothing(with_roles: House) -> None:
    readonly = await asyncpg.connect(with_roles.of("readonly"))
    assert await readonly.fetchval("SELECT count(*) FROM contacts") == 0
    for table in SECRET:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await readonly.execute(f"SELECT * FROM {table}")
    for change in (
        "INSERT INTO contacts DEFAULT VALUES",
        "SELECT make_months(3)",
        "SELECT drop_months('usage', 9)",
        "SELECT note_timeline()",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await readonly.execute(change)
    await readonly.close()


async def memory_and_summaries(guest: Any) -> None:
    for number in range(14):
        await guest.ask(f"{FACTS[number] if number < len(FACTS) else ''} Message {number}. {FILLER}")
        await guest.run_due_jobs()


@pytest.mark.control("S39", "S40")
async def test_the_whole_program_works_as_a_role_that_owns_nothing(
    with_roles: House, redis_url: str, provider: RunningFake, tmp_path: Any
) -> None:
    await provider.reset()
    await migrate(with_roles.of("migrate"))
    await migrate(with_roles.of("app"))  # nothing is left to do, and that is seen without any right
    settings = settings_for(
        with_roles.of("app"), redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        context_window=9_000, max_output=1_000, cap_total_per_day_usd="100",
    )  # fmt: skip
    async with running_app(settings) as app:
        guest = await visit(app)
        await memory_and_summaries(guest)
        assert await guest.one("SELECT count(*) FROM compactions WHERE kind = 'summary'") > 0
        assert await guest.one("SELECT count(*) FROM flushes WHERE outcome = 'saved'") > 0
        assert await guest.one("SELECT timeline FROM deployment") == "00000001"
        listed = await Insights(app.pool, timezone="UTC").load_overview()
        assert listed
        operators = Operators(app.pool)
        token = await operators.use_link(token=await create_login_link(with_roles.of("app")), source="::1")
        assert isinstance(token, str)
        assert await operators.authenticate(token) is not None
        assert await operators.find_broken_audit_link() is None
        await operators.close()
        retention = PostgresRetention(app.pool)
        for table in RULES:
            await retention.sweep(table)
        await ensure_month_partitions(with_roles.of("app"))
        await dump(with_roles.of("app"), tmp_path / "whole.dump")
        for args in ("everything", "everything yes"):
            await app.commands.run(
                session_id=guest.session_id, address_id=guest.address_id, name="forget", args=args
            )
        await guest.run_due_jobs()
        assert await guest.one("SELECT count(*) FROM erasures WHERE state = 'done'") == 1
        assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%Ingrid%'") == 0
    connection = await asyncpg.connect(with_roles.of("app"))
    assert await check_invariants(connection) == []
    await connection.close()


@pytest.mark.control("S39")
async def test_months_that_come_later_are_as_closed_as_those_that_are_there(with_roles: House) -> None:
    connection = await asyncpg.connect(with_roles.url)
    await connection.execute("SELECT make_months(4)")
    months = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relname ~ '^usage_2' AND relkind = 'r'"
    )
    assert len(months) == 5
    for row in months:
        for privilege, may in (("SELECT", True), ("INSERT", False), ("UPDATE", False), ("DELETE", False)):
            found = await connection.fetchval(
                "SELECT has_table_privilege($1, $2, $3)",
                f"{with_roles.prefix}_app",
                row["relname"],
                privilege,
            )
            assert found is may, (row["relname"], privilege)
    await connection.close()


@pytest.mark.parametrize("prefix", ["", "Ever", "a;b", "a b", "1a", "a" * 50])
def test_a_prefix_that_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(BadInput):
        render_roles_sql(prefix)
