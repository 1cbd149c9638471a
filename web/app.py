"""Builds the web process: the only place where its services, handlers and routes are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from aiohttp import web

from shared.adapters.postgres.db.pool import storage_limiter
from shared.bootstrap.build_commands import build_answer_memory
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.stores import Stores
from shared.config.settings import Settings
from shared.core.verdicts.breaker import BreakerState
from shared.runtime import BackgroundTasks, CrashPoint
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.admin.push_sender import Present, PushSender
from shared.services.privacy.erasure import ErasureService
from shared.services.privacy.export import DataExporter
from shared.services.tools.handover import HandoverService
from shared.services.voice.hearing import HearingService
from shared.services.voice.speaking import SpeakingService
from web.api.commands import CommandRunHandlers, Runs
from web.api.conversations import ConversationHandlers
from web.api.export import ExportHandlers
from web.api.imports import ImportHandlers
from web.api.memory import MemoryHandlers
from web.api.messages import SessionMessageHandlers
from web.api.push import VisitorPushHandlers
from web.api.recovery import RecoveryHandlers
from web.api.rest import CommandListHandlers
from web.api.uploads import UploadHandlers, Uploads
from web.api.visitor_reports import VisitorReportHandlers
from web.auth.token_revocation import TokenRevocation
from web.auth.visitors import VISITORS, Visitors
from web.chat.command_intake import CommandIntake
from web.chat.event_stream_chat import StreamHandlers
from web.chat.handshake import Handshake, OpenPlace, ScreenOffers
from web.chat.long_poll import PollHandlers
from web.chat.message_intake import MessageIntake
from web.chat.screen_actions import ScreenActions
from web.chat.socket_chat import SocketHandlers
from web.chat.socket_session import OpenSession, SocketSession
from web.command_offer import CommandOffer
from web.dashboard import OPERATIONS, Dashboard, build_dashboard
from web.dashboard.access import DashboardDoor
from web.ports import CommandRunner, ModelInfo, Readiness, TurnService
from web.rest.api_key_auth import API, ApiKeyAuth, check_api_key
from web.rest.calls import VisitorDoor, add_operations
from web.rest.operation import HandlerTable
from web.routes import (
    FOR_VISITORS,
    ChatPageHandlers,
    DescriptionHandlers,
    HealthHandlers,
    go_to_chat,
    healthz,
    scope_of,
)
from web.security import MAX_BODY_BYTES, guard
from web.server.client_limiter import ClientLimiter
from web.server.hub import Announcements, Hub, Replies
from web.server.origins import PROXIES, Proxies
from web.server.pages import FILES, Files
from web.server.poll_lines import PollLines
from web.server.rate_limits import ClientLimits
from web.server.shared_rate_limits import CommonCounts, Counts

if TYPE_CHECKING:
    from web.server.dashboard_streams import DashboardNews

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10.0
"""Seconds that running answers may take to end when the process stops."""


class Services(Protocol):
    """Services of `shared.bootstrap.app.App` that the web process uses."""

    @property
    def settings(self) -> Settings: ...
    @property
    def pool(self) -> Any: ...
    @property
    def stores(self) -> Stores: ...
    @property
    def announcer(self) -> Announcements: ...
    @property
    def sessions(self) -> TurnService: ...
    @property
    def commands(self) -> CommandRunner: ...
    @property
    def handover_service(self) -> HandoverService | None: ...
    @property
    def context_inspector(self) -> ContextInspector | None: ...
    @property
    def job_admin(self) -> JobAdmin | None: ...
    @property
    def playground(self) -> Playground | None: ...
    def list_breakers(self) -> Mapping[str, BreakerState]: ...
    @property
    def dashboard_announcer(self) -> DashboardNews | None: ...
    @property
    def hearing(self) -> HearingService | None: ...
    @property
    def speaking(self) -> SpeakingService | None: ...
    @property
    def push(self) -> PushSender: ...
    @property
    def crash_point(self) -> CrashPoint: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebProcess:
    """One web process: starts, drains and stops its parts together. No handler gets this object."""

    services: Services
    app: web.Application
    dashboard: Dashboard
    handlers: HandlerTable
    build_handlers: Callable[[], Iterable[object]]
    """Builds the handlers of visitors and programs from services and settings that may be replaced."""
    files: Files
    visitors: Visitors
    limiter: ClientLimiter
    commands: CommandOffer
    uploads: Uploads
    hub: Hub
    replies: Replies
    revocation: TokenRevocation
    poll_lines: PollLines
    readiness: Readiness
    tasks: BackgroundTasks

    def follow_settings(self, *, model: ModelInfo) -> None:
        """Use the current services and settings after stored settings changed.

        Open connections and running answers are kept.
        """
        services, settings = self.services, self.services.settings
        self.visitors.settings = settings
        self.limiter.is_personal = settings.profile == "personal"
        self.uploads.hearing = services.hearing
        self.commands.runner, self.commands.model = services.commands, model
        self.commands.has_handover = settings.has_handover
        self.commands.speaks = services.speaking is not None
        self.handlers.replace(self.build_handlers())
        self.dashboard.follow(
            settings=settings,
            stores=services.stores,
            context_inspector=services.context_inspector,
            playground=services.playground,
            demo=model.offline,
        )

    def count_screens(self) -> dict[str, int]:
        """Return the number of open connections by kind: `chat`, `dashboard`, and each transport of the
        chat.
        """
        streams = self.dashboard.live.streams
        return {"chat": self.hub.screens, "dashboard": streams, **self.hub.count_transports()}

    def list_present(self) -> Present:
        """Return ids of operators, and of visitors' channel addresses, with a page open in this process."""
        places = {subscriber.address_id for subscriber in self.hub.list_subscribers()} - {0}
        return Present(operators=tuple(self.dashboard.live.operators), addresses=tuple(places))

    def start(self, *, counts: Counts | None = None) -> None:
        """Start the background work.

        `counts` makes rate limits count the requests of all processes together; None makes each process count
        alone.
        """
        if counts is not None:
            windows = {**self.limiter.common_windows, **self.uploads.windows}
            self.tasks.run_forever(CommonCounts(counts, windows).watch)
        self.hub.start()
        self.tasks.run_forever(self.revocation.watch)
        self.replies.start()

    def start_draining(self) -> None:
        """Refuse new connections and messages, and ask connected clients to reconnect."""
        self.readiness.draining = True
        self.replies.stop_accepting()
        self.hub.close_all()

    async def stop(self, *, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Drain, give running answers `drain_seconds` to end, release the other turns, and stop the
        background work.
        """
        self.start_draining()
        await self.replies.close(drain_seconds=drain_seconds)
        await self.services.sessions.release_unanswered()
        await self.tasks.drain(2.0)


def build_web_process(
    services: Services, *, model: ModelInfo, limits: ClientLimits | None = None
) -> WebProcess:
    """Build the web process; the caller must `start` it before serving and `stop` it afterwards.

    `limits` replaces the rate limits of all clients, also of local ones; None uses the usual ones.
    """
    settings, stores, tasks = services.settings, services.stores, BackgroundTasks()
    proxies = Proxies(settings.trusted_proxies, public_url=settings.public_url)
    hub = Hub(
        announcer=services.announcer, events=stores.events, measure=services.sessions.measure_context,
        tasks=tasks,
    )  # fmt: skip
    replies = Replies(services.sessions, hub)
    hub.on_due = replies.wake
    files, readiness, poll_lines = Files(), Readiness(), PollLines(spawn=tasks.start)
    visitors = Visitors(stores.visitors, identities=stores.identities, settings=settings, proxies=proxies)
    limiter = ClientLimiter.create(proxies, is_personal=settings.profile == "personal", limits=limits)
    commands = CommandOffer(
        runner=services.commands,
        model=model,
        has_handover=settings.has_handover,
        speaks=services.speaking is not None,
    )
    uploads = Uploads(stores.uploads, stores.events, hearing=services.hearing)
    eraser = ErasureService(
        store=stores.erasure, announcer=services.announcer, crash_point=services.crash_point
    )
    intake = MessageIntake(
        sessions=services.sessions, uploads=uploads, events=stores.events, edits=stores.edits, eraser=eraser,
        hub=hub, replies=replies, limiter=limiter, storage_limiter=partial(storage_limiter, services.pool),
    )  # fmt: skip
    open_session = partial(
        SocketSession,
        visitors=visitors,
        hub=hub,
        intake=intake,
        commands=CommandIntake(commands=commands, hub=hub, replies=replies, tasks=tasks),
        actions=ScreenActions(
            sessions=services.sessions, events=stores.events, feedback=stores.feedback, hub=hub,
            crash_point=services.crash_point,
        ),
    )  # fmt: skip
    offers = ScreenOffers(commands=commands, uploads=uploads)
    open_place = partial(
        Handshake, hub=hub, sessions=services.sessions, events=stores.events, limiter=limiter, offers=offers
    )
    dashboard = build_dashboard(
        pool=services.pool,
        stores=stores,
        settings=settings,
        commands=services.commands,
        news=services.dashboard_announcer,
        announcer=services.announcer,
        handovers=services.handover_service,
        context_inspector=services.context_inspector,
        job_admin=services.job_admin,
        playground=services.playground,
        breakers=services.list_breakers,
        files=uploads,
        limiter=limiter,
        push_sender=services.push,
        demo=model.offline,
        static_root=f"/static-{files.digest}",
    )
    build_handlers = partial(
        build_visitor_handlers,
        services,
        visitors=visitors,
        limiter=limiter,
        commands=commands,
        uploads=uploads,
        hub=hub,
        replies=replies,
        poll_lines=poll_lines,
        tasks=tasks,
        open_session=open_session,
        open_place=open_place,
        intake=intake,
        eraser=eraser,
        dashboard_door=dashboard.door,
        runs=Runs(),
        description=DescriptionHandlers(),
    )
    handlers = HandlerTable(build_handlers())
    app = _build_app(services, visitors=visitors, limiter=limiter, files=files)
    door = VisitorDoor(visitors=visitors, limiter=limiter, readiness=readiness)
    others = {(one.method, one.path): dashboard.build_handler(one) for one in OPERATIONS}
    add_operations(app, FOR_VISITORS, others, door=door, handlers=handlers)
    _add_pages(
        app,
        sockets=SocketHandlers(
            readiness=readiness, visitors=visitors, limiter=limiter, hub=hub, tasks=tasks, offers=offers,
            open_session=open_session, open_place=open_place,
        ),
        pages=ChatPageHandlers(files=files, visitors=visitors),
        health=HealthHandlers(readiness=readiness, store=stores.readiness),
    )  # fmt: skip
    dashboard.add_to(app)
    return WebProcess(
        services=services,
        app=app,
        dashboard=dashboard,
        handlers=handlers,
        build_handlers=build_handlers,
        files=files,
        visitors=visitors,
        limiter=limiter,
        commands=commands,
        uploads=uploads,
        hub=hub,
        replies=replies,
        revocation=TokenRevocation(hub, stores.visitors),
        poll_lines=poll_lines,
        readiness=readiness,
        tasks=tasks,
    )


def build_visitor_handlers(
    services: Services,
    *,
    visitors: Visitors,
    limiter: ClientLimiter,
    commands: CommandOffer,
    uploads: Uploads,
    hub: Hub,
    replies: Replies,
    poll_lines: PollLines,
    tasks: BackgroundTasks,
    open_session: OpenSession,
    open_place: OpenPlace,
    intake: MessageIntake,
    eraser: ErasureService,
    dashboard_door: DashboardDoor,
    runs: Runs,
    description: DescriptionHandlers,
) -> tuple[object, ...]:
    """Build the objects whose methods handle requests of visitors and programs."""
    settings, stores = services.settings, services.stores
    return (
        description,
        SessionMessageHandlers(
            limiter=limiter, intake=intake, hub=hub, events=stores.events, tasks=tasks,
            history=stores.history, commands=commands, speaking=services.speaking, speech=stores.speech,
            message_search=stores.message_search, api_sessions=stores.api_sessions,
        ),
        CommandListHandlers(
            commands=commands, visitors=visitors, account_links=stores.account_links, events=stores.events
        ),
        ConversationHandlers(visitor_store=stores.visitors, forks=stores.forks),
        ExportHandlers(exporter=DataExporter(store=stores.export, clock=SystemClock())),
        CommandRunHandlers(
            visitors=visitors, dashboard_door=dashboard_door, api_sessions=stores.api_sessions,
            commands=commands, runs=runs, tasks=tasks, replies=replies, hub=hub,
        ),
        MemoryHandlers(notes=stores.notes, answer_memory=build_answer_memory(stores, settings), hub=hub),
        ImportHandlers(
            import_files=stores.import_files, past_imports=stores.past_imports,
            import_summaries=stores.import_summaries, eraser=eraser,
        ),
        RecoveryHandlers(visitors=visitors, limiter=limiter, identities=stores.identities),
        VisitorReportHandlers(inbox=stores.inbox),
        VisitorPushHandlers(push_sender=services.push, settings=settings, push_store=stores.push),
        UploadHandlers(limiter=limiter, uploads=uploads, visitors=visitors),
        StreamHandlers(
            limiter=limiter, visitors=visitors, hub=hub, tickets=stores.tickets, tasks=tasks,
            open_place=open_place, open_session=open_session,
        ),
        PollHandlers(
            visitors=visitors, limiter=limiter, poll_lines=poll_lines, open_place=open_place, tasks=tasks,
            hub=hub,
        ),
    )  # fmt: skip


def _build_app(
    services: Services, *, visitors: Visitors, limiter: ClientLimiter, files: Files
) -> web.Application:
    """Return the aiohttp application with its middlewares and with the objects that they use."""
    app = web.Application(middlewares=[guard, check_api_key], client_max_size=MAX_BODY_BYTES)
    app[VISITORS], app[PROXIES], app[FILES] = visitors, limiter.proxies, files
    app[API] = ApiKeyAuth(
        keys=services.stores.api_keys,
        sessions=services.stores.api_sessions,
        visitors=visitors,
        scope_of=scope_of,
        windows=limiter.keys,
    )
    return app


def _add_pages(
    app: web.Application, *, sockets: SocketHandlers, pages: ChatPageHandlers, health: HealthHandlers
) -> None:
    add = app.router
    add.add_get("/", go_to_chat)
    add.add_get("/ws", sockets.chat)
    add.add_get("/chat", pages.chat_page)
    add.add_get("/widget.js", pages.widget)
    add.add_get("/push.js", pages.push_worker)
    add.add_get("/static/{path:.+}", pages.static)
    add.add_get("/static-{digest:[0-9a-f]+}/{path:.+}", pages.static_for_ever)
    add.add_get("/healthz", healthz)
    add.add_get("/readyz", health.readyz)
