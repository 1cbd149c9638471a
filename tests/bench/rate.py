"""How many turns a second everything together carries, and how soon the provider is asked:
`python -m tests.bench.rate [--json]`.

Web and worker as processes, people on WebSockets, a provider of 20 deltas, PostgreSQL and Valkey: all on this
machine, the people and the provider too. The floor are bare turns by as many people, in turns with ours.
Some more people talk behind three summaries at the end, with questions that recall has to look for.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType
from redis.asyncio import Redis

from shared.adapters.postgres.db.pool import Pool, open_pool
from tests.bench.floor import TABLES
from tests.bench.ground import environment_of, ground, run, share
from tests.bench.provider import Provider, running_provider
from tests.bench.sockets import HELLO
from tests.bench.summaries import make_questions, make_sentences, put_behind_summaries
from tests.bench.together import Apart
from tests.bench.turn import ANSWER, QUESTION, Turns
from tests.kit.deployment.processes import Process
from tests.kit.fakes.messages_api.harness import running_fake
from tests.kit.free_ports import free_port

DELTAS = 20
STEP_SECONDS = 60.0
PAUSE_SECONDS = 0.05
_numbers = count(1)


@dataclass(slots=True, kw_only=True)
class Talker:
    """One person: says something, waits for the answer, says the next."""

    socket: ClientWebSocketResponse
    acknowledged: dict[int, int] = field(default_factory=dict)
    """When the acknowledgement of each message arrived here."""
    turns: int = 0

    @classmethod
    async def arrive(cls, http: ClientSession, url: str) -> Talker:
        socket = await http.ws_connect(f"{url}/ws", headers={"Origin": url}, max_msg_size=0)
        await socket.send_json(HELLO)
        await socket.receive_json(timeout=STEP_SECONDS)
        return cls(socket=socket)

    async def turn(self) -> None:
        await self.say(QUESTION)

    async def say(self, words: str) -> None:
        number = next(_numbers)
        await self.socket.send_json({"t": "msg", "cid": f"b{number}", "text": f"ask-{number}- {words}"})
        while True:
            message = await self.socket.receive(timeout=STEP_SECONDS)
            if message.type is not WSMsgType.TEXT:
                raise RuntimeError(f"the socket ended: {message}")
            now, frame = time.monotonic_ns(), json.loads(message.data)
            if frame["t"] == "ack":
                self.acknowledged[number] = now
            elif frame["t"] == "error":
                raise RuntimeError(f"refused: {frame}")
            elif frame["t"] == "msg" and frame["role"] != "person":
                if frame["role"] != "assistant":
                    raise RuntimeError(f"not answered: {frame}")
                self.turns += 1
                return

    async def keep_talking(self, until: float, words: Callable[[], str] = lambda: QUESTION) -> None:
        while time.monotonic() < until:
            await self.say(words())


async def measure(*, people: int, seconds: int, blocks: int, questions: int, behind: int) -> dict[str, Any]:
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
        for name, model in (("web", provider.url), ("worker", summaries.base_url)):
            await stack.enter_async_context(Process(name, {**environment, "ANTHROPIC_BASE_URL": model}))
        pool = await open_pool(servers.database_url, size=people + 1)
        stack.push_async_callback(pool.close)
        await pool.execute(TABLES)
        redis = Redis.from_url(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        bare: list[Turns] = []
        for number in range(people):
            connection = await stack.enter_async_context(pool.acquire())
            bare.append(Apart(connection, redis, answer=ANSWER, first=number * 1_000))
        http = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=0)))
        url = f"http://127.0.0.1:{port}"
        few = [await Talker.arrive(http, url) for _ in range(4)]
        asked = await _asked(few, provider, questions)
        rates = []
        for _ in range(blocks):
            fresh = [await Talker.arrive(http, url) for _ in range(people)]
            await asyncio.gather(*(one.turn() for one in fresh))
            rates.append((await _bare_rate(bare, seconds), await _rate(fresh, seconds)))
            await asyncio.gather(*(one.socket.close() for one in fresh))
        await asyncio.gather(*(one.socket.close() for one in few))
        old = [await Talker.arrive(http, url) for _ in range(behind)]
        slow = await _rates_behind_summaries(pool, old, seconds, blocks)
        await asyncio.gather(*(one.socket.close() for one in old))
    return {
        **asked,
        **_told(rates, people, seconds),
        "turns_per_second_behind_summaries": round(statistics.median(slow)),
        "behind_summaries_to_young": round(
            statistics.median(slow) / statistics.median(ours for _, ours in rates), 2
        ),
        "people_behind_summaries": behind,
    }


async def _asked(people: Sequence[Talker], provider: Provider, questions: int) -> dict[str, Any]:
    """A few people, with pauses: how soon one is seen to when the machine is not full."""
    await asyncio.gather(*(one.turn() for one in people))
    for one in people:
        one.acknowledged.clear()

    async def talk(one: Talker) -> None:
        for _ in range(questions // len(people)):
            await one.turn()
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(*map(talk, people))
    arrivals = {int(number): at for number, at in (await provider.told())["arrivals"].items()}
    waits = [
        (arrivals[number] - at) / 1e6
        for one in people
        for number, at in one.acknowledged.items()
        if number in arrivals
    ]
    return {
        "ack_to_request_p50_ms": round(statistics.median(waits), 1),
        "ack_to_request_p99_ms": round(share(waits, 0.99), 1),
        "questions": len(waits),
    }


async def _rates_behind_summaries(
    pool: Pool, people: Sequence[Talker], seconds: float, blocks: int
) -> list[float]:
    """Return the turns a second of conversations behind three summaries, block by block."""
    sentences = make_sentences(random.Random(7))
    await asyncio.gather(*(one.say(next(sentences)) for one in people))
    rows = await pool.fetch("SELECT id FROM sessions ORDER BY id DESC LIMIT $1", len(people))
    sessions = sorted(row["id"] for row in rows)
    said = await put_behind_summaries(
        pool, [(number, one.say) for number, one in zip(sessions, people, strict=True)], sentences
    )
    questions = make_questions(random.Random(8), said)
    return [await _rate(people, seconds, lambda: next(questions)) for _ in range(blocks)]


async def _rate(
    people: Sequence[Talker], seconds: float, words: Callable[[], str] = lambda: QUESTION
) -> float:
    before, began = sum(one.turns for one in people), time.monotonic()
    await asyncio.gather(*(one.keep_talking(began + seconds, words) for one in people))
    return (sum(one.turns for one in people) - before) / (time.monotonic() - began)


async def _bare_rate(people: Sequence[Turns], seconds: float) -> float:
    done, began = 0, time.monotonic()

    async def talk(one: Turns) -> None:
        nonlocal done
        await one.begin()
        while time.monotonic() < began + seconds:
            await one.turn(QUESTION)
            done += 1

    await asyncio.gather(*map(talk, people))
    return done / (time.monotonic() - began)


def _told(rates: list[tuple[float, float]], people: int, seconds: int) -> dict[str, Any]:
    return {
        "turns_per_second": round(statistics.median(ours for _, ours in rates)),
        "turns_per_second_bare": round(statistics.median(bare for bare, _ in rates)),
        "share_of_bare": round(statistics.median(ours / bare for bare, ours in rates), 3),
        "people": people,
        "seconds_per_block": seconds,
        "blocks": len(rates),
    }


if __name__ == "__main__":
    raise SystemExit(run("rate", __doc__, measure, people=32, seconds=6, blocks=5, questions=400, behind=8))
