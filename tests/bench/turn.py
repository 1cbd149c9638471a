"""What a turn costs without the model: `python -m tests.bench.turn [--json] [--turns N] [--minutes N] …`.

A machine that others share computes twice as fast in one minute as in the next, and its disk does not: blocks
that are spread over some minutes say more than as many at once.

Both sides run on uvloop and never search what was loaded for garbage, as the web process does.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import io
import json
import pstats
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncpg
from redis.asyncio import Redis

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.pool import open_pool
from shared.bootstrap.app import App
from shared.config.settings import load_settings
from shared.runtime import freeze_loaded_objects
from tests.bench import rest
from tests.bench.floor import BareTurns
from tests.bench.ground import environment_of, ground, settings_of
from tests.bench.quiet import keep_quiet
from tests.bench.summaries import make_questions, make_sentences, put_behind_summaries
from tests.bench.whole import WholeTurns, all_were_answered, app_with_instant_model
from tests.kit.deployment.processes import Process
from tests.kit.fakes.messages_api.harness import running_fake
from web.app import build_web_process
from web.ports import ModelInfo

QUESTION = "What was the name of the restaurant near the river that we liked so much last summer?"
ANSWER = "You liked the Blue Heron, because of the grilled sardines and the view over the bridge at night."
TURNS_BETWEEN_BEATS = 20
"""More take longer than a beat; then its commit is few beside theirs."""
AIMS = {"overhead_ratio": 2.0, "statements": 2, "commits": 2, "redis_commands": 2, "rss_web_at_rest_mib": 180,
        "rss_worker_at_rest_mib": 170, "rss_web_after_model_mib": 180, "rss_worker_after_model_mib": 180,
        "up_ready_second_start_seconds": 8}  # fmt: skip
BLOCKS_BEHIND = 3
"""Few, since the conversation grows with each of them."""
TOGETHER = 7
"""Blocks of each kind in a group."""
_HOUSEKEEPING = ("info", "config", "ping", "hello", "client", "select", "subscribe", "unsubscribe")


class Turns(Protocol):
    async def begin(self) -> None: ...
    async def turn(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    wall_ms: float
    cpu_ms: float
    """Of this process alone; the servers' share is not in it."""


async def run_block(turns: Turns, count: int) -> Block:
    await turns.begin()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await turns.turn(QUESTION)
    return Block(
        wall_ms=(time.perf_counter() - wall) * 1000 / count,
        cpu_ms=(time.process_time() - cpu) * 1000 / count,
    )


async def measure(
    *,
    turns: int,
    blocks: int,
    with_processes: bool,
    profile: bool,
    flush_ms: float = 0.0,
    minutes: float = 0.0,
) -> dict[str, Any]:
    async with ground() as (servers, folder):
        if flush_ms:
            await _flush_slowly(servers.database_url, flush_ms)
        found = await _turns(servers, folder, turns, blocks, minutes, profile=profile)
    if with_processes:
        found |= await rest.measure(load_settings())
    return found


