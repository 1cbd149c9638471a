"""Data of every numbered version are restored and upgraded, and their conversations continue."""

from __future__ import annotations

import lzma
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.files.archive import unpack
from shared.adapters.postgres.db import readiness
from shared.adapters.postgres.db.bridge import run_former
from shared.adapters.postgres.db.migrate import create_engine, migrate_or_explain, read_schema_state
from shared.adapters.postgres.db.readiness import Release, SchemaTooOld, Standing, find_newest_revision
from shared.adapters.postgres.operations.dump import restore
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.cli.restore import restore_embedded
from shared.cli.startup.assistant import CannotStart
from shared.cli.startup.steps import migrate_with_backup
from shared.cli.upgrade import read_upgrade_arguments, run_upgrade
from shared.config.settings import Settings, load_settings
from shared.core.ops.backups import DATABASE, BadBackup
from shared.diagnostics.server_checks import check_schema
from shared.runtime import read_version
from tests.acceptance.operations.copies import silent
from tests.integration.adapters.postgres.db.schemas import schema_of
from tests.kit.app_driver import Visit, running_app, settings_for
from tests.kit.canaries import tables_of
from tests.kit.former_data import KEEPSAKE, NOTE, PROGRAMS, SECRET, FormerProgram
from tests.kit.night import rest_at_night

each_former_program = pytest.mark.parametrize(
    "program", rest_at_night(PROGRAMS, by_day=(PROGRAMS[0], PROGRAMS[-1])), ids=lambda one: one.backup.name
)


def prepare(folder: Path, program: FormerProgram) -> tuple[Settings, Path]:
    """Write the key of the former installation and its backup."""
    data = folder / "data"
    data.mkdir(mode=0o711)
    (data / "secret_key").write_text(SECRET)
    (data / "secret_key").chmod(0o600)
    backup = folder / "former.tar"
    backup.write_bytes(lzma.decompress(program.backup.read_bytes()))
    return load_settings(data_dir=data), backup


@asynccontextmanager
async def former_database(folder: Path, program: FormerProgram) -> AsyncIterator[tuple[Settings, str, str]]:
    """Servers that hold the data as the former program left them."""
    settings, backup = prepare(folder, program)
    (folder / "parts").mkdir()
    unpack(backup, folder / "parts")
    async with EmbeddedServers(settings.data_dir / "servers") as servers:
        await restore(folder / "parts" / DATABASE, servers.database_url)
        external = settings.model_copy(update={"database_url": SecretStr(servers.database_url)})
        yield external, servers.database_url, servers.redis_url


async def continue_conversation(database_url: str, redis_url: str, data_dir: Path, fresh_url: str) -> None:
    """Check schema, invariants and text of the upgraded data, then ask a question in the same session."""
    connection = await asyncpg.connect(database_url)
    assert [str(line) for line in await check_invariants(connection)] == []
    first = await connection.fetchrow("SELECT session_id, address_id FROM turns ORDER BY 1, turn_no LIMIT 1")
    assert first is not None
    session, address = first
    before = await connection.fetchval("SELECT max(seq) FROM entries WHERE session_id = $1", session)
    assert await connection.fetchval("SELECT count(*) FROM session_list") == 2
    stored = await tables_of(database_url)
    assert (KEEPSAKE in stored, NOTE in stored) == (True, True)
    assert await flat_schema_of(database_url) == await flat_schema_of(fresh_url)
    settings = settings_for(database_url, redis_url, data_dir=data_dir, secret_key=SECRET)
    async with running_app(settings) as app:
        guest = Visit(app=app, session_id=session, address_id=address)
        await guest.say("When does my ferry leave?", cid="after-the-upgrade")
        assert await guest.answered()
    assert await connection.fetchval("SELECT max(seq) FROM entries WHERE session_id = $1", session) > before
    assert [str(line) for line in await check_invariants(connection)] == []
    await connection.close()


async def flat_schema_of(database_url: str) -> str:
    """Return the schema without parentheses: PostgreSQL nests `BETWEEN` in another way after a restore."""
    return re.sub("[()]", "", await schema_of(database_url))


@each_former_program
async def test_backup_of_a_former_version_is_restored(
    program: FormerProgram, open_folder: Path, database_url: str
) -> None:
    settings, backup = prepare(open_folder, program)
    said: list[str] = []
    assert await restore_embedded(settings, backup, say=said.append) == 0, said
    change = f"Schema {program.revision} of Evertalk {program.version} → {find_newest_revision()}"
    assert any(change in line for line in said), said
    async with EmbeddedServers(settings.data_dir / "servers") as servers:
        await continue_conversation(servers.database_url, servers.redis_url, settings.data_dir, database_url)


