"""Checks of the token counts of providers: impossible and too low counts are replaced by our own.

Vocabularies differ, so that our count alone proves nothing. No vocabulary makes fewer than 62 tokens of plain
ASCII for 100 by our count, times the model's own factor. In other scripts large vocabularies make as few as
30. Half of our count is therefore believed there of models whose vocabulary is known to be large, and of free
models; for any other model the larger count is booked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from shared.core.values.messages import Text, ToolResult, ToolUse
from shared.core.values.tokens import estimate_messages, estimate_system, estimate_tools, tool_text
from shared.ports import ModelRequest, Usage

Count = Callable[[str], int]
"""Function that returns a number for a text, such as its tokens or characters."""

TOKENS_PER_CHAR = 4
"""Maximum tokens per character; no vocabulary makes more of any script."""
SPARE_TOKENS = 20_000
"""Maximum tokens for the provider's frame around a request, and for each picture."""
OUTPUT_FACTOR = 2
"""Factor by which output may exceed its limit, for servers that stop late."""
_ASCII_SHARE = 0.62
"""Minimum share of our count that every vocabulary reaches for ASCII; for English it is nine tenths."""
LARGE_SHARE, USUAL_SHARE = 0.3, 0.56
"""Minimum shares of our count in other scripts, for large vocabularies and for those like ours."""
LARGE_VOCABULARIES = (
    "chatgpt", "claude", "command", "deepseek", "doubao", "ernie", "gemini", "gemma", "gigachat", "glm",
    "gpt", "grok", "hunyuan", "kimi", "llama", "magistral", "minimax", "ministral", "mistral", "mixtral",
    "moonshot", "nemotron", "nova", "o1-", "o3-", "o4-", "phi-", "qwen", "qwq", "sonar", "yandexgpt",
)  # fmt: skip
"""Parts of model names whose vocabularies have 100,000 tokens or more, many of them for other scripts."""
_TOOL_SHARE = 0.45
"""Minimum share of our count for schemas and tool calls, which servers write in their own way."""
_NOISE = 16
"""Tokens by which a count may be below the minimum, since short texts vary."""
_MOST_BYTES_PER_TOKEN = 5
"""Bytes per token of ASCII up to which a count is believed without counting; English has 4.5."""
_OTHER_WEIGHT = 2
"""Weight of a byte beyond ASCII in a sum of bytes: a Thai token has two bytes, an English one over four."""
_PLAIN_SHARE = 0.95
"""Share of ASCII from which a text's number of tokens hardly depends on the vocabulary."""


def size_of(request: ModelRequest, count: Count) -> int:
    """Return the size of a request in the unit of `count`, with the overhead that providers add."""
    return (
        estimate_system(request.system, count)
        + estimate_messages(request.messages, count)
        + estimate_tools(request.tools, count)
    )


def is_possible(usage: Usage, request: ModelRequest, *, words: str) -> bool:
    """Return False if more tokens were reported than any vocabulary makes of the request and its answer.

    `words` is the text of the answer. Returns True for a request with tools of the provider, since the text
    that they read is unknown.
    """
    if any(tool.provider is not None for tool in request.tools):
        return True
    most_input = TOKENS_PER_CHAR * size_of(request, len) + SPARE_TOKENS * (1 + len(request.pictures))
    most_output = max(OUTPUT_FACTOR * request.max_output_tokens, TOKENS_PER_CHAR * len(words)) + SPARE_TOKENS
    return input_of(usage) <= most_input and usage.output_tokens <= most_output


def input_of(usage: Usage) -> int:
    """Return all input tokens of a usage: new ones and those of the provider's cache."""
    return usage.context_tokens - usage.output_tokens


