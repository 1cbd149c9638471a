"""Two tools in place of many: one finds MCP tools and describes them, the other calls them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared.core.tools.tool_search import FIND_TOOLS_CHARS, find_matching, find_tools_spec
from shared.core.values.messages import ToolSpec
from shared.ports import Tool, ToolContext, ToolFailed, ToolOutput
from shared.services.turns.toolbox import ArgumentChecker

USE_TOOL = ToolSpec(
    name="mcp_use_tool",
    description="Run a tool that mcp_find_tools has described.",
    input_schema={
        "type": "object",
        "properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    },
)
"""Description for the model of the tool that calls another one."""


def build_tool_search(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return two tools, which find and call the given ones, in place of them.

    Thus the request's list of tools stays short and the same, and the cached prefix stays valid.
    """
    return FindTools(tools), UseTool(tools)


class FindTools:
    """Tool that returns the descriptions and schemas of fitting tools as text."""

    idempotent = True
    timeout_seconds = 5.0
    output_chars = FIND_TOOLS_CHARS

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._specs = tuple(tool.spec for tool in tools)
        self.spec = find_tools_spec(self._specs)

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        found = find_matching(str(arguments["query"]), self._specs)
        if not found:
            raise ToolFailed("No tool fits these words. Try others, or a name from the list.")
        return "\n\n".join(map(_render_spec, found))


class UseTool:
    """Tool that calls another tool by name, after checking its arguments; its timeout is the longest of those
    tools.
    """

    spec = USE_TOOL
    idempotent = False

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._arguments = {name: ArgumentChecker(tool.spec) for name, tool in self._tools.items()}
        self.timeout_seconds = max(tool.timeout_seconds for tool in tools)

    def subject(self, arguments: Mapping[str, Any]) -> str:
        """Return what the called tool shows about its arguments in the line about the running tool; "" for
        nothing.
        """
        tell = getattr(self._tools.get(str(arguments.get("tool"))), "subject", None)
        return "" if tell is None else str(tell(arguments.get("arguments") or {}))

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        name, given = arguments["tool"], arguments["arguments"]
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailed(f"There is no tool called {name[:80]!r}; mcp_find_tools tells their names.")
        if fault := self._arguments[name].find_fault(given):
            raise ToolFailed(fault)
        return await tool.run(given, context=context)


def _render_spec(spec: ToolSpec) -> str:
    schema = json.dumps(spec.input_schema, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"{spec.name}: {spec.description}\narguments: {schema}"
