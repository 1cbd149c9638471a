"""A host on a separate network that can vanish: from then on none of its packets arrives.

It forwards its port 5432 to a Unix socket of this machine. Needs root and `ip` (iproute2).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.needed_programs import refuse

PORT = 5432
CHUNK = 64 * 1024
START_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingHost:
    address: str
    _name: str
    _near: str

    def vanish(self) -> None:
        """Drop every packet that this host would send, including refusals and ends of connections."""
        _ip("-n", self._name, "route", "replace", "blackhole", f"{self._near}/32")


@asynccontextmanager
async def vanishing_host(socket: Path) -> AsyncIterator[VanishingHost]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        refuse("a network namespace needs root and `ip` (Debian: apt-get install iproute2)")
    number = os.getpid() % 250 + 1
    name, near, far = f"evertalk{os.getpid()}", f"10.199.{number}.1", f"10.199.{number}.2"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        refuse(f"a network namespace cannot be made here: {error.stderr.strip()}")
    try:
        _ip("link", "add", f"evn{number}", "type", "veth", "peer", "name", f"evf{number}", "netns", name)
        _ip("addr", "add", f"{near}/30", "dev", f"evn{number}")
        _ip("link", "set", f"evn{number}", "up")
        _ip("-n", name, "addr", "add", f"{far}/30", "dev", f"evf{number}")
        _ip("-n", name, "link", "set", f"evf{number}", "up")
        command = ["ip", "netns", "exec", name, sys.executable, "-m", __name__, far, str(socket)]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        try:
            await _until_open(far)
            yield VanishingHost(address=far, _name=name, _near=near)
        finally:
            process.kill()
            await process.wait()
    finally:
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


async def _until_open(address: str) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection(address, PORT)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.close()
            return


async def _forward(address: str, socket: str) -> None:
    """Forward connections until standard input is closed, which happens when the starting process ends."""

    async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(socket)
        await asyncio.wait(
            [
                asyncio.ensure_future(_pump(reader, to_server)),
                asyncio.ensure_future(_pump(from_server, writer)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        to_server.close()
        writer.close()

    async with await asyncio.start_server(came, address, PORT):
        await asyncio.to_thread(sys.stdin.read)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


if __name__ == "__main__":
    asyncio.run(_forward(*sys.argv[1:3]))
