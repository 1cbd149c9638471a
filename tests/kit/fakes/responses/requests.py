"""Checks requests of the Responses API strictly, and converts them to requests of the Messages API."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from tests.kit.fakes.chat_completions.requests import closed, mark_implicitly, merged
from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.shapes import Json

LEAST_OUTPUT = 16


@functools.cache
def _validator() -> Draft202012Validator:
    """Return a validator of the SDK's request types that refuses unknown fields."""
    return Draft202012Validator(closed(TypeAdapter(ResponseCreateParamsStreaming).json_schema()))


def check_shape(body: Json) -> None:
    error = next(iter(sorted(_validator().iter_errors(body), key=lambda one: len(one.path))), None)
    if error is not None:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path)
        raise Refusal(f"Invalid value at '{place.lstrip('.')}': {error.message[:300]}")
    if body.get("max_output_tokens", LEAST_OUTPUT) < LEAST_OUTPUT:
        raise Refusal(f"Invalid 'max_output_tokens': expected a value >= {LEAST_OUTPUT}.")
    if body.get("store", True):
        raise Refusal("this server stores nothing: 'store' must be false")


def as_messages(body: Json) -> Json:
    """Return the request as one of the Messages API, for the mind, token counter and cache of that fake."""
    found: Json = {
        "model": body["model"],
        "max_tokens": body.get("max_output_tokens") or 4_096,
        "messages": merged(_message(item) for item in body["input"]),
        "stream": body.get("stream", False),
    }
    if system := body.get("instructions"):
        found["system"] = [{"type": "text", "text": system}]
    if tools := body.get("tools"):
        found["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in tools
        ]
    format_ = (body.get("text") or {}).get("format") or {}
    if format_.get("type") == "json_schema":
        found["output_config"] = {"format": {"type": "json_schema", "schema": format_["schema"]}}
    mark_implicitly(found)
    return found


def _message(item: Json) -> tuple[str, list[Json]]:
    match item.get("type"):
        case "function_call_output":
            return "user", [
                {"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}
            ]
        case "function_call":
            given = json.loads(item["arguments"])
            if not isinstance(given, dict):
                raise Refusal("'arguments' must be a JSON object")
            call = {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": given}
            return "assistant", [call]
    if item["role"] == "assistant":
        if not item["content"]:
            raise Refusal("Invalid value: 'content' is an empty string")
        return "assistant", [{"type": "text", "text": item["content"]}]
    return "user", list(_parts(item["content"]))


def _parts(content: Any) -> Iterator[Json]:
    for part in content:
        if part["type"] == "input_text":
            yield {"type": "text", "text": part["text"]}
            continue
        mime, _, data = part["image_url"].removeprefix("data:").partition(";base64,")
        yield {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
