"""`/api/v1/openapi.json`: the interface described from the table of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from shared.core.identity.api_keys import SCOPES
from web.api.responses import json_reply
from web.api.spec.operation import COMMAND, V1, Operation, Parameter
from web.api.spec.operations import OPERATIONS
from web.api.spec.schemas import SCHEMAS
from web.api.spec.shapes import CID, ID, Schema, ref, words
from web.parts import PARTS, CommandShown

OPENAPI = f"{V1}/openapi.json"
VERSION = "3.1.0"
_JSON, _EVENTS = "application/json", "text/event-stream"
_REFUSED = {
    400: "the request cannot be used",
    401: "nobody known asks",
    403: "not for this caller",
    404: "not found, or not for this caller",
    408: "it took too long",
    409: "something else happened meanwhile",
    410: "it is gone for good",
    413: "too large",
    415: "the body is not what is taken here",
    422: "understood, and not possible",
    428: "say which version you have read",
    429: "too often; see Retry-After",
    503: "not just now; see Retry-After",
}
_GROUPS = {
    "conversations": "Conversations of visitors, and of people whom your program brings.",
    "commands": "What people type as /words.",
    "files": "Pictures, texts, PDF, office files and e-books of a conversation.",
    "memory": "What is remembered of a person.",
    "stream": "What the chat on a page needs beside its WebSocket.",
    "dashboard": "For operators who are logged in.",
    "description": "This description.",
}


async def openapi(request: web.Request) -> web.StreamResponse:
    return await json_reply(request, document(request.app[PARTS].command_table))


def document(commands: Sequence[CommandShown]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, commands)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Evertalk",
            "version": "1",
            "description": "Conversations that never end. Errors have one shape everywhere: `Error`.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": told} for name, told in _GROUPS.items()],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, "CommandCall": _command_call(commands)},
            "securitySchemes": {
                "visitor": {"type": "http", "scheme": "bearer", "description": "a visitor's token"},
                "key": {"type": "http", "scheme": "bearer", "description": _key_words()},
                "operator": {"type": "apiKey", "in": "cookie", "name": "evertalk_operator"},
            },
        },
    }


def _operation(one: Operation, commands: Sequence[CommandShown]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.told,
        "description": "\n\n".join(filter(None, (one.more, _who(one)))),
        "tags": [one.group],
        "security": _security(one),
        "responses": {**_answers(one), **_refusals(one)},
    }
    if one.parameters:
        described["parameters"] = [_parameter(each, commands) for each in one.parameters]
    if one.body:
        described["requestBody"] = {"required": True, "content": {one.takes: {"schema": ref(one.body)}}}
    return described


def _who(one: Operation) -> str:
    may = ["anyone"] if one.anyone else []
    may += ["a visitor, of their own conversation"] if one.visitor else []
    may += [f"a key with `{one.scope}`"] if one.scope else []
    may += [f"an operator, from the role {one.role} on"] if one.role else []
    return f"For {'; '.join(may)}."


def _security(one: Operation) -> list[dict[str, list[str]]]:
    ways: list[dict[str, list[str]]] = [{}] if one.anyone else []
    ways += [{"visitor": []}] if one.visitor else []
    ways += [{"key": [one.scope]}] if one.scope else []
    return [*ways, {"operator": [one.role]}] if one.role else ways


def _parameter(one: Parameter, commands: Sequence[CommandShown]) -> dict[str, Any]:
    schema = dict(one.schema)
    if one is COMMAND:
        schema["enum"] = [command.name for command in commands]
    return {
        "name": one.name, "in": one.place, "description": one.told, "schema": schema,
        **({"required": True} if one.place == "path" else {}),
    }  # fmt: skip


def _answers(one: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status, name in one.answers.items():
        content = {one.media: {"schema": _either(name)} if name else {}}
        if one.events and status == min(one.answers):
            content[_EVENTS] = {"schema": {"type": "string"}}
        answers[str(status)] = {"description": _said(one, status), "content": content}
    return answers


def _said(one: Operation, status: int) -> str:
    told = {201: "made", 202: "accepted; the answer comes"}.get(status, "done")
    if not one.events or status != min(one.answers):
        return told
    events = ", ".join(f"`{event}` ({schema})" for event, schema in one.events.items())
    return f"{told}; as events: {events}"


def _either(names: str) -> Schema:
    schemas = [ref(name) for name in names.split("|")]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _refusals(one: Operation) -> dict[str, Any]:
    statuses = {400, 403, 408, 429, 503, *one.refusals}
    statuses |= set() if one.anyone and one.scope is None else {401}
    statuses |= {413, 415} if one.body else set()
    error = {_JSON: {"schema": ref("Error")}}
    return {str(status): {"description": _REFUSED[status], "content": error} for status in sorted(statuses)}


def _command_call(commands: Sequence[CommandShown]) -> Schema:
    """One shape for all: which arguments are whose, `GET /api/v1/commands` says and each description here."""
    fields: dict[str, Schema] = {}
    for command in commands:
        for argument in command.arguments:
            kind = argument.schema()
            told = f"/{command.name}: {kind.pop('description')}"
            known = fields.get(argument.name)
            fields[argument.name] = (
                {**kind, "description": told}
                if known is None
                else {"type": known["type"], "description": f"{known['description']}; {told}"}
            )
    return {
        "type": "object",
        "properties": {"session_id": ID, "cid": CID, "args": words(2_000), **fields},
        "required": ["session_id"],
        "additionalProperties": False,
    }


def _key_words() -> str:
    scopes = "\n".join(f"* `{scope}`: {told}" for scope, told in SCOPES.items())
    return f"a key of `./evertalk key create`, with scopes:\n\n{scopes}"
