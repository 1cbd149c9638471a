"""Puts the web process together: routes, middleware, and the parts that the handlers work with."""

from __future__ import annotations

from collections.abc import Mapping
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
from web import dashboard, routes
from web.api import uploads
from web.api.commands import RUNS, Runs
from web.auth.token_revocation import TokenRevocation
from web.auth.visitors import Visitors
from web.chat.socket_chat import chat
from web.dashboard import DESK
from web.parts import PARTS, CommandRunner, Handler, ModelInfo, Parts, TurnService
from web.rest.api_key_auth import API, ApiKeyAuth, check_api_key
from web.rest.calls import add_operations
from web.routes import DESCRIPTION, FOR_VISITORS, scope_of
from web.security import MAX_BODY_BYTES, guard
from web.server.client_limiter import ClientLimiter
from web.server.hub import Announcements, Hub, Replies
from web.server.origins import Proxies
from web.server.pages import Files
from web.server.poll_lines import PollLines
from web.server.rate_limits import ClientLimits
from web.server.shared_rate_limits import CommonCounts, Counts

if TYPE_CHECKING:
    from web.server.dashboard_streams import DashboardNews

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10.0


class Services(Protocol):
    """Services of `shared.bootstrap.app.open_app` that the web process uses."""

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


def make_parts(
    services: Services,
    *,
    model: ModelInfo,
    limits: ClientLimits | None = None,
) -> Parts:
    """Build the parts of the web process; `limits` replaces the limits of all clients, also local ones."""
    settings, tasks = services.settings, BackgroundTasks()
    proxies = Proxies(settings.trusted_proxies, public_url=settings.public_url)
    stores = services.stores
    hub = Hub(
        announcer=services.announcer, events=stores.events, measure=services.sessions.measure_context,
        tasks=tasks,
    )  # fmt: skip
    replies = Replies(services.sessions, hub)
    hub.on_due = replies.look_now
    return Parts(
        settings=settings,
        sessions=services.sessions,
        commands=services.commands,
        model=model,
        exporting=DataExporter(store=stores.export, clock=SystemClock()),
        erasing=ErasureService(
            store=stores.erasure, announcer=services.announcer, crash_point=services.crash_point
        ),
        stores=stores,
        visitors=Visitors(stores.visitors, identities=stores.identities, settings=settings, proxies=proxies),
        proxies=proxies,
        files=Files(),
        hub=hub,
        replies=replies,
        speaking=services.speaking,
        push=services.push,
        answer_memory=build_answer_memory(stores, settings),
        uploads=uploads.Uploads(stores.uploads, stores.events, hearing=services.hearing),
        tasks=tasks,
        limiter=ClientLimiter.create(proxies, is_personal=settings.profile == "personal", limits=limits),
        admissions=TokenRevocation(hub, stores.visitors),
        poll_lines=PollLines(spawn=tasks.start),
        crash_point=services.crash_point,
        storage_limiter=partial(storage_limiter, services.pool),
    )


def make_web_app(services: Services, parts: Parts) -> web.Application:
    """Build the web application; call `start_parts` before it serves and `stop_parts` after."""
    app = web.Application(middlewares=[guard, check_api_key], client_max_size=MAX_BODY_BYTES)
    app[PARTS] = parts
    app[RUNS] = Runs()
    app[API] = ApiKeyAuth(
        keys=services.stores.api_keys,
        sessions=services.stores.api_sessions,
        scope_of=scope_of,
        windows=parts.limiter.keys,
    )
    app[DESCRIPTION] = []
    others: dict[tuple[str, str], Handler] = {}
    add_operations(app, FOR_VISITORS, others)
    add = app.router
    add.add_get("/", routes.root)
    add.add_get("/ws", chat)
    add.add_get("/chat", routes.chat_page)
    add.add_get("/widget.js", routes.widget)
    add.add_get("/push.js", routes.push_worker)
    add.add_get("/static/{path:.+}", routes.static)
    add.add_get("/static-{digest:[0-9a-f]+}/{path:.+}", routes.static_for_ever)
    add.add_get("/healthz", routes.healthz)
    add.add_get("/readyz", routes.readyz)
    desk = dashboard.add_dashboard(
        app,
        pool=services.pool,
        stores=services.stores,
        settings=services.settings,
        commands=services.commands,
        news=services.dashboard_announcer,
        announcer=services.announcer,
        handovers=services.handover_service,
        context_inspector=services.context_inspector,
        job_admin=services.job_admin,
        playground=services.playground,
        breakers=services.list_breakers,
        files=parts.uploads,
        limiter=parts.limiter,
        push_sender=services.push,
        demo=parts.model.offline,
        static_root=f"/static-{parts.files.digest}",
    )
    others |= {(one.method, one.path): desk.build_handler(one) for one in dashboard.OPERATIONS}
    app[DESK] = desk
    return app


def follow_settings(app: web.Application, services: Services, *, model: ModelInfo) -> None:
    """Replace the application's parts by those of `services` after a change of settings.

    Open sockets and answers that are being written are kept.
    """
    parts = app[PARTS]
    parts.settings = services.settings
    parts.limiter.is_personal = services.settings.profile == "personal"
    parts.stores = services.stores
    parts.commands = services.commands
    parts.model = model
    parts.speaking = services.speaking
    parts.answer_memory = build_answer_memory(services.stores, services.settings)
    parts.visitors.settings = services.settings
    parts.uploads.hearing = services.hearing
    app[DESK].follow(
        settings=services.settings,
        stores=services.stores,
        context_inspector=services.context_inspector,
        playground=services.playground,
        demo=model.offline,
    )


def count_screens(app: web.Application) -> dict[str, int]:
    """Return the number of open connections: of chat pages, of dashboards, and by transport."""
    hub = app[PARTS].hub
    return {"chat": hub.screens, "desk": app[DESK].live.streams, **hub.count_transports()}


def list_present(app: web.Application) -> Present:
    """Return the operators and addresses that have a page open in this process."""
    places = {subscriber.address_id for subscriber in app[PARTS].hub.list_subscribers()} - {0}
    return Present(operators=tuple(app[DESK].live.operators), addresses=tuple(places))


def start_parts(parts: Parts, *, counts: Counts | None = None) -> None:
    """Start the background work of the parts; `counts` applies rate limits to all processes together.

    None means that each process counts for itself.
    """
    if counts is not None:
        parts.tasks.run_forever(CommonCounts(counts, parts.common_windows).watch)
    parts.hub.start()
    parts.tasks.run_forever(parts.admissions.watch)
    parts.replies.start()


def start_draining(parts: Parts) -> None:
    """Refuse new connections and messages, and tell connected clients to reconnect within 5 seconds."""
    parts.readiness.draining = True
    parts.replies.begin_to_close()
    parts.hub.close_all()


async def stop_parts(parts: Parts, *, drain_seconds: float = DRAIN_SECONDS) -> None:
    start_draining(parts)
    await parts.replies.close(drain_seconds=drain_seconds)
    await parts.sessions.release_unanswered()
    await parts.tasks.drain(2.0)
