"""Which tools an agent has, and what a call becomes whatever a tool does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.core.values.messages import Image, ToolSpec, ToolUse
from shared.ports import Tool, ToolContext, ToolFailed, ToolFile, ToolImage, ToolOutput
from shared.services.turns import toolbox as tools_module
from shared.services.turns.toolbox import Toolbox, ToolCallResult
from tests.unit.services.tool_context import CONTEXT

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "nested": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "number"}}}},
    },
    "required": ["count"],
    "additionalProperties": False,
}


@dataclass
class Scripted:
    """`does` is returned, raised, or awaited."""

    name: str = "scripted"
    does: Any = "fine"
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    idempotent: bool = True
    timeout_seconds: float = 5.0
    output_chars: int = 1_000_000
    runs: int = 0

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description="", input_schema=self.schema)

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return f"about\x00 {arguments['count']}" + "!" * 200

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> Any:
        self.runs += 1
        if isinstance(self.does, BaseException):
            raise self.does
        return await self.does() if callable(self.does) else self.does


async def ran(tool: Scripted, arguments: Any = None, **box: Any) -> ToolCallResult:
    call = ToolUse(id="t", name=tool.name, input={} if arguments is None else arguments)
    return await Toolbox([tool], **box).run(call, context=CONTEXT)


def names(box: Toolbox) -> list[str]:
    return [spec.name for spec in box.specs]


# -- whose tools ------------------------------------------------------------------------------------------


BOX = Toolbox([Scripted(name) for name in ("zeta", "alpha", "mcp_files_read", "mcp_files_write")])


@pytest.mark.parametrize(
    ("section", "left"),
    [
        (None, ["alpha", "mcp_files_read", "mcp_files_write", "zeta"]),
        ({}, ["alpha", "mcp_files_read", "mcp_files_write", "zeta"]),
        ({"allow": []}, []),
        ({"allow": ["alpha"]}, ["alpha"]),
        ({"allow": "mcp_*"}, ["mcp_files_read", "mcp_files_write"]),
        ({"deny": ["mcp_*_write"]}, ["alpha", "mcp_files_read", "zeta"]),
        ({"allow": ["alpha"], "deny": ["*"]}, []),
        ({"allow": 7, "deny": {"no": 1}}, ["alpha", "mcp_files_read", "mcp_files_write", "zeta"]),
        ("nonsense", ["alpha", "mcp_files_read", "mcp_files_write", "zeta"]),
    ],
)
def test_an_agent_has_what_is_allowed_and_not_denied_in_order(section: Any, left: list[str]) -> None:
    assert names(BOX.for_agent({"tools": section})) == left


def test_the_same_config_gets_the_same_box() -> None:
    assert BOX.for_agent({"tools": {"deny": ["zeta"]}}) is BOX.for_agent(
        {"tools": {"deny": ["zeta"]}, "model": "x"}
    )


@pytest.mark.control("S25")
async def test_a_tool_that_is_not_allowed_is_not_there() -> None:
    box = BOX.for_agent({"tools": {"deny": ["zeta"]}})
    told = await box.run(ToolUse(id="t", name="zeta", input={}), context=CONTEXT)
    assert (told.status, told.result.is_error) == ("failed", True)
    assert "no tool called 'zeta'" in told.result.text


def test_tools_of_the_provider_stand_behind_ours_as_they_are() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    specs = BOX.for_agent(
        {"tools": {"allow": ["alpha"], "provider": [search, {"name": "typeless"}, "no"]}}
    ).specs
    assert [spec.name for spec in specs] == ["alpha", "web_search"]
    assert specs[1].provider == search


class Growing:
    version = 1

    def __init__(self) -> None:
        self.offered: list[Tool] = [Scripted("mcp_a_one")]

    def tools(self) -> Sequence[Tool]:
        return self.offered


def test_what_a_source_brings_later_is_there_later_and_never_replaces_ours() -> None:
    source = Growing()
    box = Toolbox([Scripted("alpha")], source=source)
    before = box.for_agent({})
    assert names(before) == ["alpha", "mcp_a_one"]
    source.offered = [*source.offered, Scripted("mcp_a_two"), Scripted("alpha", does="another")]
    assert names(box.for_agent({})) == ["alpha", "mcp_a_one"]
    source.version += 1
    assert names(box.for_agent({})) == ["alpha", "mcp_a_one", "mcp_a_two"]
    assert names(before) == ["alpha", "mcp_a_one"]


@dataclass
class Brought(Scripted):
    server: str = ""


@pytest.mark.parametrize(
    ("section", "left"),
    [
        ({}, ["alpha", "mcp_files_read", "mcp_time_now"]),
        ({"servers": None}, ["alpha", "mcp_files_read", "mcp_time_now"]),
        ({"servers": ["time"]}, ["alpha", "mcp_time_now"]),
        ({"servers": ["time", "files"], "deny": ["mcp_files_*"]}, ["alpha", "mcp_time_now"]),
        ({"servers": ["gone"]}, ["alpha"]),
        ({"servers": []}, ["alpha"]),
    ],
)
def test_only_the_servers_that_an_agent_names_bring_their_tools(section: Any, left: list[str]) -> None:
    source = Growing()
    source.offered = [
        Brought("mcp_time_now", server="time"),
        Brought("mcp_files_read", server="files"),
    ]
    box = Toolbox([Scripted("alpha")], source=source).for_agent({"tools": section})
    assert names(box) == left
    assert [box.server_of(name) for name in left] == [
        {"mcp_time_now": "time", "mcp_files_read": "files"}.get(name, "") for name in left
    ]


# -- arguments --------------------------------------------------------------------------------------------


@pytest.mark.control("S25")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["`count` is missing", "`colour`"]),
        ({"count": "two"}, ["`count`", '"two" is not a whole number', '"maximum": 9']),
        ({"count": 10}, ["`count`", "maximum"]),
        ({"count": 1, "colour": "green"}, ["`colour`", "red", "blue"]),
        ({"count": 1, "size": 2}, ["size", "It takes `count`, `colour`, `nested`"]),
        ({"count": 1, "nested": {"deep": [1, "x"]}}, ["`nested.deep.1`", '"x" is not a number']),
        ([], ["JSON object"]),
        ({"count": "x" * 1_000_000}, ["`count`", "whole number"]),
    ],
)
async def test_arguments_that_break_the_schema_never_reach_the_tool(arguments: Any, words: list[str]) -> None:
    tool = Scripted(schema=SCHEMA)
    told = await ran(tool, arguments)
    assert (tool.runs, told.status, told.result.is_error) == (0, "failed", True)
    for word in words:
        assert word in told.result.text
    assert len(told.result.text) < 2_000


@pytest.mark.control("S25", "S26")
async def test_a_schema_is_never_fetched_and_its_patterns_are_not_run() -> None:
    catastrophe = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    assert (await ran(Scripted(schema=catastrophe), {"a": "a" * 40 + "!"})).status == "done"
    elsewhere = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json"}}}
    assert (await ran(Scripted(schema=elsewhere), {"a": 1})).status == "failed"


# -- results ----------------------------------------------------------------------------------------------


async def _stubborn() -> str:
    """Does not let go when it is ended."""
    while True:
        try:
            await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)
            return "late"


async def _cancels() -> str:
    raise asyncio.CancelledError


@pytest.mark.control("S25")
@pytest.mark.parametrize(
    ("does", "words"),
    [
        (ToolFailed("Not today."), "Not today."),
        (RuntimeError("secret details"), "scripted failed."),
        (asyncio.Event().wait, "took longer than 0.05 seconds"),
        (_stubborn, "took longer than 0.05 seconds"),
        (_cancels, "interrupted"),
        (b"bytes", "neither text nor a picture"),
        (ToolFailed("\x00\ud800"), "\ufffd\ufffd"),
    ],
)
async def test_any_tool_outcome_is_returned_to_the_model(
    does: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_module, "CANCEL_SECONDS", 0.05)
    told = await ran(Scripted(does=does, timeout_seconds=0.05))
    assert (told.status, told.result.is_error) == ("failed", True)
    assert words in told.result.text
    assert "secret" not in told.result.text
    await asyncio.sleep(0.35 if does is _stubborn else 0)


@pytest.mark.parametrize("nothing", [None, "", "  ", ToolOutput()])
async def test_a_tool_that_returns_nothing_has_said_so(nothing: Any) -> None:
    assert (await ran(Scripted(does=nothing))).result.text == "scripted returned nothing."


@pytest.mark.control("S25")
async def test_megabytes_are_cut_to_the_tool_s_own_cap() -> None:
    told = await ran(Scripted(does="x" * 3_000_000, output_chars=1_000))
    assert told.status == "done"
    assert "2,999,000 characters left out" in told.result.text
    assert len(told.result.text) < 1_100


async def test_nul_bytes_and_halves_of_characters_are_replaced() -> None:
    assert (await ran(Scripted(does="a\x00b\ud83d"))).result.text == "a\ufffdb\ufffd"


@dataclass
class Keeper:
    async def store_image(self, session_id: int, image: ToolImage, *, by: str) -> tuple[Image, str]:
        if image.body == b"broken":
            raise ToolFailed("A picture was returned that cannot be opened.")
        return Image(attachment_id=7, mime="image/png"), f"[a picture of {by}]"


async def test_pictures_are_kept_and_described() -> None:
    images = (ToolImage(body=b"good"), ToolImage(body=b"broken"), *[ToolImage(body=b"good")] * 5)
    told = await ran(Scripted(does=ToolOutput(text="Look:", images=images)), images=Keeper())
    assert len(told.images) == 3
    assert told.result.text.splitlines()[:3] == [
        "Look:", "[a picture of scripted]", "[A picture was returned that cannot be opened.]",
    ]  # fmt: skip
    assert told.result.text.endswith("[3 more pictures were left out.]")
    unseen = await ran(Scripted(does=ToolOutput(images=images[:1])))
    assert (unseen.images, "cannot be shown" in unseen.result.text) == ((), True)


async def test_file_that_cannot_be_sent_is_reported_to_the_model() -> None:
    file = ToolFile(name="plan.txt", mime="text/plain", body=b"x")
    told = await ran(Scripted(does=ToolOutput(files=(file,))))
    assert (told.files, told.result.text) == ((), "[plan.txt was made, which cannot be sent from here.]")


def test_what_a_call_is_about_is_short_and_plain() -> None:
    box = Toolbox([Scripted()])
    about = box.describe_subject(ToolUse(id="t", name="scripted", input={"count": 3}))
    assert about.startswith("about\ufffd 3!")
    assert len(about) == 60
    assert box.describe_subject(ToolUse(id="t", name="scripted", input={})) == ""
    assert box.describe_subject(ToolUse(id="t", name="other", input={})) == ""
