"""Tools that a small window has no room for: which are kept, and where operators read of it."""

from __future__ import annotations

from dataclasses import replace

from structlog.testing import capture_logs

from shared.adapters.models.token_counter import VocabularyCounter
from shared.core.presets.catalog import preset
from shared.core.session.session import View
from shared.core.values.messages import ToolUse
from shared.ports import ModelCard, ToolSpec
from shared.services.turns.request_builder import RequestBuilder
from tests.kit.builders import entry, view

TOOLS = tuple(
    ToolSpec(name=f"mcp_shop_{letter}", description="Looks up one thing. " * 60, input_schema={})
    for letter in "abcdefgh"
)
POLICY = replace(preset("steady"), context_window=8_192)
CARD = ModelCard(
    name="small", window=8_192, max_output=1_024, window_known=True, prices=None,
    capabilities=frozenset({"tools"}), token_factor=1.0,
)  # fmt: skip


def offered(builder: RequestBuilder, view: View) -> list[str]:
    tools = builder._choose_offered(TOOLS, CARD, POLICY, view, {})
    return [tool.name for tool in tools]


def builder_of() -> RequestBuilder:
    return RequestBuilder(
        policy=POLICY,
        chat_model="small",
        summary_model="small",
        max_output=1_024,
        counter=VocabularyCounter(),
    )


def test_tool_that_a_conversation_uses_stays_in_a_small_window() -> None:
    kept = offered(builder_of(), view([]))
    assert 0 < len(kept) < len(TOOLS)
    assert "mcp_shop_h" not in kept
    used = view(
        [entry(1, 1, "?"), entry(2, 1, ToolUse(id="c", name="mcp_shop_h", input={}), author="assistant")]
    )
    assert "mcp_shop_h" in offered(builder_of(), used)


def test_tools_without_room_are_logged_once() -> None:
    builder = builder_of()
    with capture_logs() as lines:
        kept = offered(builder, view([]))
        offered(builder, view([]))
    (line,) = [line for line in lines if line["event"] == "tools_left_out"]
    assert set(line["tools"]) == {tool.name for tool in TOOLS} - set(kept)
    assert (line["model"], line["window"]) == ("small", 8_192)
