"""Reads what the log shows in part only: for a tool of its own, and for the one that recalls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from shared.core.session.artifacts import (
    OPEN_ARTIFACT,
    OPENED_PER_TURN,
    ArtifactNotReadable,
    portion,
    portion_text,
)
from shared.ports import TokenCounter, ToolContext, ToolFailed, ToolSpec

FIND_CHARS = 200


class ArtifactStore(Protocol):
    async def open_artifact(
        self, session_id: int, artifact: str, *, turn: int, call_id: str
    ) -> tuple[str | None, int]: ...


class ArtifactReader:
    """Portions of what belongs to the session that asks."""

    def __init__(self, store: ArtifactStore, counter: TokenCounter) -> None:
        self._store = store
        self._counter = counter

    async def read(self, artifact: str, *, offset: object, find: str, context: ToolContext) -> str:
        """A portion as the model reads it; raises ToolFailed."""
        try:
            return await self._read(artifact.strip(), _offset(offset), find[:FIND_CHARS], context)
        except ArtifactNotReadable as error:
            raise ToolFailed(error.advice) from error

    async def _read(self, artifact: str, offset: int, find: str, context: ToolContext) -> str:
        body, opened = await self._store.open_artifact(
            context.session_id, artifact, turn=context.turn, call_id=context.call_id
        )
        if body is None:
            raise ArtifactNotReadable(
                f"This conversation has no artifact {artifact}. Use an id that stands in a shortened text."
            )
        if context.flush_id is None and opened >= OPENED_PER_TURN:
            raise ArtifactNotReadable(
                f"{OPENED_PER_TURN} portions were read for this message already, which is the most. "
                "Answer with what you have, or ask the person which part matters."
            )
        # Counting a long portion takes a while, which others need not wait for.
        shown = await asyncio.to_thread(
            portion, body, offset=offset, find=find, count=self._counter.count_tokens
        )
        return portion_text(artifact, body, shown)


class OpenArtifactTool:
    """Reads on where the log shows head and tail; the notice there names this tool."""

    spec: ToolSpec = OPEN_ARTIFACT
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, reader: ArtifactReader) -> None:
        self._reader = reader

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        return await self._reader.read(
            str(arguments.get("id", "")),
            offset=arguments.get("offset"),
            find=str(arguments.get("find") or ""),
            context=context,
        )


def _offset(raw: object) -> int:
    if raw is None:
        return 0
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ArtifactNotReadable(f"`offset` is {raw!r}; it must be a whole number of characters.")
    return raw
