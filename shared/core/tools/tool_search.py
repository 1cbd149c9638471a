"""Search among many tools by words, and the description of the tool for it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from shared.core.values.messages import ToolSpec
from shared.core.values.searching import words_of

FOUND_AT_MOST = 5
"""Most tools that a search returns."""
FIND_TOOLS_CHARS = 20_000
"""Most characters of the result of a search for tools."""
_NAMES_CHARS = 3_000
"""Most characters of the tool names listed in the description; other tools are found by words."""
_PARTS = re.compile(r"[_\W]+|(?<=[a-z])(?=[A-Z])")


def find_tools_spec(tools: Sequence[ToolSpec]) -> ToolSpec:
    """Return the description of the tool `mcp_find_tools`, which searches these tools by words.

    It lists as many of their names as fit into 3,000 characters.
    """
    names, left = _list_names([tool.name for tool in tools])
    more = f" and {left} more" if left else ""
    return ToolSpec(
        name="mcp_find_tools",
        description="Find further tools by what they do or by name; mcp_use_tool runs them. "
        f"There are: {names}{more}.",
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    )


def find_matching(query: str, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return at most 5 tools: those whose name is in the query, then those that share its rarest words, best
    first.
    """
    told = {tool.name: _words(f"{tool.name} {tool.description}") for tool in tools}
    known = Counter(word for words in told.values() for word in words)
    asked = _words(query)

    def score(tool: ToolSpec) -> float:
        shared = sum(math.log(1 + len(tools) / known[word]) for word in asked & told[tool.name])
        return shared + (math.inf if tool.name in query else 0.0)

    ranked = sorted(tools, key=lambda tool: (-score(tool), tool.name))
    return tuple(tool for tool in ranked[:FOUND_AT_MOST] if score(tool) > 0)


def _words(text: str) -> frozenset[str]:
    return frozenset(words_of(_PARTS.sub(" ", text)))


def _list_names(names: Sequence[str]) -> tuple[str, int]:
    shown = 0
    for shown in range(len(names), 0, -1):
        if len(", ".join(names[:shown])) <= _NAMES_CHARS:
            break
    return ", ".join(names[:shown]), len(names) - shown
