"""Runs `evertalk doctor`: checks everything that a start depends on, and prints what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from shared.adapters.embedded import EmbeddedServerFailed
from shared.adapters.embedded.binaries import find_binaries
from shared.adapters.encryption import CannotUnseal
from shared.bootstrap.stored_settings import load_in_force, open_stored_settings
from shared.cli.servers import open_servers
from shared.config.settings import BadSettings, Settings, load_settings
from shared.config.stored import find_locked, is_sealed
from shared.diagnostics import local_checks as local
from shared.diagnostics import row_checks as rows
from shared.diagnostics import server_checks as server
from shared.diagnostics.checks import Check, Finding, run_checks
from shared.diagnostics.server_checks import check_bots, check_bots_in_service
from shared.diagnostics.write_checks import check_database_writes, check_redis_writes

HERE = (
    local.check_python, local.check_folder, local.check_port, local.check_model, local.check_prices,
    local.check_pruning_plug_ins, local.check_mcp, check_bots, local.check_backups,
)  # fmt: skip
"""Checks of this machine, before any server is asked."""
REDIS = Check(server.check_redis, "Redis", "REDIS_URL")
REDIS_WRITES = Check(check_redis_writes, "Redis rejects writes", "REDIS_URL")
POSTGRES = Check(server.check_postgres, "PostgreSQL")
WRITES = Check(check_database_writes, "PostgreSQL rejects writes")
POOLER, SCHEMA = Check(server.check_pooler, "the pooler"), Check(server.check_schema, "the schema")
STORED = Check(server.check_stored, "the data")
ROWS = (
    Check(rows.check_reminders, "reminders"), Check(rows.check_compaction_hook, "the hook"),
    Check(rows.check_pruning_rules, "pruning rules"),
    Check(check_bots_in_service, "the bots"), Check(rows.check_models, "models"),
    Check(rows.check_spending, "spending"), Check(rows.check_agents, "the agents"),
    Check(server.check_hosts, "the hosts"), Check(rows.check_sites, "the sites"),
)  # fmt: skip
"""Checks of stored rows, for a database with the newest schema."""


def run_doctor() -> int:
    """Run all checks and print their findings; return 0 if Evertalk can start, else 1."""
    say = partial(print, flush=True)
    found = list(local.check_settings())
    for finding in found:
        say(finding)
    if any(finding.level == "fail" for finding in found):
        return 1
    return asyncio.run(_run_checks(load_settings(), say))


async def _load_in_force(settings: Settings, url: str) -> tuple[Settings, Sequence[Finding]]:
    """Return the settings that running processes use, and a finding about stored secrets.

    If the stored settings cannot be used, return `settings` and a finding that says why.
    """
    try:
        async with open_stored_settings(url, settings) as store:
            found = await store.load()
        in_force = await load_in_force(url, settings)
    except (BadSettings, CannotUnseal) as error:
        advice = getattr(error, "advice", "Change them on the dashboard's page Settings.")
        return settings, [Finding("fail", f"stored settings cannot be used: {error}", advice)]
    names = sorted(name for name in found.values if name not in find_locked() and is_sealed(name))
    if not names:
        return in_force, []
    return in_force, [Finding("ok", f"secrets: {', '.join(f'{name} from the database' for name in names)}")]


async def _run_checks(settings: Settings, say: Callable[[Finding], None]) -> int:
    """Run all checks; return 0 if none failed, else 1."""
    levels = await run_checks(map(Check, HERE), settings, say=say)
    try:
        if settings.embedded_postgres or settings.embedded_redis:
            find_binaries()
            say(Finding("ok", "programs of the embedded servers are installed"))
        async with open_servers(settings) as (database_url, redis_url):
            levels |= (redis := await run_checks((REDIS,), settings, redis_url, say=say))
            if "fail" not in redis:
                levels |= await run_checks((REDIS_WRITES,), settings, redis_url, say=say)
            look = partial(run_checks, settings=settings, url=database_url, say=say)
            levels |= (there := await look((POSTGRES,)))
            if "fail" not in there:
                levels |= await look((WRITES, POOLER))
                levels |= (schema := await look((SCHEMA,)))
                if "fail" not in schema:
                    levels |= await look((STORED,))
                if schema == {"ok"}:
                    in_force, finding = await _load_in_force(settings, database_url)
                    for line in finding:
                        say(line)
                    levels |= {line.level for line in finding}
                    levels |= await run_checks(ROWS, in_force, database_url, say=say)
    except EmbeddedServerFailed as error:
        say(Finding("fail", str(error), error.advice))
        return 1
    return int("fail" in levels)
