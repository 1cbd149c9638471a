"""CPU of a streamed turn beside bare commits and the SDK: `python -m tests.bench.streaming [--json]`.

Streams of 150 deltas at 50 a second, several at once, each with a screen that looks on; the screen's socket
is not counted (`tests.bench.sockets` measures sockets).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from anthropic import AsyncAnthropic, DefaultAioHttpClient
from redis.asyncio import Redis

from shared.adapters.postgres.db.pool import open_pool
from shared.bootstrap.app import App, open_app
from tests.bench.floor import BareTurns
from tests.bench.ground import ground, run, settings_of
from tests.bench.provider import WORDS, running_provider
from tests.bench.turn import QUESTION, run_block
from tests.bench.whole import WholeTurns
from web.app import WebProcess, build_web_process
from web.ports import ModelInfo
from web.server.hub import Subscriber
from web.server.send_queue import SendQueue

DELTAS = 150
PACE_SECONDS = 0.02
BARE_TURNS = 40


async def measure(*, streams: int, blocks: int) -> dict[str, Any]:
    async with ground() as (servers, folder), running_provider() as provider, AsyncExitStack() as stack:
        key: dict[str, Any] = {"anthropic_api_key": "sk-ant-bench", "anthropic_base_url": provider.url}
        app = await open_app(settings_of(servers, folder, **key), role="web")
        stack.push_async_callback(app.close)
        process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
        process.hub.start()
        stack.push_async_callback(process.tasks.drain, 2.0)
        pool = await open_pool(servers.database_url, size=1)
        stack.push_async_callback(pool.close)
        redis = Redis.from_url(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        connection = await stack.enter_async_context(pool.acquire())
        bare = BareTurns(connection, redis, answer=WORDS * DELTAS)  # type: ignore[arg-type]
        await bare.prepare()
        sdk = AsyncAnthropic(
            api_key="sk-ant-bench", base_url=provider.url, http_client=DefaultAioHttpClient()
        )
        stack.push_async_callback(sdk.close)
        await provider.answers(deltas=5)
        for _ in range(3):
            # As many connections with their statements prepared as will be needed at once.
            await _cpu_ms([lambda: _sdk_stream(sdk)] * streams)
            await _cpu_ms([await _shown(app, process) for _ in range(streams)])
        await run_block(bare, 10)
        await provider.answers(deltas=DELTAS, pace=PACE_SECONDS)
        rounds = []
        for _ in range(blocks):
            commits = (await run_block(bare, BARE_TURNS)).cpu_ms
            alone = await _cpu_ms([lambda: _sdk_stream(sdk)] * streams)
            ours = await _cpu_ms([await _shown(app, process) for _ in range(streams)])
            rounds.append((commits, alone, ours))
    return _told(rounds, streams)


async def _sdk_stream(sdk: AsyncAnthropic) -> None:
    stream = await sdk.messages.create(
        model="claude-sonnet-5-5", max_tokens=1_000, stream=True,
        messages=[{"role": "user", "content": QUESTION}],
    )  # fmt: skip
    async for _ in stream:
        pass


async def _shown(app: App, process: WebProcess) -> Callable[[], Awaitable[None]]:
    """A turn of a new conversation with one screen; joining is not measured."""
    whole = WholeTurns(app, process.hub)
    await whole.begin()
    seat = Subscriber(SendQueue(_Line(), spawn=process.tasks.start, abort=lambda: None), public=False)
    await process.hub.join(whole.session_id, seat)
    seat.begin("{}", 0)
    process.hub.mark_welcomed(whole.session_id, 0)

    async def turn() -> None:
        await whole.turn(QUESTION)
        await process.hub.leave(whole.session_id, seat)

    return turn


class _Line:
    """Takes frames and does nothing with them."""

    async def send_str(self, data: str) -> None:
        return None

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        return True


async def _cpu_ms(acts: list[Callable[[], Awaitable[None]]]) -> float:
    """Of this process, for each of these."""
    began = time.process_time()
    await asyncio.gather(*(act() for act in acts))
    return (time.process_time() - began) * 1_000 / len(acts)


def _told(rounds: list[tuple[float, float, float]], streams: int) -> dict[str, Any]:
    seconds = DELTAS * PACE_SECONDS
    alone = statistics.median(sdk for _, sdk, _ in rounds)
    ours = statistics.median(whole for _, _, whole in rounds)
    ratios = [whole / (commits + sdk) for commits, sdk, whole in rounds]
    return {
        "streamed_cpu_ratio": round(statistics.median(ratios), 2),
        "streamed_cpu_ratios": [round(one, 2) for one in ratios],
        "streamed_cpu_ms": round(ours, 1),
        "sdk_cpu_ms": round(alone, 1),
        "bare_cpu_ms": round(statistics.median(commits for commits, _, _ in rounds), 2),
        "streams_of_the_sdk_alone": round(statistics.median(sdk / whole for _, sdk, whole in rounds), 2),
        "streams_per_core": round(seconds * 1_000 / ours),
        "streams_per_core_sdk_alone": round(seconds * 1_000 / alone),
        "streams_at_once": streams,
        "blocks": len(rounds),
    }


if __name__ == "__main__":
    raise SystemExit(run("streaming", __doc__, measure, streams=16, blocks=7))
