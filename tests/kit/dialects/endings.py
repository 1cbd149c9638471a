"""Answers of each wire with each kind of end, for the running system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.adapters.models.catalog import Wire
from tests.kit.dialects.server import Answer, Json, events

CUT = "The parcel will"
"""Text of an answer that is cut."""
WIRES: tuple[Wire, ...] = ("openai", "messages", "responses")
NATURAL: Mapping[str, str] = {"openai": "stop", "messages": "end_turn", "responses": "completed"}
"""Word of each wire for an answer that ended normally."""
ENDINGS: Mapping[str, Mapping[str, str]] = {
    "stop": NATURAL,
    "length": {"openai": "length", "messages": "max_tokens", "responses": "max_output_tokens"},
    "filter": {"openai": "content_filter", "messages": "refusal", "responses": "content_filter"},
}
"""Word of each wire by the kind of end that people are shown."""


def ending(wire: Wire, word: str, text: str = CUT, call: str | None = None) -> Answer:
    """Return a streamed answer that ends with `word`.

    `call` is the name of a tool that it calls, None for none.
    """
    return {"openai": _completion, "messages": _message, "responses": _response}[wire](word, text, call)


def last_words(body: Json) -> str:
    """Return the text of the newest message in a request of any wire."""
    messages: list[Json] = body["messages"] if "messages" in body else body["input"]
    newest = messages[-1]
    content: str | list[Json] = newest.get("content") or newest.get("output") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or part.get("content") or "") for part in content)


def write_models(folder: Path, url: str, wire: Wire, **more: Any) -> Path:
    """Write a models file with the model `odd` at this URL; return its path."""
    entry = {"name": "odd", "wire": wire, "base_url": url, "window": 100_000, **more}
    path = folder / f"models-{wire}.json"
    path.write_text(json.dumps([entry]))
    return path


def _completion(word: str, text: str, call: str | None) -> Answer:
    told: list[Json] = [{"content": text}] if text else []
    if call:
        function = {"name": call, "arguments": "{}"}
        told.append({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]})
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in told]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}
    return Answer(body=events(*chunks, end, {"choices": [], "usage": _USED}))


def _message(word: str, text: str, call: str | None) -> Answer:
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    if call:
        blocks.append({"type": "tool_use", "id": "t1", "name": call, "input": {}})
    told: list[Json] = [{"type": "message_start", "message": {"usage": {"input_tokens": 10}}}]
    for index, block in enumerate(blocks):
        told += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    told += [
        {"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return Answer(body="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told))


def _response(word: str, text: str, call: str | None) -> Answer:
    told: list[Json] = [{"type": "response.created", "response": {"id": "r1"}}]
    if text:
        told.append({"type": "response.output_text.delta", "output_index": 0, "delta": text})
    if call:
        item = {"type": "function_call", "call_id": "c1", "name": call, "arguments": "{}"}
        told += [
            {"type": f"response.output_item.{state}", "output_index": 1, "item": item}
            for state in ("added", "done")
        ]
    whole = word == "completed"
    details = None if whole else {"reason": word}
    kind = "completed" if whole else "incomplete"
    used = {"input_tokens": 10, "output_tokens": 5}
    response = {"id": "r1", "status": kind, "incomplete_details": details, "usage": used}
    told.append({"type": f"response.{kind}", "response": response})
    return Answer(body="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told))


_USED = {"prompt_tokens": 10, "completion_tokens": 5}
