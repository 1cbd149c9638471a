"""An upgrade backs up first, brings data of an older PostgreSQL along, and gives up without harm."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.embedded.binaries import Binaries, find_binaries
from shared.adapters.embedded.process_user import find_account
from shared.adapters.postgres.db.migrate import MigrationFailed, migrate, read_schema_state
from shared.adapters.postgres.db.readiness import FLOOR, LEAST_POSTGRES, SchemaUnknown, find_newest_revision
from shared.bootstrap.process import EXIT_BAD_SETTINGS
from shared.cli.startup.assistant import CannotStart
from shared.cli.startup.steps import migrate_with_backup
from shared.cli.upgrade import CannotUpgrade, read_upgrade_arguments, run_upgrade
from shared.diagnostics.server_checks import check_schema
from shared.runtime import read_version
from tests.acceptance.operations.conftest import KEPT, LATER, ROOT, Installation, words_of
from tests.acceptance.operations.copies import MESSAGES, silent
from tests.kit.app_driver import running_app, settings_for, visit

OLD = Path(f"/usr/lib/postgresql/{LEAST_POSTGRES}/bin")
"""Debian's, where it is installed: the real thing, and four majors are far enough."""
NO_REDIS = "redis://127.0.0.1:1/0"
FIRST = "0044"
"""The schema that the history of migrations begins with."""


def backups_of(installation: Installation) -> int:
    return len(list((installation.data / "backups").glob("*.tar")))


async def test_an_upgrade_backs_up_first_and_says_what_it_did(installation: Installation) -> None:
    said: list[str] = []
    wish = read_upgrade_arguments([])
    assert await run_upgrade(wish, settings=installation.settings, say=said.append) == 0, said
    assert backups_of(installation) == 2
    assert any(line.endswith("nothing had to change.") for line in said), said
    assert LATER in await words_of(installation)


@pytest.mark.parametrize("half_way", [False, True])
async def test_a_migration_that_fails_leaves_the_state_of_before(
    installation: Installation, half_way: bool
) -> None:
    async def fails(database_url: str) -> None:
        connection = await asyncpg.connect(database_url)
        if half_way:
            await connection.execute("UPDATE alembic_version SET version_num = 'half'")
            await connection.execute("TRUNCATE entry_rows, events CASCADE")
        await connection.close()
        raise MigrationFailed("no such column")

    wish = read_upgrade_arguments([])
    with pytest.raises(CannotUpgrade, match="put back" if half_way else "stayed at"):
        await run_upgrade(wish, settings=installation.settings, say=silent, migrate=fails)
    facts = (
        "SELECT (SELECT count(*) FROM entries) > 4 AND (SELECT version_num FROM alembic_version) <> 'half'"
    )
    assert await installation.ask(facts)


async def older(url: str) -> None:
    """As the schema of a former Evertalk with data in it; what the newest migration adds is found missing."""
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()
    await migrate(url, revision=FIRST)


