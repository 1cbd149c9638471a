"""Conversion of answers, whole or in parts, from other shapes into that of Chat Completions.

Shapes seen at addresses of Chat Completions: the answer within `result`, `data` or `output` (Workers AI,
DashScope), the own APIs of Ollama, llama.cpp and TGI behind a proxy, Google's candidates, events of Bedrock's
Converse and of Cohere, and a single choice that is an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
"""JSON object, not changed by this module."""

ENVELOPES: Sequence[str] = ("result", "data", "output", "response", "body", "Response")
"""Fields that may wrap a whole answer."""
TEXTS: Sequence[str] = (
    "response", "content", "text", "output_text", "generated_text", "result", "reply", "answer", "completion",
)  # fmt: skip
"""Fields that hold the text of an answer without choices: Workers AI, llama.cpp, DashScope, TGI, Baidu, MiniMax."""
DONE: Sequence[str] = ("done", "stop", "is_end", "is_finished", "finished", "end")
"""Fields that are true in the last part of an answer: Ollama, llama.cpp, Baidu, Cohere."""
REASONS: Sequence[str] = (
    "finish_reason",
    "finishReason",
    "stop_reason",
    "stopReason",
    "done_reason",
    "stop_type",
)
"""Fields with the reason why an answer ended."""
_REASON_NAMES = frozenset(REASONS)
_MOST_DEPTH = 3
_NO_REASON = frozenset({"", "null", "none"})


def list_choices(chunk: Json) -> Sequence[object]:
    """Return the choices of a chunk of any shape; empty if it has no part of an answer."""
    choices = chunk.get("choices")
    if isinstance(choices, list):
        if choices:
            return choices
    elif isinstance(choices, Mapping):
        return (choices,)
    found = _find_choice(chunk, depth=0)
    return () if found is None else found


def read_reason(*holders: object) -> str:
    """Return the first reason to end in the fields of these objects; "" if there is none."""
    for holder in holders:
        if not isinstance(holder, Mapping) or _REASON_NAMES.isdisjoint(holder):
            continue
        for name in REASONS:
            reason = _as_word(holder.get(name))
            if reason.lower() not in _NO_REASON:
                return reason
    return ""


def _as_word(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("type") or value.get("reason")
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _find_choice(chunk: Json, *, depth: int) -> Sequence[object] | None:
    for name in ENVELOPES if depth < _MOST_DEPTH else ():
        inner = chunk.get(name)
        if isinstance(inner, Mapping) and (found := _choices_within(inner, depth=depth + 1)):
            return found
    found = _choice_of_candidates(chunk) or _choice_of_converse(chunk) or _choice_of_delta(chunk)
    return found or _plain_choice(chunk)


def _choices_within(inner: Json, *, depth: int) -> Sequence[object] | None:
    choices = inner.get("choices")
    if isinstance(choices, list) and choices:
        return choices
    return _find_choice(inner, depth=depth)


def _choice_of_candidates(chunk: Json) -> Sequence[object] | None:
    candidates = chunk.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    if not isinstance(first, Mapping):
        return None
    content = first.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    told = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    calls = [
        {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("args")}}
        for part in told
        if isinstance(call := part.get("functionCall"), Mapping)
    ]
    delta: dict[str, Any] = {"content": told, **({"tool_calls": calls} if calls else {})}
    return ({"index": 0, "delta": delta, "finish_reason": first.get("finishReason")},)


def _choice_of_converse(chunk: Json) -> Sequence[object] | None:
    """Return the choice of an event or a message of Bedrock's Converse; None for other chunks."""
    if isinstance(stop := chunk.get("messageStop"), Mapping):
        return ({"index": 0, "delta": {}, "finish_reason": stop.get("stopReason")},)
    for name in ("contentBlockDelta", "contentBlockStart"):
        event = chunk.get(name)
        if isinstance(event, Mapping):
            part = event.get("delta", event.get("start"))
            return (_convert_parts([part], event.get("contentBlockIndex"), None),)
    message = chunk.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list) and any(isinstance(part, Mapping) and "toolUse" in part for part in content):
        return (_convert_parts(content, None, chunk.get("stopReason")),)
    return None


def _convert_parts(parts: Sequence[object], index: object, reason: object) -> Json:
    """Return parts of Converse's content as one choice."""
    told = [part for part in parts if isinstance(part, Mapping)]
    calls = [
        {
            **({"index": index} if index is not None else {}),
            "id": use.get("toolUseId"),
            "function": {"name": use.get("name"), "arguments": use.get("input")},
        }
        for part in told
        if isinstance(use := part.get("toolUse"), Mapping)
    ]
    texts = [{"text": part["text"]} for part in told if isinstance(part.get("text"), str)]
    delta: dict[str, Any] = {"content": texts, **({"tool_calls": calls} if calls else {})}
    return {"index": 0, "delta": delta, "finish_reason": reason}


def _choice_of_delta(chunk: Json) -> Sequence[object] | None:
    """Return the choice of a Cohere event, whose `delta` has a part of the message or the end.

    Returns None for others.
    """
    delta = chunk.get("delta")
    if not isinstance(delta, Mapping):
        return None
    message, reason = delta.get("message"), read_reason(delta)
    if not isinstance(message, Mapping) and not reason:
        return None
    return ({"index": 0, "delta": message if isinstance(message, Mapping) else {}, "finish_reason": reason},)


def _plain_choice(chunk: Json) -> Sequence[object] | None:
    message, token = chunk.get("message"), chunk.get("token")
    reason = read_reason(chunk, chunk.get("details"))
    if not reason and any(chunk.get(name) is True for name in DONE):
        reason = "stop"
    if isinstance(message, Mapping):
        return ({"index": 0, "delta": message, "finish_reason": reason},)
    if isinstance(token, Mapping):
        text: object = "" if token.get("special") is True else token.get("text")
    else:
        text = next((chunk[name] for name in TEXTS if isinstance(chunk.get(name), str)), None)
    if text is None and not reason:
        return None
    return ({"index": 0, "delta": {"content": text}, "finish_reason": reason},)