@each_former_program
async def test_upgrade_backs_up_data_of_a_former_version_first(
    program: FormerProgram, open_folder: Path, database_url: str
) -> None:
    async with former_database(open_folder, program) as (settings, url, redis_url):
        (finding,) = await check_schema(settings, url)
        about = f"schema is at {program.revision} of Evertalk {program.version}"
        assert (finding.level, about in finding.what) == ("warn", True)
        said: list[str] = []
        assert await run_upgrade(read_upgrade_arguments([]), settings=settings, say=said.append) == 0, said
        assert len(list(settings.backups.glob("*.tar"))) == 1
        assert any(line.startswith(f"Schema {program.revision} of Evertalk 0.1.0 →") for line in said)
        (finding,) = await check_schema(settings, url)
        assert (finding.level, finding.what.endswith(f"the newest of this version ({read_version()})")) == (
            "ok",
            True,
        )
        await continue_conversation(url, redis_url, settings.data_dir, database_url)


@each_former_program
async def test_up_backs_up_and_upgrades_data_of_a_former_version(
    program: FormerProgram, open_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with former_database(open_folder, program) as (settings, url, _):
        await migrate_with_backup(settings, url, say=print)
        (backup,) = settings.backups.glob("*.tar")
        assert f"{program.revision} → {find_newest_revision()}" in capsys.readouterr().out
        state = await read_schema_state(url)
        assert (state.standing, state.made_by) == (Standing.SAME, read_version())
    # What was made just before the upgrade can be restored, too.
    assert await restore_embedded(load_settings(data_dir=settings.data_dir), backup, say=silent) == 0


@pytest.mark.parametrize(
    "revision", rest_at_night(["0001", "0009", "0014", "0026", "0033"], by_day=("0001", "0033"))
)
async def test_upgrade_backs_up_the_first_schemas_too(revision: str, open_folder: Path) -> None:
    """They lack tables that a backup of today reads, such as the log of erasures."""
    data = open_folder / "data"
    data.mkdir(mode=0o711)
    async with EmbeddedServers(data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        url = servers.database_url
        engine = create_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(run_former, revision)
        await engine.dispose()
        settings = load_settings(data_dir=data, secret_key=SECRET, database_url=url)
        said: list[str] = []
        assert await run_upgrade(read_upgrade_arguments([]), settings=settings, say=said.append) == 0, said
        assert (await read_schema_state(url)).standing is Standing.SAME
    (backup,) = settings.backups.glob("*.tar")
    own = load_settings(data_dir=data, secret_key=SECRET)
    assert await restore_embedded(own, backup, say=said.append) == 0, said


LATER = (
    Release(version="0.1.0", floor="0044", newest="0060"),
    Release(version="0.2.0", floor="0001", newest="0065"),
    Release(version="0.9.0", floor="0061", newest="0099"),
)
STOP = "Stop at Evertalk 0.2.0 first: install it, run ./evertalk upgrade, then install this version."


async def test_data_below_the_floor_are_refused_with_the_version_to_stop_at(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAMS[0]
    async with former_database(open_folder, program) as (settings, url, _):
        monkeypatch.setattr(readiness, "FLOOR", "0061")
        monkeypatch.setattr(readiness, "load_releases", lambda: LATER)
        refusal = (
            f"schema is at 0036 of Evertalk 0.1.0; this version ({read_version()}) upgrades from 0061 on"
        )
        with pytest.raises(SchemaTooOld) as refused:
            await run_upgrade(read_upgrade_arguments([]), settings=settings, say=silent)
        assert (str(refused.value), refused.value.advice) == (refusal, STOP)
        with pytest.raises(SchemaTooOld):
            await migrate_or_explain(url)
        with pytest.raises(CannotStart, match="upgrades from 0061 on") as stopped:
            await migrate_with_backup(settings, url, say=print)
        assert stopped.value.advice == STOP
        (finding,) = await check_schema(settings, url)
        assert (finding.level, finding.what, finding.advice) == ("fail", refusal, STOP)
        assert (await read_schema_state(url)).found == "0036"
        assert not settings.backups.exists()
    with pytest.raises(BadBackup, match="upgrades from 0061 on") as unusable:
        await restore_embedded(
            load_settings(data_dir=settings.data_dir), open_folder / "former.tar", say=silent
        )
    assert unusable.value.advice == STOP
