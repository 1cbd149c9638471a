"""Steps of a start run in another process: what goes wrong there is said, and ends no running process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.adapters.embedded.process import is_running_as
from shared.cli.startup.assistant import CannotStart, open_assistant
from tests.kit.deployment.up_process import PATIENCE_SECONDS, ROOT, environment, start_up, stopped

__all__ = ["environment", "stopped"]

PROGRAM = "shared.cli.startup"
needs_children = pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="the system lists no child processes"
)


def list_assistants(pid: int) -> list[int]:
    """Return the processes of steps that a supervisor has started and that still run."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children if is_running_as(int(child), (PROGRAM,))]


def wait_for(look: Callable[[], list[int]]) -> list[int]:
    """Return what a look finds, as soon as it finds something."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.01)
    raise TimeoutError


@pytest.fixture
def killer() -> Iterator[Callable[[Path], list[int]]]:
    """Kill the process of the steps once the web process has been started: the migration is over then."""
    killed: list[int] = []
    threads: list[threading.Thread] = []

    def kill_after_migration(folder: Path) -> None:
        file = folder / "web.pid"
        [web] = wait_for(lambda: [int(pid) for pid in file.read_text().split()] if file.exists() else [])
        supervisor = int(Path(f"/proc/{web}/stat").read_text().rpartition(")")[2].split()[1])
        for pid in list_assistants(supervisor):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    def begin(folder: Path) -> list[int]:
        threads.append(threading.Thread(target=kill_after_migration, args=(folder,)))
        threads[-1].start()
        return killed

    yield begin
    for thread in threads:
        thread.join(PATIENCE_SECONDS)


async def test_step_of_a_killed_process_is_reported_with_its_name(tmp_path: Path) -> None:
    given = {**os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(tmp_path)}
    async with open_assistant(given, print) as assistant:
        os.kill(assistant.pid, signal.SIGKILL)
        with pytest.raises(CannotStart, match="step migrate ended with exit code -9") as refused:
            await assistant.migrate("postgresql://nobody@127.0.0.1:1/none")
        assert "doctor" in refused.value.advice


async def test_step_refuses_bad_settings_by_their_names(tmp_path: Path) -> None:
    given = {**os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(tmp_path)}
    async with open_assistant(given, print) as assistant:
        bad = {**given, "EVERTALK_BACKUP_KEEP": "many", "EVERTALK_HTTP_PORT": "99999999"}
        with pytest.raises(CannotStart, match="; ") as refused:
            await assistant.greet(bad, seconds=1.0)
    assert "EVERTALK_BACKUP_KEEP=many" in str(refused.value)
    assert "EVERTALK_HTTP_PORT=99999999" in str(refused.value)


async def test_cancelled_step_ends_its_process(tmp_path: Path) -> None:
    given = {**os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(tmp_path)}
    async with asyncio.timeout(PATIENCE_SECONDS):
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opened: list[int] = []

        async def migrate() -> None:
            async with open_assistant(given, print) as assistant:
                opened.append(assistant.pid)
                await assistant.migrate(f"postgresql://nobody@127.0.0.1:{port}/silent")

        running = asyncio.create_task(migrate())
        while not opened:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        server.close()
    assert not is_running_as(opened[0], (PROGRAM,))


@needs_children
def test_ctrl_c_during_the_first_start_leaves_nothing_running(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "shared", "up"], env={**environment, "EVERTALK_HTTP_PORT": "0"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
    )  # fmt: skip
    stopped.append(process)
    [assistant] = wait_for(lambda: list_assistants(process.pid))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert output.splitlines()[-1] == "Stopped."
    assert "Traceback" not in output
    assert not is_running_as(assistant, (PROGRAM,))
    folder = Path(environment["EVERTALK_DATA_DIR"])
    assert not (folder / "servers" / "pg" / "postmaster.pid").exists()


@needs_children
def test_evertalk_stays_up_when_its_greeting_cannot_be_printed(
    environment: dict[str, str],
    stopped: list[subprocess.Popen[str]],
    killer: Callable[[Path], list[int]],
) -> None:
    killed = killer(Path(environment["EVERTALK_DATA_DIR"]))
    process, lines = start_up(environment)
    stopped.append(process)
    assert len(killed) == 1
    text = "\n".join(lines)
    assert "Evertalk is ready" in text
    assert "/chat" in text
    assert "step greet ended with exit code -9" in text
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0
