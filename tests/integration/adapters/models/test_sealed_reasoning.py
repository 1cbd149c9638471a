"""Encrypted reasoning and thinking blocks: strict servers get them back from their own model only."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from shared.adapters.models import ModelEntry
from shared.adapters.models.catalog import Wire
from shared.adapters.models.openai_provider import ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.core.values.messages import (
    Message,
    Text,
    ToolResult,
    ToolUse,
    block_from_json,
    block_to_json,
    text_of,
)
from shared.ports import ModelReply, ModelRequest
from tests.kit.dialects.server import Answer, dialect_server, messages_answer, refusal, response_answer
from tests.kit.fakes.responses.requests import check_shape
from tests.kit.model_makers import SAVE, HandClock, WordCounter, asking, impatient

Json = dict[str, Any]
GIVEN = {"kind": "fact", "text": "Nine.", "subject": "shop"}
THOUGHT = "She asks for a note."


def stream(*told: Json) -> Answer:
    return Answer(body="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told))


# ---- Responses


def reasoning(number: int) -> Json:
    return {
        "type": "reasoning", "id": f"rs_{number}", "summary": [],
        "encrypted_content": f"sealed-{number}", "status": None,
    }  # fmt: skip


def function_call(number: int) -> Json:
    return {
        "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "save_memory",
        "arguments": json.dumps(GIVEN),
    }  # fmt: skip


def response(*items: Json) -> Answer:
    told: list[Json] = [{"type": "response.created", "response": {"id": "r"}}]
    for place, item in enumerate(items):
        kinds = ("response.output_item.added", "response.output_item.done")
        told += [{"type": kind, "output_index": place, "item": item} for kind in kinds]
    usage = {"input_tokens": 10, "output_tokens": 5}
    return stream(*told, {"type": "response.completed", "response": {"status": "completed", "usage": usage}})


def check_reasoning(body: Json) -> str:
    """Return what a server of Responses says of a body that it refuses; empty if it takes it."""
    check_shape(body)
    kinds = [item.get("type") for item in body["input"]]
    for at, kind in enumerate(kinds):
        if kind == "reasoning" and kinds[at + 1 : at + 2] not in (["function_call"], ["reasoning"]):
            return "Item of type 'reasoning' was provided without its required following item."
    sealed = [item["encrypted_content"] for item in body["input"] if item.get("type") == "reasoning"]
    if "function_call" in kinds and sealed != ["sealed-1", "sealed-2"]:
        return "Item of type 'function_call' was provided without its required 'reasoning' item."
    return ""


def strict_responses(body: Json) -> Answer:
    if fault := check_reasoning(body):
        return refusal(400, {"error": {"message": fault}})
    if any(item.get("type") == "function_call_output" for item in body["input"]):
        return response_answer()
    return response(reasoning(1), function_call(1), reasoning(2), function_call(2))


# ---- Messages


def thinking(**fields: Any) -> Json:
    return {"type": "thinking", "thinking": THOUGHT, **fields}


THOUGHTS: dict[str, Json] = {
    "without a signature": thinking(),
    "with an empty signature": thinking(signature=""),
    "with a signature": thinking(signature="c2lnbmVk"),
    "under seal": {"type": "redacted_thinking", "data": "sealed"},
}


def message(*blocks: Json, stop: str = "tool_use") -> Answer:
    told: list[Json] = [
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 10}}}
    ]
    for index, block in enumerate(blocks):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        told.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}}
    return stream(*told, end, {"type": "message_stop"})


def call(number: int) -> Json:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "save_memory", "input": GIVEN}


def strict_messages(thought: Json) -> Callable[[Json], Answer]:
    """A server that wants the results of tools with the thought before the call, as it was sent."""

    def reply(body: Json) -> Answer:
        said = [block for one in body["messages"] if one["role"] == "assistant" for block in one["content"]]
        if not said:
            return message(thought, call(1))
        if said != [thought, call(1)]:
            return refusal(400, {"error": {"message": f"messages.1.content.0: expected {thought['type']}"}})
        return messages_answer()

    return reply


# ---- both


def model_of(url: str, wire: Wire, *, name: str = "m") -> RemoteModel:
    kind = ResponsesProvider if wire == "responses" else Provider
    provider = kind(base_url=url, api_key="k", foreign=True, clock=HandClock())
    entry = ModelEntry(name=name, wire=wire, window=100_000)
    return RemoteModel(entry, provider, WordCounter(), patience=impatient())


def after(reply: ModelReply) -> ModelRequest:
    """The next round of the same turn, as it is read back from the database."""
    blocks = tuple(block_from_json(json.loads(json.dumps(block_to_json(one)))) for one in reply.blocks)
    results = (
        ToolResult(tool_use_id=block.id, text="Saved.") for block in blocks if isinstance(block, ToolUse)
    )
    said = (Message(role="assistant", blocks=blocks), Message(role="user", blocks=tuple(results)))
    return asking("Note that.", *said, tools=(SAVE,))


async def test_encrypted_reasoning_goes_back_before_its_own_calls() -> None:
    async with dialect_server(strict_responses) as server:
        model = model_of(server.url, "responses")
        reply = await model.reply(asking("Note that.", tools=(SAVE,)))
        assert text_of(reply.blocks) == ""
        answer = await model.reply(after(reply))
        await model.close()
    assert answer.blocks == (Text(text="The shop opens at nine."),)
    assert server.requests[0]["include"] == ["reasoning.encrypted_content"]
    assert server.requests[0]["store"] is False


@pytest.mark.parametrize("name", THOUGHTS)
async def test_thinking_of_a_messages_server_goes_back_as_it_came(name: str) -> None:
    async with dialect_server(strict_messages(THOUGHTS[name])) as server:
        model = model_of(server.url, "messages")
        reply = await model.reply(asking("Note that.", tools=(SAVE,)))
        assert text_of(reply.blocks) == ""
        answer = await model.reply(after(reply))
        await model.close()
    assert answer.blocks == (Text(text="The shop opens at nine."),)
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", [*THOUGHTS, "encrypted reasoning"])
async def test_another_model_gets_no_sealed_reasoning(name: str) -> None:
    wire: Wire = "messages" if name in THOUGHTS else "responses"

    def reply(body: Json) -> Answer:
        if body["model"] == "other":
            return messages_answer() if wire == "messages" else response_answer()
        return strict_messages(THOUGHTS[name])(body) if name in THOUGHTS else strict_responses(body)

    async with dialect_server(reply) as server:
        first, second = model_of(server.url, wire), model_of(server.url, wire, name="other")
        await second.reply(after(await first.reply(asking("Note that.", tools=(SAVE,)))))
        await first.close()
        await second.close()
    sent = json.dumps(server.requests[1])
    assert not any(mark in sent for mark in (THOUGHT, "sealed", "c2lnbmVk"))


async def test_signed_thinking_of_the_usual_server_stays_with_its_model() -> None:
    signed = strict_messages(THOUGHTS["with a signature"])
    async with dialect_server(
        lambda body: messages_answer() if body["model"] == "other" else signed(body)
    ) as server:
        able = frozenset({"tools", "thinking"})
        first, second = (
            RemoteModel(
                ModelEntry(name=name, window=100_000, capabilities=able),
                Provider(base_url=server.url, api_key="k", clock=HandClock()),
                WordCounter(),
                patience=impatient(),
            )
            for name in ("m", "other")
        )
        reply = await first.reply(asking("Note that.", tools=(SAVE,)))
        for model in (first, second):
            await model.reply(after(reply))
            await model.close()
    assert THOUGHT in json.dumps(server.requests[1])
    assert THOUGHT not in json.dumps(server.requests[2])


@pytest.mark.parametrize("name", THOUGHTS)
async def test_sealed_thinking_of_an_answer_without_calls_is_dropped(name: str) -> None:
    answer = message(THOUGHTS[name], {"type": "text", "text": "Nine."}, stop="end_turn")
    async with dialect_server(lambda _: answer) as server:
        model = model_of(server.url, "messages")
        reply = await model.reply(asking("When?"))
        await model.close()
    assert reply.blocks == (Text(text="Nine."),)


REFUSALS: dict[str, str] = {
    "OpenAI": "Encrypted content is not supported with this model.",
    "another server": "Unknown parameter: 'include'.",
    "another key": "The encrypted content gAAA could not be verified. (invalid_encrypted_content)",
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_server_without_encrypted_reasoning_is_asked_without_it(name: str) -> None:
    def reply(body: Json) -> Answer:
        if "include" in body:
            return refusal(400, {"error": {"message": REFUSALS[name]}})
        return response_answer()

    async with dialect_server(reply) as server:
        model = model_of(server.url, "responses")
        assert text_of((await model.reply(asking("Note that.", tools=(SAVE,)))).blocks)
        await model.reply(asking("And that.", tools=(SAVE,)))
        await model.close()
    assert ["include" in body for body in server.requests] == [True, False, False]


async def test_request_without_tools_asks_for_no_reasoning() -> None:
    async with dialect_server(lambda _: response_answer()) as server:
        model = model_of(server.url, "responses")
        await model.reply(asking("When?"))
        await model.close()
    assert "include" not in server.requests[0]
