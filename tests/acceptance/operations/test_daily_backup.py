"""The running system makes its daily backup apart, says when it cannot, and stops it when it stops."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.adapters.embedded.process import is_running_as, wait_until
from shared.adapters.files.erasure_file import ErasureFile
from shared.adapters.telemetry.health import Health
from shared.config.settings import Settings, load_settings
from shared.core.ops.backups import name_of
from shared.diagnostics.local_checks import check_backups
from shared.supervision.backup_schedule import BackupScheduler
from tests.acceptance.operations.conftest import ROOT
from tests.kit.app_driver import running_app, settings_for, visit
from worker.jobs import keep_erasure_log


def daily(code: str, said: list[str]) -> BackupScheduler:
    return BackupScheduler(dict(os.environ), said.append, command=(sys.executable, "-c", code))


async def test_failed_backup_is_reported_and_successful_one_is_not() -> None:
    said: list[str] = []
    await daily("print('evertalk: made')", said).run_if_due()
    assert said == []
    await daily("import sys; sys.exit('evertalk: no backup was made: the disk is full')", said).run_if_due()
    assert said == ["The daily backup failed: evertalk: no backup was made: the disk is full"]


async def test_a_backup_in_the_making_ends_with_the_system(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        f"import os, time; print(os.getpid(), file=open({str(pid_file)!r}, 'w'), flush=True); time.sleep(60)"
    )
    making = asyncio.create_task(daily(code, []).run_if_due())
    assert await wait_until(lambda: pid_file.exists() and pid_file.read_text() != "", timeout_seconds=30)
    pid = int(pid_file.read_text())
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert not is_running_as(pid, (sys.executable,))


async def test_backup_process_ends_on_sigterm(tmp_path: Path) -> None:
    """As the container `backup`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared.supervision.backup_schedule",
        cwd=ROOT, env={**os.environ, "EVERTALK_DATA_DIR": str(tmp_path)},
    )  # fmt: skip
    assert await wait_until(
        lambda: is_running_as(process.pid, ("shared.supervision.backup_schedule",)), timeout_seconds=20
    )
    await asyncio.sleep(1)
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 20) == 0


def settings_in(tmp_path: Path, **more: Any) -> Settings:
    (tmp_path / "servers" / "pg").mkdir(parents=True, exist_ok=True)
    (tmp_path / "backups").mkdir(exist_ok=True)
    return load_settings(data_dir=tmp_path, **more)


async def said_by_doctor(settings: Settings) -> tuple[str, str]:
    (finding,) = await check_backups(settings)
    return finding.level, finding.what


async def test_doctor_tells_how_old_the_newest_one_is(tmp_path: Path) -> None:
    settings, now = settings_in(tmp_path), datetime.now(UTC)
    assert await said_by_doctor(settings) == ("warn", "there is no backup yet")
    (settings.backups / name_of(now - timedelta(days=3))).touch()
    assert (await said_by_doctor(settings))[0] == "warn"
    (settings.backups / name_of(now - timedelta(hours=20))).touch()
    assert (await said_by_doctor(settings))[0] == "ok"
    (settings.backups / "failed.txt").write_text("the disk is full\n")
    assert await said_by_doctor(settings) == ("warn", "the last daily backup failed: the disk is full")


async def test_doctor_reports_a_folder_for_copies_that_is_missing_or_near(tmp_path: Path) -> None:
    copies = tmp_path / "elsewhere"
    settings = settings_in(tmp_path, backup_copy_dir=copies)
    (settings.backups / name_of(datetime.now(UTC))).touch()
    assert "there is no such folder" in (await check_backups(settings))[1].what
    copies.mkdir()
    assert (await check_backups(settings))[1].what == f"{copies} has no copy yet"
    (copies / name_of(datetime.now(UTC))).touch()
    assert (await check_backups(settings))[1].what == f"{copies} is on the same disk as the data"


async def test_doctor_warns_where_none_is_made_and_is_silent_about_foreign_servers(tmp_path: Path) -> None:
    assert "automatic backups are off" in (await said_by_doctor(settings_in(tmp_path, backup_keep=0)))[1]
    elsewhere = settings_in(tmp_path, database_url="postgresql://somewhere/x")
    assert await check_backups(elsewhere) == []


def test_failed_backup_is_in_each_heartbeat_until_one_succeeds(tmp_path: Path) -> None:
    health = Health(dict, tmp_path, failed_backup=tmp_path / "failed.txt")
    assert "backup_failed" not in health()
    (tmp_path / "failed.txt").touch()
    assert health()["backup_failed"] is True
    (tmp_path / "failed.txt").unlink()
    assert "backup_failed" not in health()


async def test_the_worker_writes_the_log_of_erasures_apart(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    settings = settings_for(database_url, redis_url, data_dir=tmp_path)
    file = ErasureFile(tmp_path / "backups" / "erasures.jsonl")
    async with running_app(settings) as app:
        guest = await visit(app)
        await guest.ask("Hello, I am Canary-66.")
        working = asyncio.create_task(keep_erasure_log(app))
        await app.erasure.erase_messages(guest.session_id, [1, 2], "person")
        await app.erasure.erase_everything(guest.session_id, "person")
        assert await wait_until(lambda: len(file.read()) == 2, timeout_seconds=30)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    by_scope = {one.scope: one.about for one in file.read()}
    assert by_scope["messages"]["seqs"] == [1, 2]
    assert len(by_scope["everything"]["family"]) == 1
    assert "Canary" not in (tmp_path / "backups" / "erasures.jsonl").read_text()
