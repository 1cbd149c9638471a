"""Requests of Chat Completions, and the chunks in which servers of all kinds answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.models.chat_completions import (
    ChunkTranslator,
    build_completion_body,
    shorten_id,
)
from shared.adapters.models.dialects.hidden_text import HiddenText
from shared.adapters.models.dialects.usage_fields import convert_usage
from shared.adapters.models.stream_parser import AnswerParser
from shared.core.values.messages import Image, Message, Text, Thinking, ToolResult, ToolUse
from shared.ports import ModelRequest, PictureContent, SystemPart
from tests.kit.fakes.chat_completions.requests import as_messages, check_shape
from tests.kit.fakes.messages_api.catalogue import Catalogue
from tests.kit.fakes.messages_api.validate import check_request
from tests.kit.model_makers import SAVE, asking
from tests.unit.adapters.models.chat_card import CARD, MODEL

USE = ToolUse(id="toolu_01", name="save_memory", input={"kind": "fact", "text": "tea", "subject": "me"})
TALK = (
    Message(role="user", blocks=(Text(text="I like tea."),)),
    Message(role="assistant", blocks=(Thinking(text="tea", signature="s"), Text(text="Noted."), USE)),
    Message(role="user", blocks=(ToolResult(tool_use_id=USE.id, text="Saved."), Text(text="And now?"))),
)


def body_of(request: ModelRequest, *more: str) -> dict[str, Any]:
    """What is sent, once the strict server has taken it."""
    card = replace(CARD, capabilities=CARD.capabilities | set(more))
    body = json.loads(json.dumps(build_completion_body(request, card, MODEL)))
    check_shape(body)
    model = Catalogue(None).get(MODEL)
    assert model is not None
    check_request(as_messages(body), model)
    return dict(body)


def read(*chunks: Mapping[str, Any]) -> AnswerParser:
    reading, translator = AnswerParser(HiddenText()), ChunkTranslator()
    for chunk in chunks:
        reading.take_all(translator.take(chunk))
    reading.take_all(translator.end())
    return reading


def goes_on(given: str, **more: Any) -> dict[str, Any]:
    return says(tool_calls=[{"function": {"arguments": given}, **more}])


def says(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def ends(reason: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def call(given: object, **more: Any) -> dict[str, Any]:
    return says(tool_calls=[{"function": {"name": "save_memory", "arguments": given}, **more}])


def test_each_result_is_a_message_of_its_own_and_thoughts_stay_out() -> None:
    body = body_of(
        asking(*TALK, tools=(SAVE,), system=(SystemPart(text="Be kind."), SystemPart(text="Now.")))
    )
    id_ = shorten_id(USE.id)
    arguments = json.dumps(USE.input)
    assert body["messages"] == [
        {"role": "system", "content": "Be kind.\n\nNow."},
        {"role": "user", "content": "I like tea."},
        {
            "role": "assistant",
            "content": "Noted.",
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": USE.name, "arguments": arguments}}
            ],
        },
        {"role": "tool", "tool_call_id": id_, "content": "Saved."},
        {"role": "user", "content": "And now?"},
    ]
    assert body["max_tokens"] == 4_096
    assert body["stream_options"] == {"include_usage": True}


def test_tools_are_described_in_text_to_a_model_without_tools() -> None:
    card = replace(CARD, capabilities=frozenset())
    body = build_completion_body(asking(*TALK, tools=(SAVE,)), card, MODEL)
    assert "tools" not in body
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert "[called save_memory" in body["messages"][1]["content"]
    assert "[tool result: Saved.]" in body["messages"][2]["content"]


def test_a_picture_goes_as_data_or_as_its_description() -> None:
    picture = Image(attachment_id=7, mime="image/png", description="a cat")
    shown = Message(role="user", blocks=(picture, Text(text="Look")))
    request = asking(shown, pictures={7: PictureContent(mime="image/png", body=b"png")})
    parts = body_of(request, "images")["messages"][0]["content"]
    assert parts[0]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert body_of(request)["messages"][0]["content"] == "[image: a cat]\n\nLook"


def test_marks_end_the_prefix_and_leave_out_what_belongs_to_this_call() -> None:
    last = Message(role="user", blocks=(Text(text="Hello again"), Text(text="It is noon.")))
    request = asking("Hi", last, system=(SystemPart(text="Be kind."),), cache_at=(0, 1), behind_mark=1)
    assert "prompt_cache" not in json.dumps(body_of(request))
    body = body_of(request, "cache")
    marked = [
        part["text"]
        for message in body["messages"]
        for part in message["content"]
        if isinstance(part, dict) and "prompt_cache_breakpoint" in part
    ]
    assert marked == ["Be kind.", "Hi", "Hello again"]
    assert body["prompt_cache_options"] == {"mode": "explicit"}


@pytest.mark.parametrize("more", [(), ("cache",)])
def test_a_longer_conversation_begins_with_the_same_bytes(more: tuple[str, ...]) -> None:
    card = replace(CARD, capabilities=CARD.capabilities | set(more))

    def sent(count: int) -> str:
        """But for the marks, which move on."""
        body = build_completion_body(asking(*TALK[:count], cache_at=(count - 1,)), card, MODEL)
        mark = json.dumps({"prompt_cache_breakpoint": {"mode": "explicit"}})[1:-1]
        return json.dumps(body["messages"]).replace(f", {mark}", "")

    for count in range(1, len(TALK)):
        assert sent(count + 1).startswith(sent(count)[:-1])


def test_a_schema_is_asked_for_where_it_can_be() -> None:
    request = asking("Sum up", json_schema={"type": "object"})
    assert body_of(request)["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "response_format" not in build_completion_body(
        request, replace(CARD, capabilities=frozenset()), MODEL
    )


@given(st.lists(st.text(max_size=60), max_size=8), st.text(max_size=80))
def test_ids_fit_every_server(ids: list[str], id_: str) -> None:
    assert shorten_id(id_) == shorten_id(id_)
    assert len(shorten_id(id_)) == 9
    assert shorten_id(id_).isalnum()
    assert len({shorten_id(one) for one in ids}) == len(set(ids))


def test_content_is_text_and_usage_excludes_cache_reads() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    reading = read(says(role="assistant", content=""), says(content="Hel"), says(content="lo"), ends("stop"),
                   {"choices": [], "usage": usage})  # fmt: skip
    assert reading.build_blocks() == (Text(text="Hello"),)
    assert reading.ended
    assert (reading.find_stop_reason(), reading.build_usage().input_tokens) == ("end_turn", 40)
    assert (reading.build_usage().cache_read_tokens, reading.build_usage().output_tokens) == (60, 7)


@pytest.mark.parametrize(
    ("chunks", "inputs"),
    [
        ([call('{"a"', index=0, id="c1"), goes_on(":1}", index=0)], [1]),
        ([call('{"a":1}', index=0, id="c1"), call('{"a":2}', index=1, id="c2")], [1, 2]),
        ([call('{"a":1}', id="c1"), call('{"a":2}', id="c2")], [1, 2]),
        ([call('{"a":1}', id=""), call('{"a":2}', id="")], [1, 2]),
        ([call('{"a":1}', index=0, id="c"), call('{"a":2}', index=1, id="c")], [1, 2]),
        ([call('{"a"', id="c1"), goes_on(":1}")], [1]),
        ([call('{"a"', id="c1"), call(":1}", id="c1")], [1]),
        ([call({"a": 1}, index=0, id="c1")], [1]),
    ],
    ids=["in pieces", "two", "two without index", "two without ids", "two of one id", "no index",
         "a name twice", "an object"],
)  # fmt: skip
def test_calls_are_put_together_however_a_server_numbers_them(
    chunks: list[dict[str, Any]], inputs: list[int]
) -> None:
    reading = read(*chunks, ends("stop"))
    uses = [block for block in reading.build_blocks() if isinstance(block, ToolUse)]
    assert [use.input for use in uses] == [{"a": number} for number in inputs]
    assert len({use.id for use in uses}) == len(inputs)
    assert reading.find_stop_reason() == "tool_use"


@given(st.integers(1, 9))
def test_a_thought_at_the_beginning_is_not_said(size: int) -> None:
    text = "<think>\nThey greet me. <b>\n</think>\n\nHello <think> there"
    reading = read(*(says(content=text[at : at + size]) for at in range(0, len(text), size)), ends("stop"))
    assert reading.build_blocks() == (Text(text="Hello <think> there"),)


@pytest.mark.parametrize("said", ["<", "<thin", "  <b>bold</b>"])
def test_what_only_begins_like_a_thought_is_said(said: str) -> None:
    assert read(says(content=said), ends("stop")).build_blocks() == (Text(text=said),)


def test_an_answer_of_thoughts_alone_says_nothing() -> None:
    assert read(says(content="<think>on and on"), ends("length")).build_blocks() == ()
    assert read(says(reasoning_content="hm"), says(content="Yes"), ends("stop")).build_blocks() == (
        Text(text="Yes"),
    )


def test_parts_instead_of_words_are_read() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes"}]
    assert read(says(content=parts), ends("stop")).build_blocks() == (Text(text="Yes"),)


@pytest.mark.parametrize(
    ("told", "reason"),
    [("length", "max_tokens"), ("content_filter", "refusal"), ("stop", "end_turn"), ("eos", "end_turn")],
)
def test_reasons_to_end(told: str, reason: str) -> None:
    assert read(says(content="Yes"), ends(told)).find_stop_reason() == reason


def test_a_refusal_is_said_and_is_one() -> None:
    reading = read(says(refusal="I can't help with that."), ends("stop"))
    assert reading.build_blocks() == (Text(text="I can't help with that."),)
    assert reading.find_stop_reason() == "refusal"


def test_without_a_reason_to_end_there_is_no_end() -> None:
    assert not read(says(content="Yes")).ended


ODD = [
    {}, {"choices": None}, {"choices": []}, {"choices": [None]}, {"usage": 3}, says(content=None),
    says(tool_calls=None), says(tool_calls=[None]),
]  # fmt: skip


@pytest.mark.parametrize("chunk", ODD)
def test_chunks_of_odd_shapes_say_nothing(chunk: dict[str, Any]) -> None:
    assert read(chunk, says(content="Yes"), ends("stop")).build_blocks() == (Text(text="Yes"),)


def test_what_deepseek_kept_is_counted() -> None:
    told = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 80}
    assert convert_usage(told)["cache_read_input_tokens"] == 80
    assert convert_usage(told)["input_tokens"] == 20
    assert convert_usage({"prompt_tokens": True})["input_tokens"] == 0
