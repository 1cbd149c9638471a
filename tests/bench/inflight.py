"""Memory of a turn that is being answered, and what of it each byte of the prompt takes:
`python -m tests.bench.inflight [--json]`.

Each size of prompt in a process of its own, since memory that was given back would be used again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from shared.bootstrap.app import App, open_app
from tests.bench.ground import ground, run, settings_of
from tests.bench.long_log import write_log
from tests.bench.provider import Provider, running_provider
from tests.bench.turn import QUESTION
from tests.bench.whole import WholeTurns
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.hub import Hub

ROOT = Path(__file__).resolve().parents[2]
SMALL, LARGE = 64, 12
TEXT = "We walked along the river and talked of this and that. " * 100
SECONDS = 240.0


async def measure(*, log_turns: int) -> dict[str, Any]:
    small, large = await _apart(SMALL, 0), await _apart(LARGE, log_turns)
    grown = large["kib_per_turn"] - small["kib_per_turn"]
    return {
        "inflight_kib": small["kib_per_turn"],
        "inflight_bytes_per_prompt_byte": round(grown * 1024 / large["prompt_bytes"], 2),
        "inflight_kib_of_a_long_prompt": large["kib_per_turn"],
        "prompt_bytes": large["prompt_bytes"],
        "turns_at_once": [SMALL, LARGE],
    }


async def _apart(people: int, log_turns: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.inflight", "--one", str(people), str(log_turns),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found: dict[str, Any] = json.loads(output)
    return found


async def one(people: int, log_turns: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        servers, folder = await stack.enter_async_context(ground(durable=False))
        provider = await stack.enter_async_context(running_provider())
        key: dict[str, Any] = {"anthropic_api_key": "sk-ant-bench", "anthropic_base_url": provider.url}
        app = await open_app(settings_of(servers, folder, **key), role="web")
        stack.push_async_callback(app.close)
        process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
        process.hub.start()
        stack.push_async_callback(process.tasks.drain, 2.0)
        beating = asyncio.create_task(_beat(app))
        stack.callback(beating.cancel)
        warm = [await _person(app, process.hub, 0) for _ in range(16)]
        await provider.answers(deltas=5)
        await asyncio.gather(*(whole.turn(QUESTION) for whole in warm))
        people_there = [await _person(app, process.hub, log_turns) for _ in range(people)]
        return await _held(provider, people_there, log_turns)


async def _held(provider: Provider, people: list[WholeTurns], log_turns: int) -> dict[str, Any]:
    await provider.answers(deltas=20, held=True)
    before = _resident_kib()
    turns = [asyncio.create_task(whole.turn(QUESTION)) for whole in people]
    async with asyncio.timeout(60):
        while (await provider.told())["waiting"] < len(people):
            await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    during = _resident_kib()
    await provider.answers(deltas=5)
    await asyncio.gather(*turns)
    return {
        "kib_per_turn": round((during - before) / len(people), 1),
        "prompt_bytes": 2 * log_turns * len(TEXT),
    }


async def _person(app: App, hub: Hub, log_turns: int) -> WholeTurns:
    whole = WholeTurns(app, hub)
    await whole.begin()
    if log_turns:
        await write_log(app.pool, whole.session_id, turns=log_turns, text=TEXT)
    return whole


async def _beat(app: App) -> None:
    while True:
        await app.sessions.check_leases()
        await asyncio.sleep(1.0)


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        from tests.bench.ground import loop_factory
        from tests.bench.quiet import keep_quiet

        keep_quiet()
        with asyncio.Runner(loop_factory=loop_factory()) as _runner:
            sys.stdout.write(json.dumps(_runner.run(one(int(sys.argv[2]), int(sys.argv[3])))))
        raise SystemExit(0)
    raise SystemExit(run("inflight", __doc__, measure, log_turns=40))
