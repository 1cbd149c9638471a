"""The watch-dog beside a real process: what it ends, what it leaves alone, and what it writes down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shared.supervision.watchdog import (
    FAULTS_FOLDER,
    SILENCE_SECONDS,
    STILL_SECONDS,
    TICK_SECONDS,
    ProcessUsage,
    Watchdog,
    write_fault,
)
from shared.work_marks import MarkedThread, WorkBoard, mark_work
from tests.kit.deployment.processes import ROOT

PATIENCE_SECONDS = 60.0
PROGRAM = """
import asyncio, ctypes, os, re, sys
from shared.supervision import watchdog
watchdog.SILENCE_SECONDS, watchdog.STILL_SECONDS, watchdog.UNEXPLAINED_SECONDS = 3.0, 4.0, 1.0
board = watchdog.start_watchdog("web")
from shared.work_marks import mark_work
board.set_folder(sys.argv[1])

def endless():
    while True:
        sum(range(1000))

async def busy():
    await asyncio.sleep(0.1)
    match sys.argv[2]:
        case "regex":
            re.match("(a*)*b", "a" * 60)
        case "sleep":
            ctypes.PyDLL(None).sleep(60)
        case "thread":
            await asyncio.to_thread(re.match, "(a*)*b", "a" * 60)
        case "loop":
            endless()
        case "crash":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), 9)
        case "nothing":
            await asyncio.sleep(6)

async def innocent():
    with mark_work("turn", 9, 9, 9):
        while True:
            await asyncio.sleep(0.01)

async def main():
    board.install(asyncio.get_running_loop())
    other = asyncio.create_task(innocent())
    with mark_work("turn", 1, 2, 3):
        await asyncio.create_task(busy())
    other.cancel()

