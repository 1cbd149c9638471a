"""Puts the web process together: routes, middleware, and the parts that the handlers work with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import structlog
from aiohttp import web

from shared.adapters.postgres.events import PostgresEvents
from shared.adapters.postgres.export import PostgresExport
from shared.adapters.postgres.notes import PostgresNotes
from shared.adapters.postgres.people import PostgresPeople
from shared.adapters.postgres.readiness import PostgresReadiness
from shared.adapters.postgres.visitors import PostgresVisitors
from shared.app import SystemClock
from shared.core.command_texts import LANGUAGES, described
from shared.core.commands import COMMANDS
from shared.services.exporting import Exporting
from shared.settings import Settings
from shared.tasks import Tasks
from web import memory, rest, routes
from web.chat import chat
from web.exporting import EXPORT_PATH, export
from web.hub import Announcements, Hub
from web.limits import LOCAL, Limits, Places, Windows
from web.origins import Proxies
from web.pages import Files
from web.parts import PARTS, Commanding, CommandShown, Handler, ModelShown, Parts, Talking
from web.replies import Replies
from web.security import MAX_BODY_BYTES, guard, preflight
from web.visitors import Visitors

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10.0
ORIGINALS = "/api/v1/compactions/{id}/messages"


class Services(Protocol):
    """What `shared.app.open_app` gives, as far as this process needs it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def pool(self) -> Any: ...
    @property
    def announcer(self) -> Announcements: ...
    @property
    def conversation(self) -> Talking: ...
    @property
    def commands(self) -> Commanding: ...


def make_parts(
    services: Services,
    *,
    model: ModelShown,
    limits: Limits | None = None,
    command_table: Sequence[CommandShown] | None = None,
) -> Parts:
    """`limits` for everybody replaces the usual ones, those of a person's own machine too."""
    settings, tasks = services.settings, Tasks()
    proxies = Proxies(settings.trusted_proxies, public_url=settings.public_url)
    events = PostgresEvents(services.pool)
    hub = Hub(announcer=services.announcer, events=events, measure=services.conversation.gauge, tasks=tasks)
    usual = limits or Limits()
    replies = Replies(services.conversation, hub)
    hub.on_due = replies.look_now
    return Parts(
        settings=settings,
        conversation=services.conversation,
        commands=services.commands,
        command_table=web_commands() if command_table is None else command_table,
        model=model,
        exporting=Exporting(store=PostgresExport(services.pool), clock=SystemClock()),
        events=events,
        notes=PostgresNotes(services.pool),
        schema=PostgresReadiness(services.pool),
        visitors=Visitors(PostgresVisitors(services.pool), settings=settings, proxies=proxies),
        proxies=proxies,
        files=Files(),
        hub=hub,
        replies=replies,
        people=PostgresPeople(services.pool),
        tasks=tasks,
        limits=usual,
        local_limits=limits or LOCAL,
        session_windows=Windows(usual.messages_seconds),
        address_windows=Windows(usual.messages_seconds),
        session_places=Places(),
        address_places=Places(),
    )


def make_web_app(services: Services, parts: Parts) -> web.Application:
    """The application; `start_parts` and `stop_parts` belong around its life."""
    app = web.Application(middlewares=[guard], client_max_size=MAX_BODY_BYTES)
    app[PARTS] = parts
    add = app.router
    # Before the dashboard's: the same address, for those whose summary it is; others are passed on.
    originals = add.add_get(ORIGINALS, rest.originals)
    add.add_get("/", routes.root)
    add.add_get("/ws", chat)
    add.add_get("/chat", routes.chat_page)
    add.add_get("/widget.js", routes.widget)
    add.add_get("/static/{path:.+}", routes.static)
    add.add_get("/static-{digest:[0-9a-f]+}/{path:.+}", routes.static_for_ever)
    add.add_get("/healthz", routes.healthz)
    add.add_get("/readyz", routes.readyz)
    add.add_get("/api/v1/commands", rest.list_commands)
    add.add_get("/api/v1/archived", rest.archived)
    add.add_post("/api/v1/commands/{name:[a-z][a-z0-9_]*}", rest.run_command)
    add.add_get(memory.NOTES, memory.list_notes)
    add.add_put(memory.NOTE, memory.change_note)
    add.add_delete(memory.NOTE, memory.put_note_away)
    add.add_post(memory.RESTORE, memory.restore_note)
    for path in (memory.NOTES, memory.NOTE, memory.RESTORE):
        add.add_route("OPTIONS", path, preflight)
    ours = ("/api/v1/commands", "/api/v1/commands/{name:[a-z][a-z0-9_]*}", "/api/v1/archived", ORIGINALS)
    add.add_get(EXPORT_PATH, export)
    for path in (*ours, EXPORT_PATH):
        add.add_route("OPTIONS", path, preflight)
    _add_dashboard(app, services)
    app[rest.OPERATORS] = rest.OperatorsDoor(originals=_other_handler(app, originals))
    return app


def _add_dashboard(app: web.Application, services: Services) -> None:
    """Imported late: a process without the package still talks to people."""
    try:
        from web.dashboard import add_dashboard
    except ImportError as error:
        log.warning("dashboard_not_mounted", reason=str(error))
        return
    add_dashboard(
        app,
        pool=services.pool,
        settings=services.settings,
        commands=services.commands,
        announcer=None,
    )


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
            translated={language: described(command, language) for language in LANGUAGES},
        )
        for command in COMMANDS
        if "web" in command.channels and command.who == "person"
    )


def start_parts(parts: Parts) -> None:
    parts.hub.start()
    parts.replies.start()


def begin_to_drain(parts: Parts) -> None:
    """Nobody new is sent to us, and those who are here are told to come back."""
    parts.readiness.draining = True
    parts.replies.begin_to_close()
    parts.hub.close_all()


async def stop_parts(parts: Parts, *, drain_seconds: float = DRAIN_SECONDS) -> None:
    begin_to_drain(parts)
    await parts.replies.close(drain_seconds=drain_seconds)
    await parts.tasks.drain(2.0)
