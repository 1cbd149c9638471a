"""Browser tests on a machine whose only network is loopback, as `./evertalk up` on a train."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.kit.needed_programs import refuse
from tests.kit.night import at_night

pytestmark = [pytest.mark.browser, pytest.mark.faults]
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 400
BY_DAY = (
    "tests/browser/widget/test_network.py",
    "tests/browser/dashboard/test_states.py::test_bounded_count_is_shown_with_a_plus",
)
"""Widget before a stub, and dashboard before its server."""
AT_NIGHT = (
    "tests/browser/widget/test_network.py",
    "tests/browser/widget/test_chat.py::test_messages_written_offline_arrive_once_and_in_order",
    "tests/browser/widget/test_chat.py::test_a_cut_in_the_middle_of_a_stream_loses_and_doubles_nothing",
    "tests/browser/real/test_widget.py::test_an_answer_is_given_again_and_the_earlier_one_is_kept",
    "tests/browser/dashboard/test_states.py",
)
"""Also the widget before the real server. By day each widget test refuses a request to another host."""


@pytest.mark.row("F59")
@pytest.mark.timeout(SECONDS + 60)
async def test_widget_and_dashboard_work_with_loopback_as_only_network() -> None:
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        refuse("a network of its own needs `unshare` and `ip` (Debian: apt-get install iproute2)")
    kind = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    tried = await asyncio.create_subprocess_exec(unshare, *kind, "true", stderr=asyncio.subprocess.DEVNULL)
    if await tried.wait() != 0:
        refuse("a network namespace cannot be made here")
    python = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    chosen = AT_NIGHT if at_night() else BY_DAY
    shell = ["sh", "-c", 'ip link set lo up && exec "$@"', "loopback", *python, *chosen]
    process = await asyncio.create_subprocess_exec(
        unshare, *kind, *shell, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, output.decode(errors="replace")[-4000:]
    assert " passed" in output.decode(errors="replace")
