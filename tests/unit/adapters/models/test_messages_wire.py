"""Requests as the Messages API wants them."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.models.catalog import ModelEntry, build_card
from shared.adapters.models.wire import build_request_body
from shared.core.values.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, text_message
from shared.ports import ModelCard, SystemPart
from tests.kit.model_makers import SAVE, asking

ABLE = build_card(ModelEntry(name="claude-haiku-5-5"))
MODEST = build_card(ModelEntry(name="m", capabilities=frozenset()))
CALL = Message(
    role="assistant",
    blocks=(
        Thinking(text="hm", signature="sig"),
        Text(text="Saving."),
        ToolUse(id="toolu_1", name="save_memory", input={"text": "tea"}),
    ),
)
RESULT = Message(role="user", blocks=(ToolResult(tool_use_id="toolu_1", text="no room", is_error=True),))


def body(card: ModelCard, *messages: Message | str, **fields: Any) -> dict[str, Any]:
    return build_request_body(asking(*messages, **fields), card, "wire-name")


def marks(body: dict[str, Any]) -> list[str]:
    found = [f"tool {tool['name']}" for tool in body.get("tools", ()) if "cache_control" in tool]
    found += [f"system {part['text']}" for part in body.get("system", ()) if "cache_control" in part]
    return found + [
        f"message {number}"
        for number, message in enumerate(body["messages"])
        for block in message["content"]
        if "cache_control" in block
    ]


def test_a_plain_request_has_nothing_it_does_not_need() -> None:
    assert body(ABLE, "Hello") == {
        "model": "wire-name",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    }


@pytest.mark.control("S29")
def test_the_output_is_never_asked_longer_than_the_model_can() -> None:
    assert body(MODEST, "Hello", max_output_tokens=50_000)["max_tokens"] == MODEST.max_output


def test_tool_calls_results_and_thinking_keep_their_form() -> None:
    sent = body(ABLE, "Remember tea", CALL, RESULT, tools=(SAVE,))
    assert sent["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Saving."},
        {"type": "tool_use", "id": "toolu_1", "name": "save_memory", "input": {"text": "tea"}},
    ]
    assert sent["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no room", "is_error": True}
    ]
    assert sent["tools"] == [
        {
            "name": "save_memory",
            "description": "Keeps a note.",
            "input_schema": dict(SAVE.input_schema),
            "cache_control": {"type": "ephemeral"},
        }
    ]


def test_unsupported_content_is_left_out_or_described_in_text() -> None:
    sent = body(
        MODEST, "Remember tea", CALL, RESULT, tools=(SAVE,), cache_at=(0,), json_schema={"type": "object"}
    )
    assert "tools" not in sent
    assert "output_config" not in sent
    assert marks(sent) == []
    assert [block["text"] for block in sent["messages"][1]["content"]] == [
        "Saving.",
        '[called save_memory with {"text": "tea"}]',
    ]
    assert sent["messages"][2]["content"][0]["text"] == "[tool result: no room]"


def test_empty_texts_are_not_sent() -> None:
    message = Message(role="user", blocks=(Text(text=" \n"), Text(text="Hi")))
    sent = body(ABLE, message, system=(SystemPart(text=""), SystemPart(text="Be kind.")))
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "Hi"}]
    assert sent["system"] == [{"type": "text", "text": "Be kind."}]


def test_picture_is_replaced_by_its_description() -> None:
    message = Message(
        role="user", blocks=(Image(attachment_id=1, mime="image/png", description="a red boat"),)
    )
    assert body(ABLE, message)["messages"][0]["content"][0]["text"] == "[image: a red boat]"


def test_a_schema_becomes_structured_output() -> None:
    schema = {"type": "object", "properties": {"narrative": {"type": "string"}}}
    assert body(ABLE, "Sum up", json_schema=schema)["output_config"] == {
        "format": {"type": "json_schema", "schema": schema}
    }


def test_the_cache_is_marked_at_tools_system_and_the_named_messages() -> None:
    talk = ("one", text_message("assistant", "two"), "three")
    system = (SystemPart(text="persona"), SystemPart(text="notes", cache=True))
    sent = body(ABLE, *talk, system=system, tools=(SAVE,), cache_at=(0, 2))
    assert marks(sent) == ["tool save_memory", "system notes", "message 0", "message 2"]


def test_there_are_never_more_than_four_marks_and_the_newest_stay() -> None:
    talk = [text_message("user" if number % 2 == 0 else "assistant", f"m{number}") for number in range(9)]
    system = (SystemPart(text="persona", cache=True), SystemPart(text="notes", cache=True))
    sent = body(ABLE, *talk, system=system, tools=(SAVE,), cache_at=(0, 2, 4, 6, 8, 99, -1))
    assert marks(sent) == ["system persona", "message 4", "message 6", "message 8"]
    sent = body(ABLE, *talk, system=system, tools=(SAVE,), cache_at=(6, 8))
    assert marks(sent) == ["system persona", "system notes", "message 6", "message 8"]


def test_a_mark_never_lands_on_a_thinking_block() -> None:
    thought = Message(role="assistant", blocks=(Text(text="Hm."), Thinking(text="t", signature="s")))
    sent = body(ABLE, "Hi", thought, "Go on", cache_at=(1,))
    assert "cache_control" in sent["messages"][1]["content"][0]
    assert "cache_control" not in sent["messages"][1]["content"][1]


def test_what_is_said_in_one_call_alone_stands_behind_the_last_mark() -> None:
    words = Message(role="user", blocks=(Text(text="What is it?"), Text(text="It is Friday.")))
    sent = body(ABLE, "Hi", text_message("assistant", "Hello"), words, cache_at=(0, 2), behind_mark=1)
    assert ["cache_control" in block for block in sent["messages"][2]["content"]] == [True, False]
    assert "cache_control" in sent["messages"][0]["content"][0]


@pytest.mark.parametrize("card", [ABLE, MODEST])
def test_there_is_no_sampling_setting(card: ModelCard) -> None:
    assert not {"temperature", "top_p", "top_k"} & set(body(card, "Hello"))


def test_all_marks_of_a_request_live_equally_long() -> None:
    talk = ("Hi", text_message("assistant", "Hello"), "And now?")
    system = (SystemPart(text="persona", cache=True),)
    sent = body(ABLE, *talk, system=system, tools=(SAVE,), cache_at=(0, 1), cache_long=True)
    found = [block["cache_control"] for block in (*sent["tools"], *sent["system"])]
    found += [b["cache_control"] for m in sent["messages"] for b in m["content"] if "cache_control" in b]
    assert found == [{"type": "ephemeral", "ttl": "1h"}] * 4
