"""The fake of `/v1/images/generations`: checks requests as OpenAI does.

Every picture is the same blue rectangle.
"""

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

from tests.kit.fakes.scripted_api import ScriptedApi, has_key

_WISH: TypeAdapter[ImageGenerateParamsNonStreaming] = TypeAdapter(ImageGenerateParamsNonStreaming)


class ImagesApi(ScriptedApi):
    """A strict fake of `/v1/images/generations`."""

    path = "/v1/images/generations"
    actions = frozenset({"status", "latency", "body", "message", "by_address"})

    async def answer(self, request: web.Request) -> web.Response:
        if not has_key(request):
            return _refusal(401, "Incorrect API key provided")
        wish = await request.json()
        if (objection := _objection(wish)) is not None:
            return _refusal(400, objection)
        self.asked.append(wish)
        action = self.next_action()
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
