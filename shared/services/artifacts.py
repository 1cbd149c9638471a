"""The tool that reads what the log shows in part only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from shared.core.spill import (
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


class OpenArtifact:
    """Reads only what belongs to the session that asks."""

    spec: ToolSpec = OPEN_ARTIFACT
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, store: ArtifactStore, counter: TokenCounter) -> None:
        self._store = store
        self._counter = counter

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        try:
            return await self._read(arguments, context)
        except ArtifactNotReadable as error:
            raise ToolFailed(error.advice) from error

    async def _read(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        artifact = str(arguments.get("id", "")).strip()
        offset, find = _offset(arguments.get("offset")), str(arguments.get("find") or "")[:FIND_CHARS]
        body, opened = await self._store.open_artifact(
            context.session_id, artifact, turn=context.turn, call_id=context.call_id
        )
        if body is None:
            raise ArtifactNotReadable(
                f"This conversation has no artifact {artifact}. Use an id that stands in a shortened text."
            )
        if opened >= OPENED_PER_TURN:
            raise ArtifactNotReadable(
                f"{OPENED_PER_TURN} portions were read for this message already, which is the most. "
                "Answer with what you have, or ask the person which part matters."
            )
        # Counting a long portion takes a while, which others need not wait for.
        shown = await asyncio.to_thread(portion, body, offset=offset, find=find, count=self._counter.count)
        return portion_text(artifact, body, shown)


def _offset(raw: object) -> int:
    if raw is None:
        return 0
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ArtifactNotReadable(f"`offset` is {raw!r}; it must be a whole number of characters.")
    return raw
