"""Answers as many servers send them, byte for byte: what becomes of each, and how many calls it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shared.adapters.models.catalog import Wire
from shared.adapters.models.remote import MOST_UNUSABLE
from shared.core.values.errors import ModelAnswerUnusable, PromptTooLong
from shared.core.values.messages import Text, ToolUse, text_of
from tests.kit.dialects.remote import ask, model_at
from tests.kit.dialects.server import (
    HTML,
    JSON,
    Answer,
    completion,
    events,
    messages_answer,
)
from tests.kit.model_makers import Listener, asking, impatient

Chunk = dict[str, Any]
NINE = "The shop opens at nine."


def says(text: str | None = None, **delta: Any) -> Chunk:
    told = delta if text is None else {"content": text, **delta}
    return {"choices": [{"index": 0, "delta": told, "finish_reason": None}]}


def ends(reason: str | None) -> Chunk:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def calls(*parts: Chunk) -> Chunk:
    return says(tool_calls=list(parts))


def call(index: int | None, id_: str | None, name: str | None, arguments: Any) -> Chunk:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    part: Chunk = {"type": "function", "function": function}
    return part | ({} if index is None else {"index": index}) | ({} if id_ is None else {"id": id_})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an answer becomes: its text, the calls as (name, input), and the reason it ended."""

    text: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    stop: str = "end_turn"


TIME: tuple[str, Any] = ("current_time", {})
SUM = ("calculate", {"expression": "6*7"})
GIVEN = '{"expression": "6*7"}'
WHOLE = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": NINE}, "finish_reason": "stop"}]
}


def stream(*chunks: Chunk, done: bool = True) -> Answer:
    return Answer(body=events(*chunks, done=done))


def body(told: Any, content_type: str = JSON) -> Answer:
    return Answer(body=told if isinstance(told, str) else json.dumps(told), content_type=content_type)


def with_arguments(arguments: Any) -> Answer:
    return stream(calls(call(0, "c1", "calculate", arguments)), ends("tool_calls"))


