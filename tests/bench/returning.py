"""Return of the web process after `kill -9` beside busy loops: `python -m tests.bench.returning`.

Each loop has a session of its own, like programs of other people: Linux shares processors by session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from shared.config.settings import load_settings
from tests.bench.ground import run
from tests.bench.rest import Up
from tests.kit.deployment.person import Person
from tests.kit.fakes.messages_api.harness import running_fake
from tests.kit.replay.system import environment_of, is_ready

REST_SECONDS = 3.0
SPARE_SECONDS = 20.0
"""Seconds without loops before each number of them, in which the supervisor makes a spare."""
SPARE_BESIDE_LOOPS_SECONDS = 60.0
"""The same between two kills beside the loops: the imports of the spare take as much longer."""
POLL_SECONDS = 0.05
LOOPS = (0, 2, 30)
ROUND_SECONDS = 120.0
"""Longest time for one round; a web process that needs longer ends the bench."""


async def measure(*, rounds: int) -> dict[str, Any]:
    """Seconds from the kill to `/readyz` and to an answer, by the number of loops."""
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with running_fake() as fake:
            environment = environment_of(load_settings(), folder=folder, window=None)
            environment |= {"ANTHROPIC_API_KEY": "sk-ant-bench", "ANTHROPIC_BASE_URL": fake.base_url}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            up = Up(folder, environment)
            await up.start()
            try:
                found: dict[str, Any] = {}
                for number in LOOPS:
                    await asyncio.sleep(SPARE_SECONDS)
                    with _busy_loops(number):
                        times = [await _kill_web(up)]
                        for _ in range(rounds - 1):
                            await asyncio.sleep(SPARE_BESIDE_LOOPS_SECONDS)
                            times.append(await _kill_web(up))
                    found |= {
                        f"ready_beside_{number}_loops_s": [ready for ready, _ in times],
                        f"answer_beside_{number}_loops_s": [answer for _, answer in times],
                    }
                return found
            finally:
                await up.stop()


@contextmanager
def _busy_loops(number: int) -> Iterator[None]:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


async def _kill_web(up: Up) -> tuple[float, float]:
    await asyncio.sleep(REST_SECONDS)
    async with asyncio.timeout(ROUND_SECONDS):
        os.kill(up.pid_of("web"), signal.SIGKILL)
        began = time.monotonic()
        while not await is_ready(up.url):
            await asyncio.sleep(POLL_SECONDS)
        ready = time.monotonic() - began
        async with ClientSession() as http, http.get(f"{up.url}/chat") as response:
            await response.read()
        async with Person(int(up.url.rsplit(":", 1)[1])) as person:
            await person.ask("Hello again.")
        return round(ready, 1), round(time.monotonic() - began, 1)


if __name__ == "__main__":
    raise SystemExit(run("returning", __doc__, measure, rounds=3))
