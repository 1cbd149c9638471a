"""Builds `/api/v1/openapi.json` from the table of operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from shared.core.commands.commands import commands_for
from shared.core.identity.api_keys import SCOPES
from web.rest.arguments import Untitled, arguments_of, model_of
from web.rest.kinds import Error
from web.rest.operation import JSON, Operation

Schema = dict[str, Any]
"""JSON schema, or another object of the OpenAPI document."""
VERSION = "3.1.0"
"""Version of OpenAPI that the document follows."""
REF = "#/components/schemas/{model}"
"""Template of references to schemas of the document."""
_EVENTS = "text/event-stream"
_REFUSED = {
    400: "Invalid request.",
    401: "Missing or invalid token, key or login.",
    403: "The caller has no permission.",
    404: "Not found, or no permission to know of it.",
    408: "The request body took too long.",
    409: "Conflict with the current state.",
    410: "The object was deleted permanently.",
    413: "The body is too large.",
    415: "Unsupported media type.",
    422: "Valid request that cannot be carried out.",
    428: "Missing version of the object; send `If-Match`.",
    429: "Too many requests; see `Retry-After`.",
    503: "Temporarily unavailable; see `Retry-After`.",
}
_GROUPS = {
    "conversations": "Conversations of visitors and of people of your own system.",
    "commands": "Slash commands such as /compact.",
    "files": "Files of a conversation: pictures, texts, PDF, office files, e-books, recordings.",
    "memory": "Notes of long-term memory.",
    "stream": "Event streams and push notifications of the chat widget.",
    "dashboard": "Operations of the dashboard, for operators.",
    "description": "The OpenAPI description of this interface.",
}

_OF = {
    "name": "session_id", "in": "query",
    "description": "id of the conversation; required for API keys, ignored for visitors",
    "schema": {"type": "string", "format": "uuid"},
}  # fmt: skip

_COMMANDS = commands_for(channel="web", audience="personal", demo=True, speaks=True)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of these operations; takes a moment, since it builds every model."""
    described = [one for one in operations if one.group]
    bodies = {one: kind for one in described if (kind := _find_body(one)) is not None}
    sent = [Error, *(kind for one in described for kind in (*one.answers.values(), *one.events.values()))]
    inputs: list[Any] = [(id(kind), "serialization", TypeAdapter(kind)) for kind in sent if kind]
    inputs += [(id(kind), "validation", TypeAdapter(kind)) for kind in bodies.values()]
    found, shared = TypeAdapter.json_schemas(inputs, ref_template=REF, schema_generator=Untitled)
    schemas = {number: schema for (number, _), schema in found.items()}
    components = shared["$defs"]
    for schema in components.values():
        _describe_defaults(schema)
    if "CommandCall" in components:
        _add_arguments(components["CommandCall"]["properties"])
    paths: dict[str, dict[str, Any]] = {}
    for one in described:
        place, method = paths.setdefault(one.path, {}), one.method.lower()
        body = schemas.get(id(bodies[one])) if one in bodies else None
        told = _describe_operation(one, schemas, body)
        place[method] = _merge_operations(place[method], told) if method in place else told
    return {
        "openapi": VERSION,
        "info": {
            "title": "Evertalk",
            "version": "1",
            "description": "Conversations that never end. Every error has the shape `Error`.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": told} for name, told in _GROUPS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "visitor": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Token of a visitor, as `hello` or `POST /recover` returns it.",
                },
                "key": {"type": "http", "scheme": "bearer", "description": _describe_key()},
                "operator": {"type": "apiKey", "in": "cookie", "name": "evertalk_operator"},
            },
        },
    }


def _describe_defaults(schema: Schema) -> None:
    """Move the defaults of fields to their descriptions.

    Client generators would treat a field with a default as required.
    """
    for shape in schema.get("properties", {}).values():
        default = shape.pop("default", None)
        if default:
            words = shape.get("description", "")
            shape["description"] = f"{words}; default {default!r}" if words else f"default {default!r}"


def _find_body(one: Operation) -> Any:
    """Return the type of the whole body: a named shape, or a model of the handler's fields.

    None without a body.
    """
    inside = [each for each in arguments_of(one) if each.place == "body"]
    shape = next((each.shape for each in inside if each.shape is not None), None)
    if shape is not None:
        return shape.of
    return model_of.__wrapped__(one, body=True) if inside else None


def _describe_operation(one: Operation, schemas: Mapping[int, Schema], body: Schema | None) -> dict[str, Any]:
    """Return the description of one operation."""
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "description": "\n\n".join(filter(None, (one.description, _describe_callers(one)))),
        "tags": [one.group],
        "security": _describe_security(one),
        "responses": {**_describe_answers(one, schemas), **_describe_refusals(one, body)},
    }
    if parameters := _describe_parameters(one):
        described["parameters"] = parameters
    if one.takes != JSON:
        body = {"type": "string", "format": "binary"}
    if body is not None:
        described["requestBody"] = {"required": True, "content": {one.takes: {"schema": body}}}
    return described


