"""Token estimates of texts, messages and contexts, and the ratio that corrects them by the
provider's counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from shared.core.values.messages import (
    Block,
    Image,
    Message,
    ProviderBlock,
    SystemPart,
    Text,
    Thinking,
    ToolResult,
    ToolSpec,
    ToolUse,
)

IMAGE_TOKENS = 1_600
"""Estimated tokens of a picture."""
MESSAGE_OVERHEAD = 4
"""Estimated tokens that each message, or part of the system text, adds to its content."""
TOOL_BLOCK_OVERHEAD = 10
"""Estimated tokens that a tool call, a tool result or a provider's block adds to its content."""
TOOLS_PRESENT = 549
"""Tokens that the provider adds once a request offers a tool (measured on the 4.5 family)."""
PER_TOOL = 53
"""Tokens that the provider adds for each offered tool, besides its description."""

RATIO_LEAST, RATIO_MOST = 0.8, 2.5
"""Bounds of the ratio of reported to estimated tokens."""
_LEARNING_SHARE = 0.3

Count = Callable[[str], int]
"""Function that returns the tokens of a text."""


# Tokens per character of the bundled vocabulary, by kind of character.
_SCRIPTS: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"[A-Za-z]+"), 0.25),
    (re.compile(r"[\u00c0-\u024f]"), 1.60),
    (re.compile(r"[\u0370-\u052f]+"), 0.66),
    (re.compile(r"[\u0590-\u08ff]+"), 1.20),
    (re.compile(r"[\u0900-\u0dff]+"), 1.50),
    (re.compile(r"[\u0e00-\u0fff]+"), 1.80),
    (re.compile(r"[\u1000-\u11ff\ua960-\ua97f\uac00-\ud7ff]+"), 1.40),
    (re.compile(r"[\u2e80-\u9fff\uf900-\ufaff]+"), 1.00),
    (re.compile(r"[0-9]+"), 0.70),
    (re.compile(r"[ ]+"), 0.02),
    (re.compile(r"[\t\r\n]+"), 0.30),
    (re.compile(r"[!-/:-@\[-`{-~]+"), 0.85),
)
_OTHER_CHARACTER = 2.0


def chars_over_four(text: str) -> int:
    """Return the tokens of a text as a quarter of its characters plus 25 percent, rounded up.

    It is the last fallback, for texts that no better estimate can count.
    """
    return math.ceil(len(text) / 4 * 1.25)


def estimate_by_script(text: str) -> int:
    """Return the tokens of a text, estimated by its kinds of characters; for use without a vocabulary."""
    known, total = 0, 0.0
    for pattern, per_char in _SCRIPTS:
        chars = sum(len(found) for found in pattern.findall(text))
        known += chars
        total += chars * per_char
    return math.ceil(total + (len(text) - known) * _OTHER_CHARACTER)


def estimate_blocks(blocks: Iterable[Block], count: Count) -> int:
    """Return the estimated tokens of one message with these blocks, overhead included."""
    return MESSAGE_OVERHEAD + sum(_estimate_block(block, count) for block in blocks)


def estimate_messages(messages: Iterable[Message], count: Count) -> int:
    """Return the estimated tokens of all messages together, overhead included."""
    return sum(estimate_blocks(message.blocks, count) for message in messages)


def estimate_tools(tools: Sequence[ToolSpec], count: Count) -> int:
    """Return the estimated tokens that tools add to a request, definitions included; 0 without tools."""
    if not tools:
        return 0
    return TOOLS_PRESENT + sum(PER_TOOL + count(text) for text in _describe_tools(tuple(tools)))


@lru_cache(maxsize=64)
def _describe_tools(tools: tuple[ToolSpec, ...]) -> tuple[str, ...]:
    return tuple(map(tool_text, tools))


def tool_text(tool: ToolSpec) -> str:
    """Return the text of a tool as the model reads it, for counting."""
    return f"{tool.name} {tool.description} {_compact_json(tool.provider or tool.input_schema)}"


def estimate_system(parts: Iterable[SystemPart], count: Count) -> int:
    """Return the estimated tokens of the parts of a system text; empty parts count nothing."""
    return sum(MESSAGE_OVERHEAD + count(part.text) for part in parts if part.text)


def measure(reported: int | None, pending: int, estimate: int, ratio: float) -> int:
    """Return the size of a context in tokens, as the gauge shows it.

    `reported` is the provider's count of the last call, None without one; `pending` is the estimate of what
    was added since, less what is not sent again (it may be negative); `estimate` is that of the whole
    context, used without a count.
    """
    if reported is None:
        return max(0, math.ceil(estimate * ratio))
    return max(0, reported + math.ceil(pending * ratio))


def compute_ratio(actual: int, estimated: int, otherwise: float) -> float:
    """Return the reported tokens per estimated token of one request, kept between 0.8 and 2.5.

    Returns `otherwise`, within these bounds, if a count is 0.
    """
    seen = actual / estimated if actual > 0 and estimated > 0 else otherwise
    return min(RATIO_MOST, max(RATIO_LEAST, seen))


def update_ratio(old: float, actual: int, estimated: int) -> float:
    """Return the token ratio moved three tenths of the way from `old` to a new observation, between 0.8 and
    2.5.

    The observation is `actual / estimated`; if one of them is 0, `old` is kept.
    """
    seen = actual / estimated if actual > 0 and estimated > 0 else old
    mixed = old * (1 - _LEARNING_SHARE) + seen * _LEARNING_SHARE
    return min(RATIO_MOST, max(RATIO_LEAST, mixed))


def reply_tokens(
    blocks: Iterable[Block], *, exact: bool, reported: int | None, ratio: float, estimate: int
) -> int:
    """Return the tokens to store for an answer: the provider's count if `exact` and reported, else the
    estimate.

    The count is divided by `ratio`, since stored tokens are multiplied by it when used. An answer with
    thinking keeps its estimate, since thinking is counted but not sent again.
    """
    thought = any(isinstance(block, Thinking | ProviderBlock) for block in blocks)
    if not exact or reported is None or thought:
        return estimate
    return max(1, round(reported / ratio))


def truncate_text(text: str, limit: int, count: Count) -> str:
    """Return the longest beginning of a text, within 8 characters, that takes at most `limit` tokens."""
    if count(text) <= limit:
        return text
    low, high = 0, min(len(text), limit * 8)
    while high - low > 8:
        middle = (low + high) // 2
        low, high = (middle, high) if count(text[:middle]) <= limit else (low, middle)
    return text[:low].rstrip()


def _estimate_block(block: Block, count: Count) -> int:
    match block:
        case Text(text=text) | Thinking(text=text):
            return count(text)
        case Image():
            return IMAGE_TOKENS
        case ToolUse(name=name, input=arguments):
            return TOOL_BLOCK_OVERHEAD + count(name) + count(_compact_json(arguments))
        case ToolResult(text=text):
            return TOOL_BLOCK_OVERHEAD + count(text)
        case ProviderBlock(raw=raw):
            return TOOL_BLOCK_OVERHEAD + count(_compact_json(raw))


def _compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
