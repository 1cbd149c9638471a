"""State of a provider: it goes back to its own model with the results of tools, and to no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.adapters.models import ModelEntry
from shared.adapters.models.openai_provider import OpenAIProvider
from shared.adapters.models.remote import RemoteModel
from shared.core.values.messages import Message, Text, ToolResult, ToolUse, text_of
from shared.ports import ModelReply, ModelRequest
from tests.kit.dialects.server import Answer, completion, dialect_server, events, refusal
from tests.kit.model_makers import SAVE, HandClock, WordCounter, asking, impatient

Json = dict[str, Any]
THOUGHT = "She asks for a note."
SIGNATURE = {"google": {"thought_signature": "c2lnbmVk"}}
GIVEN = '{"kind": "fact", "text": "Nine.", "subject": "shop"}'


def part(**delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def called(number: int = 0, **more: Any) -> Json:
    function = {"name": "save_memory", "arguments": GIVEN}
    return part(tool_calls=[{"index": number, "id": f"c{number}", "function": function, **more}])


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
STATES: dict[str, tuple[list[Json], Json]] = {
    "reasoning_content": (
        [part(reasoning_content="She asks "), part(reasoning_content="for a note."), called(), END],
        {"reasoning_content": THOUGHT},
    ),
    "reasoning": ([part(reasoning=THOUGHT), called(), END], {"reasoning": THOUGHT}),
    "details": (
        [
            part(reasoning=THOUGHT, reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
            called(),
            END,
        ],
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
    ),
    "signature": ([called(extra_content=SIGNATURE), called(1), END], {}),
}


def after(reply: ModelReply) -> ModelRequest:
    """The next round of the same turn: the answer with its calls, and their results."""
    results = (
        ToolResult(tool_use_id=block.id, text="Saved.")
        for block in reply.blocks
        if isinstance(block, ToolUse)
    )
    said = (Message(role="assistant", blocks=reply.blocks), Message(role="user", blocks=tuple(results)))
    return asking("Note that.", *said, tools=(SAVE,))


def assistant_of(body: Json) -> Json:
    return next(message for message in body["messages"] if message["role"] == "assistant")


def model_of(url: str, *, name: str = "m") -> RemoteModel:
    provider = OpenAIProvider(base_url=url, api_key="k", foreign=True, clock=HandClock())
    entry = ModelEntry(name=name, wire="openai", window=100_000)
    return RemoteModel(entry, provider, WordCounter(), patience=impatient())


@pytest.mark.parametrize("name", STATES)
async def test_state_goes_back_with_the_results_of_tools(name: str) -> None:
    chunks, fields = STATES[name]
    answers = [Answer(body=events(*chunks)), completion()]
    async with dialect_server(lambda _: answers.pop(0)) as server:
        model = model_of(server.url)
        reply = await model.reply(asking("Note that.", tools=(SAVE,)))
        assert text_of(reply.blocks) == ""
        await model.reply(after(reply))
        await model.close()
    sent = assistant_of(server.requests[1])
    assert {key: sent[key] for key in fields} == fields
    signatures = [call.get("extra_content") for call in sent["tool_calls"]]
    assert signatures == ([SIGNATURE, None] if name == "signature" else [None])


async def test_another_model_gets_no_state() -> None:
    answers = [Answer(body=events(*STATES["reasoning_content"][0])), completion()]
    async with dialect_server(lambda _: answers.pop(0)) as server:
        first, second = model_of(server.url), model_of(server.url, name="other")
        reply = await first.reply(asking("Note that.", tools=(SAVE,)))
        await second.reply(after(reply))
        await first.close()
        await second.close()
    assert THOUGHT not in json.dumps(server.requests[1])


async def test_server_that_refuses_its_state_is_asked_without_it() -> None:
    def reply(body: Json) -> Answer:
        if "reasoning_content" in json.dumps(body):
            extra = {
                "loc": ["body", "messages", 1, "reasoning_content"],
                "msg": "Extra inputs are not permitted",
            }
            return refusal(422, {"detail": [extra]})
        return (
            completion()
            if len(body["messages"]) > 1
            else Answer(body=events(*STATES["reasoning_content"][0]))
        )

    async with dialect_server(reply) as server:
        model = model_of(server.url)
        answer = await model.reply(after(await model.reply(asking("Note that.", tools=(SAVE,)))))
        await model.close()
    assert answer.blocks == (Text(text="The shop opens at nine."),)
    assert len(server.requests) == 3


async def test_thought_of_an_answer_without_calls_is_not_kept() -> None:
    chunks = [
        part(reasoning_content=THOUGHT),
        part(content="Nine."),
        {"choices": [{"finish_reason": "stop"}]},
    ]
    async with dialect_server(lambda _: Answer(body=events(*chunks))) as server:
        model = model_of(server.url)
        reply = await model.reply(asking("When?"))
        await model.close()
    assert reply.blocks == (Text(text="Nine."),)
