"""Reasons why an answer ended, as servers call them, in the words of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping

FAULT = "fault"
"""The server broke off: the answer is not whole, whatever came of it."""

REASONS: Mapping[str, str] = {
    # OpenAI and servers like it
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    # Anthropic's own words, by gateways
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
    "tool_call": "tool_use",
    "error_toxic": "refusal",
    # Mistral
    "model_length": "max_tokens",
    # Google, by gateways
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
"""Ends by the server's word in small letters; a word that is not listed counts as the natural end."""


def read_end(reason: str) -> str:
    """Return the reason in the words of the Messages API, or `FAULT`."""
    return REASONS.get(reason.lower().removeprefix("finish_reason_"), "end_turn")
