"""Streams of events become blocks, usage and a reason."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.models.stream_parser import AnswerParser, BrokenAnswer
from shared.core.values.messages import ProviderBlock, Text, Thinking, ToolUse
from shared.ports import Usage
from tests.kit.model_makers import WordCounter

START = {
    "type": "message_start",
    "message": {
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 200,
            "cache_creation_input_tokens": 30,
            "output_tokens": 1,
        }
    },
}


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ended(reason: str | None, **usage: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {
        "type": "message_stop"
    }


def read(*events: dict[str, Any]) -> AnswerParser:
    reading = AnswerParser()
    for event in events:
        reading.take(event)
    return reading


def tool(*parts: str, reason: str = "tool_use") -> AnswerParser:
    pieces = (delta(0, "input_json_delta", partial_json=part) for part in parts)
    return read(START, opened(0, type="tool_use", id="t1", name="look", input={}), *pieces, *ended(reason))


def test_text_thinking_and_a_tool_call_are_put_together() -> None:
    reading = read(
        START,
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="let me "),
        delta(0, "thinking_delta", thinking="see"),
        delta(0, "signature_delta", signature="sig"),
        {"type": "ping"},
        opened(1, type="text", text=""),
        delta(1, "text_delta", text="One "),
        delta(1, "text_delta", text="moment."),
        {"type": "brand_new_event"},
        opened(2, type="tool_use", id="t1", name="look", input={}),
        delta(2, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"at": '),
        delta(2, "input_json_delta", partial_json='"the sea"}'),
        *ended("tool_use", output_tokens=25),
    )
    assert reading.build_blocks() == (
        Thinking(text="let me see", signature="sig"),
        Text(text="One moment."),
        ToolUse(id="t1", name="look", input={"at": "the sea"}),
    )
    assert (reading.ended, reading.find_stop_reason()) == (True, "tool_use")
    assert reading.build_usage() == Usage(
        input_tokens=10, output_tokens=25, cache_read_tokens=200, cache_write_tokens=30
    )


def test_only_visible_text_is_handed_out() -> None:
    reading = AnswerParser()
    assert reading.take(opened(0, type="text", text="A")) == "A"
    assert reading.take(delta(0, "text_delta", text="B")) == "B"
    assert reading.take(delta(1, "thinking_delta", thinking="secret")) == ""
    assert reading.take(delta(1, "thinking_delta", thinking="more")) == ""


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "window_exceeded"),
        ("pause_turn", "end_turn"),
        ("never_heard_of", "end_turn"),
        (None, "end_turn"),
    ],
)
def test_each_reason_to_stop_has_one_of_our_names(theirs: str | None, ours: str) -> None:
    assert read(START, *ended(theirs)).find_stop_reason() == ours


def test_a_call_without_input_gets_an_empty_one() -> None:
    assert tool().build_blocks() == (ToolUse(id="t1", name="look", input={}),)


def test_a_call_that_was_cut_at_the_limit_is_left_out() -> None:
    assert tool('{"at": "the', reason="max_tokens").build_blocks() == ()


@pytest.mark.parametrize("raw", ['{"at": ', "[1]", '"word"'])
def test_a_call_with_unusable_input_breaks_the_answer(raw: str) -> None:
    with pytest.raises(BrokenAnswer):
        tool(raw).build_blocks()


def test_thinking_without_signature_is_not_kept() -> None:
    assert (
        read(START, opened(0, type="thinking"), delta(0, "thinking_delta", thinking="x")).build_blocks() == ()
    )


def test_a_server_that_counts_nothing_is_not_believed() -> None:
    assert read({"type": "message_start", "message": {}}, *ended("end_turn")).build_usage() == Usage(
        known=False
    )
    zeros = read(START | {"message": {"usage": {"input_tokens": 0}}}, *ended("end_turn", output_tokens=0))
    assert not zeros.build_usage().known


def test_a_count_that_is_left_out_at_the_end_keeps_its_value() -> None:
    reading = read(START, *ended("end_turn", input_tokens=None, output_tokens=9))
    assert (reading.build_usage().input_tokens, reading.build_usage().output_tokens) == (10, 9)


def test_what_a_cut_attempt_cost_is_estimated_from_what_had_arrived() -> None:
    cut = read(START, delta(0, "text_delta", text="ten words " * 5))
    assert cut.estimate_spent(WordCounter(), 1.5) == Usage(
        input_tokens=10, output_tokens=15, cache_read_tokens=200, cache_write_tokens=30
    )


def test_what_the_provider_counted_itself_is_not_estimated() -> None:
    told = read(START, delta(0, "text_delta", text="ten words " * 5), *ended("end_turn", output_tokens=3))
    spent = told.estimate_spent(WordCounter(), 1.5)
    assert spent is not None
    assert spent.output_tokens == 3


def test_an_attempt_that_never_began_cost_nothing() -> None:
    assert read({"type": "ping"}).estimate_spent(WordCounter(), 1.5) is None


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_what_cannot_be_kept_is_replaced_and_halves_of_a_character_meet(size: int) -> None:
    told = "before\x00 \ud83d\ude00 lone \ud83d here \ude00 and last \ud83d"
    reading = read(START, opened(0, type="text", text=""))
    pieces = [told[at : at + size] for at in range(0, len(told), size)]
    shown = "".join(reading.take(delta(0, "text_delta", text=piece)) for piece in pieces)
    words = "before\ufffd \U0001f600 lone \ufffd here \ufffd and last "
    assert shown == words
    assert reading.build_blocks() == (Text(text=words + "\ufffd"),)


def test_the_input_of_a_tool_and_a_foreign_block_can_be_kept() -> None:
    asked = tool(r'{"words": "a\u0000b \ud83d", "\u0000": 1}')
    assert asked.build_blocks() == (
        ToolUse(id="t1", name="look", input={"words": "a\ufffdb \ufffd", "\ufffd": 1}),
    )
    foreign = read(
        START, opened(0, type="odd_one", words=["\x00"]), {"type": "content_block_stop", "index": 0}
    )
    assert foreign.build_blocks() == (ProviderBlock(raw={"type": "odd_one", "words": ["\ufffd"]}),)
