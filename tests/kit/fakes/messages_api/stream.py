"""Writes an answer as server-sent events in the provider's format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.kit.fakes.messages_api import tokens
from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.shapes import Json, compact_json

CHARS_PER_DELTA = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    name: str
    data: Json
    delta_tokens: int = 0

    @property
    def is_delta(self) -> bool:
        return self.name == "content_block_delta"

    def encoded(self) -> bytes:
        # json keeps half of a surrogate pair as Python writes it: `\\ud83d`.
        return f"event: {self.name}\ndata: {compact_json(self.data)}\n\n".encode(errors="backslashreplace")


def events(message: Json, answer: Answer) -> Iterator[Event]:
    """Yield the events that stream an answer.

    `message` is the whole answer as a request without a stream would get it.
    """
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = {**usage, "output_tokens": 1}
    yield _event("message_start", message=start)
    yield _event("ping")
    for index, block in enumerate(answer.blocks):
        yield _event("content_block_start", index=index, content_block=_opening(block))
        for delta in _deltas(block):
            words = "".join(str(value) for name, value in delta.items() if name not in ("type", "signature"))
            cost = tokens.text_tokens(words)
            yield Event(
                name="content_block_delta",
                data={"type": "content_block_delta", "index": index, "delta": delta},
                delta_tokens=cost,
            )
        yield _event("content_block_stop", index=index)
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    if message.get("stop_details"):
        ended["stop_details"] = message["stop_details"]
    final = {name: value for name, value in usage.items() if name.endswith("_tokens")}
    yield _event("message_delta", delta=ended, usage=final)
    yield _event("message_stop")


def _event(name: str, **fields: object) -> Event:
    return Event(name=name, data={"type": name, **fields})


def _opening(block: Json) -> Json:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
        case _:
            return block


def _deltas(block: Json) -> Iterator[Json]:
    match block["type"]:
        case "text":
            for part in _parts(block["text"]):
                yield {"type": "text_delta", "text": part}
        case "thinking":
            for part in _parts(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": part}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            for part in _parts(compact_json(block["input"])):
                yield {"type": "input_json_delta", "partial_json": part}
        case _:
            return  # such a block is sent whole


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHARS_PER_DELTA):
        yield text[start : start + CHARS_PER_DELTA]
