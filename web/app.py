"""Puts the web process together: routes, middleware, and the parts that the handlers work with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from aiohttp import web

from shared.adapters.models.breaker import BreakerState
from shared.adapters.postgres.db.wellness import storage_limiter
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.stores import Stores
from shared.config.settings import Settings
from shared.core.commands.commands import COMMANDS
from shared.core.commands.texts import LANGUAGES, command_texts, described
from shared.runtime.crash_points import CrashPoint
from shared.runtime.tasks import BackgroundTasks
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.privacy.export import DataExporter
from shared.services.tools.handover import HandoverService
from web import routes
from web.api import commands, memory, messages, recovery, rest, uploads
from web.api.commands import RUNS, Runs
from web.api.export import EXPORT_PATH, export
from web.api.spec import openapi
from web.api.spec.operations import scope_of
from web.auth.api_key_auth import API, KEY_SECONDS, ApiKeyAuth, keys_at_the_door
from web.auth.operator_auth import OPERATORS, OperatorAuth
from web.auth.token_revocation import TokenRevocation
from web.auth.visitors import Visitors
from web.chat import event_stream_chat
from web.chat.socket_chat import chat
from web.parts import PARTS, Commanding, CommandShown, Handler, ModelShown, Parts, Talking
from web.security import MAX_BODY_BYTES, guard, preflight
from web.server.hub import Announcements, Hub
from web.server.origins import Proxies
from web.server.pages import Files
from web.server.rate_limits import LOCAL, ClientLimits, Places, RateWindows, Tries
from web.server.reply_broadcast import Replies
from web.server.shared_rate_limits import CommonCounts, Counts

if TYPE_CHECKING:
    from web.dashboard.live import DashboardNews

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10.0
ORIGINALS = "/api/v1/compactions/{id}/messages"


class Services(Protocol):
    """What `shared.bootstrap.app.open_app` gives, as far as this process needs it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def pool(self) -> Any: ...
    @property
    def stores(self) -> Stores: ...
    @property
    def announcer(self) -> Announcements: ...
    @property
    def sessions(self) -> Talking: ...
    @property
    def commands(self) -> Commanding: ...
    @property
    def handover_service(self) -> HandoverService | None: ...
    @property
    def context_inspector(self) -> ContextInspector | None: ...
    @property
    def job_admin(self) -> JobAdmin | None: ...
    def list_breakers(self) -> Mapping[str, BreakerState]: ...
    @property
    def dashboard_announcer(self) -> DashboardNews | None: ...
    @property
    def crash_point(self) -> CrashPoint: ...


def make_parts(
    services: Services,
    *,
    model: ModelShown,
    limits: ClientLimits | None = None,
    command_table: Sequence[CommandShown] | None = None,
) -> Parts:
    """`limits` for everybody replaces the usual ones, those of a person's own machine too."""
    settings, tasks = services.settings, BackgroundTasks()
    proxies = Proxies(settings.trusted_proxies, public_url=settings.public_url)
    events = services.stores.events
    hub = Hub(
        announcer=services.announcer, events=events, measure=services.sessions.measure_context, tasks=tasks
    )
    usual = limits or ClientLimits()
    people = services.stores.account_links
    identities = services.stores.identities
    replies = Replies(services.sessions, hub)
    visitors = services.stores.visitors
    hub.on_due = replies.look_now
    return Parts(
        settings=settings,
        conversation=services.sessions,
        commands=services.commands,
        command_table=web_commands() if command_table is None else command_table,
        model=model,
        exporting=DataExporter(store=services.stores.export, clock=SystemClock()),
        events=events,
        history=services.stores.history,
        message_search=services.stores.message_search,
        notes=services.stores.notes,
        schema=services.stores.readiness,
        visitors=Visitors(visitors, identities=identities, settings=settings, proxies=proxies),
        identities=identities,
        proxies=proxies,
        files=Files(),
        hub=hub,
        replies=replies,
        people=people,
        uploads=uploads.Uploads(services.stores.uploads, events),
        tasks=tasks,
        limits=usual,
        local_limits=limits or LOCAL,
        session_windows=RateWindows(usual.messages_seconds),
        address_windows=RateWindows(usual.messages_seconds),
        session_places=Places(),
        address_places=Places(),
        tickets=services.stores.tickets,
        feedback=services.stores.feedback,
        frame_windows=RateWindows(usual.frames_seconds),
        stream_windows=RateWindows(usual.messages_seconds),
        key_windows=RateWindows(KEY_SECONDS),
        recovery_tries=Tries(),
        admissions=TokenRevocation(hub, visitors),
        crash_point=services.crash_point,
        storage_limiter=partial(storage_limiter, services.pool),
    )


