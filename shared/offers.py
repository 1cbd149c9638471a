"""Which model answers with these settings, and what else runs on this machine that could."""

from __future__ import annotations

import asyncio
import contextlib
import json
from urllib.parse import urlsplit

from shared.settings import Settings

OLLAMA_URL = "http://127.0.0.1:11434"
_PROBE_SECONDS = 0.5
_LONGEST_ANSWER_BYTES = 1024 * 1024


async def who_answers(settings: Settings) -> list[tuple[str, str]]:
    """Lines for people, each with its label."""
    if settings.models_file is not None:
        return [("Answers", f"{settings.model or 'the first model'} of {settings.models_file}")]
    if settings.anthropic_api_key is not None or settings.anthropic_base_url is not None:
        provider = settings.anthropic_base_url or "Anthropic"
        return [("Answers", f"{settings.model or 'the default model'} by {provider}")]
    lines = [("Answers", "the offline model, a demo without intelligence; ./evertalk setup adds a real one")]
    if models := await ollama_models():
        lines.append(("", f"Ollama runs here ({', '.join(models[:3])}); ./evertalk setup can use it"))
    return lines


async def ollama_models(base_url: str = OLLAMA_URL) -> list[str]:
    """Names of the models that a local Ollama has; empty when there is none."""
    address = urlsplit(base_url)
    with contextlib.suppress(OSError, TimeoutError, ValueError, KeyError, TypeError):
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                # HTTP/1.0 keeps the answer in one piece.
                writer.write(f"GET /api/tags HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n".encode())
                answer = await reader.read(_LONGEST_ANSWER_BYTES)
            finally:
                writer.close()
        _, _, body = answer.partition(b"\r\n\r\n")
        return [str(model["name"]) for model in json.loads(body)["models"]]
    return []
