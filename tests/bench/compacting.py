"""Turns of a conversation while it is being compacted, beside turns of one at rest:
`python -m tests.bench.compacting [--json]`.

A worker process compacts, as in production, and its model takes its time; the turns run here. Each pair of
conversations is new and alike, and both of a pair have the same turns, one after the other.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from typing import Any

from shared.bootstrap.app import App
from shared.core.session.turns import DueJob
from tests.bench.ground import environment_of, ground, ratio, run, settings_of
from tests.bench.long_log import write_log
from tests.bench.turn import ANSWER, QUESTION
from tests.bench.whole import WholeTurns, app_with_instant_model
from tests.kit.deployment.processes import Process
from tests.kit.fakes.messages_api.harness import running_fake
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.hub import Hub

LOG_TURNS = 80
TEXT = "We walked along the river and talked of this and that. " * 10
JOB_SECONDS = 60.0
SLOW: dict[str, Any] = {"latency": 0.3, "pace_ms": 30}
_ASK = """INSERT INTO jobs (kind, session_id, key, trigger, payload)
          VALUES ('compact', $1, 'bench', 'manual', '{"force": true}') RETURNING id"""


async def measure(*, turns: int, blocks: int) -> dict[str, Any]:
    """`turns` in each of a pair; the compaction lasts longer than they do, and its end is waited for."""
    async with ground() as (servers, folder), running_fake() as fake, AsyncExitStack() as stack:
        await fake.script([{"match": {"kind": "any"}, "times": -1, "action": SLOW}])
        app = await app_with_instant_model(settings_of(servers, folder), answer=ANSWER)
        stack.push_async_callback(app.close)
        process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
        process.hub.start()
        stack.push_async_callback(process.tasks.drain, 2.0)
        worker = environment_of(
            servers, folder, ANTHROPIC_API_KEY="sk-ant-bench", ANTHROPIC_BASE_URL=fake.base_url
        )
        await stack.enter_async_context(Process("worker", worker))
        await _pair(app, process.hub, turns)
        return _told([await _pair(app, process.hub, turns) for _ in range(blocks)])


async def _pair(app: App, hub: Hub, turns: int) -> dict[str, Any]:
    """Rest first, then compaction; the slowest turn of each, and whether it was compacted in the end."""
    resting, compacted = WholeTurns(app, hub), WholeTurns(app, hub)
    for whole in (resting, compacted):
        await whole.begin()
        await write_log(app.pool, whole.session_id, turns=LOG_TURNS, text=TEXT)
        await _times(whole, 3)
    rest = await _times(resting, turns)
    job = await app.pool.fetchval(_ASK, compacted.session_id)
    await app.doorbell.ring(DueJob(id=job, kind="compact"))
    await _until(app, job, "running")
    busy = await _times(compacted, turns)
    running = await app.pool.fetchval("SELECT state FROM jobs WHERE id = $1", job) == "running"
    tail: list[float] = []
    async with asyncio.timeout(JOB_SECONDS):
        while await app.pool.fetchval("SELECT state FROM jobs WHERE id = $1", job) in ("running", "due"):
            tail += await _times(compacted, 1)
    links = await app.pool.fetchval(
        "SELECT count(*) FROM compactions WHERE session_id = $1 AND kind = 'summary'", compacted.session_id
    )
    return {"rest": rest, "busy": busy, "tail": tail, "running": running, "links": links}


async def _until(app: App, job: int, state: str) -> None:
    async with asyncio.timeout(JOB_SECONDS):
        while await app.pool.fetchval("SELECT state FROM jobs WHERE id = $1", job) != state:
            await asyncio.sleep(0.01)


async def _times(whole: WholeTurns, turns: int) -> list[float]:
    found = []
    await whole.conversation.check_leases()
    for _ in range(turns):
        began = time.perf_counter()
        await whole.turn(QUESTION)
        found.append((time.perf_counter() - began) * 1_000)
    return found


def _told(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    whole = [pair for pair in pairs if pair["links"]]
    if not whole:
        raise RuntimeError("no conversation was compacted")
    middles = [(statistics.median(pair["rest"]), statistics.median(pair["busy"])) for pair in whole]
    return {
        "compacting_ratio": round(ratio(middles), 3),
        "compacting_ratios": [round(busy / rest, 2) for rest, busy in middles],
        "turn_ms_at_rest": round(statistics.median(rest for rest, _ in middles), 2),
        "slowest_turn_ms_at_rest": round(max(max(pair["rest"]) for pair in whole), 1),
        "slowest_turn_ms_while_compacted": round(max(max(pair["busy"] + pair["tail"]) for pair in whole), 1),
        "still_running_after_the_turns": sum(pair["running"] for pair in whole),
        "compacted": len(whole),
        "blocks": len(pairs),
    }


if __name__ == "__main__":
    raise SystemExit(run("compacting", __doc__, measure, turns=20, blocks=9))
