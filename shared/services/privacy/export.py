"""Export of a person's data as a file, piece by piece, so that a long conversation is never in
memory whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from shared.core.privacy import export as form
from shared.core.privacy.export import ExportedSession, ExportFormat, ExportHead
from shared.locales import catalogue


class ExportStore(Protocol):
    """Store of a person's data, loaded in pages; raises UnknownSession.

    `load_head` returns all but the messages, from one moment; `alone` limits it to this conversation.
    `load_page` returns the messages after `after_seq`, empty after the last one.
    """

    async def count_messages(self, session_id: int) -> int: ...
    async def load_head(self, session_id: int, *, alone: bool = False) -> ExportHead: ...
    async def load_page(self, session: ExportedSession, *, after_seq: int) -> Sequence[dict[str, Any]]: ...


class ExportClock(Protocol):
    """Clock of the export's date."""

    def now(self) -> datetime: ...


class DataExporter:
    """Exporter of people's data. Its methods raise StorageUnavailable and UnknownSession."""

    def __init__(self, *, store: ExportStore, clock: ExportClock) -> None:
        self._store = store
        self._clock = clock

    async def count_messages(self, session_id: int) -> int:
        """Return the number of messages that the export will contain."""
        return await self._store.count_messages(session_id)

    def build_file_name(self, kind: ExportFormat, *, of: str = "") -> str:
        """Return the name of an export file, such as `conversation-2026-01-31.json`.

        `of` is a part of the name before the date; "" leaves it out.
        """
        return f"conversation-{f'{of}-' if of else ''}{self._clock.now():%Y-%m-%d}.{kind}"

    async def stream(
        self, session_id: int, kind: ExportFormat, *, alone: bool = False, language: str = ""
    ) -> AsyncIterator[str]:
        """Yield a person's export as text in pieces of at most a page of messages.

        `alone` exports this one conversation for an operator, with people's texts shown literally; else all
        of the person's conversations are in it. `language` is that of the headings, "" for English.
        """
        head = await self._store.load_head(session_id, alone=alone)
        at, texts = self._clock.now(), catalogue("commands", language)
        if kind == "json":
            yield form.json_start(head, at=at)
        else:
            yield form.markdown_start(head, texts, at=at, verbatim=alone)
        for place, session in enumerate(head.sessions):
            if kind == "json":
                yield form.json_session(session, first=place == 0)
            else:
                yield form.markdown_session(session, texts, verbatim=alone)
            async for piece in self._messages(session, kind, verbatim=alone):
                yield piece
            if kind == "json":
                yield form.JSON_SESSION_END
        if kind == "json":
            yield form.JSON_END

    async def _messages(
        self, session: ExportedSession, kind: ExportFormat, *, verbatim: bool
    ) -> AsyncIterator[str]:
        seen = 0
        while messages := await self._store.load_page(session, after_seq=seen):
            if kind == "json":
                yield form.json_messages(messages, first=seen == 0)
            else:
                yield form.markdown_messages(messages, verbatim=verbatim)
            seen = messages[-1]["seq"]

    async def export(self, session_id: int, kind: ExportFormat, *, language: str = "") -> bytes:
        """Return the whole export of a person as UTF-8 bytes, for a channel that sends files at once."""
        return "".join([piece async for piece in self.stream(session_id, kind, language=language)]).encode()
