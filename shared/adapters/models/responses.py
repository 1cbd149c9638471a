"""Turns a request into the JSON of OpenAI's Responses API, and its events into those of Messages.

Nothing is stored at the provider: each request holds the whole conversation, as on the other APIs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from shared.adapters.models.chat_completions import counted, delta_event, told_messages
from shared.adapters.models.error_mapping import error_of, read_refusal
from shared.adapters.models.stream_parser import Event
from shared.adapters.models.wire import Json
from shared.ports import ModelCard, ModelRequest

LEAST_OUTPUT = 16
"""Tokens: a smaller limit is refused."""
_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def response_body(request: ModelRequest, card: ModelCard, wire_name: str, *, schema: bool = True) -> Json:
    """The body of a streamed call."""
    told = (one for message in request.messages for one in told_messages(message, request, card))
    body: Json = {"model": wire_name, "input": [item for one in told for item in _items(one)]}
    if system := "\n\n".join(part.text for part in request.system if part.text.strip()):
        body["instructions"] = system
    tools = [tool for tool in request.tools if tool.provider is None]
    if tools and "tools" in card.capabilities:
        body["tools"] = [
            {
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": dict(tool.input_schema), "strict": False,
            }
            for tool in tools
        ]  # fmt: skip
    if schema and request.json_schema is not None and "json" in card.capabilities:
        named = {"type": "json_schema", "name": "answer", "schema": dict(request.json_schema)}
        body["text"] = {"format": named}
    longest = max(LEAST_OUTPUT, min(request.max_output_tokens, card.max_output))
    return {**body, "max_output_tokens": longest, "store": False, "stream": True}


def _items(message: Json) -> Iterator[Json]:
    """What is one message of Chat Completions is several items here."""
    parts = message["content"]
    if message["role"] == "tool":
        output = "\n".join(part["text"] for part in parts)
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}
        return
    if message["role"] == "assistant":
        if parts:
            yield {"role": "assistant", "content": "\n\n".join(part["text"] for part in parts)}
    else:
        yield {"role": "user", "content": [_part(part) for part in parts]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _part(part: Json) -> Json:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}


class ResponseTranslator:
    """The events of one answer, as those by which `Reading` puts answers together; thoughts are left out."""

    def __init__(self) -> None:
        self._calls: dict[object, int] = {}
        """Blocks of calls, by their place in the output."""
        self._heard: set[object] = set()
        self._refused = False

    def take(self, event: Mapping[str, Any]) -> list[Event]:
        """Raises ModelErrors."""
        return list(self._told(event))

    def end(self) -> list[Event]:
        """When the server hangs up: an answer whose end was not told was cut."""
        return []

    def _told(self, event: Mapping[str, Any]) -> Iterator[Event]:
        item: Any = event.get("item") or {}
        place = event.get("output_index")
        match event.get("type"):
            case "response.created":
                yield {"type": "message_start"}
            case "response.output_text.delta":
                yield delta_event("text_delta", 0, text=str(event.get("delta") or ""))
            case "response.refusal.delta":
                self._refused = True
                yield delta_event("text_delta", 0, text=str(event.get("delta") or ""))
            case "response.output_item.added" if _is_call(item):
                self._calls[place] = len(self._calls) + 1
                block = {"type": "tool_use", "id": f"call_{uuid4().hex}", "name": item["name"], "input": {}}
                yield {"type": "content_block_start", "index": self._calls[place], "content_block": block}
            case "response.function_call_arguments.delta" if place in self._calls:
                self._heard.add(place)
                given = str(event.get("delta") or "")
                yield delta_event("input_json_delta", self._calls[place], partial_json=given)
            case "response.output_item.done" if _is_call(item) and place in self._calls.keys() - self._heard:
                given = str(item.get("arguments") or "")
                yield delta_event("input_json_delta", self._calls[place], partial_json=given)
            case "response.completed" | "response.incomplete":
                yield from self._ended(event.get("response") or {})
            case "response.failed":
                raise error_of(read_refusal(200, event.get("response") or {}))
            case _:
                yield {"type": "ping"}

    def _ended(self, response: Mapping[str, Any]) -> Iterator[Event]:
        why = (response.get("incomplete_details") or {}).get("reason")
        reason = "tool_use" if self._calls else "refusal" if self._refused else "end_turn"
        usage = response.get("usage") or {}
        told = {
            "prompt_tokens": usage.get("input_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens": usage.get("output_tokens"),
        }
        ended = {"stop_reason": _INCOMPLETE.get(str(why), reason)}
        yield {"type": "message_delta", "delta": ended, "usage": counted(told) if usage else {}}
        yield {"type": "message_stop"}


def _is_call(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "function_call" and bool(item.get("name"))
