"""The table of everything the dashboard serves, and who may have it; what is not in it does not exist."""

from __future__ import annotations

from aiohttp import web

from shared.adapters.postgres.insights import Insights, Pool
from shared.adapters.postgres.operators import Operators
from shared.ports import Announcer
from shared.settings import Settings
from web.dashboard import access, api, login
from web.dashboard.access import Desk, Route, Visit, guarded
from web.dashboard.commands import CommandsLike
from web.dashboard.metrics import metrics_handler


async def page(visit: Visit) -> web.StreamResponse:
    """The same shell for every page; the script reads the address."""
    text = (login.PAGES / "index.html").read_text(encoding="utf-8")
    return web.Response(text=text, content_type="text/html")


def route_table() -> tuple[Route, ...]:
    def get(path: str, need: access.Need, handler: access.Handler) -> Route:
        return Route(method="GET", path=path, need=need, handler=handler)

    def post(path: str, need: access.Need, handler: access.Handler) -> Route:
        return Route(method="POST", path=path, need=need, handler=handler)

    return (
        get("/dashboard/login", "anyone", login.login_page),
        post("/dashboard/login", "anyone", login.log_in),
        post("/dashboard/logout", "anyone", login.log_out),
        get("/dashboard", "viewer", page),
        get("/dashboard/sessions/{id}", "viewer", page),
        get("/dashboard/jobs", "viewer", page),
        get("/dashboard/account", "viewer", page),
        get("/api/v1/me", "viewer", api.me),
        post("/api/v1/me/password", "viewer", login.set_password),
        get("/api/v1/overview", "viewer", api.overview),
        get("/api/v1/sessions", "viewer", api.sessions),
        get("/api/v1/sessions/{id}", "viewer", api.session),
        get("/api/v1/sessions/{id}/messages", "viewer", api.messages),
        get("/api/v1/sessions/{id}/timeline", "viewer", api.timeline),
        get("/api/v1/sessions/{id}/compactions", "viewer", api.compactions),
        get("/api/v1/sessions/{id}/context", "viewer", api.context_audit),
        get("/api/v1/compactions/{id}/messages", "viewer", api.originals),
        post("/api/v1/compactions/{id}/undo", "operator", api.undo),
        post("/api/v1/compactions/{id}/restore", "operator", api.restore),
        get("/api/v1/jobs", "viewer", api.jobs),
        get("/metrics", "metrics", metrics_handler()),
    )


def add_dashboard(
    app: web.Application,
    *,
    pool: Pool,
    settings: Settings,
    commands: CommandsLike | None,
    announcer: Announcer | None,
) -> None:
    """Adds the routes. The application serves `web/static` at `/static` and owns the pool.

    Screens ask again every five seconds while they are seen: `announcer` is taken for the day they listen,
    since following sessions here would replace the set that the chat follows.
    """
    del announcer
    operators = Operators(pool)
    desk = Desk(
        insights=Insights(pool, timezone=settings.timezone),
        operators=operators,
        settings=settings,
        commands=commands,
    )
    for route in route_table():
        app.router.add_route(route.method, route.path, guarded(route, desk))

    async def close(_: web.Application) -> None:
        await operators.close()

    app.on_cleanup.append(close)