PLAIN = Expected(text=NINE)
USED = Expected(calls=[SUM], stop="tool_use")
READ: dict[str, tuple[Answer, Expected]] = {
    # calls of tools
    "two calls with one index": (
        stream(calls(call(0, "f1", *("current_time", "{}"))), calls(call(0, "f2", "calculate", GIVEN)), ends("stop")),
        Expected(calls=[TIME, SUM], stop="tool_use"),
    ),
    "two calls with one index, in pieces": (
        stream(
            calls(call(0, "f1", "current_time", "{")), calls(call(0, "f2", "calculate", GIVEN[:8])),
            calls(call(0, "f1", None, "}")), calls(call(0, "f2", None, GIVEN[8:])), ends("tool_calls"),
        ),
        Expected(calls=[TIME, SUM], stop="tool_use"),
    ),
    "two calls with one index and no ids": (
        stream(calls(call(0, None, "current_time", "{}")), calls(call(0, None, "calculate", GIVEN)), ends("stop")),
        Expected(calls=[TIME, SUM], stop="tool_use"),
    ),
    "name in a later chunk": (
        stream(calls(call(0, "c1", None, "")), calls(call(0, None, "calculate", GIVEN)), ends("tool_calls")), USED,
    ),
    "name in two pieces": (
        stream(calls(call(0, "c1", "calc", None)), calls(call(0, None, "ulate", GIVEN)), ends("tool_calls")), USED,
    ),
    "no index": (stream(calls(call(None, "c1", "calculate", GIVEN)), ends("tool_calls")), USED),
    "no id": (stream(calls(call(0, None, "calculate", GIVEN)), ends("tool_calls")), USED),
    "no arguments": (
        stream(calls(call(0, "c1", "current_time", None)), ends("tool_calls")), Expected(calls=[TIME], stop="tool_use"),
    ),
    "calls that end by stop": (stream(calls(call(0, "c1", "calculate", GIVEN)), ends("stop")), USED),
    "the old field for a call": (
        stream(says(function_call={"name": "calculate", "arguments": GIVEN}), ends("function_call")), USED,
    ),
    "arguments as an object": (with_arguments({"expression": "6*7"}), USED),
    "arguments as a string in a string": (with_arguments(json.dumps(GIVEN)), USED),
    "arguments as Python writes them": (with_arguments("{'expression': '6*7'}"), USED),
    "arguments in a block of code": (with_arguments(f"```json\n{GIVEN}\n```"), USED),
    "arguments twice": (with_arguments(GIVEN * 2), USED),
    "arguments after an empty object": (with_arguments("{}" + GIVEN), USED),
    # ends
    "no reason to end": (stream(says(NINE)), PLAIN),
    "no reason, usage last, no mark": (
        stream(says(NINE), {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}, done=False), PLAIN,
    ),
    "no mark of the end": (stream(says(NINE), ends("stop"), done=False), PLAIN),
    "reason in capitals": (stream(says("The parcel will"), ends("MAX_TOKENS")), Expected(text="The parcel will", stop="max_tokens")),
    "length": (stream(says("The parcel will"), ends("length")), Expected(text="The parcel will", stop="max_tokens")),
    "filter": (stream(says("The parcel"), ends("SAFETY")), Expected(text="The parcel", stop="refusal")),
    # bodies in place of a stream
    "JSON in place of a stream": (body(WHOLE), PLAIN),
    "JSON called a stream": (body(WHOLE, "text/event-stream"), PLAIN),
    "JSON with calls": (
        body({"choices": [{"message": {"content": None, "tool_calls": [call(None, "c1", "calculate", GIVEN)]},
                           "finish_reason": "tool_calls"}]}),
        USED,
    ),
    "an object a line": (
        body("\n".join(json.dumps(one) for one in (says("The shop "), says("opens at nine."), ends("stop")))), PLAIN,
    ),
    "no empty line between events": (
        Answer(body="\n".join(f"data: {json.dumps(one)}" for one in (says(NINE), ends("stop"))) + "\n\n"), PLAIN,
    ),
    "a mark of byte order first": (Answer(body="\ufeff" + events(says(NINE), ends("stop"))), PLAIN),
    "content in parts": (stream(says(content=[{"type": "text", "text": NINE}]), ends("stop")), PLAIN),
    "text of the old API": (stream({"choices": [{"text": NINE, "finish_reason": "stop"}]}), PLAIN),
    # thoughts and calls in the text
    "thought in tags": (stream(says("<think>hm</think>"), says(NINE), ends("stop")), PLAIN),
    "thought without its beginning": (stream(says("She asks.\n</think>\n\n"), says(NINE), ends("stop")), PLAIN),
    "thought without its beginning, in pieces": (
        stream(says("She "), says("asks.\n</th"), says("ink>\n\n"), says(NINE), ends("stop")), PLAIN,
    ),
    "thought in brackets": (stream(says("[THINK]hm[/THINK]"), says(NINE), ends("stop")), PLAIN),
    "thought in other tags": (stream(says("<thought>hm</thought>" + NINE), ends("stop")), PLAIN),
    "thinking in tags": (stream(says("<thinking>hm</thinking>" + NINE), ends("stop")), PLAIN),
    "thought of Kimi": (stream(says("◁think▷hm◁/think▷" + NINE), ends("stop")), PLAIN),
    "channels": (
        stream(
            says("<|channel|>analysis<|message|>hm<|end|><|start|>assistant"), says("<|channel|>final<|message|>"),
            says(NINE + "<|return|>"), ends("stop"),
        ),
        PLAIN,
    ),
    "thought in a field": (stream(says(reasoning_content="hm"), says(NINE), ends("stop")), PLAIN),
    "thought in another field": (stream(says(reasoning="hm"), says(NINE), ends("stop")), PLAIN),
    "thought in parts": (
        stream(says(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                             {"type": "text", "text": NINE}]), ends("stop")),
        PLAIN,
    ),
    "text, then a call as text": (
        stream(says(NINE + "\n<tool_call>\n{\"name\": \"x\"}\n</tool_call>"), ends("stop")), Expected(text=NINE + "\n"),
    ),
    "tags in prose": (
        stream(says("Close it by </think> and `<tool_call>`."), ends("stop")),
        Expected(text="Close it by </think> and `<tool_call>`."),
    ),
    # usage of odd shapes
    "usage of odd shapes": (
        stream(says(NINE), ends("stop"), {"choices": None, "usage": {"prompt_tokens": "9", "completion_tokens": -4}}), PLAIN,
    ),
    "odd fields": (
        stream({"choices": [{"index": 0, "delta": {"content": NINE, "tool_calls": None, "refusal": None}}]},
               {"choices": "none", "usage": "none"}, {}, ends("stop")),
        PLAIN,
    ),
}  # fmt: skip