def _merge_operations(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return one description for two operations at the same address, for its visitor and for operators."""
    parameters = {(each["in"], each["name"]): each for each in first["parameters"]}
    for each in second["parameters"]:
        known = parameters.setdefault((each["in"], each["name"]), each)
        if known["schema"] != each["schema"]:
            known["schema"] = {"anyOf": [known["schema"], each["schema"]]}
    ok, theirs = (each["responses"]["200"]["content"] for each in (first, second))
    for media in ok:
        if ok[media] != theirs[media]:
            ok[media] = {"schema": {"anyOf": [ok[media]["schema"], theirs[media]["schema"]]}}
    return {
        **first,
        "description": f"{first['description']}\n\n{second['summary']} {second['description']}",
        "security": [*first["security"], *second["security"]],
        "parameters": list(parameters.values()),
    }


def _describe_callers(one: Operation) -> str:
    """Return the sentence that says who may call an operation."""
    may = ["everyone"] if one.anyone else []
    may += ["visitors, in their own conversation"] if one.visitor else []
    may += [f"API keys with the scope `{one.scope}`"] if one.scope else []
    may += [f"operators with the role {one.role} or higher"] if one.role else []
    return f"Allowed for {'; '.join(may)}."


def _describe_security(one: Operation) -> list[dict[str, list[str]]]:
    ways: list[dict[str, list[str]]] = [{}] if one.anyone else []
    ways += [{"visitor": []}] if one.visitor else []
    ways += [{"key": [one.scope]}] if one.scope else []
    return [*ways, {"operator": [one.role]}] if one.role else ways


def _describe_parameters(one: Operation) -> list[dict[str, Any]]:
    asked = {each.wire_name: each.place for each in arguments_of(one) if each.place != "body"}
    parameters: list[dict[str, Any]] = [_OF] if one.names_session else []
    if not asked:
        return parameters
    schema = model_of.__wrapped__(one, body=False).model_json_schema(schema_generator=Untitled)
    for name, place in asked.items():
        shape = _simplify_parameter(schema["properties"][name])
        if (one.name, place) == ("runCommand", "path"):
            shape["enum"] = [command.name for command in _COMMANDS]
        words = shape.pop("description", "")
        parameters.append({"name": name, "in": place, "description": words, "schema": shape})
        if place == "path" or name in schema.get("required", ()):
            parameters[-1]["required"] = True
    return parameters


def _simplify_parameter(schema: Schema) -> Schema:
    """Return the schema of a parameter without null and default."""
    shape = {key: value for key, value in schema.items() if key != "default"}
    kinds = [kind for kind in shape.pop("anyOf", ()) if kind != {"type": "null"}]
    return shape | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _describe_answers(one: Operation, schemas: Mapping[int, Schema]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status, kind in one.answers.items():
        types = (one.media,) if isinstance(one.media, str) else one.media
        content: Schema = {
            media: {"schema": schemas[id(kind)] if kind else _describe_file(media)} for media in types
        }
        told = {201: "made", 202: "accepted; the answer comes"}.get(status, "done")
        if one.events and status == min(one.answers):
            content[_EVENTS] = {"schema": {"type": "string"}}
            events = (f"`{event}` ({kind.__name__})" for event, kind in one.events.items())
            told = f"{told}; as events: {', '.join(events)}"
        answers[str(status)] = {"description": told, "content": content}
    return answers


def _describe_file(media: str) -> Schema:
    """Return the schema of a file: text, a JSON object with any fields, or bytes."""
    if media == JSON:
        return {"type": "object", "additionalProperties": True, "description": "the file as one JSON object"}
    return {"type": "string"} if media.startswith("text/") else {"type": "string", "format": "binary"}


def _describe_refusals(one: Operation, body: Schema | None) -> dict[str, Any]:
    statuses = {400, 403, 408, 429, 503, *one.refusals}
    statuses |= set() if one.anyone and one.scope is None else {401}
    statuses |= {413, 415} if body or one.takes != JSON else set()
    error = {JSON: {"schema": {"$ref": REF.format(model="Error")}}}
    return {str(status): {"description": _REFUSED[status], "content": error} for status in sorted(statuses)}


def _add_arguments(fields: dict[str, Schema]) -> None:
    """Add the arguments of all commands to the schema of their common body; descriptions name the command."""
    for command in _COMMANDS:
        for name, kind in command.schema().items():
            told = f"/{command.name}: {kind.pop('description')}"
            known = fields.get(name)
            fields[name] = (
                {**kind, "description": told}
                if known is None
                else {"type": known["type"], "description": f"{known['description']}; {told}"}
            )


def _describe_key() -> str:
    scopes = "\n".join(f"* `{scope}`: {told}" for scope, told in SCOPES.items())
    return f"a key of `./evertalk key create`, with scopes:\n\n{scopes}"
