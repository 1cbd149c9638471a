"""Reads the arguments of a handler from a request, as its signature describes them, and refuses invalid
ones.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from shared.core.values.errors import BadInput
from web.protocol.answers import ABSENT, wire_name
from web.rest.operation import Operation
from web.security import HttpRefusal

Json = Mapping[str, Any]
"""JSON object of a request body."""
Place = Literal["path", "query", "header", "body"]
"""Part of a request that contains an argument."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class In:
    """Annotation that puts a parameter into another part of the request than its method implies."""

    place: Place
    name: str = ""
    """Name in the request, if it cannot be a Python name; empty for the parameter's own name."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Annotation of a parameter that gets the whole body.

    `of` is its type for the description, the handler checks it.
    """

    of: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Parameter of a handler, with its place and name in the request."""

    name: str
    place: Place
    wire_name: str
    hint: Any
    default: Any
    shape: Shape | None = None
    spread: bool = False
    """Whether the parameter is one of `**fields`, which the handler gets only if the request contains it."""


class Untitled(GenerateJsonSchema):
    """Generator of JSON schemas without titles made from field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, *given: Any, **more: Any) -> bool:
        """Return whether a field is required: in an answer each one whose default is not `ABSENT`."""
        if self.mode == "serialization" and field["type"] == "dataclass-field":
            return field["schema"].get("default") is not ABSENT
        return super().field_is_required(field, *given, **more)

    def default_schema(self, schema: Any) -> Any:
        """Return the schema of a value with a default; `ABSENT` is none that can be sent."""
        absent = schema.get("default") is ABSENT
        return self.generate_inner(schema["schema"]) if absent else super().default_schema(schema)

    def dataclass_args_schema(self, schema: Any) -> Any:
        """Return the schema of a dataclass; the field `from_` of an answer is sent as `from`."""
        if self.mode == "serialization":
            fields = [{**one, "serialization_alias": wire_name(one["name"])} for one in schema["fields"]]
            schema = {**schema, "fields": fields}
        return super().dataclass_args_schema(schema)


class BadField(BadInput):
    """A field of the request cannot be used."""

    sentence = "A field of the request cannot be used."
    code = "bad_field"

    def __init__(self, advice: str, *, place: Place = "body") -> None:
        super().__init__(advice, advice=advice)
        self.place = place


@functools.cache
def arguments_of(operation: Operation) -> tuple[Parameter, ...]:
    """Return the parameters of an operation's handler, without `self` and the caller."""
    hints = get_type_hints(operation.handler, include_extras=True)
    parameters = [*inspect.signature(operation.handler).parameters.values()][2 if operation.owner else 1 :]
    parts = iter(re.findall(r"\{(\w+)\}", operation.path))
    usual: Place = "body" if operation.method in _WITH_BODY else "query"
    found = []
    for one in parameters:
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            spread = get_type_hints(get_args(hints[one.name])[0], include_extras=True)
            found += [
                Parameter(name=name, place=usual, wire_name=name, hint=hint, default=None, spread=True)
                for name, hint in spread.items()
            ]
        else:
            found.append(_describe_argument(one, hints[one.name], parts, usual))
    return tuple(found)


def _describe_argument(one: inspect.Parameter, hint: Any, parts: Any, usual: Place) -> Parameter:
    """Return a parameter of a signature; positional ones are parts of the path, named in `parts`."""
    marks = getattr(hint, "__metadata__", ())
    shape = next((mark for mark in marks if isinstance(mark, Shape)), None)
    if one.kind is not inspect.Parameter.KEYWORD_ONLY:
        mark = In("path", next(parts))
    else:
        mark = next((mark for mark in marks if isinstance(mark, In)), In(usual))
    return Parameter(
        name=one.name, place=mark.place, wire_name=mark.name or wire_name(one.name), hint=hint,
        default=... if one.default is inspect.Parameter.empty else one.default, shape=shape,
    )  # fmt: skip


@functools.cache
def model_of(operation: Operation, *, body: bool) -> type[BaseModel]:
    """Return the pydantic model of the body, or that of path, query and headers.

    Built at the first request.
    """
    fields = [one for one in arguments_of(operation) if (one.place == "body") is body and one.shape is None]
    made: Any = {one.name: (Annotated[one.hint, Field(alias=one.wire_name)], one.default) for one in fields}
    extra: Literal["forbid", "ignore"] = "forbid" if operation.strict and body else "ignore"
    name = operation.body or operation.name[0].upper() + operation.name[1:]
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(strict=body, extra=extra), **made)
    return model


