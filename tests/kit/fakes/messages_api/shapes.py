"""Reads the nested JSON of a Messages request without assuming that it is well formed."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def compact_json(value: object) -> str:
    """Return a value as JSON without spaces.

    The order of keys is kept, since a reordered schema is another schema for the provider.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def blocks_of(content: object) -> list[Json]:
    """Return the content of a message, a system prompt or a tool result as a list of blocks.

    Anything malformed is left out.
    """
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def text_of(content: object) -> str:
    """Return the texts of a content's text blocks, one per line."""
    return "\n".join(
        str(block.get("text", "")) for block in blocks_of(content) if block.get("type") == "text"
    )


def merged_turns(messages: list[Json]) -> list[tuple[int, str, list[Json]]]:
    """Return the messages as turns, each with the index of its first message, its role and its blocks.

    Neighbours with the same role form one turn, as at the provider.
    """
    turns: list[tuple[int, str, list[Json]]] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message["content"])
        if turns and turns[-1][1] == message["role"]:
            turns[-1][2].extend(blocks)
        else:
            turns.append((index, message["role"], list(blocks)))
    return turns


def newest_words(messages: list[Json]) -> tuple[str, bool]:
    """Return the newest text of the user, and whether tool results have followed it."""
    answered_by_tools = False
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        text = text_of(message.get("content"))
        if text.strip():
            return text, answered_by_tools
        answered_by_tools = True
    return "", answered_by_tools
