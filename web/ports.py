"""Protocols of the services that the web process needs: turns, commands, files and erasure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from shared.adapters.postgres.db.write_probe import WriteState
from shared.core.commands.commands import Audience
from shared.core.privacy.erasure import Report
from shared.core.session.turns import Accepted, ContextMeasured, Inbound, Stored
from shared.core.values.files import Attached, Served
from shared.core.values.messages import Block
from shared.services.turns.turn_dispatcher import SessionAnswerer
from web.auth.visitors import Known, Site
from web.server.rate_limits import ClientLimits, RateWindows

if TYPE_CHECKING:
    from shared.services.voice.hearing import HearingService

Progress = Callable[[str, int | None], Awaitable[None]]
"""Callback with a message and the percentage done, None if unknown."""


class TurnService(SessionAnswerer, Protocol):
    """Service that stores messages and runs turns, as far as the web uses it."""

    async def accept_and_claim(self, inbound: Inbound) -> Accepted:
        """Store a message and claim its turn if that is possible at once; return the message's numbers.

        A message whose `dedupe_key` is stored is not added again. The caller must call `answer` next,
        whether the turn was claimed or not. Raises BadInput, SessionMoved and StorageUnavailable.
        """
        ...

    async def edit(
        self, inbound: Inbound, *, seq: int, is_shown: bool = False
    ) -> tuple[Accepted, Stored | None]:
        """Edit the question `seq`: the last one is answered again, an earlier one only gets the new text.

        Return the stored message and the event for clients, None if nothing changed. `is_shown` says that the
        person saw part of a running answer. Raises BadInput and StorageUnavailable.
        """
        ...

    async def break_off(self, session_id: int, *, turn: int) -> None:
        """Interrupt a turn of this process because its question is about to change; else do nothing."""
        ...

    async def release_unanswered(self) -> None:
        """Release turns that were claimed with their message but never answered."""
        ...

    async def stop(self, session_id: int) -> bool:
        """Stop the session's answer in whichever process runs it; return False if there is none to stop."""
        ...

    async def measure_context(self, session_id: int) -> ContextMeasured | None:
        """Return the gauge of the session's next request; None before the first turn."""
        ...


class FileUploads(Protocol):
    """Storage of files that people and operators send, as far as the web uses it."""

    hearing: HearingService | None

    @property
    def windows(self) -> Mapping[str, RateWindows]:
        """Counters of the rate limits that hold over all processes, by name."""
        ...

    def describe_limits(self, site: Site, audience: str) -> dict[str, Any] | None:
        """Return the upload limits for a welcome message; None if this site accepts no files."""
        ...

    async def transcribe(self, request: web.Request, known: Known, attached: Attached) -> str:
        """Return the transcript of an uploaded recording; "" for other files."""
        ...

    async def load_for_message(
        self,
        session_id: int,
        ids: Sequence[str],
        *,
        dedupe_key: str,
        text: str = "",
        most_chars: int = ...,
    ) -> tuple[str, tuple[Block, ...], tuple[Attached, ...]]:
        """Return the text with its transcripts, the blocks for the model, and the attachments for screens.

        Raises UnknownFile, also for a recording without a transcript.
        """
        ...

    async def receive(
        self, request: web.Request, session_id: int, name: str, limits: ClientLimits, address: str
    ) -> Attached:
        """Store an upload, and return it.

        If the conversation has a file with the same bytes, that one is renamed to `name` and returned.
        Raises HttpRefusal, RateLimited, RecordingTooLong, StorageUnavailable and TimeoutError.
        """
        ...

    async def load(self, known: Known, public_id: str, limits: ClientLimits) -> Served | None:
        """Return a file of the visitor's conversation; None if there is none. Raises RateLimited."""
        ...


class WebEraser(Protocol):
    """Service that erases messages and imports."""

    async def erase_import(self, session_id: int, actor: str) -> Report:
        """Erase an imported conversation. Raises UnknownSession and OnHold."""
        ...

    async def erase_messages(self, session_id: int, seqs: Sequence[int], actor: str) -> Report:
        """Erase messages and everything made from them. Raises OnHold."""
        ...


class CommandOutcome(Protocol):
    """Result of a command that a client shows."""

    @property
    def command(self) -> str: ...
    @property
    def success(self) -> bool: ...
    @property
    def result(self) -> Any: ...
    @property
    def error(self) -> Any: ...
    @property
    def event_seq(self) -> int | None: ...
    @property
    def choices(self) -> Sequence[Any]: ...


class CommandRunner(Protocol):
    """Runner of commands."""

    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str,
        cid: str | None,
        progress: Progress | None,
        audience: Audience = "personal",
        language: str = "",
    ) -> CommandOutcome:
        """Run a command, store its result for all clients of the session, and return it.

        `cid` is the client's id of the command. Raises CommandNotFound.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Name of the chat model; `offline` means the built-in demo."""

    name: str
    offline: bool


@dataclass(slots=True)
class Readiness:
    """State for the readiness check; `draining` is True once the process was asked to stop."""

    draining: bool = False
    is_warm: Callable[[], bool] = lambda: True
    """Returns whether everything for an answer is loaded; always True in tests."""
    write_state: Callable[[], WriteState] = lambda: "ok"
    """Returns the state of the database as the last heartbeat found it; always `ok` in tests."""
