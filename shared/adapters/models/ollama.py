"""Finds an Ollama that runs on this machine, so that it can be offered; it serves the Messages API itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from shared.adapters.models.catalog import ModelEntry
from shared.ports import Prices

OLLAMA_URL = "http://127.0.0.1:11434"
SEARCH_SECONDS = 0.3
_FREE = Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0, dated="runs on this machine")
_CLOUD_SUFFIX = "-cloud"
_EMBEDDERS = ("embed", "bert", "minilm", "bge-")


async def find_ollama(
    base_url: str = OLLAMA_URL, *, seconds: float = SEARCH_SECONDS
) -> tuple[ModelEntry, ...]:
    """Its chat models, newest first; empty when none runs. Never raises."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.get(f"{base_url}/api/tags", allow_redirects=False) as response,
        ):
            told = await response.json(content_type=None) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return ()
    models = told.get("models") if isinstance(told, Mapping) else None
    found = [model for model in models or () if isinstance(model, Mapping) and model.get("name")]
    found.sort(key=lambda model: str(model.get("modified_at", "")), reverse=True)
    return tuple(_entry(str(model["name"]), base_url) for model in found if not _only_embeds(model))


def _entry(name: str, base_url: str) -> ModelEntry:
    """What runs in Ollama's cloud has a price that it does not tell."""
    return ModelEntry(
        name=name,
        base_url=base_url,
        prices=None if name.endswith(_CLOUD_SUFFIX) else _FREE,
        capabilities=frozenset({"tools"}),
    )


def _only_embeds(model: Mapping[str, Any]) -> bool:
    details = model.get("details")
    family = str(details.get("family", "")) if isinstance(details, Mapping) else ""
    words = f"{model['name']} {family}".lower()
    return any(sign in words for sign in _EMBEDDERS)
