"""Which tools fit into a small window."""

from __future__ import annotations

from shared.core.context.tools import affordable
from shared.core.values.model import ToolSpec
from shared.core.values.tokens import by_script, estimate_tools

NAMES = ("calculate", "delegate", "mcp_files_read", "recall", "save_memory")
TOOLS = tuple(ToolSpec(name=name, description="Does a thing. " * 20, input_schema={}) for name in NAMES)


def test_all_tools_are_offered_where_they_fit() -> None:
    assert affordable(TOOLS, estimate_tools(TOOLS, by_script), by_script) == TOOLS


def test_a_small_window_is_offered_memory_first_and_tools_of_others_last() -> None:
    most = estimate_tools(TOOLS, by_script)
    left = []
    while kept := affordable(TOOLS, most, by_script):
        left.append(tuple(tool.name for tool in kept))
        assert estimate_tools(kept, by_script) <= most
        most = estimate_tools(kept, by_script) - 1
    assert left == [
        NAMES,
        ("calculate", "delegate", "recall", "save_memory"),
        ("calculate", "recall", "save_memory"),
        ("recall", "save_memory"),
        ("save_memory",),
    ]


def test_nothing_is_offered_where_nothing_fits() -> None:
    assert affordable(TOOLS, 0, by_script) == ()
