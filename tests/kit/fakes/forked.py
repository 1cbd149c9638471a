"""Stand-ins as processes of their own, each a fork of one that has read their code."""

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
    """`python -m tests.kit.fakes.push …` with only its output kept for us."""
    return _fakes().fork(module, arguments)


async def run(module: str, arguments: Sequence[str]) -> Hatched:
    """The same, for who awaits."""
    return await (await asyncio.to_thread(_fakes)).run(module, arguments)


def _fakes() -> Hatchery:
    return hatchery(*(f"tests.kit.fakes.{kind}.server" for kind in _KINDS))
