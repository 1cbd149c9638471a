"""A process dies around a tool with a side effect: it is never done twice, and the model is told."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from shared.adapters.mcp.tools import KNOWN_FILE, McpTools, load_servers
from shared.core.tools.mcp import OfferedTool
from tests.faults.provided import provided_by
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.fakes.messages_api.harness import RunningFake

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN = "outcome unknown"
PATIENCE_SECONDS = 60.0
"""For an MCP server to start: a call waits for ten."""


@pytest.mark.row("F12")
@pytest.mark.control("S25")
@pytest.mark.parametrize(
    ("point", "tool", "runs", "told"),
    [
        ("after_tool_calls", "mcp_test_write_line", 0, UNKNOWN),
        ("after_tool_run", "mcp_test_write_line", 1, UNKNOWN),
        ("after_tool_results", "mcp_test_write_line", 1, "written"),
        ("after_tool_run", "mcp_test_note_line", 2, "written"),
    ],
)
async def test_a_side_effect_is_never_repeated_unless_that_does_no_harm(
    case: Case, fake: RunningFake, tmp_path: Path, point: str, tool: str, runs: int, told: str
) -> None:
    written, servers = tmp_path / "lines.txt", tmp_path / "mcp.json"
    server = {"command": sys.executable, "args": ["-m", "tests.kit.fakes.mcp_server"], "cwd": str(ROOT)}
    servers.write_text(json.dumps({"mcpServers": {"test": server}}))
    more = {**provided_by(fake), "EVERTALK_MCP_FILE": str(servers), "EVERTALK_DATA_DIR": str(tmp_path)}
    await _known_from_before(servers, tmp_path)
    call = {"name": tool, "input": {"path": str(written), "line": "once"}}
    await fake.script([
        {"match": {"contains": "Write it"}, "times": 1, "action": {"tool_use": [call]}},
        {"match": {"kind": "chat"}, "times": -1, "action": {"text": "It is done."}},
    ])  # fmt: skip
    async with case.web(crash_point=point, **more) as web, Person(case.port, name="writer") as person:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "mcp_server_ready" not in web.words():
                await asyncio.sleep(0.02)
        await person.say("Write it down.")
        await web.crashed()
        await person.answered()
        assert web.exits == [CRASHED], web.words()
        await case.promises_hold(person)
    lines = written.read_text().splitlines() if written.exists() else []
    assert lines == ["once"] * runs
    results = "SELECT blocks -> 0 ->> 'text' FROM entries WHERE author = 'tool'"
    assert told in await case.value(results)
    outcomes = "SELECT status FROM turn_steps WHERE tool LIKE 'mcp%'"
    assert await case.value(outcomes) == ("unknown" if told == UNKNOWN else "done")


async def _known_from_before(servers: Path, folder: Path) -> None:
    """As a process that ran earlier would have left it: the tools are offered from the first turn on."""
    fields = {"path": {"type": "string"}, "line": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["path", "line"]}
    offered = [
        OfferedTool(name=name, description="Writes.", schema=schema, idempotent=name == "note_line")
        for name in ("write_line", "note_line")
    ]
    found, _ = load_servers(servers)
    await McpTools(found, known=folder / KNOWN_FILE)._record_tools("test", offered)
