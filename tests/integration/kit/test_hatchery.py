"""The process that forks others, without the code that it is there for."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.kit.deployment.processes import ROOT

SECONDS = 60.0
PROGRAM = """
import time
from tests.kit.deployment.forks import hatchery
print(hatchery("tests.kit.fakes.lifetime").address, flush=True)
time.sleep(60)
"""


async def test_hatchery_ends_with_its_starter() -> None:
    """Who is killed cannot end it: it notices by itself, and leaves nothing behind."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        async with asyncio.timeout(SECONDS):
            address = Path((await parent.stdout.readline()).decode().strip())
        assert address.is_socket()
    finally:
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
    async with asyncio.timeout(SECONDS):
        while address.parent.exists():
            await asyncio.sleep(0.05)
