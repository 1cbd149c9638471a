"""Checks requests of Chat Completions strictly, and converts them to requests of the Messages API."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema import Draft202012Validator
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.shapes import Json

DATA_URL = "data:"
SYSTEM = ("system", "developer")
SIDES = {"assistant": "assistant"}
MARK = {"type": "ephemeral"}


@functools.cache
def _validator() -> Draft202012Validator:
    """Return a validator of the SDK's request types that refuses unknown fields."""
    return Draft202012Validator(closed(TypeAdapter(CompletionCreateParamsStreaming).json_schema()))


def closed(schema: Any) -> Any:
    """Return a copy of a JSON schema in which no object may have unknown fields."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    if "properties" in found and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def check_shape(body: Json) -> None:
    """Raise Refusal if the request does not fit the schema of Chat Completions."""
    error = next(iter(sorted(_validator().iter_errors(body), key=lambda one: len(one.path))), None)
    if error is not None:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path)
        raise Refusal(f"Invalid value at '{place.lstrip('.')}': {error.message[:300]}")
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise Refusal("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")


def as_messages(body: Json) -> Json:
    """Return the request as one of the Messages API, for the mind, token counter and cache of that fake.

    Raises Refusal if a system message is not first.
    """
    told = list(body["messages"])
    system = _parts(told.pop(0)["content"]) if told and told[0]["role"] in SYSTEM else []
    if any(one["role"] in SYSTEM for one in told):
        raise Refusal("A system message must come first.")
    found: Json = {
        "model": body["model"],
        "max_tokens": body.get("max_tokens") or body.get("max_completion_tokens") or 4_096,
        "messages": merged((SIDES.get(one["role"], "user"), list(_content(one))) for one in told),
        "stream": body.get("stream", False),
    }
    if system:
        found["system"] = system
    if tools := body.get("tools"):
        found["tools"] = [_tool(tool["function"]) for tool in tools]
    format_ = body.get("response_format") or {}
    if format_.get("type") == "json_schema":
        schema = format_["json_schema"]["schema"]
        found["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if "cache_control" not in json.dumps(found):
        mark_implicitly(found)
    return found


def _tool(function: Json) -> Json:
    usual = {"type": "object", "properties": {}}
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters", usual),
    }


def merged(told: Iterable[tuple[str, list[Json]]]) -> list[Json]:
    """Return messages of alternating roles, made from pairs of role and content.

    Contents of neighbours with the same role are joined in order.
    """
    found: list[Json] = []
    for role, content in told:
        if found and found[-1]["role"] == role:
            found[-1]["content"] += content
        else:
            found.append({"role": role, "content": content})
    return found


def _content(one: Json) -> Iterator[Json]:
    if one["role"] == "tool":
        text = "\n".join(part["text"] for part in _parts(one["content"]))
        result: Json = {"type": "tool_result", "tool_use_id": one["tool_call_id"], "content": text}
        marked = any("cache_control" in part for part in _parts(one["content"]))
        yield {**result, "cache_control": MARK} if marked else result
        return
    yield from _parts(one.get("content"))
    for call in one.get("tool_calls") or ():
        given = json.loads(call["function"]["arguments"])
        if not isinstance(given, dict):
            raise Refusal("'arguments' must be a JSON object")
        yield {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given}


def _parts(content: Any) -> list[Json]:
    if content is None:
        return []
    if isinstance(content, str):
        if not content:
            raise Refusal("Invalid value: 'content' is an empty string")
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content]


def _part(part: Json) -> Json:
    if part["type"] == "text":
        text = {"type": "text", "text": part["text"]}
        return {**text, "cache_control": MARK} if "prompt_cache_breakpoint" in part else text
    if part["type"] != "image_url" or not part["image_url"]["url"].startswith(DATA_URL):
        raise Refusal(f"unsupported content part: {part['type']}")
    mime, _, data = part["image_url"]["url"].removeprefix(DATA_URL).partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}


def mark_implicitly(body: Json) -> None:
    """Mark the system prompt and the last two messages as cache breakpoints, as servers do that cache
    implicitly.
    """
    if body.get("system"):
        body["system"][-1]["cache_control"] = MARK
    for message in body["messages"][-2:]:
        if message["content"]:
            message["content"][-1] = {**message["content"][-1], "cache_control": MARK}
