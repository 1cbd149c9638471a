"""What a WebSocket costs against a bare echo: `python -m tests.bench.sockets [--json] [--sockets N]`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.bench.browser_frames import in_browser
from tests.bench.quiet import keep_quiet

AIMS = {
    "idle_kib_house": 18,
    "slow_reader_ratio": 1.2,
    "slow_reader_p99_ratio": 1.2,
    "delta_latency_ratio": 1.5,
}
HELLO = {"t": "hello", "v": 1, "site": "default", "last_seq": 0, "locale": "en", "tz": "UTC"}
STEP_SECONDS = 60.0
AT_ONCE = 50
PACE_SECONDS = 0.07
"""Above the pause that the house makes between two pieces, so that none is put together with another."""


@dataclass(kw_only=True)
class Served:
    """One server process and those who are connected to it."""

    kind: str
    pid: int
    url: str
    client: ClientSession
    sockets: list[ClientWebSocketResponse] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def is_house(self) -> bool:
        return self.kind == "house"

    async def connect(self, token: str | None = None, *, hear: bool = False) -> tuple[Any, dict[str, Any]]:
        """A socket that is ready, and its welcome where there is one."""
        address = f"{self.url}/ws{'?hear=1' if hear and not self.is_house else ''}"
        socket = await self.client.ws_connect(address, headers={"Origin": self.url}, max_msg_size=0)
        self.sockets.append(socket)
        if not self.is_house:
            return socket, {}
        await socket.send_json(HELLO | ({"token": token} if token else {}))
        return socket, await socket.receive_json(timeout=STEP_SECONDS)

    async def deltas(self, *, session: str, count: int, size: int) -> None:
        asked = {"session": session, "count": count, "size": size, "every": PACE_SECONDS}
        async with self.client.post(f"{self.url}/bench", json=asked) as answer:
            assert answer.status == 200, await answer.text()

    def resident_kib(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise RuntimeError("no VmRSS")

    async def leave(self) -> None:
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)
        for start in range(0, len(self.sockets), AT_ONCE):
            await asyncio.gather(*(socket.close() for socket in self.sockets[start : start + AT_ONCE]))
        self.sockets.clear()
        self.readers.clear()


@contextlib.asynccontextmanager
async def served(kind: str, *words: str) -> AsyncIterator[Served]:
    """A server process of its own, ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.socket_servers", kind, *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    one: Served | None = None
    try:
        async with asyncio.timeout(STEP_SECONDS):
            port = int(await process.stdout.readline())
        client = ClientSession(connector=TCPConnector(limit=0))
        one = Served(kind=kind, pid=process.pid, url=f"http://127.0.0.1:{port}", client=client)
        yield one
    finally:
        if one is not None:
            await one.leave()
            await one.client.close()
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def latencies(socket: Any, count: int) -> list[float]:
    """Milliseconds from a piece's birth to its arrival here."""
    found: list[float] = []
    while len(found) < count:
        frame = await socket.receive_json(timeout=STEP_SECONDS)
        if frame["t"] == "delta":
            found.append((time.monotonic_ns() - int(frame["text"].partition(" ")[0])) / 1e6)
    return found


async def delta_latency(server: Served, count: int, *, size: int = 20) -> float:
    socket, welcome = await server.connect(hear=True)
    heard = asyncio.ensure_future(latencies(socket, count))
    await server.deltas(session=welcome.get("session", ""), count=count, size=size)
    found = statistics.median(await heard)
    await socket.close()
    return found


async def frames_per_second(server: Served, count: int) -> float:
    """There and back, as many as fit."""
    socket, _ = await server.connect()
    began = time.perf_counter()

    async def hear() -> None:
        for _ in range(count):
            await socket.receive(timeout=STEP_SECONDS)

    hearing = asyncio.ensure_future(hear())
    for number in range(count):
        await socket.send_str(f'{{"t":"ping","n":{number}}}')
        if number % 100 == 0:
            await asyncio.sleep(0)
    await hearing
    seconds = time.perf_counter() - began
    await socket.close()
    return count / seconds


async def beside_a_sleeper(server: Served, count: int, *, asleep: bool) -> list[float]:
    """What each piece took to a reader while another screen of the same session takes nothing any more."""
    reader, welcome = await server.connect()
    other, _ = await server.connect(welcome["token"])
    if asleep:
        other._conn.transport.pause_reading()
    heard = asyncio.ensure_future(latencies(reader, count))
    drain = None if asleep else asyncio.ensure_future(latencies(other, count))
    await server.deltas(session=welcome["session"], count=count, size=60_000)
    found = await heard
    if drain is not None:
        await drain
    for socket in (reader, other):
        if (transport := socket._conn.transport) is not None:
            transport.abort()
    return found