@pytest.mark.parametrize("keep", [7, 0])
async def test_up_backs_up_before_schema_change_unless_disabled(
    installation: Installation, keep: int, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = installation.settings.model_copy(update={"backup_keep": keep})
    before = backups_of(installation)
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        await older(servers.database_url)
        await migrate_with_backup(settings, servers.database_url, say=print)
        newest = (await read_schema_state(servers.database_url)).newest
        assert backups_of(installation) - before == (1 if keep else 0)
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Schema ")]
        assert len(said) == (1 if keep else 0)
        assert all(f"{FIRST} → {newest}" in line and ".tar" in line for line in said)
        await migrate_with_backup(settings, servers.database_url, say=print)
        assert backups_of(installation) - before == (1 if keep else 0), "nothing changes any more"
        assert capsys.readouterr().out == ""


async def test_older_program_leaves_newer_schema_unchanged(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started again beside the new one, or gone back to: migrations only add, so it works on."""
    before, said = backups_of(installation), list[str]()
    wish = read_upgrade_arguments([])
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        url = servers.database_url
        settings = installation.settings.model_copy(update={"database_url": SecretStr(url)})
        await is_of_a_newer_version(url)
        newer = f"9999 of Evertalk 7.1.0, newer than this version ({read_version()})"
        await migrate_with_backup(settings, url, say=print)
        assert newer in capsys.readouterr().out
        assert await run_upgrade(wish, settings=settings, say=said.append) == 0
        assert any(newer in line for line in said)
        done = await asyncio.to_thread(_started, installation, url, NO_REDIS, "shared", "migrate")
        assert (done.returncode, newer in done.stdout) == (0, True)
        await migrate(url)
        assert (await read_schema_state(url)).found == "9999"
        assert backups_of(installation) == before, "nothing changes"
        (finding,) = await check_schema(settings, url)
        assert (finding.level, newer in finding.what) == ("warn", True)
        assert finding.advice == "Upgrade this machine to Evertalk 7.1.0."


async def is_of_a_newer_version(url: str, revision: str = "9999") -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE alembic_version SET version_num = $1", revision)
    await connection.execute("UPDATE deployment SET migrated_by = '7.1.0'")
    await connection.close()


FOREIGN = "schema is at 0044_of_others, which this version"
INSTEAD = "Start the program that made the data, or restore a backup of Evertalk: ./evertalk restore FILE"


async def test_unknown_schema_is_refused_in_one_sentence_and_left_unchanged(
    installation: Installation,
) -> None:
    """By every verb, the doctor, and each process that is started by hand."""
    before, said = backups_of(installation), list[str]()
    wish = read_upgrade_arguments([])
    async with EmbeddedServers(installation.data / "servers") as servers:
        url = servers.database_url
        settings = installation.settings.model_copy(update={"database_url": SecretStr(url)})
        await is_of_a_newer_version(url, "0044_of_others")
        with pytest.raises(CannotStart, match=FOREIGN) as refused:
            await migrate_with_backup(settings, url, say=print)
        assert refused.value.advice == INSTEAD
        with pytest.raises(SchemaUnknown, match=FOREIGN):
            await run_upgrade(wish, settings=settings, say=said.append)
        (finding,) = await check_schema(settings, url)
        assert (finding.level, finding.advice) == ("fail", INSTEAD)
        known = f"it knows {FLOOR} to {find_newest_revision()}"
        for words in (["shared", "migrate"], ["shared", "login-link"], ["shared", "operator", "list"]):
            done = await asyncio.to_thread(_started, installation, url, servers.redis_url, *words)
            assert done.returncode == 1
            assert done.stderr.splitlines() == [
                f"evertalk: {FOREIGN} ({read_version()}) does not know; {known}",
                f"  {INSTEAD}",
            ]
        for name in ("web", "worker"):
            done = await asyncio.to_thread(_started, installation, url, servers.redis_url, name)
            assert done.returncode == EXIT_BAD_SETTINGS
            assert f"evertalk {name}: {FOREIGN}" in done.stderr
            assert f"evertalk {name}: {INSTEAD}" in done.stderr
            assert "Traceback" not in done.stdout + done.stderr
        assert (await read_schema_state(url)).found == "0044_of_others"
    assert backups_of(installation) == before


async def test_command_says_that_it_upgraded_the_schema(installation: Installation) -> None:
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        await older(servers.database_url)
        lines = []
        for _ in range(2):
            verb = ("shared", "operator", "list")
            done = await asyncio.to_thread(_started, installation, servers.database_url, NO_REDIS, *verb)
            assert done.returncode == 0, done.stderr
            lines.append(done.stderr.splitlines())
    ours = f"{find_newest_revision()} of Evertalk {read_version()}"
    assert lines == [[f"Schema {FIRST} of Evertalk 0.1.0 → {ours}."], []]


def _started(
    installation: Installation, database_url: str, redis_url: str, *words: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(installation.data),
        "DATABASE_URL": database_url, "REDIS_URL": redis_url, "EVERTALK_HTTP_PORT": "0",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-P", "-m", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


async def test_up_keeps_schema_when_disk_has_no_room_for_backup(
    installation: Installation,
) -> None:
    in_the_way = installation.data / "not-a-folder"
    in_the_way.write_text("x")
    settings = installation.settings.model_copy(update={"backup_dir": in_the_way})
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        await older(servers.database_url)
        with pytest.raises(CannotStart, match="no backup was made") as refused:
            await migrate_with_backup(settings, servers.database_url, say=print)
        assert "EVERTALK_BACKUP_KEEP=0" in refused.value.advice
        assert (await read_schema_state(servers.database_url)).found == FIRST


async def test_data_of_an_unknown_postgres_are_left_alone_with_advice(installation: Installation) -> None:
    version = installation.data / "servers" / "pg" / "PG_VERSION"
    version.write_text("9\n")
    done = installation.run("upgrade")
    assert done.returncode == 1
    assert "the programs of 9 are not here; nothing was changed" in done.stderr
    assert "--old-postgres" in done.stderr
    assert "./evertalk restore" in done.stderr
    version.write_text("18\n")
    assert await installation.ask(MESSAGES) > 0


@pytest.mark.skipif(not (OLD / "initdb").exists(), reason="needs the programs of PostgreSQL 15")
async def test_data_of_an_older_postgres_are_carried_over(installation: Installation) -> None:
    await _made_by_the_old_one(installation)
    refused = installation.run("doctor", EVERTALK_HTTP_PORT="0")
    assert "was made by PostgreSQL 15, this is 18" in refused.stdout
    assert "./evertalk upgrade" in refused.stdout
    said: list[str] = []
    wish = read_upgrade_arguments(["--old-postgres", str(OLD)])
    assert await run_upgrade(wish, settings=installation.settings, say=said.append) == 0, said
    assert (installation.data / "servers" / "pg" / "PG_VERSION").read_text().strip() == "18"
    (aside,) = installation.data.glob("before-upgrade-*")
    assert (aside / "servers" / "pg" / "PG_VERSION").read_text().strip() == "15"
    words = await words_of(installation)
    assert KEPT in words
    assert await installation.ask("SELECT log_epoch FROM deployment") == 1


async def _made_by_the_old_one(installation: Installation) -> None:
    """A conversation in a folder that the old PostgreSQL has made."""
    servers = installation.data / "servers"
    await asyncio.to_thread(_old_cluster, servers)
    binaries = Binaries(postgres_bin=OLD, valkey_server=find_binaries().valkey_server, major=15)
    async with EmbeddedServers(servers, binaries=binaries) as running:
        await migrate(running.database_url)
        settings = settings_for(running.database_url, running.redis_url, data_dir=installation.data)
        async with running_app(settings) as app:
            await (await visit(app)).ask(f"Hello {KEPT}")


def _old_cluster(servers: Path) -> None:
    shutil.rmtree(servers / "pg")
    account = find_account(servers)
    account.folder(servers / "pg")
    subprocess.run(
        [OLD / "initdb", "-D", servers / "pg", "-U", "postgres", "--locale", "C", "-E", "UTF8", "--no-sync"],
        check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL, **account.spawn_options(),
    )  # fmt: skip