def has_low_input(
    usage: Usage, request: ModelRequest, *, count: Count, factor: float, has_tools: bool, share: float
) -> bool:
    """Return whether fewer input tokens were reported than the model's vocabulary can make of the request.

    `count` is our counter, and `factor` the model's tokens per token of that count. `share` is the least
    share of our count that is credible for text beyond ASCII. Without `has_tools`, the request was sent
    without its tools.
    """
    texts = [*_texts_of(request)]
    spelled = [*_spelled_of(request, has_tools=has_tools)]
    return _is_low(input_of(usage), texts, spelled, count=count, factor=factor, share=share)


def has_low_output(usage: Usage, words: str, *, count: Count, factor: float, share: float) -> bool:
    """Return whether fewer output tokens were reported than the model's vocabulary can make of the answer.

    `words` is the text of the answer; the other arguments are those of `has_low_input`.
    """
    return _is_low(usage.output_tokens, [words], [], count=count, factor=factor, share=share)


def find_other_share(name: str, *, is_known: bool) -> float:
    """Return the least credible share of our count for a model's text beyond ASCII.

    `is_known` is true for a free model, or one whose token factor is known.
    """
    is_large = is_known or any(part in name.lower() for part in LARGE_VOCABULARIES)
    return LARGE_SHARE if is_large else USUAL_SHARE


def is_plain(request: ModelRequest) -> bool:
    """Return whether nearly all of a request is ASCII, so that our count measures it well."""
    texts = "".join(_texts_of(request))
    return len(texts.encode("ascii", "ignore")) >= _PLAIN_SHARE * len(texts)


def raise_input(usage: Usage, tokens: int) -> Usage:
    """Return the usage with at least `tokens` input tokens; the shares of cached tokens are kept."""
    reported = input_of(usage)
    if reported >= tokens:
        return usage
    if reported <= 0:
        return replace(usage, input_tokens=tokens)
    read = usage.cache_read_tokens * tokens // reported
    written = usage.cache_write_tokens * tokens // reported
    return replace(
        usage, input_tokens=tokens - read - written, cache_read_tokens=read, cache_write_tokens=written,
        cache_hour_tokens=usage.cache_hour_tokens * tokens // reported,
    )  # fmt: skip


def _is_low(
    reported: int, texts: list[str], spelled: list[str], *, count: Count, factor: float, share: float
) -> bool:
    weight = 1 if share == LARGE_SHARE else _OTHER_WEIGHT
    if (reported + _NOISE) * _MOST_BYTES_PER_TOKEN >= sum(
        _weigh(text, weight) for text in (*texts, *spelled)
    ):
        return False
    least = sum(_find_share(text, share) * count(text) for text in texts)
    least += sum(_TOOL_SHARE * count(text) for text in spelled)
    return reported + _NOISE < factor * least


def _find_share(text: str, other: float) -> float:
    """Return the minimum share of our count for a text; `other` is that for text beyond ASCII."""
    if text.isascii():
        return _ASCII_SHARE
    blanks = text.count(" ")
    plain = (len(text.encode("ascii", "ignore")) - blanks) / max(1, len(text) - blanks)
    return other + (_ASCII_SHARE - other) * plain


def _texts_of(request: ModelRequest) -> Iterator[str]:
    """Yield the texts of a request that every server gets unchanged."""
    for part in request.system:
        yield part.text
    for message in request.messages:
        for block in message.blocks:
            if isinstance(block, Text | ToolResult):
                yield block.text


def _spelled_of(request: ModelRequest, *, has_tools: bool) -> Iterator[str]:
    """Yield tool schemas and arguments of tool calls, which each server writes in another form."""
    if has_tools:
        for tool in request.tools:
            if tool.provider is None:
                yield tool_text(tool)
    for message in request.messages:
        for block in message.blocks:
            if isinstance(block, ToolUse):
                yield str(dict(block.input))


def _weigh(text: str, weight: int) -> int:
    """Return the bytes of a text, of which those beyond ASCII count `weight` times."""
    if text.isascii():
        return len(text)
    plain = len(text.encode("ascii", "ignore"))
    return plain + weight * (len(text.encode("utf-8", "replace")) - plain)
