"""Checks a request as OpenAI does; every picture is the same blue square."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

from aiohttp import web
from openai.types.image_generate_params import ImageGenerateParamsNonStreaming
from PIL import Image
from pydantic import TypeAdapter, ValidationError

KEY = "a-key-for-the-fake"
ACTIONS = frozenset({"status", "latency", "body", "message", "by_address"})
_WISH: TypeAdapter[ImageGenerateParamsNonStreaming] = TypeAdapter(ImageGenerateParamsNonStreaming)


class ImagesApi:
    """A strict stand-in for `/v1/images/generations`; `/control/next` tells how the next requests end."""

    def __init__(self) -> None:
        self._next: list[dict[str, Any]] = []
        self._asked: list[dict[str, Any]] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/images/generations", self._make)
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

    async def _make(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _refusal(401, "Incorrect API key provided")
        wish = await request.json()
        if (objection := _objection(wish)) is not None:
            return _refusal(400, objection)
        self._asked.append(wish)
        action = self._next.pop(0) if self._next else {}
        await asyncio.sleep(action.get("latency", 0))
        if "status" in action:
            return _refusal(action["status"], action.get("message", "as the script wants it"))
        if "body" in action:
            return web.Response(text=action["body"], content_type="application/json")
        encoded = base64.b64encode(_square()).decode()
        one = {"url": "http://127.0.0.1:9/x.png"} if action.get("by_address") else {"b64_json": encoded}
        return web.Response(text=json.dumps({"created": 1, "data": [one]}), content_type="application/json")


def _square() -> bytes:
    body = io.BytesIO()
    Image.new("RGB", (64, 48), "blue").save(body, "PNG")
    return body.getvalue()


def _objection(wish: Any) -> str | None:
    try:
        _WISH.validate_python(wish, strict=True)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    if unknown := wish.keys() - {"model", "prompt", "n", "size", "response_format"}:
        return f"Unknown parameter: {min(unknown)!r}."
    if wish["model"].startswith("gpt-image") and "response_format" in wish:
        return "Unknown parameter: 'response_format'."
    return None


def _refusal(status: int, message: str) -> web.Response:
    told = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    return web.json_response(told, status=status)
