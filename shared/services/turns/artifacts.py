"""Reading of artifacts and long messages in portions, for the tool `recall`."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shared.core.session.artifacts import ArtifactNotReadable, message_in, portion, portion_text
from shared.ports import TokenCounter, ToolFailed

FIND_CHARS = 200
"""Most characters of a text to find; the rest is ignored."""


class ArtifactStore(Protocol):
    """Store of artifacts and whole messages of a session.

    `open_artifact` returns the whole text of an artifact, and raises ArtifactNotReadable if `artifact` is not
    an id. `read_message` returns the text of a person's message with its files. Both return None if the
    session has no such text.
    """

    async def open_artifact(self, session_id: int, artifact: str) -> str | None: ...
    async def read_message(self, session_id: int, seq: int) -> str | None: ...


class ArtifactReader:
    """Reader of texts that the log shows only in part, limited to the session that asks."""

    def __init__(self, store: ArtifactStore, counter: TokenCounter) -> None:
        self._store = store
        self._counter = counter

    async def read(self, artifact: str, *, offset: object, find: str, session_id: int) -> str:
        """Return a portion of an artifact, or of a message such as `msg_7`, as text for the model.

        `offset` is the first character, None for the beginning; a text in `find`, of which 200 characters
        count, moves the portion to its first place after `offset`. Raises ToolFailed with advice for the
        model if there is no such text or portion.
        """
        try:
            return await self._read_portion(artifact.strip(), _offset(offset), find[:FIND_CHARS], session_id)
        except ArtifactNotReadable as error:
            raise ToolFailed(error.advice) from error

    async def _read_portion(self, artifact: str, offset: int, find: str, session_id: int) -> str:
        seq = message_in(artifact)
        body = await (
            self._store.open_artifact(session_id, artifact)
            if seq is None
            else self._store.read_message(session_id, seq)
        )
        if body is None:
            raise ArtifactNotReadable(
                f"This conversation has no artifact {artifact}. Use an id that stands in a shortened text."
            )
        # A thread counts long portions, so that other turns need not wait.
        shown = await asyncio.to_thread(
            portion, body, offset=offset, find=find, count=self._counter.count_tokens
        )
        return portion_text(artifact, body, shown)


def _offset(raw: object) -> int:
    if raw is None:
        return 0
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ArtifactNotReadable(f"`offset` is {raw!r}; it must be a whole number of characters.")
    return raw