asyncio.run(main())
board.begin_to_close()
"""


def start(folder: Path, deed: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), deed],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def read_faults(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in (folder / FAULTS_FOLDER).glob("*.json")]


@pytest.mark.parametrize(
    ("deed", "cause", "code"),
    [
        ("regex", "stood_still", -signal.SIGKILL),
        ("thread", "stood_still", -signal.SIGKILL),
        ("loop", "loop_stood_still", -signal.SIGKILL),
        ("crash", "crashed_segmentation_fault", -signal.SIGSEGV),
    ],
)
def test_stopped_process_is_ended_and_its_work_named(
    tmp_path: Path, deed: str, cause: str, code: int
) -> None:
    process = start(tmp_path, deed)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code
    [fault] = read_faults(tmp_path)
    assert (fault["cause"], fault["work"]) == (cause, "turn 1 2 3")
    assert "in match" in fault["place"] or "in endless" in fault["place"] or "in string_at" in fault["place"]
    logged = json.loads(said.decode().splitlines()[-1])
    assert (logged["event"], logged["level"], logged["id"]) == ("process_fault", "error", fault["id"])


def test_call_that_sleeps_with_the_lock_is_named(tmp_path: Path) -> None:
    process = start(tmp_path, "sleep")
    process.communicate(timeout=PATIENCE_SECONDS)
    [fault] = read_faults(tmp_path)
    assert (fault["cause"], fault["work"]) == ("stood_still", "turn 1 2 3")


@pytest.mark.parametrize(("deed", "code"), [("kill", -signal.SIGKILL), ("nothing", 0)])
def test_process_killed_from_outside_has_no_fault(tmp_path: Path, deed: str, code: int) -> None:
    process = start(tmp_path, deed)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code
    assert read_faults(tmp_path) == []


def test_suspended_process_is_left_alone(tmp_path: Path) -> None:
    process = start(tmp_path, "nothing")
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(8)
    assert process.poll() is None
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, read_faults(tmp_path)) == (0, [])


# -- verdicts by the watch-dog's own count of time ----------------------------------------------------------


class Watched:
    """A board, and what the system says of the process."""

    def __init__(self) -> None:
        self.board = WorkBoard()
        self.usage: ProcessUsage | None = ProcessUsage({1: 0}, "S")
        self.watchdog = Watchdog(0, self.board, role="web", pipe=-1, usage=lambda _: self.usage)

    def look(self, times: int, *, pulses: bool = False, rounds: bool = False) -> str:
        for _ in range(times):
            if pulses:
                self.board.count_pulse()
            if rounds:
                self.board.count_round()
            if cause := self.watchdog.judge():
                return cause
        return ""


LOOKS = int(SILENCE_SECONDS / TICK_SECONDS)


def test_silent_process_is_ended_after_twenty_seconds() -> None:
    watched = Watched()
    watched.look(5, pulses=True, rounds=True)
    assert watched.look(LOOKS - 1) == ""
    assert watched.look(1) == "stood_still"


def test_pulse_ends_the_silence() -> None:
    watched = Watched()
    watched.look(LOOKS - 1)
    watched.look(1, pulses=True)
    assert watched.look(LOOKS - 1) == ""


@pytest.mark.parametrize("states", ["T", "SSD", "R", "SR", "t"])
def test_process_that_cannot_run_is_left_alone(states: str) -> None:
    """Suspended, waiting for a disk, or ready without a processor."""
    watched = Watched()
    watched.look(1, pulses=True)
    watched.usage = ProcessUsage({1: 7}, states)
    assert watched.look(10 * LOOKS) == ""


def test_process_that_computes_in_silence_is_ended() -> None:
    watched = Watched()
    watched.look(1, pulses=True)
    cause, ticks = "", 0
    for ticks in range(10 * LOOKS):
        watched.usage = ProcessUsage({1: ticks}, "R")
        if cause := watched.look(1):
            break
    assert cause == "stood_still"
    assert ticks < 2 * LOOKS


def test_loop_that_stands_still_is_ended_later() -> None:
    watched = Watched()
    watched.look(3, pulses=True, rounds=True)
    assert watched.look(int(STILL_SECONDS) - 1, pulses=True) == ""
    assert watched.look(1, pulses=True) == "loop_stood_still"


def test_process_that_has_no_loop_yet_is_left_alone() -> None:
    assert Watched().look(1000, pulses=True) == ""


def test_closing_process_has_more_time() -> None:
    watched = Watched()
    watched.look(3, pulses=True, rounds=True)
    watched.board.begin_to_close()
    assert watched.look(int(STILL_SECONDS) + 5, pulses=True) == ""


def test_fault_files_are_limited(tmp_path: Path) -> None:
    stored = [write_fault(str(tmp_path), {"id": str(number)}) for number in range(150)]
    assert stored.count(True) == 100
    assert not write_fault("", {"id": "1"})
    assert not write_fault("/proc/nowhere", {"id": "1"})


# -- marks --------------------------------------------------------------------------------------------------


async def test_mark_is_set_only_while_a_step_runs() -> None:
    board, seen = WorkBoard(), list[list[str]]()
    loop = asyncio.new_event_loop()

    def works() -> list[str]:
        return [one.work for one in board.read_marks()]

    async def child() -> None:
        await asyncio.sleep(0)
        seen.append(works())

    async def main() -> None:
        with mark_work("turn", 1, 2, 3):
            seen.append(works())
            await asyncio.create_task(child())
            with mark_work("delivery", 1, 2):
                seen.append(works())
            seen.append(works())
            seen.append(sorted(set(await asyncio.to_thread(works))))
        seen.append(works())

    def run() -> None:
        board.install(loop)
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    await asyncio.to_thread(run)
    turn = ["turn 1 2 3"]
    assert seen == [turn, turn, ["delivery 1 2"], turn, turn, []]
    assert works() == []


def test_marked_threads_have_their_numbers() -> None:
    board = WorkBoard()
    slot = board.open_slot()
    assert slot is not None
    slot.mark(b"job 5 1".ljust(96, b"\0"))
    [marked] = board.read_marks()
    slot.clear()
    assert isinstance(marked, MarkedThread)
    assert (marked.work, marked.native_id > 0) == ("job 5 1", True)
