"""A restored state is whole, forgets again what was forgotten since, and is never half in its place."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import pytest

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.embedded.atomic_swap import JOURNAL
from shared.adapters.embedded.folders import FolderLock
from shared.adapters.files.archive import open_archive
from shared.adapters.files.erasure_file import ErasureFile
from shared.adapters.postgres.operations.dump import DumpFailed
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.cli.backup import (
    BackupFailed,
    copy_erasures,
    make_backup,
    read_backup_arguments,
    run_backup,
    show_backups,
    verify_backup,
)
from shared.cli.restore import STAGE, CannotRestore, restore_embedded, restore_external
from shared.config.settings import load_settings
from shared.core.ops.backups import BadBackup, parse_made_at, read_manifest
from tests.acceptance.operations.conftest import ERASED, FORGOTTEN, KEPT, LATER, NOTED, Installation, words_of
from tests.acceptance.operations.copies import MESSAGES, silent
from tests.kit.deployment.processes import CRASHED


def state_of(data: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file but locks and logs."""
    left_out = ("lock", ".lock", "log", ".jsonl", ".pid", "run")
    return {
        str(path.relative_to(data)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(data.rglob("*"))
        if path.is_file() and not path.name.endswith(left_out) and not path.is_symlink()
    }


async def invariants_of(installation: Installation) -> list[str]:
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        connection = await asyncpg.connect(servers.database_url)
        try:
            return [str(line) for line in await check_invariants(connection)]
        finally:
            await connection.close()


async def test_what_was_there_comes_back_and_what_was_forgotten_since_does_not(
    installation: Installation,
) -> None:
    old = read_manifest(open_archive(installation.backup)).log_epoch
    said: list[str] = []
    assert await restore_embedded(installation.settings, installation.backup, say=said.append) == 0, said
    words = await words_of(installation)
    assert KEPT in words
    assert LATER not in words
    for canary in (FORGOTTEN, ERASED, NOTED):
        assert canary not in words, canary
    assert "erasures done again: 3" in "\n".join(said)
    assert await invariants_of(installation) == []
    assert (installation.data / "workspaces" / "ada" / "SOUL.md").read_text() == "As it was."
    assert (installation.data / "secret_key").read_text() == "k" * 48
    facts = "SELECT array[log_epoch, (SELECT count(*) FROM login_links)] FROM deployment"
    epoch, links = await installation.ask(facts)
    assert epoch > old
    assert links == 0
    (aside,) = installation.data.glob("before-restore-*")
    assert (aside / "workspaces" / "ada" / "SOUL.md").read_text() == "Changed since."
    assert (aside / "servers" / "pg" / "PG_VERSION").is_file()
    assert not (installation.data / STAGE).exists()
    assert not (installation.data / JOURNAL).exists()
    await _restored_again(installation)


async def _restored_again(installation: Installation) -> None:
    """A later backup knows of what was erased again: who came back is not forgotten for what they say now."""
    settings = installation.settings
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        made = await make_backup(settings, servers.database_url, folder=settings.backups)
        epoch = made.manifest.log_epoch
    said: list[str] = []
    assert await restore_embedded(settings, made.path, say=said.append) == 0
    assert "erasures done again: 0" in "\n".join(said)
    assert await installation.ask("SELECT log_epoch FROM deployment") > epoch


async def test_a_new_machine_takes_the_key_of_the_backup(installation: Installation) -> None:
    there = Installation(data=installation.data / "new", backup=installation.backup)
    log = installation.data / "backups" / "erasures.jsonl"
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        await copy_erasures(servers.database_url, ErasureFile(log))
    assert await restore_embedded(there.settings, there.backup, erasures=log, say=silent) == 0
    assert (there.data / "secret_key").read_text() == "k" * 48
    words = await words_of(there)
    assert KEPT in words
    assert FORGOTTEN not in words


async def test_while_evertalk_runs_nothing_is_restored(installation: Installation) -> None:
    before = state_of(installation.data)
    for lock in ("up.lock", "servers/lock"):
        with FolderLock(installation.data / lock), pytest.raises(CannotRestore, match="Evertalk runs"):
            await restore_embedded(installation.settings, installation.backup, say=silent)
    assert state_of(installation.data) == before


@pytest.mark.parametrize("harm", ["cut off", "changed", "another file", "absent", "another key", "resealed"])
async def test_a_bad_backup_changes_nothing(installation: Installation, harm: str) -> None:
    before = state_of(installation.data)
    bad = installation.data.parent / "bad.tar"
    data = bytearray(installation.backup.read_bytes())
    match harm:
        case "cut off":
            data = data[: len(data) // 2]
        case "changed":
            data[len(data) // 2] ^= 1
        case "another file":
            data = bytearray(b"PK\x03\x04 not a backup")
        case "another key":
            (installation.data / "secret_key").write_text("j" * 48)
            before = state_of(installation.data)
        case "resealed":
            data = bytearray(bytes(data).replace(b'"log_epoch": 1', b'"log_epoch": 9', 1))
    bad.unlink(missing_ok=True)
    if harm != "absent":
        bad.write_bytes(data)
    with pytest.raises((BadBackup, CannotRestore)):
        await restore_embedded(installation.settings, bad, say=silent)
    assert state_of(installation.data) == before


async def test_a_database_that_is_not_empty_is_not_touched(
    database_url: str, installation: Installation
) -> None:
    settings = load_settings(database_url=database_url, secret_key="k" * 48, data_dir=installation.data)
    with pytest.raises(CannotRestore, match="not empty"):
        await restore_external(settings, installation.backup, say=silent)


async def test_an_empty_external_database_is_filled(
    empty_database_url: str, installation: Installation
) -> None:
    settings = load_settings(database_url=empty_database_url, secret_key="k" * 48, data_dir=installation.data)
    assert await restore_external(settings, installation.backup, say=silent) == 0
    connection = await asyncpg.connect(empty_database_url)
    assert await connection.fetchval(MESSAGES) > 0
    await connection.close()


@pytest.mark.faults
@pytest.mark.timeout(400)
async def test_interrupted_restore_leaves_old_or_new_state(
    installation: Installation,
) -> None:
    soul = installation.data / "workspaces" / "ada" / "SOUL.md"
    now = await installation.ask(MESSAGES)
    done = installation.run("restore", str(installation.backup), EVERTALK_CRASH_POINT="restore_before_swap")
    assert done.returncode == CRASHED, done.stdout + done.stderr
    assert (await installation.ask(MESSAGES), soul.read_text()) == (now, "Changed since.")
    done = installation.run("restore", str(installation.backup), EVERTALK_CRASH_POINT="restore_mid_swap:2")
    assert done.returncode == CRASHED, done.stdout + done.stderr
    assert (installation.data / JOURNAL).exists()
    # Whoever starts the servers next brings it to its end.
    assert await installation.ask(MESSAGES) < now
    assert soul.read_text() == "As it was."
    assert not (installation.data / JOURNAL).exists()
    assert FORGOTTEN not in await words_of(installation)
    assert await invariants_of(installation) == []


@pytest.mark.faults
@pytest.mark.timeout(400)
async def test_interrupted_backup_is_discarded_and_cleaned_up_by_the_next(
    installation: Installation,
) -> None:
    folder = installation.data / "backups"
    for point in ("backup_after_dump", "backup_before_name"):
        done = installation.run("backup", EVERTALK_CRASH_POINT=point)
        assert done.returncode == CRASHED, done.stdout + done.stderr
        assert [path.name for path in folder.glob("*.tar")] == [installation.backup.name]
    assert [*folder.glob("*.part"), *folder.glob(".making-*")]
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        await make_backup(installation.settings, servers.database_url, folder=folder)
    assert len(list(folder.glob("*.tar"))) == 2
    assert not [*folder.glob("*.part"), *folder.glob(".making-*")]


async def test_daily_backup_runs_after_a_day_and_prunes_old_ones(
    installation: Installation,
) -> None:
    folder = installation.data / "backups"
    settings = load_settings(data_dir=installation.data, backup_keep=3)
    said: list[str] = []

    async def daily(*more: str) -> int:
        wish = read_backup_arguments(["--daily", *more])
        async with EmbeddedServers(
            installation.data / "servers", wanted=EmbeddedChoice(redis=False)
        ) as servers:
            url = servers.database_url
            return await run_backup(wish, settings=settings, database_url=url, say=said.append)

    assert (await daily(), said) == (0, [])
    old = [folder / f"evertalk-2026010{day}T000000Z.tar" for day in range(1, 6)]
    for path in old:
        path.write_bytes(installation.backup.read_bytes())
    installation.backup.unlink()
    assert await daily("--without-key") == 0
    assert [path for path in old if path.exists()] == old[-2:]
    newest = max(folder.glob("*.tar"))
    assert b"k" * 48 not in newest.read_bytes()
    assert "secret_key" not in json.loads(open_archive(newest))["members"]
    shown: list[str] = []
    assert show_backups(settings, shown.append) == 0
    assert sum(parse_made_at(Path(line.split()[0]).name) is not None for line in shown) == 3
    assert verify_backup(newest, settings, shown.append) == 0
    assert shown[-1] == "Its seal is of this installation."


COPIES = "EVERTALK_BACKUP_COPY_DIR"


async def test_each_backup_is_copied_to_the_stored_folder(installation: Installation, tmp_path: Path) -> None:
    copies, settings = tmp_path / "copies", installation.settings
    copies.mkdir()
    (copies / "evertalk-20200101T000000Z.tar.part").touch()
    wish = read_backup_arguments(["--daily"])
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        url = servers.database_url
        for name in settings.backups.glob("*.tar"):
            name.unlink()
        await store_folder(url, copies)
        said: list[str] = []
        assert await run_backup(wish, settings=settings, database_url=url, say=said.append) == 0
        (copy,) = copies.glob("evertalk-*")
        assert said[-1] == f"  copied to {copy}"
        assert copy.read_bytes() == (settings.backups / copy.name).read_bytes()
        assert copy.stat().st_mode & 0o777 == 0o600
        assert verify_backup(copy, settings, silent) == 0
        log = (settings.backups / "erasures.jsonl").read_bytes()
        assert (copies / "erasures.jsonl").read_bytes() == log != b""
        lines = len(said)
        assert await run_backup(wish, settings=settings, database_url=url, say=said.append) == 0
        assert len(said) == lines


async def test_failed_copy_is_reported_and_made_later(installation: Installation, tmp_path: Path) -> None:
    copies, settings = tmp_path / "unmounted", installation.settings
    wish = read_backup_arguments(["--daily"])
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        url = servers.database_url
        await store_folder(url, copies)
        for _ in range(2):
            with pytest.raises(BackupFailed, match="no such folder"):
                await run_backup(wish, settings=settings, database_url=url, say=silent)
        assert "no copy in" in (settings.backups / "failed.txt").read_text()
        copies.mkdir()
        assert await run_backup(wish, settings=settings, database_url=url, say=silent) == 0
    assert len(list(copies.glob("*.tar"))) == 1
    assert not (settings.backups / "failed.txt").exists()


async def store_folder(database_url: str, folder: Path) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "INSERT INTO stored_settings (name, value, version, changed_by) VALUES ($1, $2, 1, 'anna')",
        COPIES, str(folder),
    )  # fmt: skip
    await connection.close()


async def test_a_backup_that_may_not_fit_is_not_begun(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must never take the room that messages need."""
    settings = installation.settings
    full = SimpleNamespace(free=30 * 2**20, total=2**30, used=2**30)
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        monkeypatch.setattr("shared.cli.backup.shutil.disk_usage", lambda _: full)
        with pytest.raises(BackupFailed, match="30 MiB free") as told:
            await make_backup(settings, servers.database_url, folder=settings.backups)
    assert "EVERTALK_BACKUP_DIR" in told.value.advice
    assert [path.name for path in settings.backups.glob("*.tar")] == [installation.backup.name]


async def test_a_database_that_is_away_leaves_the_old_backups_and_says_why(
    installation: Installation,
) -> None:
    settings = installation.settings
    nowhere = f"postgresql://postgres@/evertalk?host={installation.data}"
    with pytest.raises((BackupFailed, DumpFailed)):
        await make_backup(settings, nowhere, folder=settings.backups)
    assert installation.backup.exists()
    assert "cannot be read" in (settings.backups / "failed.txt").read_text()
