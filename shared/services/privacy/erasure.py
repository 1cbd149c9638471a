"""Erasure of a person's data or of single messages; it starts at once and is finished even after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import structlog

from shared.core.privacy.erasure import Preview, Report
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CrashPoint

log = structlog.get_logger(__name__)

WAIT_SECONDS = 60.0
"""Seconds that a person waits for the end of an erasure; then a worker continues it."""


class ErasureAnnouncer(Protocol):
    """Announcer of stored events to the clients of a session; raises nothing."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...


class ErasureStore(Protocol):
    """Store of erasures and of the steps in which they are carried out.

    `start_erasure` ends all running work and clears the screens in one commit; raises UnknownSession and
    OnHold. `advance` erases one batch and returns the report once the erasure is complete, else None.
    `list_running` returns at most 20 unfinished ones, oldest first.
    """

    async def load_preview(self, session_id: int) -> Preview: ...
    async def record_pending_confirmation(self, session_id: int) -> None: ...
    async def take_pending_confirmation(self, session_id: int) -> bool: ...
    async def start_erasure(self, session_id: int, *, actor: str, scope: str = "everything") -> Report: ...
    async def erase_messages(
        self, session_id: int, seqs: Sequence[int], *, actor: str, places: bool = True
    ) -> Report: ...
    async def list_running(self) -> list[int]: ...
    async def advance(self, erasure_id: int) -> Report | None: ...


class ErasureService:
    """Erasure of people's data; before it deletes, running turns and jobs lose the right to write."""

    def __init__(
        self, *, store: ErasureStore, announcer: ErasureAnnouncer | None, crash_point: CrashPoint
    ) -> None:
        """Create the service; without an `announcer`, clients notice changes by polling, within seconds."""
        self._store = store
        self._announcer = announcer
        self._crash_point = crash_point

    async def preview_erasure(self, session_id: int) -> Preview:
        """Return the numbers of rows that are stored of the session's person, and accept a confirmation for
        ten minutes.

        Deletes nothing.
        """
        preview = await self._store.load_preview(session_id)
        await self._store.record_pending_confirmation(session_id)
        return preview

    async def take_confirmation(self, session_id: int) -> bool:
        """Use up the pending confirmation; return whether its preview was shown in the last ten minutes.

        Another confirmation needs another preview.
        """
        return await self._store.take_pending_confirmation(session_id)

    async def erase_everything(
        self, session_id: int, actor: str, *, patience: float = WAIT_SECONDS
    ) -> Report:
        """Erase all conversations of the session's person and everything made from them; return the report.

        `actor` is `person`, `operator` or another word of the erasure log. After `patience` seconds the
        report is unfinished, and a worker continues. Raises UnknownSession and OnHold.
        """
        return await self._finish_within(
            await self._store.start_erasure(session_id, actor=actor), patience=patience
        )

    async def erase_messages(
        self, session_id: int, seqs: Sequence[int], actor: str, *, places: bool = True
    ) -> Report:
        """Erase the messages with these `seqs` and everything made from them, in one commit; return the
        report.

        With `places`, clients show an empty place for each message. Raises OnHold.
        """
        report = await self._store.erase_messages(session_id, seqs, actor=actor, places=places)
        await self._announce(report)
        return report

    async def erase_import(self, session_id: int, actor: str) -> Report:
        """Erase an imported conversation and return the report, unfinished if a worker continues.

        Raises UnknownSession and OnHold.
        """
        return await self._finish_within(
            await self._store.start_erasure(session_id, actor=actor, scope="import")
        )

    async def erase_session(self, session_id: int) -> Report:
        """Erase an idle conversation for the retention sweep; the person's notes stay. Raises UnknownSession.

        Erases nothing, and returns a report without counts, if the person is on legal hold, a message is
        unanswered, or the conversation was used in the last 12 hours. The caller checks the retention period.
        """
        return await self._finish_within(
            await self._store.start_erasure(session_id, actor="retention", scope="retention")
        )

    async def finish_pending(self) -> int:
        """Finish at most 20 erasures that a stopped process left unfinished, oldest first; return their
        number.

        Raises StorageUnavailable.
        """
        left = await self._store.list_running()
        for erasure_id in left:
            await self._finish(erasure_id)
        return len(left)

    async def _finish_within(self, begun: Report, *, patience: float = WAIT_SECONDS) -> Report:
        await self._announce(begun)
        self._crash_point("mid_erasure")
        try:
            async with asyncio.timeout(patience):
                return await self._finish(begun.erasure_id)
        except (TimeoutError, StorageUnavailable) as error:
            log.warning(
                "erasure_continues_in_background", erasure_id=begun.erasure_id, reason=type(error).__name__
            )
            return begun

    async def _finish(self, erasure_id: int) -> Report:
        while (report := await self._store.advance(erasure_id)) is None:
            self._crash_point("mid_erasure")
        log.info("erased", erasure_id=erasure_id, rows=sum(report.counts.values()))
        return report

    async def _announce(self, report: Report) -> None:
        for session_id, event_seq in (report.marks or {}).items():
            if self._announcer is not None:
                await self._announcer.announce(session_id, {"event_seq": event_seq})
