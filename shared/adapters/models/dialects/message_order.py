"""Rules that rewrite messages of Chat Completions for servers with strict rules of roles, order and content.

Each rule is a pure function over messages whose content is a list of parts; since it depends on them alone,
the beginning of a request stays the same as a conversation grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shared.core.verdicts.abilities import Ability

Json = dict[str, Any]

BRIDGE = "…"
"""Text of the assistant's message that is inserted between a tool result and a person's message."""
OPENING = "(The conversation continues.)"
"""Text of the person's message that is inserted where a history begins with the assistant."""
_KEYWORDS = frozenset({
    "additionalProperties", "$schema", "$id", "$defs", "definitions", "default", "examples", "format", "pattern",
    "const", "title", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems", "patternProperties", "propertyNames", "if", "then", "else",
})  # fmt: skip
"""Keywords of JSON Schema that only full validators know."""
_NAMED = frozenset({"properties"})
"""Keywords whose keys are names of fields, not keywords."""


def arrange(messages: Sequence[Json], missing: Collection[Ability]) -> list[Json]:
    """Return the messages as a server accepts them that lacks these abilities."""
    arranged = list(messages)
    if "system" in missing:
        arranged = fold_system(arranged)
    if "user_after_tool" in missing:
        arranged = bridge_tool_results(arranged)
    if "alternation" in missing:
        arranged = alternate(arranged)
    return arranged


def fold_system(messages: Sequence[Json]) -> list[Json]:
    """Return messages whose instructions are the beginning of the person's first message."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, rest = messages[0], list(messages[1:])
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": [*system["content"], *rest[0]["content"]]}, *rest[1:]]
    return [{"role": "user", "content": system["content"]}, *rest]


def bridge_tool_results(messages: Sequence[Json]) -> list[Json]:
    """Return messages with BRIDGE between each tool result and a person's message that follows it."""
    arranged: list[Json] = []
    for message in messages:
        if message["role"] == "user" and arranged and arranged[-1]["role"] == "tool":
            arranged.append({"role": "assistant", "content": [{"type": "text", "text": BRIDGE}]})
        arranged.append(message)
    return arranged


def alternate(messages: Sequence[Json]) -> list[Json]:
    """Return messages with neighbours of one role joined, which begin with a message of the person."""
    arranged: list[Json] = []
    for message in messages:
        before = arranged[-1] if arranged else None
        if before is None or before["role"] == "system":
            if message["role"] == "assistant":
                arranged.append({"role": "user", "content": [{"type": "text", "text": OPENING}]})
            arranged.append(message)
        elif before["role"] == message["role"] and message["role"] in ("user", "assistant"):
            arranged[-1] = _joined(before, message)
        else:
            arranged.append(message)
    return arranged


def _joined(first: Json, second: Json) -> Json:
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    joined = {**first, "content": [*first["content"], *second["content"]]}
    return {**joined, "tool_calls": calls} if calls else joined


def fill_content(content: object, missing: Collection[Ability]) -> object:
    """Return the content; where it is empty and the server needs some, "." or ""."""
    if content not in (None, "", []):
        return content
    if "empty_content" in missing:
        return "."
    return "" if "null_content" in missing else content


def simplify_schema(schema: Mapping[str, Any]) -> Json:
    """Return a schema without the keywords that only full validators know."""
    return {
        name: _simplify_named(value) if name in _NAMED else _simplify(value)
        for name, value in schema.items()
        if name not in _KEYWORDS
    }


def _simplify_named(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _simplify(inner) for name, inner in value.items()}
    return value


def _simplify(value: object) -> object:
    match value:
        case Mapping():
            return simplify_schema(value)
        case list() | tuple():
            return [_simplify(item) for item in value]
        case _:
            return value
