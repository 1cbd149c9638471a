"""How long a reply takes and what it costs, beside the SDK alone: `python -m tests.bench.replies [--json]`.

People on WebSockets talk with web and worker as processes. The same number of loops ask the same provider by
the SDK, send their whole history each time, and store nothing; and as many people talk with a bare server
of sockets that does the same and stores question and answer. Blocks of one conversation and of several take
turns: young ones, then the same ones behind three summaries, with questions that recall has to look for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector
from anthropic import AsyncAnthropic, DefaultAioHttpClient
from anthropic.types import MessageParam

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.db.urls import build_driver_url
from tests.bench.ground import environment_of, ground, run, share
from tests.bench.provider import WORDS, running_provider
from tests.bench.rate import DELTAS, Talker
from tests.bench.rest import list_family
from tests.bench.summaries import Say, make_questions, make_sentences, put_behind_summaries
from tests.kit.deployment.processes import Process
from tests.kit.fakes.messages_api.harness import running_fake
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import Program

TICKS = os.sysconf("SC_CLK_TCK")
SERVERS = {"postgres": "postgres", "valkey-server": "valkey"}


@dataclass(slots=True)
class Loop:
    """What somebody writes who keeps a conversation in a list: the floor."""

    sdk: AsyncAnthropic
    history: list[MessageParam] = field(default_factory=list)

    async def say(self, words: str) -> None:
        self.history.append({"role": "user", "content": words})
        stream = await self.sdk.messages.create(
            model="claude-sonnet-5-5", max_tokens=1_000, stream=True, messages=self.history
        )
        heard = [event.delta.text async for event in stream if event.type == "content_block_delta"]  # type: ignore[union-attr]
        self.history.append({"role": "assistant", "content": "".join(heard)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Milliseconds of the replies of some people, by who answered them."""

    ours: list[float]
    storing: list[float]
    bare: list[float]


async def measure(*, several: int, turns: int, blocks: int) -> dict[str, Any]:
    words = make_sentences(random.Random(7))
    async with AsyncExitStack() as stack:
        servers, folder = await stack.enter_async_context(ground())
        provider = await stack.enter_async_context(running_provider())
        summaries = await stack.enter_async_context(running_fake())
        await provider.answers(deltas=DELTAS)
        port = free_port()
        environment = environment_of(
            servers, folder, ANTHROPIC_API_KEY="sk-ant-bench", ANTHROPIC_BASE_URL=provider.url,
            EVERTALK_HTTP_PORT=str(port),
        )  # fmt: skip
        processes = [
            await stack.enter_async_context(Process(name, {**environment, "ANTHROPIC_BASE_URL": url}))
            for name, url in (("web", provider.url), ("worker", summaries.base_url))
        ]
        http = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=0)))
        sdk = AsyncAnthropic(
            api_key="sk-ant-bench", base_url=provider.url, http_client=DefaultAioHttpClient()
        )
        stack.push_async_callback(sdk.close)
        storing = await _storing_server(stack, servers.database_url, provider.url)
        ours, stored = [
            [(await Talker.arrive(http, url)).say for _ in range(several + 1)]
            for url in (f"http://127.0.0.1:{port}", storing.url)
        ]
        scene = Scene(processes=processes, storing=storing, ours=ours, stored=stored, sdk=sdk)
        found = await scene.measure(words, turns, blocks)
        pool = await open_pool(servers.database_url, size=1)
        stack.push_async_callback(pool.close)
        sessions = [row["id"] for row in await pool.fetch("SELECT id FROM sessions ORDER BY id")]
        said = await put_behind_summaries(pool, list(zip(sessions, ours, strict=True)), words)
        behind = await scene.measure(make_questions(random.Random(8), said), turns, blocks)
    return {
        **found,
        "several": several,
        **{f"{name}_behind_summaries": value for name, value in behind.items()},
    }


