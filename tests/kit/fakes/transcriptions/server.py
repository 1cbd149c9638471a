"""The fake of `/v1/audio/transcriptions`: checks a request as a real service does, and returns the
recording's words.
"""

from __future__ import annotations

import asyncio
import io
import re
from typing import Any

from aiohttp import BodyPartReader, web

from tests.kit.fakes.scripted_api import ScriptedApi, has_key
from tests.kit.fakes.transcriptions.recordings import MAGIC

MODELS = "whisper-1", "gpt-4o-transcribe"
FIELDS = frozenset({"file", "model", "response_format", "language"})
MOST_BYTES = 25 * 1024 * 1024
_SAID, _SECONDS = re.compile(rb"SAY<(.*?)>", re.DOTALL), re.compile(rb"SECONDS<([\d.]+)>")


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TranscriptionsApi(ScriptedApi):
    """A strict fake of `/v1/audio/transcriptions`."""

    path = "/v1/audio/transcriptions"
    actions = frozenset(
        {"status", "message", "retry_after", "latency", "cut", "body", "pad", "text", "seconds"}
    )
    most_bytes = MOST_BYTES + 65_536

    async def answer(self, request: web.Request) -> web.StreamResponse:
        action = self.next_action()
        try:
            fields = await _fields(request)
            content = fields.pop("file")
            told = {name: value.decode() for name, value in fields.items()}
            self.asked.append({**told, "size": len(content)})
            await asyncio.sleep(action.get("latency", 0))
            if status := action.get("status"):
                raise Refused(status, action.get("message", "as the script wants it"))
            if told["model"] != "whisper-1" and told.get("response_format") == "verbose_json":
                raise Refused(400, "response_format 'verbose_json' is not compatible with this model.")
        except Refused as refused:
            error = {"message": str(refused), "type": "invalid_request_error", "code": None}
            wait = action.get("retry_after")
            headers = {} if wait is None else {"Retry-After": str(wait)}
            return web.json_response({"error": error}, status=refused.status, headers=headers)
        return await _answer(request, content, told, action)


async def _answer(
    request: web.Request, content: bytes, told: dict[str, str], action: dict[str, Any]
) -> web.StreamResponse:
    if "body" in action:
        body = action["body"].encode() + b" " * action.get("pad", 0)
        return web.Response(body=io.BytesIO(body), content_type="application/json")
    said = _SAID.search(content)
    answer: dict[str, Any] = {"text": action.get("text", said[1].decode() if said else "")}
    if told.get("response_format") == "verbose_json":
        seconds = _SECONDS.search(content)
        answer |= {"task": "transcribe", "language": told.get("language", "english")}
        answer |= {"duration": action.get("seconds", float(seconds[1]) if seconds else 3.0)}
    whole = web.json_response(answer)
    if not action.get("cut"):
        return whole
    cut = web.StreamResponse(headers={"Content-Length": str(len(whole.body) + 10)})  # type: ignore[arg-type]
    await cut.prepare(request)
    await cut.write(whole.body[:5])  # type: ignore[index]
    assert request.transport is not None
    request.transport.close()
    return cut


async def _fields(request: web.Request) -> dict[str, bytes]:
    if not has_key(request):
        raise Refused(401, "Incorrect API key provided.")
    if not request.content_type.startswith("multipart/form-data"):
        raise Refused(400, "the body is no form")
    fields: dict[str, bytes] = {}
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        if part.name not in FIELDS or part.name in fields:
            raise Refused(400, f"Unrecognized request argument supplied: {part.name}")
        fields[part.name] = bytes(await part.read())
        if part.name == "file":
            _check_file(part.filename or "", fields["file"])
    if missing := {"file", "model"} - fields.keys():
        raise Refused(400, f"you must provide {', '.join(sorted(missing))}")
    if fields["model"].decode() not in MODELS:
        raise Refused(404, "The model does not exist or you do not have access to it.")
    if "language" in fields and not re.fullmatch(rb"[a-z]{2}", fields["language"]):
        raise Refused(400, "Invalid language: must be in ISO-639-1 format.")
    if fields.get("response_format", b"json") not in (b"json", b"verbose_json"):
        raise Refused(400, "Invalid response_format.")
    return fields


def _check_file(name: str, content: bytes) -> None:
    ending = name.rpartition(".")[2]
    if ending not in MAGIC:
        raise Refused(400, "Invalid file format. Supported formats: flac, mp3, mp4, ogg, wav, webm")
    if not content:
        raise Refused(400, "Audio file is empty.")
    if len(content) > MOST_BYTES:
        raise Refused(413, "Maximum content size limit exceeded")
    if MAGIC[ending] not in content[:16]:
        raise Refused(400, "Audio file might be corrupted or unsupported")
