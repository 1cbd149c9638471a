"""The fake of `/v1/embeddings`: checks requests as OpenAI does.

Two texts get vectors the closer the more words they share.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

from aiohttp import web
from openai.types import CreateEmbeddingResponse, Embedding
from openai.types.create_embedding_response import Usage
from openai.types.embedding_create_params import EmbeddingCreateParams
from pydantic import TypeAdapter, ValidationError

from tests.kit.fakes.encoder import SAME
from tests.kit.fakes.scripted_api import ScriptedApi, has_key

MODEL = "text-embedding-3-small"
DIMENSIONS = 256
MOST_INPUTS = 2_048
REFUSED, HANGS = "refused-text", "hanging-text"
"""Texts at which the server refuses a request (`REFUSED`) or never answers (`HANGS`)."""
_WISH: TypeAdapter[EmbeddingCreateParams] = TypeAdapter(EmbeddingCreateParams)
_PARAMETERS = frozenset({"input", "model", "dimensions", "encoding_format", "user"})


class EmbeddingsApi(ScriptedApi):
    """A strict fake of `/v1/embeddings`."""

    path = "/v1/embeddings"
    actions = frozenset({"status", "latency", "body", "dimensions", "backwards", "without_last", "cut"})

    def __init__(self) -> None:
        super().__init__()
        self._model: dict[str, Any] = {"name": MODEL, "dimensions": DIMENSIONS, "salt": ""}

    def application(self) -> web.Application:
        app = super().application()
        app.router.add_post("/control/model", self._change_model)
        return app

    async def _change_model(self, request: web.Request) -> web.Response:
        """Change the served model's name, dimensions or salt for later requests."""
        self._model |= await request.json()
        return web.json_response({})

    async def answer(self, request: web.Request) -> web.Response:
        action = self.next_action()
        if not has_key(request):
            return _refusal(401, "Incorrect API key provided")
        wish = await request.json()
        if (objection := _objection(wish)) is not None:
            return _refusal(400, objection)
        self.asked.append(wish)
        await asyncio.sleep(action.get("latency", 0))
        if "status" in action:
            return _refusal(action["status"], "as the script wants it")
        if "body" in action:
            return web.Response(text=action["body"], content_type="application/json")
        if any(REFUSED in text for text in wish["input"]):
            return _refusal(400, "the input is too long")
        if any(HANGS in text for text in wish["input"]):
            await asyncio.sleep(3_600)
        dimensions, salt = action.get("dimensions", self._model["dimensions"]), self._model["salt"]
        vectors = [_vector(text, dimensions, salt) for text in wish["input"]]
        rows = [Embedding(embedding=of, index=at, object="embedding") for at, of in enumerate(vectors)]
        rows = rows[:-1] if action.get("without_last") else rows
        told = CreateEmbeddingResponse(
            data=rows[::-1] if action.get("backwards") else rows,
            model=self._model["name"],
            object="list",
            usage=Usage(prompt_tokens=1, total_tokens=1),
        )
        text = told.model_dump_json()
        if "cut" in action:
            return web.Response(text=text[: len(text) // 2], content_type="application/json")
        return web.Response(text=text, content_type="application/json")


def _objection(wish: Any) -> str | None:
    try:
        _WISH.validate_python(wish, strict=True)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    if unknown := wish.keys() - _PARAMETERS:
        return f"Unknown parameter: {min(unknown)!r}."
    if wish["model"] != MODEL:
        return "The model does not exist or you do not have access to it."
    texts = wish["input"]
    if not isinstance(texts, list) or not 0 < len(texts) <= MOST_INPUTS:
        return f"'$.input' must be a list of 1 to {MOST_INPUTS} texts."
    return None if all(isinstance(text, str) and text for text in texts) else "'$.input' is invalid."


def _vector(text: str, dimensions: int, salt: str) -> list[float]:
    """Return the vector of a text: each word adds 1 at a place found from a hash of its meaning.

    The first place holds a small value for every text.
    """
    vector = [0.01, *([0.0] * (dimensions - 1))]
    for word in re.findall(r"\w+", text.casefold()):
        meaning = next((same[0] for same in SAME if word in same), word)
        digest = hashlib.sha256(f"{salt}{meaning}".encode()).digest()
        vector[int.from_bytes(digest[:4]) % dimensions] += 1.0
    return vector


def _refusal(status: int, message: str) -> web.Response:
    told = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    return web.json_response(told, status=status)
