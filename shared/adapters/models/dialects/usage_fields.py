"""Token counts of answers, under the names and in the places that servers use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

INPUT: Sequence[str] = (
    "prompt_tokens", "input_tokens",  # OpenAI, Anthropic and servers like them
    "promptTokenCount", "inputTokenCount", "inputTokens",  # Google, Bedrock
    "prompt_eval_count", "prompt_n", "tokens_evaluated",  # Ollama, llama.cpp
    "num_prompt_tokens", "prefill_tokens",
)  # fmt: skip
"""Names under which servers report input tokens."""
OUTPUT: Sequence[str] = (
    "completion_tokens", "output_tokens",
    "candidatesTokenCount", "outputTokenCount", "outputTokens",
    "eval_count", "predicted_n", "tokens_predicted",
    "generated_tokens", "num_generated_tokens",  # TGI, TensorRT-LLM
)  # fmt: skip
"""Names under which servers report output tokens."""
TOTAL: Sequence[str] = ("total_tokens", "totalTokenCount", "totalTokens")
"""Names under which servers report the sum of input and output tokens."""
CACHED: Sequence[str] = (
    "cached_tokens",  # OpenAI, within the details; Moonshot, beside them
    "prompt_cache_hit_tokens",  # DeepSeek
    "cachedContentTokenCount",  # Google
)
"""Names under which servers report input tokens read from the prompt cache."""
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_PLACES: Sequence[str] = (
    "usage", "usageMetadata", "usage_metadata", "x_groq", "amazon-bedrock-invocationMetrics", "metadata",
    "details", "timings",
)  # fmt: skip
"""Fields of a chunk, choice or answer that hold counts, or an object with `usage`."""
_PLACE_NAMES = frozenset(_PLACES)
_MOST_DIGITS = 12


def read_count(value: object) -> int:
    """Return an integer, a whole float or a string of digits as a count.

    Returns 0 for any other value, such as True.
    """
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and abs(value) < 10**_MOST_DIGITS:
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
        return int(value)
    return 0


def find_usage(*holders: object) -> Mapping[str, Any] | None:
    """Return the first object with token counts in the known fields of these objects.

    Returns None if there is none.
    """
    for holder in holders:
        if not isinstance(holder, Mapping) or _PLACE_NAMES.isdisjoint(holder):
            continue
        for name in _PLACES:
            found = holder.get(name)
            if isinstance(found, Mapping):
                inner = found.get("usage")
                found = inner if isinstance(inner, Mapping) else found
                if has_counts(found):
                    return found
    return None


def has_counts(usage: Mapping[str, Any]) -> bool:
    """Return whether an object holds a count above 0."""
    return any(read_count(usage.get(name)) > 0 for name in (*INPUT, *OUTPUT, *TOTAL))


def convert_usage(usage: Mapping[str, Any]) -> Json:
    """Return counts under the names of the Messages API, where input excludes cached tokens.

    `output_tokens` is absent if the server does not name it.
    """
    told_details = next((usage[name] for name in _DETAILS if isinstance(usage.get(name), Mapping)), None)
    details: Mapping[str, Any] = told_details or {}
    told = _first(usage, INPUT)
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        read, written = (
            max(0, read_count(usage.get(name)))
            for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
        )
        plain = told if "prompt_tokens" not in usage else max(0, told - read - written)
    else:
        read = _first(details, CACHED) or _first(usage, CACHED)
        written = read_count(details.get("cache_write_tokens"))
        plain = max(0, told - read - written)
    found: Json = {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    if isinstance(usage.get("cache_creation"), Mapping):
        found["cache_creation"] = usage["cache_creation"]
    output = _find_output(usage, told)
    return found if output is None else {**found, "output_tokens": output}


def _find_output(usage: Mapping[str, Any], told: int) -> int | None:
    name = next((name for name in OUTPUT if usage.get(name) is not None), None)
    if name is not None:
        return read_count(usage[name]) + read_count(usage.get("thoughtsTokenCount"))
    total = _first(usage, TOTAL)
    return total - told if total > told > 0 else None


def _first(usage: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((count for name in names if (count := read_count(usage.get(name)))), 0)
