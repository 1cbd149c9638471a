"""Lists of the models that servers offer, and a search for model servers on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from shared.adapters.bounded_bodies import read_body
from shared.adapters.certificates import describe_failure
from shared.adapters.models.catalog import Wire
from shared.adapters.models.provider import load_trusted_certificates

SEARCH_SECONDS = 0.3
"""Seconds to wait for a server on this machine."""
ASK_SECONDS = 8.0
"""Seconds to wait for a server that was configured."""
_EMBEDDERS = ("embed", "bert", "minilm", "bge-", "rerank")


class ModelListUnavailable(Exception):
    """Raised if a server cannot be reached or has no list of models."""


class KeyRefused(Exception):
    """Raised if a server refuses the key, or requires one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """Program on this machine that serves models."""

    name: str
    """Name of its program."""
    base_url: str
    """Address for `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`, by `wire`."""
    wire: Wire = "openai"
    models: tuple[str, ...] = ()
    """Chat models, newest first."""


KNOWN = (
    # Ollama serves the Messages API, and is asked at the root of its address.
    LocalServer(name="Ollama", base_url="http://127.0.0.1:11434", wire="messages"),
    LocalServer(name="LM Studio", base_url="http://127.0.0.1:1234/v1"),
    LocalServer(name="llama.cpp", base_url="http://127.0.0.1:8080/v1"),
    LocalServer(name="vLLM", base_url="http://127.0.0.1:8000/v1"),
)
"""Programs that serve models on this machine, at their default addresses."""


async def find_local_servers(
    known: Sequence[LocalServer] = KNOWN, *, seconds: float = SEARCH_SECONDS
) -> tuple[LocalServer, ...]:
    """Return the servers of `known` that list a chat model within `seconds`; never raises.

    All are asked at the same time, without a key. Any program may listen at their addresses.
    """
    found = await asyncio.gather(*(_look(server, seconds) for server in known))
    return tuple(server for server in found if server.models)


async def list_models(base_url: str, key: str, *, seconds: float = ASK_SECONDS) -> tuple[str, ...]:
    """Return the chat models of an OpenAI-compatible API, newest first.

    `seconds` limits the whole request; an empty `key` sends none. Raises ModelListUnavailable and KeyRefused.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    patience = aiohttp.ClientTimeout(total=seconds)
    tls = load_trusted_certificates() if base_url.startswith("https:") else True
    try:
        async with (
            aiohttp.ClientSession(timeout=patience, trust_env=bool(key)) as session,
            session.get(
                f"{base_url.rstrip('/')}/models", headers=headers, allow_redirects=False, ssl=tls
            ) as response,
        ):
            if response.status in (401, 403):
                raise KeyRefused(f"{base_url} knows no such key")
            if response.status != 200:
                raise ModelListUnavailable(f"{base_url} answered {response.status} when asked for its models")
            told = json.loads(await read_body(response))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise ModelListUnavailable(f"{base_url} did not answer ({describe_failure(error)})") from error
    listed = told.get("data") if isinstance(told, Mapping) else None
    if not isinstance(listed, list):
        raise ModelListUnavailable(f"{base_url} has no list of models")
    models = [
        one for one in listed if isinstance(one, Mapping) and isinstance(one.get("id"), str) and one["id"]
    ]
    models.sort(key=_made_at, reverse=True)
    return tuple(one["id"] for one in models if not _only_embeds(one["id"]))


async def _look(server: LocalServer, seconds: float) -> LocalServer:
    url = server.base_url if server.wire == "openai" else f"{server.base_url}/v1"
    try:
        models = await list_models(url, "", seconds=seconds)
    except (ModelListUnavailable, KeyRefused):
        models = ()
    return LocalServer(name=server.name, base_url=server.base_url, wire=server.wire, models=models)


def _made_at(model: Mapping[str, object]) -> int:
    made = model.get("created")
    return made if isinstance(made, int) else 0


def _only_embeds(name: str) -> bool:
    return any(sign in name.lower() for sign in _EMBEDDERS)
