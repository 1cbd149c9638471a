"""Runs the fakes as processes that are forked from one process with their code already imported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.kit.deployment.forks import Forked, Hatched, Hatchery, hatchery

_KINDS = (
    "bot_api",
    "chat_completions",
    "embeddings",
    "images",
    "messages_api",
    "oidc",
    "push",
    "rerank",
    "responses",
    "speech",
    "strict_proxy",
    "transcriptions",
)


def fork(module: str, arguments: Sequence[str]) -> Forked:
    """Start a fake as `python -m module arguments` would, and return its process."""
    return _fakes().fork(module, arguments)


async def run(module: str, arguments: Sequence[str]) -> Hatched:
    """Do the same as `fork` from asynchronous code."""
    return await (await asyncio.to_thread(_fakes)).run(module, arguments)


def _fakes() -> Hatchery:
    return hatchery(*(f"tests.kit.fakes.{kind}.server" for kind in _KINDS))