async def _flush_slowly(database_url: str, milliseconds: float) -> None:
    """Every commit waits so much longer for its flush, the floor's as ours."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"ALTER SYSTEM SET commit_delay = {round(milliseconds * 1000)}")
        await connection.execute("ALTER SYSTEM SET commit_siblings = 0")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


async def _turns(
    servers: EmbeddedServers, folder: Path, turns: int, blocks: int, minutes: float, *, profile: bool
) -> dict[str, Any]:
    app = await app_with_instant_model(settings_of(servers, folder), answer=ANSWER)
    redis = Redis.from_url(servers.redis_url)
    bare_pool = await open_pool(servers.database_url, size=1)
    process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
    process.hub.start()
    freeze_loaded_objects()
    try:
        async with bare_pool.acquire() as connection:
            floor = BareTurns(connection, redis, answer=ANSWER)  # type: ignore[arg-type]
            whole = WholeTurns(app, process.hub)
            await floor.prepare()
            for warm in (floor, whole):
                await run_block(warm, max(10, turns // 5))
            found = await _interleaved(floor, whole, turns, _groups(blocks, minutes))
        found |= await _counts(app, redis, whole, turns)
        found |= await _behind_summaries(app, servers, folder, WholeTurns(app, process.hub), turns)
        await all_were_answered(app)
        if profile:
            found["profile"] = await _profile(whole, turns)
        return found
    finally:
        await process.tasks.drain(2.0)
        await bare_pool.close()
        await redis.aclose()
        await app.close()


async def _behind_summaries(
    app: App, servers: EmbeddedServers, folder: Path, whole: WholeTurns, turns: int
) -> dict[str, Any]:
    """Measure turns of a conversation behind three summaries, with questions that recall has to look for."""
    sentences = make_sentences(random.Random(7))
    await whole.begin()
    async with running_fake() as fake:
        environment = environment_of(
            servers, folder, ANTHROPIC_API_KEY="sk-ant-bench", ANTHROPIC_BASE_URL=fake.base_url
        )
        async with Process("worker", environment):
            said = await put_behind_summaries(app.pool, [(whole.session_id, whole.turn)], sentences)
    questions = make_questions(random.Random(8), said)
    spent: list[float] = []
    for _ in range(BLOCKS_BEHIND):
        await whole.conversation.check_leases()
        cpu = time.process_time()
        for _ in range(turns):
            await whole.turn(next(questions))
        spent.append((time.process_time() - cpu) * 1000 / turns)
    return {"cpu_ms_per_turn_behind_summaries": round(statistics.median(spent), 2)}


def _groups(blocks: int, minutes: float) -> list[tuple[float, int]]:
    """Seconds to wait, and the blocks that then run one after the other."""
    if not minutes:
        return [(0.0, blocks)]
    count = max(2, blocks // TOGETHER)
    size, more = divmod(blocks, count)
    apart = minutes * 60 / (count - 1)
    return [(apart if number else 0.0, size + (number < more)) for number in range(count)]


async def _alive_for(seconds: float, whole: WholeTurns) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await whole.conversation.check_leases()
        await asyncio.sleep(min(1.0, left))


async def _interleaved(
    floor: Turns, whole: WholeTurns, turns: int, groups: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    pairs: list[tuple[Block, Block]] = []
    middles: list[float] = []
    for seconds, blocks in groups:
        if seconds:
            await _alive_for(seconds, whole)
            for warm in (floor, whole):
                await run_block(warm, turns)
        group = [(await run_block(floor, turns), await run_block(whole, turns)) for _ in range(blocks)]
        middles.append(statistics.median(ours.wall_ms / bare.wall_ms for bare, ours in group))
        pairs += group
    ratios = [ours.wall_ms / bare.wall_ms for bare, ours in pairs]
    return {
        "overhead_ratio": round(statistics.median(ratios), 2),
        "overhead_ratio_of_groups": [round(middle, 2) for middle in middles],
        "overhead_ratios": [round(ratio, 2) for ratio in ratios],
        "cpu_ratio": round(statistics.median(ours.cpu_ms / bare.cpu_ms for bare, ours in pairs), 2),
        "cpu_ms_per_turn": round(statistics.median(ours.cpu_ms for _, ours in pairs), 2),
        "floor_cpu_ms_per_turn": round(statistics.median(bare.cpu_ms for bare, _ in pairs), 2),
        "wall_ms_per_turn": round(statistics.median(ours.wall_ms for _, ours in pairs), 2),
        "floor_wall_ms_per_turn": round(statistics.median(bare.wall_ms for bare, _ in pairs), 2),
        "turns_per_block": turns,
        "blocks": len(pairs),
    }


async def _counts(app: App, redis: Redis, whole: WholeTurns, turns: int) -> dict[str, Any]:
    """Of turns among which no beat fell: it has a commit of its own."""
    while True:
        beat = app.heartbeat.last_beat
        found = await _counted(app, redis, whole, turns)
        if turns > TURNS_BETWEEN_BEATS or app.heartbeat.last_beat == beat:
            return found


async def _counted(app: App, redis: Redis, whole: WholeTurns, turns: int) -> dict[str, Any]:
    """Statements as the driver sends them, commits as transaction numbers that Postgres gave away."""
    statements: Counter[str] = Counter()

    def log(query: asyncpg.connection.LoggedQuery) -> None:
        statements[_kind(query.query)] += 1

    await whole.begin()
    connections = [await app.pool.acquire() for _ in range(app.pool.get_size())]
    for connection in connections:
        connection.add_query_logger(log)
    for connection in connections:
        await app.pool.release(connection)
    await asyncio.sleep(0.3)
    statements.clear()
    xids, commands = await _xid(app), await _commands(redis)
    statements.clear()
    for _ in range(turns):
        await whole.turn(QUESTION)
    resets, _ = statements.pop("reset", 0), statements.pop("introspection", 0)
    sent = sum(statements.values())
    await asyncio.sleep(0.3)
    return {
        "statements": round(sent / turns, 2),
        "pool_resets": round(resets / turns, 2),
        "commits": round((await _xid(app) - xids) / turns, 2),
        "redis_commands": round((await _commands(redis) - commands).total() / turns, 2),
        "redis_commands_by_name": {
            name: round(count / turns, 2) for name, count in (await _commands(redis) - commands).items()
        },
    }


def _kind(query: str) -> str:
    if "typeinfo" in query or "'jit'" in query:
        return "introspection"  # what the driver asks once per connection is no part of a turn
    return "reset" if "UNLISTEN" in query or "RESET ALL" in query else "statement"


async def _xid(app: App) -> int:
    return int(await app.pool.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))


async def _commands(redis: Redis) -> Counter[str]:
    stats = await redis.info("commandstats")
    named = {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}
    return Counter({name: calls for name, calls in named.items() if name.split("|")[0] not in _HOUSEKEEPING})


async def _profile(whole: WholeTurns, turns: int) -> list[str]:
    await whole.begin()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(turns):
        await whole.turn(QUESTION)
    profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("cumulative").print_stats(45)
    return text.getvalue().splitlines()


def as_table(found: dict[str, Any]) -> str:
    lines = []
    for name, value in found.items():
        if name == "profile":
            continue
        aim = AIMS.get(name)
        lines.append(f"{name:<34} {value!s:<28} {'' if aim is None else f'aim ≤ {aim}'}".rstrip())
    return "\n".join([*lines, *found.get("profile", [])])


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turn", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=20, help="per block")
    parser.add_argument("--blocks", type=int, default=21, help="of each kind")
    parser.add_argument("--minutes", type=float, default=0.0, help="over which the blocks are spread")
    parser.add_argument("--no-processes", action="store_true", help="leave memory and the start of `up` out")
    parser.add_argument("--flush-ms", type=float, default=0.0, help="so much slower is each flush of the log")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    given = parser.parse_args(arguments)
    keep_quiet()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        found = runner.run(
            measure(
                turns=given.turns,
                blocks=given.blocks,
                with_processes=not given.no_processes,
                profile=given.profile,
                flush_ms=given.flush_ms,
                minutes=given.minutes,
            )
        )
    print(json.dumps(found) if given.json else as_table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
