"""Rights in a PostgreSQL server of the operator's: four roles, and the SQL that creates them.

`app` runs Evertalk: it can change neither the schema nor messages, usage or audit. `erase` is assumed for the
transaction of an erasure. `migrate` owns everything. `readonly` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.migrate import migrate_or_explain
from shared.adapters.postgres.db.partitions import MONTHS_OF, PARTITIONED
from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.privacy.retention import RULES
from shared.core.values.errors import BadInput

Role: TypeAlias = Literal["app", "erase", "migrate", "readonly"]
PREFIX = "evertalk"
"""Beginning of the roles' names unless the operator chooses another one."""
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,40}")

ADDED = ("SELECT", "INSERT")
"""Privileges on a table whose rows are only added and read."""
ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""Privileges on a table whose rows are also changed and deleted."""
ONLY_ADDED = frozenset({"audit"})
"""Tables to which rows are only appended."""
ONLY_ERASED = frozenset({"entry_rows", "usage", "audit_rows"})
"""Tables that only an erasure changes."""
ONLY_READ = frozenset({"deployment"})
"""Tables that the program only reads.

The owner changes them, as in a restore, and so does `note_timeline`.
"""
SECRET = frozenset(
    {
        "api_keys", "login_links", "login_places", "login_tries", "one_time_codes", "operator_factors",
        "operator_sessions", "operator_steps", "operators", "push_keys", "push_subscriptions",
        "recovery_codes", "site_secrets", "stored_settings", "visitors",
    }
)  # fmt: skip
"""Tables with hashes and sealed secrets, which `readonly` cannot read."""
VIEWS_OF_TABLES = {"entries": "entry_rows", "turn_context_audit": "audit_rows"}
"""Views that a role may use as it may use their table."""
READ_VIEWS = (
    "customer_drafts", "delivery_problems", "due_uncertain_notices", "job_options", "listed_handovers",
    "session_list_now", "session_states", "session_summaries", "telegram_chats", "turn_counts",
    "turns_unknown_to_their_holder",
)  # fmt: skip
"""Views that every role reads; a view of SECRET tables may not be among them."""


def list_privileges(role: Role, table: str) -> Sequence[str]:
    """Return the privileges of a role on a table, such as "SELECT"; empty if it has none."""
    match role:
        case "migrate":
            return ALL
        case "readonly":
            return () if table in SECRET else ("SELECT",)
        case _ if table in ONLY_READ:
            return ("SELECT",)
        case _ if table in ONLY_ADDED or (role == "app" and table in ONLY_ERASED):
            return ADDED
        case _:
            return ALL


def render_roles_sql(prefix: str = PREFIX) -> str:
    """Return the SQL that creates the roles; PostgreSQL's administrator runs it once and after each upgrade.

    Raises BadInput if the prefix is invalid.
    """
    if not _PREFIX.fullmatch(prefix):
        raise BadInput(
            prefix, advice="A prefix begins with a letter and has small letters, digits and _ only."
        )
    names = _build_names(prefix)
    return "\n".join(
        ("BEGIN;", *_render_roles(names), *_render_owners(names), *_grants(names), "COMMIT;", "")
    )


async def migrate_and_grant(database_url: str) -> None:
    """Migrate to the newest schema and, if the four roles exist, renew their grants.

    Raises SchemaRefused and MigrationFailed; granting raises StorageUnavailable and exceptions of asyncpg.
    """
    await migrate_or_explain(database_url)
    await renew_grants(database_url)


async def renew_grants(database_url: str) -> bool:
    """Grant the roles their privileges on all tables again, in one transaction.

    Returns False, without effect, unless the four roles exist and the connection's role is one of them. Needs
    the role `PREFIX_migrate`, which owns the tables; no administrator. Raises StorageUnavailable and
    exceptions of asyncpg.
    """
    async with open_connection(database_url) as connection:
        prefix = (await connection.fetchval("SELECT current_user")).removesuffix("_migrate")
        names = _build_names(prefix)
        found = await connection.fetchval(*_COUNT_ROLES(names=[*names.values()]))
        if found != len(names):
            return False
        await connection.execute("\n".join(("BEGIN;", *_grants(names), "COMMIT;")))
    return True


def _build_names(prefix: str) -> Mapping[Role, str]:
    return {
        "app": f"{prefix}_app", "erase": f"{prefix}_erase",
        "migrate": f"{prefix}_migrate", "readonly": f"{prefix}_readonly",
    }  # fmt: skip


def _render_roles(names: Mapping[Role, str]) -> Iterator[str]:
    for role, name in names.items():
        # NOINHERIT: `app` has the rights of `erase` only after SET ROLE.
        kind = "NOLOGIN" if role == "erase" else "LOGIN NOINHERIT" if role == "app" else "LOGIN"
        yield (f"DO $$ BEGIN IF to_regrole('{name}') IS NULL THEN CREATE ROLE {name} {kind}; END IF; END $$;")
    yield f"GRANT {names['erase']} TO {names['app']};"


def _render_owners(names: Mapping[Role, str]) -> Iterator[str]:
    """Yield statements that make `migrate` the owner of everything, and the only role that creates."""
    owner = names["migrate"]
    yield _OWNED.format(owner=owner)
    everybody = ", ".join(names[role] for role in names if role != "migrate")
    yield (
        f"DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC, {everybody}', "
        f"current_database()); EXECUTE format('GRANT CONNECT ON DATABASE %I TO {names['app']}, "
        f"{names['readonly']}', current_database()); EXECUTE format('ALTER DATABASE %I OWNER TO {owner}', "
        "current_database()); END $$;"
    )
    yield "REVOKE CREATE ON SCHEMA public FROM PUBLIC;"
    yield f"GRANT USAGE ON SCHEMA public TO {everybody};"
    yield f"GRANT CREATE ON SCHEMA public TO {owner};"


def _grants(names: Mapping[Role, str]) -> Iterator[str]:
    app, erase, readonly = names["app"], names["erase"], names["readonly"]
    three = f"{app}, {erase}, {readonly}"
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, {three};"
    yield f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC, {three};"
    roles: tuple[Role, ...] = ("app", "erase", "readonly")
    for table in RULES:
        for role in roles:
            if may := list_privileges(role, table):
                yield f"GRANT {', '.join(may)} ON {table} TO {names[role]};"
    for role in roles:
        for view, table in VIEWS_OF_TABLES.items():
            yield f"GRANT {', '.join(list_privileges(role, table))} ON {view} TO {names[role]};"
    yield f"GRANT SELECT ON {', '.join(('alembic_version', *READ_VIEWS))} TO {three};"
    for table in PARTITIONED:
        # Rows without a month partition are stored here, and deleted when they are too old.
        yield f"GRANT SELECT, DELETE ON {MONTHS_OF[table]}_other TO {app};"
    # A backup reads months one by one, and the states of sequences.
    yield _MONTHS.format(app=app)
    yield f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {app}, {erase};"
    yield "REVOKE ALL ON FUNCTION make_months(integer), drop_months(text, integer) FROM PUBLIC;"
    yield f"GRANT EXECUTE ON FUNCTION make_months(integer), drop_months(text, integer) TO {app};"
    yield "REVOKE ALL ON FUNCTION note_timeline() FROM PUBLIC;"
    yield f"GRANT EXECUTE ON FUNCTION note_timeline() TO {app};"
    # A table of the next version must work before this script is run again.
    owner = names["migrate"]
    for who in (app, erase):
        yield f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT {', '.join(ALL)} ON TABLES TO {who};"
        yield f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT USAGE, SELECT ON SEQUENCES TO {who};"


_COUNT_ROLES = Named("""
SELECT count(*) FROM pg_roles
 WHERE rolname = ANY (:names::text[]) AND current_user::text = ANY (:names::text[])
""")
_OURS = "NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = {oid} AND d.deptype = 'e')"
_OWNED = f"""DO $$
DECLARE statement text;
BEGIN
  FOR statement IN
    SELECT format('ALTER TABLE public.%I OWNER TO {{owner}}', c.relname) FROM pg_class c
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
       AND {_OURS.format(oid="c.oid")}
    UNION ALL
    SELECT format('ALTER FUNCTION %s OWNER TO {{owner}}', p.oid::regprocedure) FROM pg_proc p
     WHERE p.pronamespace = 'public'::regnamespace AND {_OURS.format(oid="p.oid")}
  LOOP
    EXECUTE statement;
  END LOOP;
END $$;"""
_MONTHS = """DO $$
DECLARE month text;
BEGIN
  FOR month IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE c.relkind = 'r' AND i.inhparent IN ('usage'::regclass, 'audit_rows'::regclass)
  LOOP
    EXECUTE format('GRANT SELECT ON public.%I TO {app}', month);
  END LOOP;
END $$;"""
