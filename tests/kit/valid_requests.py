"""Checks that the messages of a request are valid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from shared.core.values.messages import (
    Message,
    Text,
    Thinking,
    ToolResult,
    tool_results,
    tool_uses,
)


def assert_valid_request(messages: Sequence[Message]) -> None:
    roles = [message.role for message in messages]
    assert roles[0] == roles[-1] == "user"
    assert all(a != b for a, b in pairwise(roles))
    seen: set[str] = set()
    for index, message in enumerate(messages):
        assert message.blocks
        assert all(block.text.strip() for block in message.blocks if isinstance(block, Text | ToolResult))
        kinds = [isinstance(block, ToolResult) for block in message.blocks]
        assert kinds == sorted(kinds, reverse=True), "results come first"
        calls = [use.id for use in tool_uses(message.blocks)]
        assert len(set(calls)) == len(calls)
        assert not seen & set(calls)
        seen |= set(calls)
        if message.role == "assistant":
            assert not isinstance(message.blocks[-1], Thinking)
            assert [r.tool_use_id for r in tool_results(messages[index + 1].blocks)] == calls
        elif index == 0:
            assert not tool_results(message.blocks)
