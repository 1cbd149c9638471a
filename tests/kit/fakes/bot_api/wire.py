"""Reads a call of the Bot API from any HTTP method and any encoding that Telegram accepts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from aiohttp import BodyPartReader, web

from tests.kit.fakes.bot_api.refusals import Refusal, misuse
from tests.kit.fakes.bot_api.shapes import Json

MAX_UPLOAD_BYTES = 50 * 1024 * 1024
MAX_FIELD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The parameters of a call before they are checked, and its uploads by the name of their form part."""

    values: Json = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)


async def read_call(request: web.Request) -> Sent:
    """Return the parameters and uploads of a request.

    Raises Refusal if the body is malformed or too large.
    """
    values: Json = dict(request.query)
    uploads: dict[str, Upload] = {}
    match request.content_type:
        case "application/json":
            values.update(_object(await request.read()))
        case "multipart/form-data":
            await _read_parts(request, values, uploads)
        case _:
            values.update(_form(await request.read()))
    # Telegram treats an empty parameter as one that is missing.
    kept = {name: value for name, value in values.items() if value not in ("", None)}
    written = json.dumps(kept, default=str)
    for name in uploads:
        if f"attach://{name}" not in written:
            kept[name] = f"attach://{name}"
    return Sent(values=kept, uploads=uploads)


def _object(raw: bytes) -> Json:
    if not raw:
        return {}
    try:
        found = json.loads(raw)
    except ValueError:
        raise misuse("can't parse JSON object") from None
    if not isinstance(found, dict):
        raise misuse("object expected as the request's body")
    return found


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise misuse("strings must be encoded in UTF-8") from None


def _form(raw: bytes) -> Json:
    return dict(parse_qsl(_text(raw), keep_blank_values=True))


async def _read_parts(request: web.Request, values: Json, uploads: dict[str, Upload]) -> None:
    total = 0
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader) or part.name is None:
            raise misuse("a part of the form has no name")
        limit = MAX_FIELD_BYTES if part.filename is None else MAX_UPLOAD_BYTES
        content = bytearray()
        while chunk := await part.read_chunk(65_536):
            content += chunk
            total += len(chunk)
            if len(content) > limit or total > 2 * MAX_UPLOAD_BYTES:
                raise Refusal("", status=413, violation=True)
        if part.filename is None:
            values[part.name] = _text(bytes(content))
            continue
        media_type = part.headers.get("Content-Type", "application/octet-stream")
        uploads[part.name] = Upload(name=part.filename, media_type=media_type, content=bytes(content))
