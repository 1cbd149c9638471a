"""Learned abilities: a part that a server refuses is left out of the next request, for a day."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from shared.adapters.models import ModelEntry
from shared.adapters.models.catalog import Wire
from shared.adapters.models.openai_provider import OpenAIProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.core.values.errors import ModelRejectedRequest
from shared.core.values.messages import Image, Message, Text, ToolResult, ToolUse, text_message, text_of
from shared.ports import ModelRequest, PictureContent, SystemPart
from tests.kit.dialects.server import (
    Answer,
    DialectServer,
    completion,
    dialect_server,
    messages_answer,
    refusal,
)
from tests.kit.model_makers import SAVE, HandClock, WordCounter, asking, impatient

Json = dict[str, Any]
KINDS = {"openai": OpenAIProvider, "messages": Provider}
ANSWERS = {"openai": completion, "messages": messages_answer}
PICTURE = PictureContent(mime="image/png", body=b"png", description="a lighthouse")
CALL = ToolUse(id="toolu_1", name="save_memory", input={"kind": "fact", "text": "Nine.", "subject": "shop"})


def conversation() -> ModelRequest:
    """Instructions, a picture, two assistant messages in a row, a call, and a question after its result."""
    return asking(
        text_message("assistant", "Welcome."),
        Message(
            role="user",
            blocks=(Text(text="Look:"), Image(attachment_id=1, mime="image/png", description="a lighthouse")),
        ),
        Message(role="assistant", blocks=(CALL,)),
        Message(
            role="user", blocks=(ToolResult(tool_use_id="toolu_1", text="Saved."), Text(text="And now?"))
        ),
        system=(SystemPart(text="Be brief."),),
        tools=(SAVE,),
        pictures={1: PICTURE},
        json_schema={"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}},
        max_output_tokens=4_000,
    )


@asynccontextmanager
async def model_at(
    refuses: Callable[[Json], Any], *, wire: Wire = "openai", clock: HandClock | None = None
) -> AsyncIterator[tuple[RemoteModel, DialectServer]]:
    """A model whose server refuses with what `refuses` returns, and answers if it returns None."""

    def reply(body: Json) -> Answer:
        refused = refuses(body)
        return ANSWERS[wire]() if refused is None else refusal(*refused)

    async with dialect_server(reply) as server:
        able = {"images": True, "cache": wire == "messages", "json": True}
        provider = KINDS[wire](base_url=server.url, api_key="k", foreign=True, clock=clock or HandClock())
        entry = ModelEntry(name="m", wire=wire, window=100_000, max_output=8_000, able=able)
        model = RemoteModel(entry, provider, WordCounter(), patience=impatient())
        try:
            yield model, server
        finally:
            await model.close()


def roles(body: Json) -> list[str]:
    return [message["role"] for message in body["messages"]]


def follows(body: Json, first: str, second: str) -> bool:
    found = roles(body)
    return any(pair == (first, second) for pair in itertools.pairwise(found))


def has_picture(body: Json) -> bool:
    return "image" in json.dumps([m["content"] for m in body["messages"] if isinstance(m["content"], list)])


REFUSED: dict[str, tuple[Callable[[Json], bool], int, Any]] = {
    "tools": (lambda body: "tools" in body, 400, {"error": {"message": "m does not support tools"}}),
    "images": (has_picture, 400, {"error": {"message": "image input is not supported"}}),
    "images, said as a fault": (has_picture, 500, {"error": {"message": "image input is not supported"}}),
    "schema": (
        lambda body: "response_format" in body, 400,
        {"error": {"message": "This model does not support response format `json_schema`."}},
    ),
    "system role": (
        lambda body: "system" in roles(body), 400,
        {"object": "error", "message": "System role not supported", "type": "BadRequestError", "code": 400},
    ),
    "name of the limit": (
        lambda body: "max_tokens" in body, 400,
        {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}},
    ),
    "limit": (
        lambda body: body["max_tokens"] > 2_048, 400,
        {"error": {"message": "Invalid max_tokens value, the valid range of max_tokens is [1, 2048]"}},
    ),
    "null": (
        lambda body: any(m["content"] is None for m in body["messages"]), 422,
        {"detail": [{"loc": ["body", "messages", 3, "content"], "msg": "Input should be a valid string"}]},
    ),
    "null and empty": (
        lambda body: any(not m["content"] for m in body["messages"]), 400,
        {"error": "Invalid 'messages' in payload: 'content' field is required"},
    ),
    "stream options": (
        lambda body: "stream_options" in body, 422,
        {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]},
    ),
    "order": (
        lambda body: follows(body, "tool", "user"), 400,
        {"object": "error", "message": "Unexpected role 'user' after role 'tool'", "code": "3230"},
    ),
    "keywords": (
        lambda body: "maxLength" in json.dumps(body["tools"]), 400,
        [{"error": {"message": "Unknown name \"additionalProperties\" at 'tools[0].parameters'"}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_message_is_answered_without_what_its_server_refuses(name: str) -> None:
    is_there, status, body = REFUSED[name]
    async with model_at(lambda request: (status, body) if is_there(request) else None) as (model, server):
        reply = await model.reply(conversation())
        assert text_of(reply.blocks) == "The shop opens at nine."
        tries = len(server.requests)
        await model.reply(conversation())
    assert 2 <= tries <= 3
    assert len(server.requests) == tries + 1


async def test_first_message_is_the_persons_when_roles_must_alternate() -> None:
    def refuses(body: Json) -> Any:
        said = [role for role in roles(body) if role != "system"]
        wrong = said[0] != "user" or any(a == b for a, b in itertools.pairwise(said))
        return (400, {"message": "Conversation roles must alternate user/assistant/…"}) if wrong else None

    async with model_at(refuses) as (model, _):
        request = asking(text_message("assistant", "Welcome."), "One.", "Two.")
        assert text_of((await model.reply(request)).blocks) == "The shop opens at nine."


async def test_several_refusals_are_learned_for_one_answer() -> None:
    def refuses(body: Json) -> Any:
        if "system" in roles(body):
            return 400, {"message": "System role not supported"}
        if "tools" in body:
            return 400, {"error": "m does not support tools"}
        if "stream_options" in body:
            return 400, {"error": "unknown field stream_options"}
        return None

    async with model_at(refuses) as (model, server):
        await model.reply(conversation())
    assert len(server.requests) == 4
    said = json.dumps(server.requests[-1], ensure_ascii=False)
    assert "Be brief." in said
    assert "[called save_memory" in said


async def test_ability_is_tried_again_after_a_day() -> None:
    clock = HandClock()

    def refuses(body: Json) -> Any:
        return (400, {"error": "m does not support tools"}) if "tools" in body else None

    async with model_at(refuses, clock=clock) as (model, server):
        await model.reply(conversation())
        assert "tools" not in server.requests[-1]
        assert "tools" not in (await model.load_card("m")).capabilities
        clock.now += 86_401
        await model.reply(conversation())
    assert ["tools" in body for body in server.requests] == [True, False, True, False]


async def test_refusal_that_nothing_narrower_mends_is_reported_at_once() -> None:
    def refuses(_: Json) -> Any:
        return 400, {"error": "m does not support tools"}

    async with model_at(refuses) as (model, server):
        with pytest.raises(ModelRejectedRequest, match="does not support tools") as caught:
            await model.reply(conversation())
    assert len(server.requests) == 2
    assert caught.value.elsewhere


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ("cache_control", "system.0.cache_control: Extra inputs are not permitted"),
        ("output_config", "output_config: Extra inputs are not permitted"),
        ("tools", "This model does not support tools"),
    ],
)
async def test_messages_server_is_asked_without_what_it_refuses(refused: str, message: str) -> None:
    def refuses(body: Json) -> Any:
        if refused in json.dumps(body):
            return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        return None

    request = replace(conversation(), cache_at=(1,), system=(SystemPart(text="Be brief.", cache=True),))
    async with model_at(refuses, wire="messages") as (model, server):
        assert text_of((await model.reply(request)).blocks) == "The shop opens at nine."
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda body: "system" in body, "System role not supported"),
        (lambda body: isinstance(body.get("system"), list), "system: Input should be a valid string"),
    ],
)
async def test_instructions_reach_a_messages_server_in_another_form(
    wrong: Callable[[Json], bool], message: str
) -> None:
    async with model_at(
        lambda body: (400, {"error": {"message": message}}) if wrong(body) else None, wire="messages"
    ) as (model, server):
        await model.reply(conversation())
    assert "Be brief." in json.dumps(server.requests[-1])


async def test_plain_requests_stay_as_they_were() -> None:
    async with model_at(lambda _: None) as (model, server):
        await model.reply(conversation())
        await model.reply(conversation())
    first, second = server.requests
    assert first == second
    assert first["stream_options"] == {"include_usage": True}
    assert roles(first) == ["system", "assistant", "user", "assistant", "tool", "user"]
