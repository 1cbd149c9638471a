"""A running child is given its environment again, and a later start has it, too."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.supervision.child_process import ChildProcess, build_child_environment
from shared.supervision.given_environment import write_environment

PROGRAM = """
import asyncio, json, os
from shared.bootstrap.followed_settings import apply_environment
from shared.supervision.given_environment import GivenEnvironment

async def main():
    given = GivenEnvironment.open()
    print("value", os.environ.get("EVERTALK_MODEL"), os.environ.get("EVERTALK_PRESET"), flush=True)
    while True:
        apply_environment(json.loads(await given.read()))
        print("value", os.environ.get("EVERTALK_MODEL"), os.environ.get("EVERTALK_PRESET"), flush=True)

asyncio.run(main())
"""


async def until(path: Path, words: str) -> None:
    async with asyncio.timeout(60):
        while not (path.exists() and words in path.read_text()):
            await asyncio.sleep(0.05)


async def test_running_child_is_given_its_environment_again(tmp_path: Path) -> None:
    first = build_child_environment({"EVERTALK_MODEL": "one", "EVERTALK_PRESET": "steady"})
    said: list[str] = []
    child = ChildProcess(
        name="web", environment=first, folder=tmp_path, say=said.append,
        command=(sys.executable, "-c", PROGRAM),
    )  # fmt: skip
    running = asyncio.create_task(child.run())
    log = tmp_path / "logs" / "web.log"
    try:
        await until(log, "value one steady")
        pid = child.pid
        await child.give(build_child_environment({"EVERTALK_MODEL": "two"}))
        await until(log, "value two None")
        assert child.pid == pid
        assert child.environment["EVERTALK_MODEL"] == "two"
    finally:
        running.cancel()
        await asyncio.wait([running])
        await child.stop(timeout_seconds=5)


async def test_child_gets_a_change_that_arrives_during_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = asyncio.create_subprocess_exec
    child = ChildProcess(
        name="web", environment=build_child_environment({"EVERTALK_MODEL": "one"}), folder=tmp_path,
        say=lambda _: None, command=(sys.executable, "-c", PROGRAM),
    )  # fmt: skip

    async def spawn_and_change(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await spawn(*command, **options)
        await child.give(build_child_environment({"EVERTALK_MODEL": "two"}))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn_and_change)
    running = asyncio.create_task(child.run())
    try:
        await until(tmp_path / "logs" / "web.log", "value two None")
    finally:
        running.cancel()
        await asyncio.wait([running])
        await child.stop(timeout_seconds=5)


def test_environment_line_has_changes_alone() -> None:
    line = write_environment(
        {"KEPT": "1", "GONE": "2", "OTHER": "a"}, {"KEPT": "1", "OTHER": "b", "NEW": "c"}
    )
    assert line == b'{"GONE": null, "NEW": "c", "OTHER": "b"}\n'
