"""A spare process takes the place of one that dies, and ends with its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.supervision import child_process
from shared.supervision.child_process import ChildProcess
from shared.supervision.spare import SPARE_NAME, has_room_for_spare

PROGRAM = """
import os, sys, time
from shared.supervision.spare import SPARE_NAME, wait_as_spare
was_spare = SPARE_NAME in os.environ
with open(sys.argv[1], "a") as log:
    if was_spare:
        print("waits", os.getpid(), file=log, flush=True)
    if not wait_as_spare(lambda: None):
        print("ends", os.getpid(), file=log, flush=True)
        raise SystemExit(0)
    print("works", os.getpid(), was_spare, SPARE_NAME in os.environ, file=log, flush=True)
time.sleep(600)
"""


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    file = tmp_path / "log.txt"
    file.touch()
    return file


@pytest.fixture
async def child(
    tmp_path: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ChildProcess]:
    monkeypatch.setattr(child_process, "_SPARE_AFTER_SECONDS", 0.1)
    # A busy machine may need longer until a spare has read that it is to end.
    monkeypatch.setattr(child_process, "_GO_SECONDS", 60)
    monkeypatch.setattr(child_process, "has_room_for_spare", lambda: True)
    made = ChildProcess(
        name="sample", environment={**os.environ, "PYTHONPATH": str(child_process.ROOT)}, folder=tmp_path,
        say=lambda _: None, command=(sys.executable, "-c", PROGRAM, str(log_file)), keeps_spare=True,
    )  # fmt: skip
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await made.stop(timeout_seconds=5)


async def wait_for_lines(log: Path, word: str, times: int) -> list[list[str]]:
    async with asyncio.timeout(60):
        while True:
            found = [line.split() for line in log.read_text().splitlines() if line.startswith(word)]
            if len(found) >= times:
                return found
            await asyncio.sleep(0.02)


async def wait_until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


async def wait_until_kept(child: ChildProcess, pid: str) -> None:
    """Wait until the supervisor has noticed that its spare with this process id has started.

    A process can write its first line before its supervisor continues, as these import little.
    """
    await wait_until(lambda: child._spare is not None and child._spare.pid == int(pid))


async def wait_until_running(child: ChildProcess, pid: str) -> None:
    await wait_until(lambda: child.pid == int(pid))


async def test_spare_takes_the_place_of_a_killed_process(child: ChildProcess, log_file: Path) -> None:
    [first] = await wait_for_lines(log_file, "works", 1)
    for number in (1, 2):
        waiting = (await wait_for_lines(log_file, "waits", number))[-1]
        await wait_until_kept(child, waiting[1])
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        works = (await wait_for_lines(log_file, "works", number + 1))[-1]
        assert works[1] == waiting[1] != first[1]
        assert works[2:] == ["True", "False"]
        await wait_until_running(child, works[1])


async def test_spare_that_was_killed_is_replaced(child: ChildProcess, log_file: Path) -> None:
    [[_, pid]] = await wait_for_lines(log_file, "waits", 1)
    await wait_until_kept(child, pid)
    os.kill(int(pid), signal.SIGKILL)
    await wait_for_lines(log_file, "waits", 2)
    assert len(await wait_for_lines(log_file, "works", 1)) == 1


async def test_spare_ends_when_its_process_is_stopped(child: ChildProcess, log_file: Path) -> None:
    [[_, pid]] = await wait_for_lines(log_file, "waits", 1)
    await wait_until_kept(child, pid)
    await child.stop(timeout_seconds=5)
    assert ["ends", pid] in await wait_for_lines(log_file, "ends", 1)


async def test_spare_ends_when_the_environment_changes_during_its_start(
    child: ChildProcess, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = asyncio.create_subprocess_exec

    async def spawn_and_change(*command: Any, env: dict[str, str], **options: Any) -> Any:
        process = await spawn(*command, env=env, **options)
        if SPARE_NAME in env:
            monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
            await child.give({**child.environment, "EVERTALK_MODEL": "two"})
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn_and_change)
    [[_, former]] = await wait_for_lines(log_file, "ends", 1)
    waiting = [pid for _, pid in await wait_for_lines(log_file, "waits", 2)]
    assert waiting[0] == former != waiting[1]


async def test_no_spare_where_memory_is_short(
    child: ChildProcess, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "has_room_for_spare", lambda: False)
    await wait_for_lines(log_file, "works", 1)
    await asyncio.sleep(0.5)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert [works[2] for works in await wait_for_lines(log_file, "works", 2)] == ["False", "False"]


@pytest.mark.parametrize(
    ("text", "has_room"),
    [
        ("MemTotal: 999 kB\nMemAvailable:  2097152 kB\n", True),
        ("MemTotal: 99999999 kB\nMemAvailable:  2097151 kB\n", False),
        ("MemTotal: 99999999 kB\n", False),
    ],
)
def test_room_for_a_spare_is_available_memory(tmp_path: Path, text: str, has_room: bool) -> None:
    file = tmp_path / "meminfo"
    file.write_text(text)
    assert has_room_for_spare(file) is has_room
    assert not has_room_for_spare(tmp_path / "missing")
