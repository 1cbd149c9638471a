"""Import of messages from other programs, which resumes after a crash and can be undone in one step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from shared.core.memory.past import (
    MOST_MESSAGES,
    PastImport,
    PastMessage,
    PastSource,
    PastTurn,
    group_turns,
)
from shared.core.privacy.erasure import Report
from shared.core.values.errors import BadInput
from shared.runtime import CrashPoint

T = TypeVar("T")
TURNS_AT_ONCE = 100
"""Turns stored in one transaction, with at most a few thousand messages."""


class PastImportStore(Protocol):
    """Store of imported conversations.

    `begin` returns the import of the same `digest` if there is one, else a new one. `add` stores turns after
    the message number `after`; it returns False if the import was undone or another process adds to it. `end`
    marks the import as whole.
    """

    async def begin(self, session_id: int, *, source: PastSource, digest: bytes) -> PastImport: ...
    async def add(self, session_id: int, turns: Sequence[PastTurn], *, after: int) -> bool: ...
    async def end(self, session_id: int) -> None: ...
    async def list_imports(self, session_id: int) -> tuple[PastImport, ...]: ...


class ImportEraser(Protocol):
    """Service that erases an imported conversation; its report is unfinished if a worker continues. Raises
    OnHold.
    """

    async def erase_import(self, session_id: int, actor: str) -> Report: ...


class PastImporter:
    """Importer of exported messages; it reads in a thread, and skips messages that are already stored."""

    def __init__(self, *, store: PastImportStore, eraser: ImportEraser, crash_point: CrashPoint) -> None:
        self._store = store
        self._eraser = eraser
        self._crash_point = crash_point

    async def import_past(
        self, session_id: int, source: PastSource, digest: bytes, messages: Iterable[PastMessage],
        *, on_stored: Callable[[int], None] = lambda number: None,
        on_begun: Callable[[PastImport], None] = lambda begun: None,
    ) -> PastImport:  # fmt: skip
        """Store the messages of a file as an archived conversation of the session's person; return the
        import.

        `digest` identifies the file: a repeated call adds only what is missing. `on_begun` is called with the
        import, `on_stored` with the number of stored messages after each batch. Raises BadInput if there are
        no messages or the import was undone, UnknownSession and StorageUnavailable.
        """
        # Read first, so that an unreadable file leaves no import.
        first = await asyncio.to_thread(_next, read := iter(messages), 1)
        if not first:
            raise BadInput("there are no messages in the file", advice="Choose another file.")
        begun = await self._store.begin(session_id, source=source, digest=digest)
        on_begun(begun)
        if begun.is_whole:
            return begun
        stored = begun.messages
        turns = group_turns(itertools.islice(itertools.chain(first, read), stored, MOST_MESSAGES))
        while batch := await asyncio.to_thread(_next, turns, TURNS_AT_ONCE):
            if not await self._store.add(begun.session_id, batch, after=stored):
                raise BadInput(
                    "the import was undone, or goes on elsewhere", advice="Wait a moment, and start it again."
                )
            stored += sum(turn.messages for turn in batch)
            self._crash_point("mid_import")
            on_stored(stored)
        await self._store.end(begun.session_id)
        return await self._find(session_id, begun.id)

    async def list_imports(self, session_id: int) -> tuple[PastImport, ...]:
        """Return the imports of a session's person that were not undone, newest first."""
        return await self._store.list_imports(session_id)

    async def undo(self, session_id: int, import_id: str, actor: str) -> PastImport | None:
        """Erase everything that one import brought, and return the import.

        None if the session's person has no such import. Raises OnHold.
        """
        found = next((one for one in await self.list_imports(session_id) if one.id == import_id), None)
        if found is not None:
            await self._eraser.erase_import(found.session_id, actor)
        return found

    async def _find(self, session_id: int, import_id: str) -> PastImport:
        for one in await self._store.list_imports(session_id):
            if one.id == import_id:
                return one
        raise BadInput("the import was undone", advice="Start it again if you want it.")


def _next(items: Iterator[T], number: int) -> list[T]:
    return [*itertools.islice(items, number)]
