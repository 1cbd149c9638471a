"""Reasons why an answer ended: from the words of servers into those of the Messages API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

FAULT = "fault"
"""End by a fault of the server: the answer is incomplete and cannot be used."""

REASONS: Mapping[str, str] = {
    # OpenAI and servers like it
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    # Anthropic's own words, through gateways
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "refusal": "refusal",
    # Hugging Face, llama.cpp, Cohere
    "eos": "end_turn",
    "eos_token": "end_turn",
    "complete": "end_turn",
    "completed": "end_turn",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "limit": "max_tokens",
    "error_limit": "max_tokens",
    "tool_call": "tool_use",
    "error_toxic": "refusal",
    # Mistral
    "model_length": "max_tokens",
    # Google, through gateways
    "finish_reason_unspecified": "end_turn",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "image_safety": "refusal",
    "language": "refusal",
    "malformed_function_call": FAULT,
    "unexpected_tool_call": FAULT,
    "other": FAULT,
    # Zhipu, Bedrock, Azure
    "sensitive": "refusal",
    "content_filtered": "refusal",
    "guardrail_intervened": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "context_length_exceeded": "model_context_window_exceeded",
    # Faults of a server: OpenRouter, SGLang, DeepSeek, Zhipu, vLLM
    "error": FAULT,
    "abort": FAULT,
    "aborted": FAULT,
    "cancelled": FAULT,
    "canceled": FAULT,
    "timeout": FAULT,
    "network_error": FAULT,
    "overloaded": FAULT,
    "insufficient_system_resource": FAULT,
    "unknown": FAULT,
}
"""Ends by the server's word in lower case."""

_STEMS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("refusal", re.compile(r"filter|safety|moderat|block|sensitive|polic|risk|guardrail|refus|prohibit|flagged|unsafe")),
    ("max_tokens", re.compile(r"length|max_|limit|truncat|budget")),
    ("tool_use", re.compile(r"tool|function")),
    (FAULT, re.compile(r"error|fail|abort|cancel|time_?out|interrupt|preempt|overload|exception|unavailable|disconnect")),
)  # fmt: skip
"""Patterns for words that the table lacks, in the order in which they are tried."""
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SEPARATOR = re.compile(r"[\s.-]")
_MOST_CHARS = 80


def read_end(reason: str) -> str:
    """Return a server's reason in the words of the Messages API, or FAULT; "end_turn" for an unknown word."""
    word = _SEPARATOR.sub("_", _CAPITAL.sub("_", reason[:_MOST_CHARS])).lower().removeprefix("finish_reason_")
    if (known := REASONS.get(word)) is not None:
        return known
    return next((end for end, stem in _STEMS if stem.search(word)), "end_turn")
