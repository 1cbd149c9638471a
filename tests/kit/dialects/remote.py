"""Model at a dialect server, without the running system."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from shared.adapters.models import ModelEntry
from shared.adapters.models.catalog import Wire
from shared.adapters.models.openai_provider import OpenAIProvider, ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.ports import ModelReply
from tests.kit.dialects.server import JSON, STREAM, Answer, DialectServer, dialect_server, events
from tests.kit.model_makers import SAVE, HandClock, Listener, WordCounter, asking, impatient

KINDS = {"openai": OpenAIProvider, "messages": Provider, "responses": ResponsesProvider}
_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda text: gzip.compress(text),
    "deflate": lambda text: zlib.compress(text),
}


@asynccontextmanager
async def model_at(
    *answers: Answer, wire: Wire = "openai", tags: dict[str, str] | None = None
) -> AsyncIterator[tuple[RemoteModel, DialectServer]]:
    """Yield a model whose server returns these answers in turn, the last one repeatedly, and the server."""
    left = list(answers)

    def reply(_: Any) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    async with dialect_server(reply) as server:
        provider = KINDS[wire](base_url=server.url, api_key="k", foreign=True, clock=HandClock())
        entry = ModelEntry(name="m", wire=wire, window=100_000, thought_tags=tags or {})
        model = RemoteModel(entry, provider, WordCounter(), patience=impatient())
        try:
            yield model, server
        finally:
            await model.close()


async def ask(model: RemoteModel) -> tuple[ModelReply, str]:
    """Ask a question; return the reply and the text that the person saw at its end."""
    heard = Listener()
    reply = await model.reply(asking("When does it open?", tools=(SAVE,)), on_text=heard)
    return reply, heard.text(max(heard.pieces, default=1))


def build_answer(told: dict[str, Any]) -> Answer:
    """Return the answer that a row of `conformance.json` describes."""
    status, content_type = told.get("status", 200), told.get("content_type", STREAM)
    if "chunks" in told:
        return Answer(status=status, content_type=content_type, chunks=told["chunks"])
    if "chunks_hex" in told:
        chunks = [bytes.fromhex(chunk) for chunk in told["chunks_hex"]]
        return Answer(status=status, content_type=content_type, chunks=chunks)
    if "json" in told:
        return Answer(
            status=status, content_type=told.get("content_type", JSON), body=json.dumps(told["json"])
        )
    text = told["raw"] if "raw" in told else events(*told["events"], done=told["done"])
    packed = told.get("encoding")
    if packed is None:
        return Answer(status=status, content_type=content_type, body=text)
    headers = {"Content-Encoding": packed}
    return Answer(
        status=status, content_type=content_type, body=_PACKED[packed](text.encode()), headers=headers
    )
