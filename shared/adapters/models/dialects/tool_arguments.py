"""Reads the arguments of a tool call in the forms that models and servers write them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_FENCED = re.compile(r"\s*+```[a-zA-Z]*+\s*+(.*?)(?:(?<!\s)\s++)?```\s*+", re.DOTALL)
_AFTER = re.compile(r"(?:\s++|</?[\w:|]{1,40}+>|<\|[\w|]{1,40}+>|`{3})*+\Z")
"""Closing tags and fences behind the arguments."""
_MOST_LITERAL_CHARS = 20_000
"""Characters of a Python literal that are read: its parser needs far more memory than the one of JSON."""
_ENVELOPES = ("arguments", "parameters", "input")
_MOST_NESTING = 50
_MOST_LAYERS = 3
"""JSON within a string within a string; more was never seen."""


class UnreadableArguments(ValueError):
    """The arguments are no JSON object; the text says what they are, for the model."""


def read_arguments(raw: str, *, name: str = "") -> Mapping[str, Any]:
    """Return the arguments of the tool `name` as an object; nothing at all is an empty one.

    Raises:
        UnreadableArguments: they are null, a list, a number, cut off, or no JSON.
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
    """Return the arguments of a call that came in pieces; each piece may hold all that came before it.

    Raises:
        UnreadableArguments: neither the pieces together nor the last one are a JSON object.
    """
    try:
        return read_arguments("".join(pieces), name=name)
    except UnreadableArguments:
        told = [piece for piece in pieces if piece]
        if len(told) < 2 or not all(told[-1].startswith(piece) for piece in told):
            raise
        return read_arguments(told[-1], name=name)


def _take_out(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the arguments within an envelope that repeats the name of the tool."""
    inner = next((value[key] for key in _ENVELOPES if key in value), None)
    if name and len(value) == 2 and value.get("name") == name and isinstance(inner, Mapping):
        return inner
    return value


def _load(text: str) -> object:
    """Return a JSON value; line breaks within texts pass, and what JSON does not have, such as NaN, is null."""
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
    """Return the object of a text that has it twice, or after an empty one, or before closing tags."""
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
    """Return the object of a text whose first piece, a brace or a brace and a quote, the server has lost."""
    if not text.endswith("}") or text.startswith(("{", "[")):
        return None
    try:
        found = _load(("{" if text.startswith('"') else '{"') + text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) else None


def _parse_literal(text: str) -> Mapping[str, Any] | None:
    """Return a dict as Python writes it: single quotes, True, None."""
    if not text.startswith("{") or len(text) > _MOST_LITERAL_CHARS or _nesting(text) > _MOST_NESTING:
        return None
    try:
        found = ast.literal_eval(text)
        # What JSON cannot say, such as a set or bytes, is no argument.
        return dict(json.loads(json.dumps(found))) if isinstance(found, dict) else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _nesting(text: str) -> int:
    deepest = depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest
