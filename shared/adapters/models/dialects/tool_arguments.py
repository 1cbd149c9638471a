"""Parsing of tool arguments in the forms in which models and servers write them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_FENCED = re.compile(r"\s*+```[a-zA-Z]*+\s*+(.*?)(?:(?<!\s)\s++)?```\s*+", re.DOTALL)
_AFTER = re.compile(r"(?:\s++|</?[\w:|]{1,40}+>|<\|[\w|]{1,40}+>|`{3})*+\Z")
"""Closing tags and fences after the arguments."""
_MOST_LITERAL_CHARS = 20_000
"""Maximum characters of a Python literal, whose parser needs far more memory than that of JSON."""
_ENVELOPES = ("arguments", "parameters", "input")
_MOST_NESTING = 50
_MOST_LAYERS = 3
"""Maximum times that JSON is nested in strings; more was never seen."""


class UnreadableArguments(ValueError):
    """Raised for arguments that are no JSON object; its message tells the model what they are."""


def read_arguments(raw: str, *, name: str = "") -> Mapping[str, Any]:
    """Return the arguments of the tool `name` as an object; empty text becomes an empty object.

    Raises UnreadableArguments if they are null, a list, a number, incomplete, or no JSON.
    """
    if not raw.strip():
        return {}
    value: object = raw
    for _ in range(_MOST_LAYERS):
        if not isinstance(value, str):
            break
        value = _parse(value)
    if isinstance(value, Mapping):
        return _take_out(value, name)
    kinds = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    raise UnreadableArguments(f"its arguments are {kinds.get(type(value), 'null')} and not a JSON object")


def read_pieces(pieces: Sequence[str], *, name: str = "") -> Mapping[str, Any]:
    """Return arguments that came in pieces, of which each may repeat all before it.

    Raises UnreadableArguments if neither the joined pieces nor the last one are a JSON object.
    """
    try:
        return read_arguments("".join(pieces), name=name)
    except UnreadableArguments:
        told = [piece for piece in pieces if piece]
        if len(told) < 2 or not all(told[-1].startswith(piece) for piece in told):
            raise
        return read_arguments(told[-1], name=name)


def _take_out(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the inner arguments of an object that has the tool's name and them; else the object itself."""
    inner = next((value[key] for key in _ENVELOPES if key in value), None)
    if name and len(value) == 2 and value.get("name") == name and isinstance(inner, Mapping):
        return inner
    return value


def _load(text: str) -> object:
    """Return a JSON value; line breaks in strings are allowed, and constants like NaN become null."""
    return json.loads(text, strict=False, parse_constant=lambda _: None)


def _parse(text: str) -> object:
    text = text.strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1]
    try:
        return _load(text)
    except (ValueError, RecursionError):
        pass
    if text == "None":
        return None
    if (found := _parse_repeated(text)) is not None:
        return found
    if (found := _parse_literal(text)) is not None:
        return found
    if (found := _parse_without_start(text)) is not None:
        return found
    raise UnreadableArguments("its arguments are not valid JSON")


def _parse_repeated(text: str) -> Mapping[str, Any] | None:
    """Return the object of a text that has it twice, after `{}`, or before closing tags; else None."""
    try:
        first, end = json.JSONDecoder(strict=False).raw_decode(text)
        if isinstance(first, Mapping) and _AFTER.match(text, end):
            return first
        second = json.loads(text[end:], strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return None
    return second if first in ({}, second) else None


def _parse_without_start(text: str) -> Mapping[str, Any] | None:
    """Return the object of a text that lacks its first `{` or `{"`, which the server lost; else None."""
    if not text.endswith("}") or text.startswith(("{", "[")):
        return None
    try:
        found = _load(("{" if text.startswith('"') else '{"') + text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) else None


def _parse_literal(text: str) -> Mapping[str, Any] | None:
    """Return the object of a Python dict literal (single quotes, True, None); None for another text."""
    if not text.startswith("{") or len(text) > _MOST_LITERAL_CHARS or _nesting(text) > _MOST_NESTING:
        return None
    try:
        found = ast.literal_eval(text)
        # Sets, bytes and other values without JSON are no arguments.
        return dict(json.loads(json.dumps(found))) if isinstance(found, dict) else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _nesting(text: str) -> int:
    deepest = depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest
