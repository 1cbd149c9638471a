"""Which tools fit into a small window."""

from __future__ import annotations

import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from shared.bootstrap.from_settings import BUILT_IN_TOOLS
from shared.core.context.agents import list_preferred_tools, pick_affordable, useful_tools
from shared.core.values.messages import ToolSpec
from shared.core.values.tokens import estimate_by_script, estimate_tools
from tests.bench.prompts import prompts

NAMES = ("calculate", "delegate", "mcp_files_read", "recall", "save_memory")
TOOLS = tuple(ToolSpec(name=name, description="Does a thing. " * 20, input_schema={}) for name in NAMES)


def test_all_tools_are_offered_where_they_fit() -> None:
    assert pick_affordable(TOOLS, estimate_tools(TOOLS, estimate_by_script), estimate_by_script) == TOOLS


def test_a_small_window_is_offered_memory_first_and_tools_of_others_last() -> None:
    most = estimate_tools(TOOLS, estimate_by_script)
    left = []
    while kept := pick_affordable(TOOLS, most, estimate_by_script):
        left.append(tuple(tool.name for tool in kept))
        assert estimate_tools(kept, estimate_by_script) <= most
        most = estimate_tools(kept, estimate_by_script) - 1
    assert left == [
        NAMES,
        ("calculate", "delegate", "recall", "save_memory"),
        ("calculate", "recall", "save_memory"),
        ("recall", "save_memory"),
        ("save_memory",),
        ("recall",),
    ]


def names_within(room: int, *preferred: str, tools: tuple[ToolSpec, ...] = TOOLS) -> list[str]:
    return [tool.name for tool in pick_affordable(tools, room, estimate_by_script, preferred)]


def test_used_tool_of_a_server_stays_before_unused_tools() -> None:
    room = estimate_tools(TOOLS[2:], estimate_by_script)
    assert names_within(room) == ["calculate", "recall", "save_memory"]
    assert names_within(room, "mcp_files_read") == ["mcp_files_read", "recall", "save_memory"]


def test_use_of_an_offered_tool_changes_no_list() -> None:
    for most in range(0, estimate_tools(TOOLS, estimate_by_script) + 1, 7):
        offered = names_within(most)
        assert all(names_within(most, used) == offered for used in offered)


def test_tools_of_servers_keep_the_order_of_their_list() -> None:
    servers = tuple(ToolSpec(name=name, description="Does a thing.", input_schema={}) for name in "zya")
    assert names_within(estimate_tools(servers[:2], estimate_by_script), tools=servers) == ["z", "y"]


def test_large_tool_takes_no_room_from_those_after_it() -> None:
    large = ToolSpec(name="large", description="Does a thing. " * 500, input_schema={})
    room = estimate_tools(TOOLS, estimate_by_script)
    assert names_within(room, "large", tools=(large, *TOOLS)) == list(NAMES)


def test_whole_names_of_an_agent_come_after_used_tools() -> None:
    config = {"tools": {"allow": ["mcp_*", "mcp_mail_send", "calculate", "?x"]}}
    assert list_preferred_tools(config, ["calculate"]) == ("calculate", "mcp_mail_send")
    assert list_preferred_tools({}) == ()


def test_nothing_is_offered_where_nothing_fits() -> None:
    assert pick_affordable(TOOLS, 0, estimate_by_script) == ()


@pytest.mark.parametrize(
    ("notes", "without"), [(False, {"search_memory", "update_memory", "forget_memory"}), (True, set())]
)
def test_tools_that_work_on_notes_are_offered_once_there_are_some(notes: bool, without: set[str]) -> None:
    left = useful_tools(BUILT_IN_TOOLS, has_notes=notes)
    assert [tool for tool in BUILT_IN_TOOLS if tool.name not in without] == list(left)


def test_what_stands_in_every_request_is_bounded() -> None:
    """Count as `python -m tests.bench.prompts` does; longer texts need a reason.

    The rule to use recall before saying that something is unknown takes 20 tokens, and brings back facts.
    """
    count = VocabularyCounter().count_tokens
    size = {name: count(prompts()[f"fixed prefix {name}"]) for name in ("at first", "in all")}
    assert size["at first"] <= 935
    assert size["in all"] <= 1_155
