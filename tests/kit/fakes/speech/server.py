"""Checks a request as OpenAI does; what it "speaks" are the right first bytes with the words behind them."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

KEY = "a-key-for-the-fake"
FIELDS = frozenset({"model", "voice", "input", "response_format"})
MODELS, VOICES = ("gpt-4o-mini-tts", "tts-1"), ("alloy", "nova")
MOST_CHARS = 4_096
ACTIONS = frozenset({"status", "message", "retry_after", "latency", "cut", "body"})
_SILENCE = (b"\xff\xfb\x90\x64" + bytes(413)) * 200
"""Frames of an MP3 file, which browsers play for five seconds."""
_MAGIC = {"opus": ("audio/ogg", b"OggS"), "mp3": ("audio/mpeg", _SILENCE)}


class SpeechApi:
    """A strict stand-in for `/v1/audio/speech`; `/control/next` tells how the next requests end."""

    def __init__(self) -> None:
        self._next: list[dict[str, Any]] = []
        self._asked: list[dict[str, Any]] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/audio/speech", self._speak)
        app.router.add_post("/control/next", self._script)
        app.router.add_get("/control/requests", self._told)
        return app

    async def _script(self, request: web.Request) -> web.Response:
        self._next = await request.json()
        unknown = {name for one in self._next for name in one} - ACTIONS
        return web.json_response(sorted(unknown), status=400 if unknown else 200)

    async def _told(self, request: web.Request) -> web.Response:
        asked, self._asked = self._asked, []
        return web.json_response(asked)

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        wish = await request.json()
        self._asked.append(wish)
        action = self._next.pop(0) if self._next else {}
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
    if request.headers.get("Authorization") != f"Bearer {KEY}":
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
