"""The doctor's look at servers of the Model Context Protocol: reached or not, and what was left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from shared.adapters.mcp.tools import Probed, configured_servers, probe
from shared.config.settings import Settings, find_mcp_file
from shared.diagnostics.findings import Finding

TOOLS_NAMED = 8


async def check_mcp(settings: Settings) -> Sequence[Finding]:
    """Each server is started or reached once, and ended again."""
    path = find_mcp_file(settings)
    servers, problems = configured_servers(path)
    findings = [
        Finding(
            level="warn",
            what=f"{path}: {problem}",
            advice="Correct it; docs/agents.md, MCP servers, has an example.",
        )
        for problem in problems
    ]
    for probed in await asyncio.gather(*(probe(server) for server in servers)):
        findings += _findings_of(probed)
    return findings


def _findings_of(probed: Probed) -> Iterator[Finding]:
    if not probed.reached:
        yield Finding(
            level="warn",
            what=f"the MCP server {probed.server} cannot be used: {probed.problem}",
            advice="Start it by hand to see what it says, or take it out of the file.",
        )
        return
    named = ", ".join(probed.tools[:TOOLS_NAMED])
    more = f" and {len(probed.tools) - TOOLS_NAMED} more" if len(probed.tools) > TOOLS_NAMED else ""
    yield Finding(level="ok", what=f"MCP server {probed.server}: {named or 'no tools'}{more}")
    for tool in probed.left_out:
        yield Finding(
            level="warn",
            what=f"the tool {tool.name} of {tool.server} is left out: {tool.reason}",
            advice="No model can be offered it; its server would have to describe it otherwise.",
        )
