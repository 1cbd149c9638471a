"""Checks requests strictly: against the rules of the provider, and against the types of its SDK."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from shared.adapters.models.wire import build_request_body
from shared.core.values.messages import Block, Image, Message, Text, Thinking, ToolResult, ToolUse
from shared.ports import ModelCard, ModelRequest, SystemPart, ToolSpec
from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.validate_messages import check_messages

_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
CARD = ModelCard(
    name="model",
    window=200_000,
    max_output=8_192,
    window_known=True,
    prices=None,
    capabilities=frozenset({"cache", "tools", "thinking"}),
)


def fault_of(messages: Sequence[Message]) -> str | None:
    """Return the first reason why the provider would refuse these messages; None if there is none."""
    if not messages:
        return "no message at all"
    if messages[0].role != "user" or messages[-1].role != "user":
        return "does not go from user to user"
    seen: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if number and messages[number - 1].role == message.role:
            return f"{number}: two messages of one role"
        fault = _fault_in(message) or _fault_in_pairs(message.blocks, waiting, seen)
        if fault:
            return f"{number}: {fault}"
        waiting = [block.id for block in message.blocks if isinstance(block, ToolUse)]
    return None


def _fault_in(message: Message) -> str | None:
    if not message.blocks:
        return "no block"
    mine = message.role == "assistant"
    for block in message.blocks:
        match block:
            case Text(text=text) | ToolResult(text=text) if not text.strip():
                return "a blank block"
            case ToolUse(id=id_) if not mine or not _TOOL_ID.fullmatch(id_):
                return f"a call that cannot be here: {id_}"
            case ToolResult() | Image() if mine:
                return "a block of the person's side"
            case Thinking(signature=signature) if not mine or not signature:
                return "thinking that cannot be here"
            case _:
                pass
    if isinstance(message.blocks[-1], Thinking):
        return "thinking at the end"
    return None


def _fault_in_pairs(blocks: Sequence[Block], waiting: Sequence[str], seen: set[str]) -> str | None:
    answered = [block.tool_use_id for block in blocks if isinstance(block, ToolResult)]
    if len(set(answered)) < len(answered) or set(answered) != set(waiting):
        return f"calls {waiting} are answered by {answered}"
    if not all(isinstance(block, ToolResult) for block in blocks[: len(answered)]):
        return "words before the results"
    for block in blocks:
        if isinstance(block, ToolUse):
            if block.id in seen:
                return f"the id {block.id} twice"
            seen.add(block.id)
    return None


def refused_by_sdk_types(
    system: Sequence[SystemPart],
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    cache_at: Sequence[int] = (),
) -> str | None:
    """Return why the request, written as JSON, does not fit the SDK's own types; None if it fits."""
    request = ModelRequest(
        model="model",
        system=tuple(system),
        messages=tuple(messages),
        tools=tuple(tools),
        cache_at=tuple(cache_at),
    )
    body = build_request_body(request, CARD, "model")
    error = next(_validator().iter_errors(body), None)
    if error is not None:
        return f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
    try:
        check_messages(body)
    except Refusal as refusal:
        return str(refusal)
    return None


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schema_of_requests())


@cache
def schema_of_requests() -> dict[str, Any]:
    """Return the JSON schema of a request, made from the SDK's TypedDicts; unknown fields are forbidden."""
    from anthropic.types import message_create_params
    from pydantic import ConfigDict, TypeAdapter, with_config

    params = message_create_params.MessageCreateParamsNonStreaming
    strict = with_config(ConfigDict(extra="forbid", arbitrary_types_allowed=True))(params)
    schema: dict[str, Any] = TypeAdapter(strict).json_schema()
    _close(schema)
    return schema


def _close(schema: object) -> None:
    """Forbid unknown fields in every object of the schema whose fields are listed.

    Changes the schema itself.
    """
    match schema:
        case dict():
            if schema.get("type") == "object" and "properties" in schema:
                schema["additionalProperties"] = False
            for part in schema.values():
                _close(part)
        case list():
            for part in schema:
                _close(part)
        case _:
            pass
