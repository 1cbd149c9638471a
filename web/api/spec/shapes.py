"""The words in which shapes of JSON are described: the table of operations and every schema use these."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
SHARE: Schema = {"type": ["number", "null"]}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
ID: Schema = {"type": "string", "format": "uuid"}
SITE_NAME: Schema = {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_\-]{0,63}$"}
FILE_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
MAYBE_NUMBER: Schema = {"type": ["integer", "null"]}
THING: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def listed(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def thing(**fields: Schema) -> Schema:
    """What is sent: these fields are always there; more may come in later versions."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def maybe(schema: Schema, **fields: Schema) -> Schema:
    """With fields that are there at times."""
    return {**schema, "properties": {**schema["properties"], **fields}}


def form(*needed: str, **fields: Schema) -> Schema:
    """What is taken: these fields and no others."""
    shape: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return {**shape, "required": list(needed)} if needed else shape


def words(most: int, *, least: int = 0) -> Schema:
    return {"type": "string", "maxLength": most, **({"minLength": least} if least else {})}


CID: Schema = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9_.:\-]{1,64}$",
    "description": "your own id of this action; sent again, it is the same action",
}