@dataclass(frozen=True, slots=True)
class StoringServer:
    url: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that runs, and the people who talk: the first alone, the others at once."""

    processes: Sequence[Process]
    storing: StoringServer
    ours: Sequence[Say]
    stored: Sequence[Say]
    sdk: AsyncAnthropic

    async def measure(self, words: Iterator[str], turns: int, blocks: int) -> dict[str, Any]:
        """Let the floor begin new conversations, and measure all in turns."""
        floor: list[Say] = [Loop(self.sdk).say for _ in self.ours]
        await asyncio.gather(*(_talk(say, words, 10) for say in (*self.ours, *self.stored, *floor)))
        before = _cpu(self.processes)
        rounds: dict[str, list[Block]] = {"one": [], "several": []}
        alone_cpu: list[float] = []
        storing_cpu = _read_stat(self.storing.pid)[1]
        for _ in range(blocks):
            for name, which in (("one", slice(1)), ("several", slice(1, None))):
                own = time.process_time()
                bare = await _waits(floor[which], words, turns)
                alone_cpu.append((time.process_time() - own) * 1_000 / len(bare))
                rounds[name].append(
                    Block(
                        ours=await _waits(self.ours[which], words, turns),
                        storing=await _waits(self.stored[which], words, turns),
                        bare=bare,
                    )
                )
        storing_cpu = _read_stat(self.storing.pid)[1] - storing_cpu
        spent = {name: seconds - before[name] for name, seconds in _cpu(self.processes).items()}
        count = sum(len(block.ours) for blocks_ in rounds.values() for block in blocks_)
        return {
            **_told(rounds),
            **_costs(spent, count, statistics.median(alone_cpu)),
            "storing_cpu_ms": round(storing_cpu * 1_000 / count, 2),
        }


async def _storing_server(stack: AsyncExitStack, database_url: str, model_url: str) -> StoringServer:
    port = free_port()
    more = {"STORING_DATABASE_URL": build_driver_url(database_url), "STORING_MODEL_URL": model_url}
    server = Program(
        "tests.bench.storing_socket", {"PATH": os.environ["PATH"], "STORING_PORT": str(port), **more}
    )
    await server.start()
    stack.push_async_callback(server.terminate)
    await server.said("storing_serves")
    return StoringServer(f"http://127.0.0.1:{port}", server.pid)


async def _talk(say: Say, words: Iterator[str], turns: int) -> list[float]:
    waits = []
    for _ in range(turns):
        began = time.perf_counter()
        await say(next(words))
        waits.append((time.perf_counter() - began) * 1_000)
    return waits


async def _waits(people: Sequence[Say], words: Iterator[str], turns: int) -> list[float]:
    return [
        one for each in await asyncio.gather(*(_talk(say, words, turns) for say in people)) for one in each
    ]


def _cpu(processes: Sequence[Process]) -> dict[str, float]:
    """Seconds of CPU by process and server since they began; what has ended is counted by its parent."""
    found = {one.module: _read_stat(one.pid)[1] for one in processes}
    for pid in list_family(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, seconds = _read_stat(pid)
            if server := SERVERS.get(name):
                found[server] = found.get(server, 0.0) + seconds
    return found


def _read_stat(pid: int) -> tuple[str, float]:
    """Return the name of a process, and its seconds of CPU with those of its ended children."""
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], sum(map(int, tail.split()[11:15])) / TICKS


def _told(rounds: dict[str, list[Block]]) -> dict[str, Any]:
    p50 = statistics.median
    found: dict[str, Any] = {}
    for name, blocks in rounds.items():
        mine = [wait for block in blocks for wait in block.ours]
        beside_storing = [p50(one.ours) / p50(one.storing) for one in blocks]
        stored = [wait for block in blocks for wait in block.storing]
        found |= {
            f"reply_ratio_{name}": round(p50(p50(one.ours) / p50(one.bare) for one in blocks), 2),
            f"reply_ratio_{name}_to_storing": round(p50(beside_storing), 2),
            f"reply_p50_ms_{name}": round(p50(mine), 1),
            f"reply_p95_ms_{name}": round(share(mine, 0.95), 1),
            f"reply_p99_ms_{name}": round(share(mine, 0.99), 1),
            f"storing_p99_ms_{name}": round(share(stored, 0.99), 1),
            f"reply_p99_ratio_{name}_to_storing": round(share(mine, 0.99) / share(stored, 0.99), 2),
            f"sdk_p50_ms_{name}": round(p50(wait for block in blocks for wait in block.bare), 1),
            f"storing_p50_ms_{name}": round(p50(wait for block in blocks for wait in block.storing), 1),
            f"replies_{name}": len(mine),
        }
    return found


def _costs(spent: dict[str, float], count: int, alone_ms: float) -> dict[str, Any]:
    each = {name: seconds * 1_000 / count for name, seconds in spent.items()}
    ours = each["web"] + each["worker"]
    return {
        "cpu_ratio_web_and_worker": round(ours / alone_ms, 2),
        "cpu_ratio_all": round(sum(each.values()) / alone_ms, 2),
        "sdk_cpu_ms": round(alone_ms, 2),
        **{f"{name}_cpu_ms": round(value, 2) for name, value in sorted(each.items())},
        "deltas": DELTAS,
        "words_per_delta": len(WORDS.split()),
    }


if __name__ == "__main__":
    raise SystemExit(run("replies", __doc__, measure, several=10, turns=20, blocks=7))
