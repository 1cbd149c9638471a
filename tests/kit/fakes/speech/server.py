"""The fake of `/v1/audio/speech`: checks requests as OpenAI does.

The "speech" is a valid audio header followed by the words themselves.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from tests.kit.fakes.scripted_api import ScriptedApi, has_key

FIELDS = frozenset({"model", "voice", "input", "response_format"})
MODELS, VOICES = ("gpt-4o-mini-tts", "tts-1"), ("alloy", "nova")
MOST_CHARS = 4_096
_SILENCE = (b"\xff\xfb\x90\x64" + bytes(413)) * 200
"""Frames of an MP3 file that browsers play for five seconds."""
_MAGIC = {"opus": ("audio/ogg", b"OggS"), "mp3": ("audio/mpeg", _SILENCE)}


class SpeechApi(ScriptedApi):
    """A strict fake of `/v1/audio/speech`."""

    path = "/v1/audio/speech"
    actions = frozenset({"status", "message", "retry_after", "latency", "cut", "body"})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        wish = await request.json()
        self.asked.append(wish)
        action = self.next_action()
        await asyncio.sleep(action.get("latency", 0))
        status, message = _refusal(request, wish)
        if status := action.get("status", status):
            headers = {"Retry-After": str(action["retry_after"])} if "retry_after" in action else {}
            error = {"message": action.get("message", message), "type": "invalid_request_error", "code": None}
            return web.json_response({"error": error}, status=status, headers=headers)
        kind, magic = _MAGIC[wish["response_format"]]
        body = action["body"].encode() if "body" in action else magic + wish["input"].encode()
        if not action.get("cut"):
            return web.Response(body=body, content_type=kind)
        cut = web.StreamResponse(headers={"Content-Length": str(len(body) + 10)})
        await cut.prepare(request)
        await cut.write(body)
        assert request.transport is not None
        request.transport.close()
        return cut


def _refusal(request: web.Request, wish: dict[str, Any]) -> tuple[int, str]:
    if not has_key(request):
        return 401, "Incorrect API key provided."
    if strange := wish.keys() - FIELDS:
        return 400, f"Unrecognized request argument supplied: {sorted(strange)}"
    if missing := FIELDS - wish.keys():
        return 400, f"you must provide {sorted(missing)}"
    if wish["model"] not in MODELS:
        return 404, "The model does not exist or you do not have access to it."
    if wish["voice"] not in VOICES or wish["response_format"] not in _MAGIC:
        return 400, "Invalid value: voice or response_format"
    if not isinstance(wish["input"], str) or not 1 <= len(wish["input"]) <= MOST_CHARS:
        return 400, "input: string too long, or empty"
    return 0, ""
