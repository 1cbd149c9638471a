"""Refuses tools whose definition, schema or forced choice the provider would refuse."""

from __future__ import annotations

import re

from tests.kit.fakes.messages_api.catalogue import Model
from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.shapes import Json

TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
TOOL_FIELDS = frozenset(
    {"name", "description", "input_schema", "cache_control", "type", "strict", "defer_loading"}
    | {"allowed_callers", "eager_input_streaming", "input_examples"}
)
SEARCH_TYPE = "web_search_20250305"
SEARCH_FIELDS = frozenset(
    {"type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "cache_control"}
)
SCHEMA_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def check_tools(body: Json) -> tuple[str, ...]:
    """Return the names of the offered tools.

    Raises Refusal if a tool is malformed.
    """
    tools = body.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise Refusal("tools: Input should be a valid list")
    names: list[str] = []
    for index, tool in enumerate(tools):
        _check_tool(tool, f"tools.{index}.custom")
        names.append(tool["name"])
    if len(set(names)) < len(names):
        raise Refusal("tools: Tool names must be unique.")
    return tuple(names)


def check_tool_choice(body: Json, tools: tuple[str, ...], model: Model) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not tools:
        raise Refusal("tool_choice may only be specified while providing tools.")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise Refusal(
            f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags: "
            "'auto', 'any', 'tool', 'none'"
        )
    if kind == "tool" and choice.get("name") not in tools:
        raise Refusal(f"tool_choice.name: Tool '{choice.get('name')}' not found in provided tools")
    thinks = (body.get("thinking") or {}).get("type", "disabled") != "disabled"
    if kind in ("any", "tool") and (thinks or model.always_thinks):
        raise Refusal("Thinking may not be enabled when tool_choice forces tool use.")


def _check_tool(tool: object, at: str) -> None:
    if not isinstance(tool, dict):
        raise Refusal(f"{at}: Input should be a valid dictionary")
    extra = set(tool) - TOOL_FIELDS
    if extra and tool.get("type") != SEARCH_TYPE:
        raise Refusal(f"{at}.{min(extra)}: Extra inputs are not permitted")
    if tool.get("type") == SEARCH_TYPE:
        _check_search(tool, at)
        return
    if tool.get("type") not in (None, "custom"):
        raise Refusal(
            f"{at}.type: Input tag '{tool['type']}' does not match any of the expected tags: 'custom'"
        )
    if "name" not in tool:
        raise Refusal(f"{at}.name: Field required")
    if not isinstance(tool["name"], str) or not TOOL_NAME.fullmatch(tool["name"]):
        raise Refusal(f"{at}.name: String should match pattern '{TOOL_NAME.pattern}'")
    if not isinstance(tool.get("description", ""), str):
        raise Refusal(f"{at}.description: Input should be a valid string")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise Refusal(f"{at}.input_schema: Field required")
    if schema.get("type") != "object":
        wrong = "Field required" if "type" not in schema else "Input should be 'object'"
        raise Refusal(f"{at}.input_schema.type: {wrong}")
    fault = schema_fault(schema)
    if fault:
        raise Refusal(
            f"{at}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 ({fault})"
        )


def _check_search(tool: Json, at: str) -> None:
    extra = set(tool) - SEARCH_FIELDS
    if extra:
        raise Refusal(f"{at}.{min(extra)}: Extra inputs are not permitted")
    if tool.get("name") != "web_search":
        raise Refusal(f"{at}.name: Input should be 'web_search'")


def schema_fault(schema: object, at: str = "$") -> str | None:
    """Return the first fault that makes this no JSON Schema; None if there is none.

    Only the keywords that tools use are checked.
    """
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return f"{at} is neither an object nor a boolean"
    return _type_fault(schema, at) or _list_fault(schema, at) or _nested_fault(schema, at)


def _type_fault(schema: Json, at: str) -> str | None:
    kinds = schema.get("type", "object")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in SCHEMA_TYPES:
            return f"{at}.type {kind!r} is unknown"
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(schema.get(name, 0), (bool, str, list, dict)):
            return f"{at}.{name} is not a number"
    for name in ("minLength", "maxLength", "minItems", "maxItems"):
        if type(schema.get(name, 0)) is not int or schema.get(name, 0) < 0:
            return f"{at}.{name} is not a count"
    return None


def _list_fault(schema: Json, at: str) -> str | None:
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return f"{at}.required is not a list of names"
    if len(set(required)) < len(required):
        return f"{at}.required names a property twice"
    if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
        return f"{at}.enum is not a list of values"
    return None


def _nested_fault(schema: Json, at: str) -> str | None:
    for name in ("properties", "$defs", "definitions", "patternProperties"):
        inner = schema.get(name, {})
        if not isinstance(inner, dict):
            return f"{at}.{name} is not an object"
        for key, value in inner.items():
            fault = schema_fault(value, f"{at}.{name}.{key}")
            if fault:
                return fault
    for name in ("anyOf", "oneOf", "allOf"):
        for value in schema.get(name) or ():
            fault = schema_fault(value, f"{at}.{name}")
            if fault:
                return fault
    for name in ("items", "additionalProperties", "not"):
        if name in schema:
            fault = schema_fault(schema[name], f"{at}.{name}")
            if fault:
                return fault
    return None
