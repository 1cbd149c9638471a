"""Parts that the handlers of the web channel use, and what they need from the services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from shared.adapters.postgres.db.write_probe import WriteState
from shared.bootstrap.stores import Stores
from shared.config.settings import Settings
from shared.core.commands.commands import Audience, Command, commands_for
from shared.core.privacy.erasure import Report
from shared.core.session.turns import Accepted, ContextMeasured, Inbound, Stored
from shared.core.values.files import Attached, Served
from shared.core.values.messages import Block
from shared.locales import catalogue
from shared.ports import StorageLimiter
from shared.runtime import BackgroundTasks, CrashPoint
from shared.services.privacy.export import DataExporter
from shared.services.turns.turn_dispatcher import SessionAnswerer
from web.auth.token_revocation import TokenRevocation
from web.auth.visitors import Known, Site, Visitors
from web.server.client_limiter import ClientLimiter
from web.server.hub import Hub, Replies
from web.server.origins import Proxies
from web.server.pages import Files
from web.server.poll_lines import PollLines
from web.server.rate_limits import ClientLimits, RateWindows

if TYPE_CHECKING:
    from shared.services.admin.push_sender import PushSender
    from shared.services.memory.answer_memory import AnswerMemoryReader
    from shared.services.voice.hearing import HearingService
    from shared.services.voice.speaking import SpeakingService

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Progress = Callable[[str, int | None], Awaitable[None]]


class TurnService(SessionAnswerer, Protocol):
    """The one way in, as this channel uses it."""

    async def accept_and_claim(self, inbound: Inbound) -> Accepted: ...
    async def edit(
        self, inbound: Inbound, *, seq: int, is_shown: bool = False
    ) -> tuple[Accepted, Stored | None]: ...
    async def break_off(self, session_id: int, *, turn: int) -> None: ...
    async def release_unanswered(self) -> None: ...
    async def stop(self, session_id: int) -> bool: ...
    async def measure_context(self, session_id: int) -> ContextMeasured | None: ...


class FileUploads(Protocol):
    """Files that people and operators send, as this channel uses them."""

    hearing: HearingService | None

    @property
    def windows(self) -> Mapping[str, RateWindows]: ...
    def describe_limits(self, site: Site, audience: str) -> dict[str, Any] | None: ...
    async def transcribe(self, request: web.Request, known: Known, attached: Attached) -> str: ...
    async def load_for_message(
        self,
        session_id: int,
        ids: Sequence[str],
        *,
        dedupe_key: str,
        text: str = "",
        most_chars: int = ...,
    ) -> tuple[str, tuple[Block, ...], tuple[Attached, ...]]: ...
    async def receive(
        self, request: web.Request, session_id: int, name: str, limits: ClientLimits, address: str
    ) -> Attached: ...
    async def load(self, known: Known, public_id: str, limits: ClientLimits) -> Served | None: ...


class WebEraser(Protocol):
    async def erase_import(self, session_id: int, actor: str) -> Report: ...
    async def erase_messages(self, session_id: int, seqs: Sequence[int], actor: str) -> Report: ...


class CommandOutcome(Protocol):
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
    ) -> CommandOutcome: ...


def audience_of(word: str) -> Audience:
    """Return the audience of a site's row; every unknown value is public."""
    return "personal" if word == "personal" else "public"


def build_command_entry(command: Command, language: str = "", *, typed: bool = False) -> dict[str, Any]:
    """A command as lists show it; `typed` for programs, which give arguments by name."""
    entry: dict[str, Any] = {"name": command.name, "description": command.describe(language)}
    if command.args:
        entry["args"] = command.args
    if not typed:
        return {**entry, "section": catalogue("commands", language).say(f"section_{command.section}")}
    required = [one.name for one in command.arguments if one.required]
    return {**entry, "arguments": command.schema(), "required": required}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    name: str
    offline: bool


@dataclass(slots=True)
class Readiness:
    """`draining` from the moment the process is asked to end."""

    draining: bool = False
    is_warm: Callable[[], bool] = lambda: True
    """Whether what an answer needs is loaded; tests load nothing ahead."""
    write_state: Callable[[], WriteState] = lambda: "ok"
    """State of the database by this process's newest written heartbeat; tests have no heartbeat."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """Handlers' parts. Those that depend on settings are replaced when these change."""

    settings: Settings
    sessions: TurnService
    commands: CommandRunner
    model: ModelInfo
    exporting: DataExporter
    erasing: WebEraser
    stores: Stores
    visitors: Visitors
    proxies: Proxies
    files: Files
    hub: Hub
    replies: Replies
    uploads: FileUploads
    speaking: SpeakingService | None
    """None where nothing reads answers aloud."""
    push: PushSender
    answer_memory: AnswerMemoryReader
    tasks: BackgroundTasks
    limiter: ClientLimiter
    admissions: TokenRevocation
    poll_lines: PollLines
    crash_point: CrashPoint
    storage_limiter: StorageLimiter
    readiness: Readiness = field(default_factory=Readiness)

    @property
    def common_windows(self) -> Mapping[str, RateWindows]:
        """Rate windows that all web processes share; frames and open sockets are not shared."""
        return {**self.limiter.common_windows, **self.uploads.windows}

    def commands_for(self, audience: str, *, site: Site | None = None) -> tuple[Command, ...]:
        """Return the commands of an audience; `/human` only where an operator can be asked."""
        humans = self.settings.has_handover and (site is None or site.config.handover)
        demo = self.model.offline
        return commands_for(
            channel="web",
            audience=audience_of(audience),
            humans=humans,
            demo=demo,
            speaks=self.speaking is not None,
        )


PARTS = web.AppKey("parts", Parts)