UNUSABLE: dict[str, tuple[Answer, str, bool]] = {
    # the answer, words of the reason, whether the model is told
    "arguments null": (with_arguments("null"), "null", True),
    "arguments a list": (with_arguments('["6*7"]'), "a list", True),
    "arguments a number": (with_arguments("42"), "a number", True),
    "arguments cut": (with_arguments('{"expression": "6*'), "not valid JSON", True),
    "a call without a name": (stream(calls(call(0, "c1", None, GIVEN)), ends("tool_calls")), "no name", True),
    "a call as text alone": (
        stream(says("<tool_call>{\"name\": \"calculate\"}</tool_call>"), ends("stop")), "as text", True,
    ),
    "ends with error": (stream(says("The parcel will"), ends("error")), "'error'", False),
    "ends with abort": (stream(says("The parcel will"), ends("abort")), "'abort'", False),
    "a page": (body("<html><title>Log in</title><body>Portal</body></html>", HTML), "Log in", False),
    "a text": (body("pong", "text/plain"), "pong", False),
    "no object": (Answer(body="data: [1, 2]\n\ndata: [DONE]\n\n"), "no object", False),
    "broken JSON": (Answer(body='data: {"choices": [{"del\n\n'), "not JSON", False),
    "an empty answer": (Answer(body="data: [DONE]\n\n"), "before it began", False),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
async def test_answer_of_a_server_is_read(name: str) -> None:
    answer, expected = READ[name]
    async with model_at(answer) as (model, server):
        reply, shown = await ask(model)
    uses = [(block.name, dict(block.input)) for block in reply.blocks if isinstance(block, ToolUse)]
    assert (text_of(reply.blocks), uses) == (expected.text, [*expected.calls])
    assert reply.stop_reason == expected.stop
    assert shown == expected.text
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", UNUSABLE)
async def test_unusable_answer_is_asked_for_three_times_at_most(name: str) -> None:
    answer, reason, hinted = UNUSABLE[name]
    async with model_at(answer) as (model, server):
        with pytest.raises(ModelAnswerUnusable, match=reason) as caught:
            await ask(model)
    assert len(server.requests) == MOST_UNUSABLE
    assert caught.value.elsewhere
    told = [body["messages"][-1]["content"] for body in server.requests]
    assert told[0] == "When does it open?"
    assert all(("could not be used" in text) == hinted for text in told[1:])


@pytest.mark.parametrize("name", UNUSABLE)
async def test_answer_after_an_unusable_one_takes_its_place(name: str) -> None:
    async with model_at(UNUSABLE[name][0], completion()) as (model, server):
        reply, shown = await ask(model)
    assert (text_of(reply.blocks), shown) == (NINE, NINE)
    assert len(server.requests) == 2


async def test_error_inside_a_stream_has_its_meaning() -> None:
    error = {
        "object": "error", "type": "BadRequestError", "code": 400,
        "message": "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
    }  # fmt: skip
    async with model_at(stream(error)) as (model, _):
        with pytest.raises(PromptTooLong) as caught:
            await ask(model)
    assert (caught.value.tokens, caught.value.maximum) == (5_000, 4_096)


@pytest.mark.parametrize("content_type", [JSON, "text/event-stream"])
async def test_error_as_a_body_with_status_200_has_its_meaning(content_type: str) -> None:
    told = {"error": {"message": "prompt is too long: 5000 tokens > 4096 maximum", "code": 400}}
    async with model_at(body(told, content_type)) as (model, _):
        with pytest.raises(PromptTooLong):
            await ask(model)


async def test_thought_that_begins_in_the_prompt_is_never_shown_twice() -> None:
    answer = stream(says("She asks.\n"), says("</think>\n\n"), says(NINE), ends("stop"))
    async with model_at(answer) as (model, _):
        await ask(model)
        heard = Listener()
        await model.reply(asking("And now?"), on_text=heard)
    assert heard.pieces == {1: [NINE]}


async def test_tags_of_a_models_file_hide_its_thoughts() -> None:
    answer = stream(says("<<plan>>hm<</plan>>" + NINE), ends("stop"))
    async with model_at(answer, tags={"<<plan>>": "<</plan>>"}) as (model, _):
        assert (await ask(model))[1] == NINE


def message_events(*told: Chunk) -> Answer:
    return Answer(body="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told))


START: Chunk = {"type": "message_start", "message": {"usage": {"input_tokens": 9}}}
TEXT: Chunk = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": NINE}}
USE: Chunk = {
    "type": "content_block_start", "index": 0,
    "content_block": {"type": "tool_use", "id": "t1", "name": "calculate", "input": {"expression": "6*7"}},
}  # fmt: skip


def ended(reason: str | None) -> Chunk:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}


STOP: Chunk = {"type": "message_stop"}
MESSAGES: dict[str, tuple[Answer, Expected]] = {
    "no last event": (message_events(START, TEXT, ended("end_turn")), PLAIN),
    "no reason": (message_events(START, TEXT, ended(None), STOP), PLAIN),
    "a call that ends the turn": (message_events(START, USE, ended("end_turn"), STOP), USED),
    "a message in place of a stream": (
        body({"type": "message", "content": [{"type": "text", "text": NINE}], "stop_reason": "end_turn", "usage": {}}),
        PLAIN,
    ),
    "thought in the text": (
        message_events(START, {**TEXT, "content_block": {"type": "text", "text": "<think>hm</think>" + NINE}},
                       ended("end_turn"), STOP),
        PLAIN,
    ),
    "thinking without a signature": (
        message_events(
            START, {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "hm"}},
            {**TEXT, "index": 1}, ended("end_turn"), STOP,
        ),
        PLAIN,
    ),
    "no start": (message_events(TEXT, ended("end_turn"), STOP), PLAIN),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
async def test_answer_of_a_messages_server_is_read(name: str) -> None:
    answer, expected = MESSAGES[name]
    async with model_at(answer, wire="messages") as (model, server):
        reply, shown = await ask(model)
    uses = [(block.name, dict(block.input)) for block in reply.blocks if isinstance(block, ToolUse)]
    assert (text_of(reply.blocks), uses, reply.stop_reason) == (
        expected.text,
        [*expected.calls],
        expected.stop,
    )
    assert shown == expected.text
    assert len(server.requests) == 1


async def test_response_in_place_of_a_stream_is_read() -> None:
    output = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": NINE}]},
        {"type": "function_call", "call_id": "c1", "name": "calculate", "arguments": GIVEN},
    ]
    async with model_at(body({"object": "response", "output": output}), wire="responses") as (model, _):
        reply, _ = await ask(model)
    assert text_of(reply.blocks) == NINE
    assert [block.name for block in reply.blocks if isinstance(block, ToolUse)] == ["calculate"]


