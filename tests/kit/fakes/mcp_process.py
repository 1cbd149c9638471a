"""Runs the fake of MCP servers as one process, under the names that a test gives."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shared.adapters.mcp.tools import KNOWN_FILE, McpTools, load_servers
from tests.kit.free_ports import free_port

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 60.0


@asynccontextmanager
async def running_mcp() -> AsyncIterator[str]:
    """Run the fake MCP server as a process, and yield its address once it listens."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kit.fakes.mcp_server", str(port), cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not _listens(port):
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def mcp_servers(folder: Path, *names: str) -> AsyncIterator[str]:
    """Run a fake MCP server, and list it in `mcp.json` of a data folder under these names; yield its address.

    Its tools are stored as already known, as if a process had run before.
    """
    async with running_mcp() as url:
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {name: {"url": url} for name in names}}))
        tools = McpTools(load_servers(path)[0], known=folder / KNOWN_FILE)
        tools.start()
        assert all((await tools.check_ready(READY_SECONDS)).values())
        await tools.close()
        yield url


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
