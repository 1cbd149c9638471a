"""Answers whose bytes were changed at random: each is read, or ends as an error with a name."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from shared.adapters.models.dialects.hidden_text import HiddenText
from shared.adapters.models.openai_provider import ChunkReader, ResponseReader
from shared.adapters.models.provider import StreamReader
from shared.adapters.models.stream_parser import AnswerParser, BrokenAnswer
from shared.core.values.errors import ModelError
from tests.kit.dialects.server import completion, events, messages_answer
from tests.kit.growth import grows_linearly
from tests.kit.night import by_night

CALL = {"id": "c1", "function": {"name": "calculate", "arguments": '{"expression": "6*7"}'}}
RESPONSES = (
    {"type": "response.created"},
    {"type": "response.output_text.delta", "delta": "The shop opens at nine."},
    {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {"type": "function_call", "name": "look"},
    },
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
    {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 5}}},
)
SEALED = (
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "r1"}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hours."},
    {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {"type": "reasoning", "id": "r1", "encrypted_content": "gAAA", "summary": []},
    },
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Nine."},
    {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
)
"""Sealed reasoning, and an answer at its length limit."""
MESSAGES = (
    {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"at": "9"}'},
    },
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}},
    {"type": "message_stop"},
)
"""Thinking with its signature, then a call."""


def _chunks(*deltas: Any, finish: str = "stop", **more: Any) -> str:
    return events(
        *({"choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **more},
    )


LATER_CHUNKS = (
    _chunks({"reasoning_content": "Hm."}, {"content": "Nine."}, usage={"prompt_tokens": 9}),
    _chunks({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}),
    _chunks(
        {"tool_calls": [{"index": 0, "id": "c1"}]},
        {"tool_calls": [{"index": 0, "function": {"name": "look"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{'at': True}"}}]},
        finish="tool_calls",
    ),
    _chunks(
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "c1",
                    "function": {"name": "look", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "c2ln"}},
                }
            ]
        },
        finish="STOP",
    ),
    _chunks({"content": [{"type": "text", "text": "Nine."}]}, {"refusal": "No."}, finish="content_filter"),
    _chunks({"content": '<tool_call>{"name": "look", "arguments": {}}</tool_call>'}),
    _chunks({"content": "<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Nine."}),
    events({"choices": [{"delta": {"content": "Ni"}}]}, {"error": "overloaded"}, {"detail": [{"msg": "x"}]}),
    json.dumps([{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}]),
    "<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>",
    "data: [DONE]\n\n",
)
"""Streams as other servers send them: thoughts beside the text, names in later chunks, signatures, lists."""
RECORDED: dict[str, tuple[Callable[[Any], StreamReader], list[str]]] = {
    "openai": (
        ChunkReader,
        [
            str(completion("<think>hm</think> The shop opens at nine.").body),
            events(
                {"choices": [{"delta": {"tool_calls": [{"index": 0, **CALL}]}}]},
                {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 9}},
            ),
            json.dumps({"choices": [{"message": {"content": "Nine."}, "finish_reason": "stop"}]}),
            events({"error": {"message": "overloaded", "code": 503}}),
            *map(str, LATER_CHUNKS),
        ],
    ),
    "messages": (
        StreamReader,
        [
            str(messages_answer().body),
            "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in MESSAGES),
            json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
            json.dumps({"type": "message", "content": [{"type": "text", "text": "Nine."}], "usage": {}}),
        ],
    ),
    "responses": (
        ResponseReader,
        [
            events(*RESPONSES, done=False),
            events(*SEALED, done=False),
            events({"type": "error", "code": "server_error", "message": "overloaded"}, done=False),
            json.dumps({"object": "response", "status": "completed", "output": [], "usage": None}),
        ],
    ),
}
VALUES = ["null", "[]", "{}", "-1", "1e999", '"x"', "true", "[[1]]", '{"a": null}', '"\\ud800"', "9" * 400]
SNIPPETS = [
    "data: ",
    "\n\n",
    "event: error\n",
    "[DONE]",
    "<think>",
    "</think>\n",
    "{",
    "}",
    '"',
    "\\",
    "\x00",
    "é",
    "<html>",
]


def mutate(text: str, draw: random.Random) -> bytes:
    """Return the text with one to four changes: cuts, repeats, snippets, other JSON values, flipped bytes."""
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text) + 1)
        match draw.randrange(6):
            case 0:
                text = text[:at]
            case 1:
                text = text[:at] + text[at + draw.randint(1, 40) :]
            case 2:
                text = text[:at] + text[max(0, at - 60) : at] + text[at:]
            case 3:
                text = text[:at] + draw.choice(SNIPPETS) + text[at:]
            case 4:
                colon = text.find(": ", at)
                end = min((found for char in ",}" if (found := text.find(char, colon)) >= 0), default=-1)
                if 0 <= colon < end:
                    text = text[: colon + 2] + draw.choice(VALUES) + text[end:]
            case _:
                text = text[:at] + chr(draw.randrange(256)) + text[at + 1 :]
    return text.encode("utf-8" if draw.random() < 0.9 else "latin-1", "replace")


def reader_of(kind: Callable[[Any], StreamReader], sent: bytes, draw: random.Random) -> StreamReader:
    async def arriving() -> AsyncIterator[bytes]:
        at = 0
        while at < len(sent):
            size = draw.choice((1, 7, 64, 10_000))
            yield sent[at : at + size]
            at += size

    stream = SimpleNamespace(response=SimpleNamespace(aiter_bytes=arriving, headers={}))
    return kind(stream)


async def read(reader: StreamReader) -> AnswerParser:
    parser = AnswerParser(HiddenText())
    while found := await reader.read_next():
        parser.take_all(found)
    parser.build_blocks()
    parser.build_usage()
    return parser


@pytest.mark.parametrize("wire", RECORDED)
async def test_mutated_answer_is_read_or_ends_as_a_named_error(wire: str, seed: int) -> None:
    kind, recorded = RECORDED[wire]
    ends = 0
    for number in range(by_night(20_000, else_=1_500)):
        draw = random.Random(f"{seed}-{wire}-{number}")
        sent = mutate(draw.choice(recorded), draw)
        try:
            await read(reader_of(kind, sent, draw))
        except (ModelError, BrokenAnswer):
            ends += 1
        except Exception as error:
            raise AssertionError(f"{wire} {number}: {sent!r}") from error
    assert ends


HOSTILE = {
    "tags": "<think>" * 1_000,
    "beginnings of tags": "<" * 5_000,
    "closing tags": "</think>\n" * 1_000,
    "brackets": "[" * 5_000,
    "fences": "```\n" * 2_000,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_time_grows_with_the_length_of_a_hostile_answer(name: str) -> None:
    async def work(times: int) -> None:
        sent = events({"choices": [{"delta": {"content": HOSTILE[name] * times}, "finish_reason": "stop"}]})
        await read(reader_of(ChunkReader, sent.encode(), random.Random(1)))

    assert await grows_linearly(work, by_night(2, else_=1))
