"""A container says whether its process is well, by the heart of the process itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.supervision.liveness import (
    MAX_SILENCE_SECONDS,
    READY_SILENCE_SECONDS,
    explain_unhealthy,
    touch_process_file,
)
from shared.supervision.process_handoff import take_over_process


async def test_each_beat_that_reaches_the_database_marks_the_file(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path
) -> None:
    file = tmp_path / "process"
    workers = PostgresWorkers(pool, beaten=lambda: touch_process_file(file))
    worker = await take_over_process(workers, "worker", file)
    begun = file.stat().st_mtime
    os.utime(file, (begun - 60, begun - 60))
    assert "no heartbeat for 60 seconds" in explain_unhealthy(str(file), now=begun)
    assert await workers.beat(worker)
    assert explain_unhealthy(str(file), now=file.stat().st_mtime) == ""
    os.utime(file, (begun - 60, begun - 60))
    await workers.stop(worker)
    assert not await workers.beat(worker)
    assert file.stat().st_mtime == pytest.approx(begun - 60), "who was declared dead is not well"


def test_late_missing_or_absent_process_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "process"
    assert "not begun" in explain_unhealthy(str(file), now=0)
    assert "EVERTALK_PROCESS_FILE" in explain_unhealthy(None, now=0)
    file.touch()
    at = file.stat().st_mtime
    assert explain_unhealthy(str(file), now=at + MAX_SILENCE_SECONDS - 1) == ""
    assert "no heartbeat for 21 seconds" in explain_unhealthy(str(file), now=at + MAX_SILENCE_SECONDS + 1)
    told = explain_unhealthy(str(file), now=at + 4, most_seconds=READY_SILENCE_SECONDS)
    assert "no heartbeat for 4 seconds" in told
    touch_process_file(tmp_path / "of a folder" / "that is away")
    touch_process_file(None)


@pytest.mark.control("S44")
def test_the_command_of_the_container_says_it_by_its_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "process"
    command = [sys.executable, "-X", "importtime", "-m", "shared.supervision.liveness"]
    environment = {**os.environ, "EVERTALK_PROCESS_FILE": str(file)}
    root = Path(__file__).resolve().parents[3]

    def asked(*more: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*command, *more],
            env=environment,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert asked()[:2] == (1, "the process has not begun\n")
    file.touch()
    code, said, imported = asked()
    assert (code, said) == (0, "")
    ten_seconds_ago = file.stat().st_mtime - 10
    os.utime(file, (ten_seconds_ago, ten_seconds_ago))
    assert (asked()[0], asked("--ready")[0]) == (0, 1), "alive, and unable to store anything now"
    assert not [
        name for name in ("asyncpg", "pydantic", "asyncio", "shared.config.settings") if name in imported
    ]
