"""Processes at rest: how much memory web and worker hold before and after their first model call, and how
much the supervisor and all processes and servers hold together: `python -m tests.bench.rest [--json]`.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, DummyCookieJar

from shared.adapters.embedded.servers import build_urls
from shared.adapters.postgres.db.pool import open_pool
from shared.config.settings import Settings, load_settings
from shared.supervision.child_process import ROOT
from tests.bench.ground import run
from tests.kit.fakes.messages_api.harness import running_fake
from tests.kit.replay.play import play
from tests.kit.replay.scripts import ConversationScript
from tests.kit.replay.system import environment_of, is_ready

UP_SECONDS = 60.0
JOB_SECONDS = 30.0
SETTLE_SECONDS = 1.5
SPARE_SECONDS = 15.0
"""Seconds until the spare of the web process is there: it is part of everything."""
_FLUSH = """
INSERT INTO jobs (kind, session_id, key, trigger, payload)
SELECT 'flush', id, 'bench', 'near_limit', '{"threshold": "near_limit"}' FROM sessions ORDER BY id LIMIT 1
RETURNING id
"""


def rss_mib(pid: int) -> float | None:
    """None where there is no /proc."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return round(int(found[1]) / 1024, 1) if found else None


def pss_mib(pid: int) -> float:
    """Return the memory of a process, shared pages divided among those that share them; 0 after its end."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def list_family(pid: int) -> list[int]:
    """Return a process and all that it has started, directly or not."""
    family = [pid]
    for process in family:
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                family += [int(child) for child in file.read_text().split()]
            except OSError:
                continue
    return family


class Up:
    """`evertalk up` in a folder, as a person starts it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> float:
        """Seconds until it said that it is ready."""
        began, log = time.monotonic(), self._folder / "up.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "shared", "up"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        while "is ready" not in log.read_text():
            if self._process.poll() is not None or time.monotonic() - began > UP_SECONDS:
                raise RuntimeError(f"up does not start: {log.read_text()[-500:]}")
            await asyncio.sleep(0.02)
        return round(time.monotonic() - began, 2)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 15)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait, 15)

    @property
    def url(self) -> str:
        return (self._folder / "up.lock").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def pid_of(self, name: str) -> int:
        return int((self._folder / f"{name}.pid").read_text())


async def measure(settings: Settings) -> dict[str, Any]:
    """With the provider's client loaded: a fake provider answers, as a real one would."""
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with running_fake() as fake:
            environment = environment_of(settings, folder=folder, window=None)
            environment |= {"ANTHROPIC_API_KEY": "sk-ant-bench", "ANTHROPIC_BASE_URL": fake.base_url}
            up = Up(folder, environment)
            first = await up.start()
            await up.stop()
            second = await up.start()
            try:
                return {
                    "up_ready_first_start_seconds": first,
                    "up_ready_second_start_seconds": second,
                    **await _memory(up, folder),
                }
            finally:
                await up.stop()


async def _memory(up: Up, folder: Path) -> dict[str, Any]:
    assert await is_ready(up.url)
    await asyncio.sleep(SETTLE_SECONDS)
    before = _rss(up)
    await _talk(up.url, ("Hello there", "I live in Lisbon and work as a nurse."))
    await _flush(build_urls(folder / "servers")[0])
    await asyncio.sleep(SETTLE_SECONDS)
    after = _rss(up)
    await asyncio.sleep(SPARE_SECONDS)
    return {
        "pss_supervisor_mib": round(pss_mib(up.pid), 1),
        "pss_everything_mib": round(sum(pss_mib(pid) for pid in list_family(up.pid)), 1),
        **{f"rss_{name}_at_rest_mib": size for name, size in before.items()},
        **{f"rss_{name}_after_model_mib": size for name, size in after.items()},
    }


def _rss(up: Up) -> dict[str, float | None]:
    return {name: rss_mib(up.pid_of(name)) for name in ("web", "worker")}


async def _talk(url: str, messages: Sequence[str]) -> None:
    script = ConversationScript(id="bench", person="Ada", messages=tuple(messages), sessions=1)
    async with ClientSession(cookie_jar=DummyCookieJar()) as http:
        played = await play(script, http=http, url=url, speed="max", on_progress=lambda *_: None)
    if played.given_up or played.visitor.seen.answered < len(messages):
        raise RuntimeError(f"the bench's own talk failed: {played.given_up}")


async def _flush(database_url: str) -> None:
    """A silent job, so that the worker calls a model, too."""
    pool = await open_pool(database_url, size=1)
    try:
        job = await pool.fetchval(_FLUSH)
        async with asyncio.timeout(JOB_SECONDS):
            while await pool.fetchval("SELECT state FROM jobs WHERE id = $1", job) not in ("done", "dead"):
                await asyncio.sleep(0.1)
    finally:
        await pool.close()


async def _measure_alone() -> dict[str, Any]:
    return await measure(load_settings())


if __name__ == "__main__":
    raise SystemExit(run("rest", __doc__, _measure_alone))