def make_web_app(services: Services, parts: Parts) -> web.Application:
    """The application; `start_parts` and `stop_parts` belong around its life."""
    app = web.Application(middlewares=[guard, keys_at_the_door], client_max_size=MAX_BODY_BYTES)
    app[PARTS] = parts
    app[RUNS] = Runs()
    app[API] = ApiKeyAuth(
        keys=services.stores.api_keys,
        sessions=services.stores.api_sessions,
        scope_of=scope_of,
        windows=parts.key_windows,
    )
    add = app.router
    # Before the dashboard's: the same addresses, for those whose own it is; others are passed on.
    originals = add.add_get(ORIGINALS, rest.originals)
    written = add.add_get(messages.MESSAGES, messages.list_messages)
    add.add_post(messages.SESSIONS, messages.open_session)
    add.add_post(messages.MESSAGES, messages.post_message)
    add.add_get(messages.EVENTS, messages.list_events)
    add.add_get(messages.HISTORY, messages.show_history)
    add.add_get(messages.SEARCH, messages.search_messages)
    add.add_get(openapi.OPENAPI, openapi.openapi)
    attachments = add.add_get(uploads.ATTACHMENT, uploads.attachment)
    add.add_get("/", routes.root)
    add.add_get("/ws", chat)
    _add_stream(app)
    add.add_get("/chat", routes.chat_page)
    add.add_get("/widget.js", routes.widget)
    add.add_get("/static/{path:.+}", routes.static)
    add.add_get("/static-{digest:[0-9a-f]+}/{path:.+}", routes.static_for_ever)
    add.add_get("/healthz", routes.healthz)
    add.add_get("/readyz", routes.readyz)
    add.add_get("/api/v1/commands", rest.list_commands)
    add.add_get("/api/v1/archived", rest.archived)
    add.add_post("/api/v1/commands/{name:[a-z][a-z0-9_]*}", commands.run_command)
    add.add_get(memory.NOTES, memory.list_notes)
    add.add_put(memory.NOTE, memory.change_note)
    add.add_delete(memory.NOTE, memory.put_note_away)
    add.add_post(memory.RESTORE, memory.restore_note)
    for path in (memory.NOTES, memory.NOTE, memory.RESTORE):
        add.add_route("OPTIONS", path, preflight)
    add.add_post(uploads.UPLOADS, uploads.upload)
    add.add_route("OPTIONS", uploads.UPLOADS, uploads.upload_preflight)
    add.add_route("OPTIONS", uploads.ATTACHMENT, preflight)
    ours = ("/api/v1/commands", "/api/v1/commands/{name:[a-z][a-z0-9_]*}", "/api/v1/archived", ORIGINALS)
    # Without HEAD: what is written piece by piece would follow its headers all the same.
    add.add_get(EXPORT_PATH, export, allow_head=False)
    for path in (*ours, EXPORT_PATH, messages.MESSAGES, messages.EVENTS, messages.HISTORY, messages.SEARCH):
        add.add_route("OPTIONS", path, preflight)
    recovery.add_routes(app)
    door = _add_dashboard(app, services)
    app[OPERATORS] = replace(
        door,
        originals=_other_handler(app, originals),
        messages=_other_handler(app, written),
        attachments=_other_handler(app, attachments),
    )
    return app


def _add_stream(app: web.Application) -> None:
    add = app.router
    add.add_post(event_stream_chat.STREAM, event_stream_chat.open_stream)
    # Without HEAD: it would use up the ticket.
    add.add_get(event_stream_chat.STREAM, event_stream_chat.stream, allow_head=False)
    add.add_post(event_stream_chat.SEND, event_stream_chat.send)
    for path in (event_stream_chat.STREAM, event_stream_chat.SEND):
        add.add_route("OPTIONS", path, preflight)


def _add_dashboard(app: web.Application, services: Services) -> OperatorAuth:
    """Imported late: a process without the package still talks to people."""
    try:
        from web.dashboard import add_dashboard
        from web.dashboard.access import signed_in
    except ImportError as error:
        log.warning("dashboard_not_mounted", reason=str(error))
        return OperatorAuth()
    desk = add_dashboard(
        app,
        pool=services.pool,
        stores=services.stores,
        settings=services.settings,
        commands=services.commands,
        news=services.dashboard_announcer,
        announcer=services.announcer,
        handovers=services.handover_service,
        inspecting=services.context_inspector,
        work_desk=services.job_admin,
        breakers=services.list_breakers,
    )
    return OperatorAuth(
        who=partial(signed_in, desk=desk), audit=desk.admin.operators.record, streams=desk.open_streams
    )


def screens(app: web.Application) -> dict[str, int]:
    """Open ones, by kind."""
    return {"chat": app[PARTS].hub.screens, "desk": app[OPERATORS].streams()}


def _other_handler(app: web.Application, ours: web.AbstractRoute) -> Handler | None:
    """Who else serves the address of one of our routes."""
    assert ours.resource is not None
    for route in app.router.routes():
        place = route.resource.canonical if route.resource else ""
        if route is not ours and (route.method, place) == (ours.method, ours.resource.canonical):
            handler: Handler = route.handler
            return handler
    return None


def web_commands() -> tuple[CommandShown, ...]:
    return tuple(
        CommandShown(
            name=command.name,
            description=command.description,
            args=command.args,
            public="public" in command.audiences,
            arguments=command.arguments,
            translated={language: described(command, language) for language in LANGUAGES},
            sections={language: command_texts(language).sections[command.section] for language in LANGUAGES},
        )
        for command in COMMANDS
        if "web" in command.channels and command.who == "person"
    )


def start_parts(parts: Parts, *, counts: Counts | None = None) -> None:
    """With `counts` the limits hold for all processes together."""
    if counts is not None:
        parts.tasks.run_forever(CommonCounts(counts, parts.common_windows).watch)
    parts.hub.start()
    parts.tasks.run_forever(parts.admissions.watch)
    parts.replies.start()


def begin_to_drain(parts: Parts) -> None:
    """Nobody new is sent to us, and those who are here are told to come back."""
    parts.readiness.draining = True
    parts.replies.begin_to_close()
    parts.hub.close_all()


async def stop_parts(parts: Parts, *, drain_seconds: float = DRAIN_SECONDS) -> None:
    begin_to_drain(parts)
    await parts.replies.close(drain_seconds=drain_seconds)
    await parts.conversation.release_unanswered()
    await parts.tasks.drain(2.0)
