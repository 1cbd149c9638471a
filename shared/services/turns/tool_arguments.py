"""Whether what a model gives a tool fits the tool's schema, and what to tell it where it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from shared.ports import ToolSpec

MAX_PROBLEMS_SHOWN = 3
_SHOWN_CHARS = 300
_RULES = (
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "format",
)  # fmt: skip
"""What of a field's schema says which values are allowed."""
_KINDS = {
    "integer": "a whole number", "number": "a number", "string": "a text", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip


class ArgumentChecker:
    """Of one tool. What checks them is built when the first call comes, and kept."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec

    def find_fault(self, given: Any) -> str | None:
        """For the model: which field, what is wrong, what is allowed; None where all is well."""
        if not isinstance(given, Mapping):
            return f"{self._spec.name} was not run: its arguments must be a JSON object."
        problems = [_problem(error, self._spec) for error in self._errors(dict(given))]
        if not problems:
            return None
        lines = "\n".join(f"- {line}" for line in problems)
        return f"{self._spec.name} was not run, because its arguments do not fit:\n{lines}"

    def _errors(self, given: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        for error in self._validator.iter_errors(given):
            found.append(error)
            if len(found) == MAX_PROBLEMS_SHOWN:
                break
        return found

    @cached_property
    def _validator(self) -> Any:
        return build_validator(self._spec.input_schema)


def build_validator(schema: Mapping[str, Any]) -> Any:
    """A schema is never fetched, and its patterns are not run: both may be anybody's."""
    import jsonschema
    from referencing import Registry

    extend: Any = jsonschema.validators.extend
    kinds = extend(jsonschema.Draft202012Validator, {"pattern": _passed, "patternProperties": _passed})
    return kinds(dict(schema), registry=Registry())


def _passed(*_: Any) -> None:
    return None


def _problem(error: Any, spec: ToolSpec) -> str:
    field = ".".join(str(part) for part in error.absolute_path)
    known = spec.input_schema.get("properties") or {}
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        names = ", ".join(f"`{name}`" for name in missing)
        return f"{_in(field)}{names} is missing. {_takes(known) if not field else ''}".rstrip()
    if error.validator == "additionalProperties":
        return f"{_in(field)}{_short(error.message)}. {_takes(known) if not field else ''}".rstrip()
    rules = {name: error.schema[name] for name in _RULES if name in error.schema}
    allowed = f" Allowed: {_short(json.dumps(rules, ensure_ascii=False, default=str))}" if rules else ""
    return f"`{field or 'the arguments'}`: {_wrong(error)}.{allowed}"


def _wrong(error: Any) -> str:
    kind = _KINDS.get(error.validator_value) if isinstance(error.validator_value, str) else None
    if error.validator != "type" or kind is None:
        return _short(error.message)
    return f"{_short(json.dumps(error.instance, ensure_ascii=False, default=str))} is not {kind}"


def _in(field: str) -> str:
    return f"`{field}`: " if field else ""


def _takes(known: Mapping[str, Any]) -> str:
    if not known:
        return "It takes no arguments."
    return f"It takes {', '.join(f'`{name}`' for name in list(known)[:20])}."


def _short(text: str) -> str:
    """A value may be a megabyte; its two ends tell enough."""
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[: _SHOWN_CHARS // 2]} … {text[-_SHOWN_CHARS // 2 :]}"
