"""Fills the JSON schema of a tool or an answer with one sentence, without inventing anything."""

from __future__ import annotations

import re
from typing import Any

from tests.kit.fakes.messages_api.shapes import Json

TEXT_NAMES = ("text", "content", "note", "fact", "memory", "statement", "value", "narrative")
KIND_NAMES = ("kind", "type", "category")
SUBJECT_NAMES = ("subject", "about", "topic", "title", "key", "name", "entity")


def filled(schema: Json, sentence: str, sources: tuple[int, ...] = ()) -> Json:
    """Return an object that satisfies `schema`.

    Besides the required properties it has those that hold the sentence and its kind.
    """
    value = _value("", schema, schema, sentence, sources)
    return value if isinstance(value, dict) else {}


def _value(name: str, schema: Json, root: Json, sentence: str, sources: tuple[int, ...]) -> Any:
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return "fact" if "fact" in schema["enum"] else schema["enum"][0]
    match _kind(schema):
        case "object":
            return _object(schema, root, sentence, sources)
        case "array":
            return _array(name, schema, root, sentence, sources)
        case "integer" | "number":
            return _number(schema, sources)
        case "boolean":
            return False
        case "null":
            return None
    return _string(name, schema, sentence)


def _object(schema: Json, root: Json, sentence: str, sources: tuple[int, ...]) -> Json:
    properties: Json = schema.get("properties") or {}
    wanted = list(schema.get("required", ()))
    texts = [name for name in properties if name in TEXT_NAMES]
    wanted += [
        name for name in (*texts[:1], *KIND_NAMES, "sources") if name in properties and name not in wanted
    ]
    return {name: _value(name, properties.get(name, {}), root, sentence, sources) for name in wanted}


def _array(name: str, schema: Json, root: Json, sentence: str, sources: tuple[int, ...]) -> list[Any]:
    items = _resolved(schema.get("items") or {}, root)
    least = schema.get("minItems", 0)
    if name == "sources" or _kind(items) == "integer":
        numbers = [*sources][: schema.get("maxItems", 20)] or [1] * least
        return [str(number) for number in numbers] if _kind(items) == "string" else numbers
    return [_value(name, items, root, sentence, sources) for _ in range(least)]


def _number(schema: Json, sources: tuple[int, ...]) -> float | int:
    low, high = schema.get("minimum", 0), schema.get("maximum")
    if sources and schema.get("type") == "integer" and high is None:
        return sources[0]
    value = low if high is None else (low + high) / 2
    return int(value) if schema.get("type") == "integer" else value


def _string(name: str, schema: Json, sentence: str) -> str:
    text = sentence
    if name in KIND_NAMES:
        text = "fact"
    elif name in SUBJECT_NAMES:
        text = _subject(sentence)
    elif schema.get("format") in ("date", "date-time"):
        found = re.search(r"\d{4}-\d{2}-\d{2}", sentence)
        text = found.group() if found else "1970-01-01"
    return text[: schema.get("maxLength", 4_000)]


def _subject(sentence: str) -> str:
    names = re.findall(r"(?<=[\w,;] )[A-Z][\w'-]+", sentence)
    return names[0] if names else " ".join(sentence.split()[:3])


def _kind(schema: Json) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return next((k for k in kind if k != "null"), "null") if isinstance(kind, list) else str(kind)


def _resolved(schema: Json, root: Json) -> Json:
    for _ in range(8):
        if "$ref" in schema:
            schema = root.get("$defs", {}).get(str(schema["$ref"]).rsplit("/", 1)[-1], {})
        elif schema.get("anyOf") or schema.get("oneOf"):
            choices = schema.get("anyOf") or schema["oneOf"]
            schema = next((choice for choice in choices if choice.get("type") != "null"), choices[0])
        else:
            break
    return schema
