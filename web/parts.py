"""What the handlers of the web channel work with, and what they need of the services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from shared.adapters.postgres.events import PostgresEvents
from shared.adapters.postgres.notes import PostgresNotes
from shared.adapters.postgres.people import PostgresPeople
from shared.adapters.postgres.readiness import PostgresReadiness
from shared.core.commands import Audience
from shared.core.exchange import Accepted, ContextMeasured, Inbound
from shared.services.answering import Answers
from shared.services.exporting import Exporting
from shared.settings import Settings
from shared.tasks import Tasks
from web.hub import Hub
from web.limits import Limits, Places, Windows
from web.origins import Proxies
from web.pages import Files
from web.replies import Replies
from web.visitors import Visitors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Progress = Callable[[str, int | None], Awaitable[None]]


class Talking(Answers, Protocol):
    """The one way in, as this channel uses it."""

    async def accept(self, inbound: Inbound) -> Accepted: ...
    async def stop(self, session_id: int) -> bool: ...
    async def gauge(self, session_id: int) -> ContextMeasured | None: ...


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


class Commanding(Protocol):
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
    """As a site's row says it; whatever is not personal is public."""
    return "personal" if word == "personal" else "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandShown:
    """A command as lists show it."""

    name: str
    description: str
    args: str = ""
    public: bool = False
    """Allowed where an operator's visitors talk."""
    translated: Mapping[str, str] = field(default_factory=dict)
    """Descriptions by language, two letters."""

    def entry(self, language: str = "") -> dict[str, Any]:
        description = self.translated.get(language[:2].lower(), self.description)
        entry = {"name": self.name, "description": description}
        return {**entry, "args": self.args} if self.args else entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShown:
    name: str
    offline: bool


@dataclass(slots=True)
class Readiness:
    """False from the moment the process is asked to end."""

    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    settings: Settings
    conversation: Talking
    commands: Commanding
    command_table: Sequence[CommandShown]
    model: ModelShown
    exporting: Exporting
    events: PostgresEvents
    notes: PostgresNotes
    schema: PostgresReadiness
    visitors: Visitors
    proxies: Proxies
    files: Files
    hub: Hub
    replies: Replies
    people: PostgresPeople
    tasks: Tasks
    limits: Limits
    local_limits: Limits
    session_windows: Windows
    address_windows: Windows
    session_places: Places
    address_places: Places
    readiness: Readiness = field(default_factory=Readiness)

    def commands_for(self, audience: str) -> list[CommandShown]:
        return [one for one in self.command_table if one.public or audience != "public"]

    def limits_for(self, request: web.Request) -> Limits:
        """A person's own machine is not limited: its only client is that person, or their own tools."""
        if self.settings.profile == "personal" and self.proxies.is_local(request):
            return self.local_limits
        return self.limits


PARTS = web.AppKey("parts", Parts)
