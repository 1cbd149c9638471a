"""Repair: any list of messages becomes a request that the provider accepts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.values.messages import (
    NO_OUTPUT,
    NOT_EXECUTED,
    Block,
    Image,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    repair,
    text_message,
    tool_results,
)
from tests.kit.valid_requests import assert_valid_request


def _user(*blocks: Block) -> Message:
    return Message(role="user", blocks=blocks)


def _assistant(*blocks: Block) -> Message:
    return Message(role="assistant", blocks=blocks)


CALL = ToolUse(id="a", name="f", input={})
RESULT = ToolResult(tool_use_id="a", text="42")


def test_a_valid_request_comes_back_unchanged() -> None:
    fine = (
        text_message("user", "hi"),
        _assistant(Thinking(text="hm", signature="s"), CALL),
        _user(RESULT, Text(text="and?")),
        text_message("assistant", "ok"),
        text_message("user", "bye"),
    )
    assert repair(fine) == fine


def test_nothing_stays_nothing() -> None:
    assert repair(()) == ()


def test_a_lost_result_is_replaced_by_a_synthetic_one() -> None:
    made = repair((text_message("user", "hi"), _assistant(CALL), text_message("user", "and?")))
    assert made[2].blocks == (
        ToolResult(tool_use_id="a", text=NOT_EXECUTED, is_error=True),
        Text(text="and?"),
    )


def test_a_call_at_the_end_is_answered() -> None:
    assert_valid_request(repair((text_message("user", "hi"), _assistant(CALL))))


def test_a_result_without_its_call_is_dropped() -> None:
    made = repair((_user(RESULT, Text(text="hi")), text_message("assistant", "yo"), _user(RESULT)))
    assert all(not tool_results(message.blocks) for message in made)


def test_results_move_before_text_in_order_of_their_calls() -> None:
    other = ToolUse(id="b", name="f", input={})
    late = ToolResult(tool_use_id="b", text="43")
    made = repair((text_message("user", "hi"), _assistant(CALL, other), _user(Text(text="x"), late, RESULT)))
    assert made[2].blocks == (RESULT, late, Text(text="x"))


def test_messages_of_one_role_are_merged() -> None:
    made = repair((text_message("user", "one"), text_message("user", "two")))
    assert made == (_user(Text(text="one"), Text(text="two")),)


def test_an_empty_result_says_so_and_blank_words_go() -> None:
    made = repair((_user(Text(text=" \n")), text_message("user", "x"), _assistant(CALL), _user(_blank())))
    assert made[0].blocks == (Text(text="x"),)
    assert tool_results(made[2].blocks)[0].text == NO_OUTPUT


def test_a_conversation_that_begins_with_the_assistant_gets_an_opening() -> None:
    made = repair((text_message("assistant", "hello"), text_message("user", "hi")))
    assert made[0].role == "user"
    assert made[1] == text_message("assistant", "hello")


def _blank() -> ToolResult:
    return ToolResult(tool_use_id="a", text=" ")


_ids = st.sampled_from(["a", "b", "c"])
_texts = st.sampled_from(["", "  ", "words", "more words"])
_blocks = st.one_of(
    st.builds(Text, text=_texts),
    st.builds(Thinking, text=_texts, signature=st.sampled_from(["", "sig"])),
    st.builds(ToolUse, id=_ids, name=st.just("f"), input=st.just({})),
    st.builds(ToolResult, tool_use_id=_ids, text=_texts),
    st.builds(Image, attachment_id=st.just(1), mime=st.just("image/png")),
)
_messages = st.builds(
    Message, role=st.sampled_from(["user", "assistant"]), blocks=st.lists(_blocks, max_size=4).map(tuple)
)


@settings(max_examples=300)
@given(st.lists(_messages, max_size=8))
def test_valid_request_is_unchanged_by_repair(messages: list[Message]) -> None:
    made = repair(messages)
    if made:
        assert_valid_request(made)
    assert repair(made) == made
