"""Reads one call from any verb and any encoding that the Bot API allows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

from tests.fakes.bot_api.refusals import Refusal, misuse
from tests.fakes.bot_api.shapes import Json

MAX_UPLOAD_BYTES = 50 * 1024 * 1024
MAX_FIELD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The parameters as they came, and the uploads by the name of their part."""

    values: Json = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)


async def read_call(request: web.Request) -> Sent:
    values: Json = dict(request.query)
    uploads: dict[str, Upload] = {}
    match request.content_type:
        case "application/json":
            values.update(_object(await request.read()))
        case "multipart/form-data":
            await _read_parts(request, values, uploads)
        case _:
            values.update({name: str(value) for name, value in (await request.post()).items()})
    for name in uploads:
        values.setdefault(name, f"attach://{name}")
    # Telegram takes an empty parameter for one that is not there.
    kept = {name: value for name, value in values.items() if value not in ("", None)}
    _check_attachments(kept, uploads)
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
            values[part.name] = content.decode()
            continue
        media_type = part.headers.get("Content-Type", "application/octet-stream")
        uploads[part.name] = Upload(name=part.filename, media_type=media_type, content=bytes(content))


def _check_attachments(values: Json, uploads: dict[str, Upload]) -> None:
    """Every upload is used, and every attach:// names one."""
    written = json.dumps(values, default=str)
    for name in uploads:
        if f"attach://{name}" not in written:
            raise misuse(f"the uploaded file {name!r} is not used by any parameter")
    for value in values.values():
        if isinstance(value, str) and value.startswith("attach://") and value[9:] not in uploads:
            raise misuse(f"there is no uploaded file {value[9:]!r}")
