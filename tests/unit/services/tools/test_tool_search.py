"""Many tools of servers: a request tells their names, a search the rest, and one tool runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.core.context.agents import SEARCH_ABOVE
from shared.core.tools.tool_search import find_matching, find_tools_spec
from shared.core.values.messages import ToolSpec, ToolUse
from shared.ports import Tool, ToolContext, ToolFailed
from shared.services.tools.tool_search import build_tool_search
from shared.services.turns.toolbox import Toolbox, ToolCallResult
from tests.unit.services.tool_context import CONTEXT

DOES = {
    "mcp_files_read": "Read a file from the disk.",
    "mcp_files_write": "Write a text into a file.",
    "mcp_mail_send": "Send a letter by e-mail.",
    "mcp_mail_searchInbox": "Find letters that have come.",
    "mcp_weather_forecast": "Rain, wind and temperature of the next days.",
}


@dataclass
class Served:
    name: str
    ran_with: list[Mapping[str, Any]] = field(default_factory=list)
    idempotent: bool = True
    timeout_seconds: float = 5.0

    @property
    def spec(self) -> ToolSpec:
        schema = {
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 9}},
            "required": ["path"],
        }
        return ToolSpec(
            name=self.name, description=DOES.get(self.name, "Does something."), input_schema=schema
        )

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return f"the disk: {arguments['path']}"

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        if arguments["path"] == "gone":
            raise ToolFailed("It is gone.")
        self.ran_with.append(arguments)
        return f"{self.name} has read {arguments['path']}"


class Servers:
    version = 1

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.offered = tools

    def tools(self) -> Sequence[Tool]:
        return self.offered


SPECS = tuple(Served(name).spec for name in DOES)


def box_of(tools: Sequence[Tool], **section: Any) -> Toolbox:
    own = Toolbox([Served("own")], source=Servers(tools), search=build_tool_search)
    return own.for_agent({"tools": section})


def names(box: Toolbox) -> list[str]:
    return [spec.name for spec in box.specs]


async def ran(box: Toolbox, name: str, **arguments: Any) -> ToolCallResult:
    return await box.run(ToolUse(id="t", name=name, input=arguments), context=CONTEXT)


@pytest.mark.parametrize(
    ("many", "section", "searched"),
    [(SEARCH_ABOVE, {}, False), (SEARCH_ABOVE + 1, {}, True), (3, {"search_above": 2}, True),
     (2, {"search_above": 2}, False), (SEARCH_ABOVE + 1, {"search_above": 50}, False),
     (SEARCH_ABOVE + 1, {"deny": ["mcp_tool_1"]}, False)],
)  # fmt: skip
def test_above_a_number_of_tools_only_two_stand_in_the_request(
    many: int, section: dict[str, Any], searched: bool
) -> None:
    box = box_of([Served(f"mcp_tool_{number}") for number in range(many)], **section)
    assert (names(box) == ["mcp_find_tools", "mcp_use_tool", "own"]) is searched
    assert searched or "mcp_find_tools" not in names(box)


@pytest.mark.parametrize(
    ("wish", "first"),
    [("read a file", "mcp_files_read"), ("will there be rain?", "mcp_weather_forecast"),
     ("inbox", "mcp_mail_searchInbox"), ("mcp_mail_send", "mcp_mail_send"),
     ("write", "mcp_files_write"), ("e-mail a letter", "mcp_mail_send")],
)  # fmt: skip
def test_a_few_words_find_the_tool_that_is_meant(wish: str, first: str) -> None:
    assert find_matching(wish, SPECS)[0].name == first


def test_words_that_no_tool_knows_find_nothing() -> None:
    assert find_matching("zebra", SPECS) == ()


def test_thousand_tool_names_are_listed_within_the_room() -> None:
    many = [ToolSpec(name=f"mcp_a_tool_{n}", description="", input_schema={}) for n in range(1_000)]
    told = find_tools_spec(many).description
    assert len(told) < 3_200
    assert "mcp_a_tool_0, " in told
    shown = told.count("mcp_a_tool_")
    assert f" and {1_000 - shown} more." in told


async def test_found_tool_is_shown_with_its_schema_and_can_run() -> None:
    read = Served("mcp_files_read")
    box = box_of([read, *(Served(name) for name in DOES if name != "mcp_files_read")], search_above=1)
    before = box.specs
    told = await ran(box, "mcp_find_tools", query="read a file")
    assert '"maxLength":9' in told.result.text
    done = await ran(box, "mcp_use_tool", tool="mcp_files_read", arguments={"path": "a.txt"})
    assert (done.status, done.result.text) == ("done", "mcp_files_read has read a.txt")
    assert read.ran_with == [{"path": "a.txt"}]
    assert box.specs == before, "what the provider has cached stays as it is"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"tool": "mcp_files_read", "arguments": {}}, "`path` is missing"),
     ({"tool": "mcp_files_read", "arguments": {"path": "much too long"}}, "too long"),
     ({"tool": "mcp_files_read", "arguments": {"path": "gone"}}, "It is gone."),
     ({"tool": "own", "arguments": {"path": "a"}}, "no tool called 'own'"),
     ({"tool": "mcp_nowhere", "arguments": {}}, "mcp_find_tools"),
     ({"tool": "mcp_files_read"}, "`arguments` is missing")],
)  # fmt: skip
async def test_a_call_that_cannot_be_run_says_why(arguments: dict[str, Any], words: str) -> None:
    told = await ran(box_of([Served(name) for name in DOES], search_above=1), "mcp_use_tool", **arguments)
    assert told.result.is_error
    assert words in told.result.text


@pytest.mark.control("S25")
async def test_a_denied_tool_is_neither_found_nor_run() -> None:
    box = box_of([Served(name) for name in DOES], search_above=1, deny=["mcp_mail_*"])
    assert "mail" not in str([spec.description for spec in box.specs])
    found = await ran(box, "mcp_find_tools", query="mcp_mail_send a letter by e-mail read")
    assert "mcp_mail" not in found.result.text
    told = await ran(box, "mcp_use_tool", tool="mcp_mail_send", arguments={"path": "x"})
    assert "no tool called" in told.result.text


def test_a_call_tells_what_it_is_about_and_is_not_run_twice() -> None:
    box = box_of([Served(name) for name in DOES], search_above=1)
    call = ToolUse(id="t", name="mcp_use_tool", input={"tool": "mcp_files_read", "arguments": {"path": "a"}})
    assert box.describe_subject(call) == "the disk: a"
    assert not box.is_idempotent("mcp_use_tool")
    assert box.is_idempotent("mcp_find_tools")
