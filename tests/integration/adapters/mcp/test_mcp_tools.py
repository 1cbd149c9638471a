"""Servers of tools over pipes and HTTP: ours, one by others, and what becomes of calls while they fall."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.mcp import connection
from shared.adapters.mcp.tools import KNOWN_FILE, KnownMcpTools, McpTools, load_servers, probe_servers
from shared.config.settings import load_settings
from shared.core.tools.mcp import McpServer
from shared.diagnostics.local_checks import check_mcp
from shared.ports import ToolContext, ToolFailed, ToolOutput
from tests.kit.free_ports import free_port

ROOT = Path(__file__).resolve().parents[4]
CONTEXT = ToolContext(session_id=1, contact_id=1, scope="default", turn=1, key="k")
SERVER = McpServer(
    name="ours",
    command=sys.executable,
    args=("-m", "tests.kit.fakes.mcp_server"),
    cwd=str(ROOT),
    env={"EXTRA": "1"},
)
READY_SECONDS = 60.0


async def call(tools: McpTools, name: str, **arguments: Any) -> ToolOutput:
    tool = next(tool for tool in tools.tools() if tool.spec.name == name)
    told = await tool.run(arguments, context=CONTEXT)
    assert isinstance(told, ToolOutput)
    return told


async def until(true: Any) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
async def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[McpTools]:
    monkeypatch.setenv("EVERTALK_SECRET_KEY", "not for servers")
    monkeypatch.setattr(connection, "PAUSE_LEAST", 0.1)
    tools = McpTools([SERVER], known=tmp_path / KNOWN_FILE)
    assert list(tools.tools()) == []
    tools.start()
    assert await tools.check_ready(READY_SECONDS) == {"ours": True}
    yield tools
    await tools.close()


async def test_a_server_over_pipes_is_used_falls_and_comes_back(ours: McpTools, tmp_path: Path) -> None:
    """One server for all of it: starting one takes seconds."""
    names = [tool.spec.name for tool in ours.tools()]
    assert names == sorted(names)
    assert "mcp_ours_grow_more_tools" in names
    by_name = {tool.spec.name: tool for tool in ours.tools()}
    assert (by_name["mcp_ours_add"].idempotent, by_name["mcp_ours_shout"].idempotent) == (True, False)

    assert (await call(ours, "mcp_ours_add", a=1, b=2)).text == "3"
    drawn = await call(ours, "mcp_ours_draw")
    assert drawn.text == "Here it is.\nfile:///note.txt:\nA note."
    assert drawn.images[0].body.startswith(b"\x89PNG")
    assert len((await call(ours, "mcp_ours_shout", chars=2_000_000)).text) == 1_000_000
    with pytest.raises(ToolFailed, match="Error executing tool fail"):
        await call(ours, "mcp_ours_fail", reason="bad")
    variables = (await call(ours, "mcp_ours_environment")).text.split()
    assert {"EXTRA", "PATH", "HOME"} <= set(variables)
    assert not [name for name in variables if name.startswith(("EVERTALK", "ANTHROPIC", "PYTEST"))]

    hanging = asyncio.ensure_future(call(ours, "mcp_ours_hang"))
    await asyncio.sleep(0.1)
    hanging.cancel()
    await asyncio.wait([hanging])
    assert (await call(ours, "mcp_ours_add", a=2, b=2)).text == "4"

    version = ours.version
    await call(ours, "mcp_ours_grow_more_tools")
    await until(lambda: ours.version > version)
    assert (await call(ours, "mcp_ours_grown")).text == "grown"

    pid = int((await call(ours, "mcp_ours_process")).text)
    with pytest.raises(ToolFailed, match="ended while the tool ran"):
        await call(ours, "mcp_ours_die")
    await until(lambda: not is_alive(pid))
    with pytest.raises(ToolFailed, match="ours"):
        await call(ours, "mcp_ours_add", a=1, b=2)
    assert "mcp_ours_grown" in [tool.spec.name for tool in ours.tools()]
    await until(lambda: "mcp_ours_grown" not in [tool.spec.name for tool in ours.tools()])
    await until(lambda: ours._links["ours"]._ready.is_set())
    again = int((await call(ours, "mcp_ours_process")).text)
    assert again != pid

    await ours.close()
    await until(lambda: not is_alive(again))
    known = KnownMcpTools([SERVER], known=tmp_path / KNOWN_FILE)
    assert [tool.spec for tool in known.tools()] == [tool.spec for tool in ours.tools()]
    with pytest.raises(ToolFailed, match="not reached from here"):
        await known.tools()[0].run({}, context=CONTEXT)
    listed = McpTools([SERVER], known=tmp_path / KNOWN_FILE)
    assert [tool.spec for tool in listed.tools()] == [tool.spec for tool in ours.tools()]


async def test_a_server_over_http_and_one_by_others(tmp_path: Path) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kit.fakes.mcp_server", str(port), cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    time_server = str(Path(sys.executable).with_name("mcp-server-time"))
    servers = [
        McpServer(name="web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "1"}),
        McpServer(name="time", command=time_server, args=("--local-timezone", "UTC")),
    ]
    tools = McpTools(servers, known=tmp_path / KNOWN_FILE)
    try:
        await until(lambda: _listens(port))
        tools.start()
        assert await tools.check_ready(READY_SECONDS) == {"time": True, "web": True}
        assert (await call(tools, "mcp_web_add", a=20, b=22)).text == "42"
        zones = {"source_timezone": "Europe/Berlin", "target_timezone": "Asia/Tokyo"}
        told = await call(tools, "mcp_time_convert_time", time="12:00", **zones)
        assert json.loads(told.text)["target"]["timezone"] == "Asia/Tokyo"
        process.kill()
        await process.wait()
        with pytest.raises(ToolFailed, match="web"):
            await call(tools, "mcp_web_add", a=1, b=2)
        assert "mcp_web_add" in [tool.spec.name for tool in tools.tools()]
    finally:
        await tools.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (McpServer(name="gone", command="/no/such/program"), "not found"),
        (McpServer(name="quiet", command="/bin/sleep", args=("60",)), "not ready"),
        (McpServer(name="mute", command="/bin/true"), ""),
        (McpServer(name="babbles", command="/bin/echo", args=("no json",)), ""),
        (McpServer(name="nobody", url="http://127.0.0.1:1/mcp"), ""),
    ],
)
async def test_program_that_is_no_mcp_server_is_reported_and_skipped(server: McpServer, problem: str) -> None:
    probed = await probe_servers(server, seconds=3.0)
    assert (probed.reached, probed.tools) == (False, ())
    assert problem in probed.problem
    assert probed.problem


async def test_nothing_is_imported_where_no_server_is_configured(tmp_path: Path) -> None:
    code = "import sys, shared.bootstrap.app; sys.exit('mcp' in sys.modules or 'jsonschema' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT)
    assert await process.wait() == 0


async def test_doctor_reports_mcp_servers_and_skipped_tools(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {
        "ours": {"command": SERVER.command, "args": list(SERVER.args), "cwd": str(ROOT)},
        "gone": {"command": "/no/such/program"},
        "odd": {"args": []},
    }}))  # fmt: skip
    said = [str(finding) for finding in await check_mcp(load_settings(mcp_file=path))]
    assert any("odd" in line and "either" in line for line in said)
    assert any("gone cannot be used: its program was not found" in line for line in said)
    assert any(line.startswith("ok") and "mcp_ours_add" in line for line in said)
    assert await check_mcp(load_settings(data_dir=tmp_path / "empty")) == []


def test_a_file_that_cannot_be_read_is_a_problem_and_no_failure(tmp_path: Path) -> None:
    assert load_servers(None) == ((), ())
    assert load_servers(tmp_path / "missing.json") == ((), ())
    assert len(load_servers(tmp_path)[1]) == 1
    (tmp_path / "large.json").write_bytes(b" " * 2_000_000)
    assert len(load_servers(tmp_path / "large.json")[1]) == 1
