"""Whether a provider can have counted what it says: a wrong number would spend everybody's money."""

from __future__ import annotations

from collections.abc import Callable

from shared.core.values.tokens import estimate_messages, estimate_system, estimate_tools
from shared.ports import ModelRequest, Usage

TOKENS_PER_CHAR = 4
"""More than any vocabulary makes of any script."""
SPARE_TOKENS = 20_000
"""What a provider puts around a request, and what a picture takes, at most."""
OUTPUT_FACTOR = 2
"""Not every server stops at exactly as many tokens as it was told."""


def is_possible(usage: Usage, request: ModelRequest, *, words: str) -> bool:
    """Of tools that the provider runs itself nobody knows what they read."""
    if any(tool.provider is not None for tool in request.tools):
        return True
    most_input = TOKENS_PER_CHAR * size_of(request, len) + SPARE_TOKENS * (1 + len(request.pictures))
    most_output = max(OUTPUT_FACTOR * request.max_output_tokens, TOKENS_PER_CHAR * len(words)) + SPARE_TOKENS
    return usage.context_tokens - usage.output_tokens <= most_input and usage.output_tokens <= most_output


def size_of(request: ModelRequest, count: Callable[[str], int]) -> int:
    return (
        estimate_system(request.system, count)
        + estimate_messages(request.messages, count)
        + estimate_tools(request.tools, count)
    )
