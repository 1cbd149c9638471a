"""The table of everything the dashboard serves, and who may have it; what is not in it does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from shared.adapters.models.breaker import BreakerState
from shared.adapters.oidc import OidcProvider, ProviderConfig
from shared.adapters.postgres.dashboard.read_models import Pool
from shared.bootstrap.dashboard_stores import build_dashboard_stores
from shared.bootstrap.stores import Stores, build_stores
from shared.config.settings import Settings
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.privacy.erasure import ErasureAnnouncer
from shared.services.tools.handover import HandoverService
from web.dashboard import (
    access,
    agents,
    alerts,
    api,
    audit,
    handover,
    memory,
    money,
    operators,
    pairing,
    people,
    search,
    session,
    sites,
    work,
)
from web.dashboard import settings as settings_page
from web.dashboard.access import AuthedRequest, CommandsLike, DashboardContext, Route, guarded
from web.dashboard.live import DashboardNews, live_handler, live_of
from web.dashboard.metrics import metrics_handler
from web.dashboard.sign_in import login, oidc, second_factor
from web.server.origins import Proxies

_OF_THE_LIST = frozenset({"q", "channel", "state", "min_pct", "from", "to", "sort", "cursor"})


async def page(visit: AuthedRequest) -> web.StreamResponse:
    """The same shell for every page; the script reads the address."""
    text = (login.PAGES / "index.html").read_text(encoding="utf-8")
    return web.Response(text=text, content_type="text/html")


async def first_page(visit: AuthedRequest) -> web.StreamResponse:
    """The list of conversations once stood here: addresses with its filters lead where it is now."""
    if visit.request.query.keys() & _OF_THE_LIST:
        return web.Response(
            status=303, headers={"Location": f"/dashboard/sessions?{visit.request.rel_url.raw_query_string}"}
        )
    return await page(visit)


def route_table() -> tuple[Route, ...]:
    def get(path: str, need: access.Need, handler: access.Handler) -> Route:
        return Route(method="GET", path=path, need=need, handler=handler)

    def post(path: str, need: access.Need, handler: access.Handler) -> Route:
        return Route(method="POST", path=path, need=need, handler=handler)

    return (
        get("/dashboard/login", "anyone", login.login_page),
        post("/dashboard/login", "anyone", login.log_in),
        post("/dashboard/logout", "anyone", login.log_out),
        get("/dashboard", "viewer", first_page),
        get("/dashboard/sessions", "viewer", page),
        get("/dashboard/sessions/{id}", "viewer", page),
        get("/dashboard/search", "viewer", page),
        get("/dashboard/costs", "viewer", page),
        get("/dashboard/waiting", "viewer", page),
        get("/dashboard/jobs", "viewer", page),
        get("/dashboard/deliveries", "viewer", page),
        get("/dashboard/alerts", "viewer", page),
        get("/dashboard/account", "viewer", page),
        get("/api/v1/me", "viewer", api.me),
        post("/api/v1/me/password", "viewer", login.set_password),
        post("/api/v1/me/display-name", "viewer", operators.show_as),
        get("/api/v1/overview", "viewer", api.overview),
        get("/api/v1/sessions", "viewer", api.sessions),
        get("/api/v1/sessions/{id}", "viewer", api.session),
        get("/api/v1/sessions/{id}/messages", "viewer", api.messages),
        get("/api/v1/sessions/{id}/compactions", "viewer", api.compactions),
        get("/api/v1/sessions/{id}/context", "viewer", api.context_audit),
        get("/api/v1/compactions/{id}/messages", "viewer", api.originals),
        post("/api/v1/compactions/{id}/undo", "operator", api.undo),
        post("/api/v1/compactions/{id}/restore", "operator", api.restore),
        get("/api/v1/handovers", "viewer", handover.handovers),
        post("/api/v1/sessions/{id}/handover", "operator", handover.handover),
        post("/api/v1/sessions/{id}/replies", "operator", handover.reply),
        get("/api/v1/attachments/{id}", "viewer", api.attachment),
        *search.routes(),
        *session.routes(),
        *work.routes(),
        get(access.LIVE, "viewer", live_handler()),
        *alerts.routes(),
        get("/metrics", "metrics", metrics_handler()),
        get("/dashboard/operators", "admin", page),
        get("/dashboard/audit", "admin", page),
        *operators.routes(),
        *second_factor.routes(),
        *audit.routes(),
        *oidc.routes(),
        *money.routes(),
        get("/dashboard/memory", "viewer", page),
        get("/dashboard/people", "viewer", page),
        get("/dashboard/people/{id}", "viewer", page),
        *memory.routes(),
        *people.routes(),
        get("/dashboard/pairing", "viewer", page),
        get("/dashboard/agents", "viewer", page),
        get("/dashboard/agents/{name}", "viewer", page),
        get("/dashboard/sites", "viewer", page),
        get("/dashboard/sites/{name}", "viewer", page),
        get("/dashboard/settings", "operator", page),
        *pairing.routes(),
        *agents.routes(),
        *sites.routes(),
        *settings_page.routes(),
    )


def add_dashboard(
    app: web.Application,
    *,
    pool: Pool,
    settings: Settings,
    commands: CommandsLike | None,
    stores: Stores | None = None,
    announcer: ErasureAnnouncer | None = None,
    news: DashboardNews | None = None,
    handovers: HandoverService | None = None,
    inspecting: ContextInspector | None = None,
    work_desk: JobAdmin | None = None,
    breakers: Callable[[], Mapping[str, BreakerState]] | None = None,
) -> DashboardContext:
    """Adds the routes; the desk that comes back knows who is signed in.

    The application serves `web/static` at `/static` and owns the pool.
    `announcer` only tells people's screens; `news` is one of its own that this follows: following with the
    former would replace the set that the chat follows.
    """
    admin = build_dashboard_stores(pool, settings)
    live = live_of(admin.jobs, news)
    desk = DashboardContext(
        stores=stores or build_stores(pool, timezone=settings.timezone),
        admin=admin,
        settings=settings,
        commands=commands,
        handovers=handovers,
        inspecting=inspecting,
        work=work_desk,
        live=live,
        proxies=Proxies(settings.trusted_proxies, public_url=settings.public_url),
        provider=_provider(settings),
        breakers=breakers,
        announcer=announcer,
    )
    for route in route_table():
        app.router.add_route(route.method, route.path, guarded(route, desk))

    async def close(_: web.Application) -> None:
        await admin.operators.close()

    async def end_streams(_: web.Application) -> None:
        await live.close()

    app.on_shutdown.append(end_streams)
    app.on_cleanup.append(close)
    return desk


def _provider(settings: Settings) -> OidcProvider | None:
    if settings.oidc_issuer is None:
        return None
    secret = settings.oidc_client_secret
    config = ProviderConfig(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=secret.get_secret_value() if secret else "",
        groups=settings.oidc_groups,
    )
    return OidcProvider(config)