@pytest.mark.parametrize(
    ("wire", "slow"),
    [
        ("openai", [*(f"data: {json.dumps(says(reasoning_content='hm'))}\n\n" for _ in range(6))]),
        ("openai", [": keep-alive\n\n"] * 6),
        ("messages", ['event: ping\ndata: {"type": "ping"}\n\n'] * 6),
    ],
)
async def test_model_that_thinks_is_waited_for(wire: Wire, slow: list[str]) -> None:
    whole = completion() if wire == "openai" else messages_answer()
    answer = replace(whole, chunks=[*slow, str(whole.body)], pause_seconds=0.15)
    async with model_at(answer, wire=wire) as (model, server):
        model._patience = impatient(silence_seconds=0.6, first_byte_seconds=5.0)
        reply, _ = await ask(model)
    assert NINE in text_of(reply.blocks)
    assert len(server.requests) == 1


async def test_server_that_sends_nothing_more_is_given_up() -> None:
    answer = Answer(chunks=["data: " + json.dumps(says("The shop")) + "\n\n", "\n"], pause_seconds=0.7)
    async with model_at(answer, completion()) as (model, server):
        model._patience = impatient(silence_seconds=0.2, first_byte_seconds=5.0)
        reply, shown = await ask(model)
    assert reply.blocks == (Text(text=NINE),)
    assert shown == NINE
    assert len(server.requests) == 2


def test_dialects_are_many() -> None:
    """Keeps the suite from losing kinds: servers, thoughts, ends, calls, bodies."""
    assert len(READ) + len(UNUSABLE) + len(MESSAGES) >= 60