async def read_arguments(
    operation: Operation,
    request: web.Request,
    *,
    read_body: Callable[[bool], Awaitable[Json]],
    without_empty: bool = False,
) -> dict[str, Any]:
    """Return the handler's arguments by parameter name.

    `read_body` gets whether a body is required; if it is not, a missing body is an empty object.
    `without_empty` treats empty texts outside the body as missing. Raises BadField, HttpRefusal
    and what `read_body` raises.
    """
    asked = arguments_of(operation)
    outside = {one.wire_name: one.place for one in asked if one.place != "body"}
    inside = [one for one in asked if one.place == "body"]
    found: dict[str, Any] = {}
    if outside:
        parts = {name: value.replace("\x00", "") for name, value in request.match_info.items()}
        sources = {"path": parts, "query": request.query, "header": request.headers}
        said = {name: sources[place].get(name) for name, place in outside.items()}
        given = {name: text for name, text in said.items() if text or not (text is None or without_empty)}
        found |= _validate(operation, given, outside)
    if inside:
        body = await read_body(any(one.default is ... for one in inside))
        shaped = {one.name: body for one in inside if one.shape is not None}
        found |= shaped or _validate(operation, body, None)
    return found


def _validate(operation: Operation, given: Json, places: Mapping[str, Place] | None) -> dict[str, Any]:
    """Return the valid arguments.

    Raises BadField; an invalid part of the path raises HttpRefusal with status 404.
    """
    model = model_of(operation, body=places is None)
    try:
        found = model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "body" if places is None else places[str(first["loc"][0])]
        if place == "path":
            raise HttpRefusal(404, "not_found", operation.missing) from None
        raise BadField(_explain_refusal(first, model), place=place) from None
    missing = {one.name for one in arguments_of(operation) if one.spread} - found.model_fields_set
    return {name: value for name, value in found.__dict__.items() if name not in missing}


def _explain_refusal(error: Any, model: type[BaseModel]) -> str:
    """Return the sentence that says what is wrong with a field."""
    name, *inside = error["loc"]
    place = "".join(char for char in ".".join(map(str, error["loc"]))[:80] if char.isprintable())
    fields = _describe_fields(model)
    if error["type"] == "extra_forbidden":
        known = "" if inside else f"; known are {', '.join(fields['properties'])}"
        return f"There is no field `{place}`{known}."
    if error["type"] == "value_error" and str(error["ctx"]["error"]):
        return f"`{place}` is {error['ctx']['error']}."
    if inside:
        return f"`{place}` cannot be used: {error['msg']}."
    if error["type"] == "string_too_long":
        return f"`{name}` has {len(error['input'])} characters; {error['ctx']['max_length']} is the most."
    needed = ", and is needed" if name in fields.get("required", ()) else ""
    return f"`{name}` is {describe_schema(fields['properties'][name])}{needed}."


@functools.cache
def _describe_fields(model: type[BaseModel]) -> Json:
    """Return the JSON schema of a model; cached, so that invalid requests cost no more than valid ones."""
    return model.model_json_schema(schema_generator=Untitled)


_WORDS = {
    "integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "an object",
    "string": "text", "uuid": "an id", "date": "a day such as 2026-11-21",
}  # fmt: skip


def describe_schema(schema: Json) -> str:
    """Return a few words that describe the values which a JSON schema allows."""
    if "anyOf" in schema:
        schema = {**schema, **schema["anyOf"][0]}
    if "title" in schema and " " in schema["title"]:
        return str(schema["title"])
    if "enum" in schema:
        return f"one of {', '.join(str(one) for one in schema['enum'] if one != '')}"
    kind = schema.get("type", "object")
    if kind == "array":
        return "a list" + (f" of 1 to {schema['maxItems']}" if "maxItems" in schema else "")
    least, most = (schema.get(name) for name in ("minimum", "maximum"))
    limits = "" if least is None else f" from {least} on" if most is None else f" from {least} to {most}"
    return (_WORDS.get(schema.get("format", "")) or _WORDS.get(kind, str(kind))) + limits