async def idle(server: Served, count: int) -> float:
    """KiB of the server's memory for each socket that only waits."""

    async def wait(socket: ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                return

    await server.connect()
    before = server.resident_kib()
    for start in range(0, count, AT_ONCE):
        made = await asyncio.gather(*(server.connect() for _ in range(min(AT_ONCE, count - start))))
        server.readers += [asyncio.ensure_future(wait(socket)) for socket, _ in made]
    await asyncio.sleep(1.0)
    return (server.resident_kib() - before) / count


async def measure(
    *, sockets: int, deltas: int, frames: int, blocks: int, browser: bool = False
) -> dict[str, Any]:
    raise_limit(sockets * 2 + 512)
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        async with EmbeddedServers(Path(name) / "servers") as servers:
            await migrate(servers.database_url)
            words = ("--database", servers.database_url, "--redis", servers.redis_url, "--folder", name)
            most = ("--most", str(sockets + 256))
            async with served("echo", *most) as echo, served("house", *words, *most) as house:
                seen = (
                    await in_browser(echo, house, hello=HELLO, count=deltas, blocks=blocks) if browser else {}
                )
                return seen | await _measured(echo, house, sockets, deltas, frames, blocks)


async def _measured(
    echo: Served, house: Served, sockets: int, deltas: int, frames: int, blocks: int
) -> dict[str, Any]:
    for warm in (echo, house):
        await frames_per_second(warm, 200)
    delays = [(await delta_latency(echo, deltas), await delta_latency(house, deltas)) for _ in range(blocks)]
    speeds = [
        (await frames_per_second(echo, frames), await frames_per_second(house, frames)) for _ in range(blocks)
    ]
    slow = [
        (
            await beside_a_sleeper(house, deltas, asleep=False),
            await beside_a_sleeper(house, deltas, asleep=True),
        )
        for _ in range(blocks)
    ]
    found = {
        "delta_latency_ratio": round(statistics.median(ours / bare for bare, ours in delays), 2),
        "delta_latency_ms": round(statistics.median(ours for _, ours in delays), 3),
        "delta_latency_echo_ms": round(statistics.median(bare for bare, _ in delays), 3),
        "frames_ratio": round(statistics.median(bare / ours for bare, ours in speeds), 2),
        "frames_per_second": round(statistics.median(ours for _, ours in speeds)),
        "frames_per_second_echo": round(statistics.median(bare for bare, _ in speeds)),
        "slow_reader_ratio": round(
            statistics.median(statistics.median(beside) / statistics.median(alone) for alone, beside in slow),
            2,
        ),
        "slow_reader_p99_ratio": round(
            _p99(beside for _, beside in slow) / _p99(alone for alone, _ in slow), 2
        ),
        "sockets": sockets,
    }
    bare, ours = await idle(echo, sockets), await idle(house, sockets)
    found |= {"idle_kib_echo": round(bare, 1), "idle_kib_house": round(ours, 1)}
    return found | {"idle_ratio": round(ours / bare, 2) if bare > 0 else None}


def _p99(blocks: Iterable[Sequence[float]]) -> float:
    """Of all blocks together: one alone is too short for it."""
    return statistics.quantiles([one for block in blocks for one in block], n=100, method="inclusive")[98]


def raise_limit(wanted: int) -> None:
    """Of open files, as far as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def as_table(found: dict[str, Any]) -> str:
    rows = ((name, value, AIMS.get(name)) for name, value in found.items())
    return "\n".join(
        f"{name:<26} {value!s:<12} {'' if aim is None else f'aim ≤ {aim}'}".rstrip()
        for name, value, aim in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sockets", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sockets", type=int, default=500, help="that only wait; 5000 is the aim")
    parser.add_argument("--deltas", type=int, default=40, help="per block")
    parser.add_argument("--frames", type=int, default=3_000, help="there and back, per block")
    parser.add_argument("--blocks", type=int, default=3, help="of each kind")
    parser.add_argument("--browser", action="store_true", help="until a frame of Chromium, too")
    given = parser.parse_args(arguments)
    keep_quiet()
    found = asyncio.run(
        measure(
            sockets=given.sockets,
            deltas=given.deltas,
            frames=given.frames,
            blocks=given.blocks,
            browser=given.browser,
        )
    )
    print(json.dumps(found) if given.json else as_table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
