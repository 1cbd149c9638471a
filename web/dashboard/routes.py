"""Routes of the dashboard, and the roles that may use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from aiohttp import web

from shared.adapters.oidc import OidcProvider, ProviderConfig
from shared.adapters.postgres.dashboard.read_models import Pool
from shared.bootstrap.dashboard_stores import build_dashboard_stores
from shared.bootstrap.stores import Stores, build_stores
from shared.config.settings import Settings
from shared.core.verdicts.breaker import BreakerState
from shared.locales import ENGLISH
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.privacy.erasure import ErasureAnnouncer
from shared.services.tools.handover import HandoverService
from web.dashboard import (
    agents,
    alerts,
    api,
    audit,
    handover,
    live,
    memory,
    metrics,
    money,
    operators,
    pairing,
    people,
    search,
    series,
    session,
    sites,
    work,
)
from web.dashboard.access import AuthedRequest, DashboardContext, build_handler
from web.dashboard.metrics import Scrape
from web.dashboard.setup import checklist, knowledge, mcp, probes
from web.dashboard.setup import settings as settings_page
from web.dashboard.sign_in import login, oidc, push, second_factor
from web.parts import CommandRunner
from web.rest.operation import Operation, OperationRouter
from web.server.dashboard_streams import DashboardNews, Live
from web.server.origins import Proxies
from web.server.words import dashboard_languages, language_of, serve_texts, translate_page

_OF_THE_LIST = frozenset({"q", "channel", "state", "min_pct", "sort", "cursor"})
_PAGES = (
    "sessions", "sessions/{id}", "search", "costs", "inbox", "jobs", "deliveries", "alerts", "account",
    "memory", "people", "people/{id}", "pairing", "agents", "agents/{name}", "sites", "sites/{name}",
)  # fmt: skip
pages = OperationRouter()


async def serve_page(authed: AuthedRequest) -> web.StreamResponse:
    """Serve the HTML page that all dashboard addresses share; its script shows the view of the address."""
    language = language_of(authed.request)
    page = (login.PAGES / "index.html").read_text(encoding="utf-8")
    text = translate_page(language, page, static_root=authed.context.static_root)
    text = text.replace("[[me]]", json.dumps(api.build_me(authed)).replace("<", "\\u003c"))
    if language != ENGLISH:
        early = f'<link rel="preload" as="fetch" crossorigin href="/dashboard/words/{language}">\n</head>'
        text = text.replace("</head>", early)
    return web.Response(text=text, content_type="text/html")


@pages.page("GET /dashboard/words/{language}", role="viewer")
async def serve_language(authed: AuthedRequest) -> web.StreamResponse:
    """Return the texts of a language, which pages in other languages than English load first."""
    return await serve_texts(authed.request)


@pages.page("GET /dashboard/words", role="viewer")
async def serve_languages(authed: AuthedRequest) -> web.StreamResponse:
    """Return the languages of the dashboard."""
    return web.json_response(dashboard_languages())


@pages.page("GET /dashboard", role="viewer")
async def serve_first_page(authed: AuthedRequest) -> web.StreamResponse:
    """Serve the first page; redirect an address with filters to the list of conversations."""
    if authed.request.query.keys() & _OF_THE_LIST:
        return web.Response(
            status=303, headers={"Location": f"/dashboard/sessions?{authed.request.rel_url.raw_query_string}"}
        )
    return await serve_page(authed)


for _place in _PAGES:
    pages.page(f"GET /dashboard/{_place}", role="viewer")(serve_page)
pages.page("GET /dashboard/settings", role="operator")(serve_page)
pages.page("GET /dashboard/operators", role="admin")(serve_page)
pages.page("GET /dashboard/audit", role="admin")(serve_page)

OPERATIONS: tuple[Operation, ...] = (
    *pages,
    *login.router,
    *oidc.router,
    *api.router,
    *handover.router,
    *search.router,
    *session.router,
    *work.router,
    *live.router,
    *alerts.router,
    *metrics.router,
    *operators.router,
    *second_factor.router,
    *push.router,
    *audit.router,
    *money.router,
    *series.router,
    *memory.router,
    *people.router,
    *pairing.router,
    *agents.router,
    *knowledge.router,
    *mcp.router,
    *sites.router,
    *settings_page.router,
    *probes.router,
    *checklist.router,
)


def add_dashboard(
    app: web.Application,
    *,
    pool: Pool,
    settings: Settings,
    commands: CommandRunner | None,
    stores: Stores | None = None,
    announcer: ErasureAnnouncer | None = None,
    news: DashboardNews | None = None,
    handovers: HandoverService | None = None,
    context_inspector: ContextInspector | None = None,
    job_admin: JobAdmin | None = None,
    playground: Playground | None = None,
    breakers: Callable[[], Mapping[str, BreakerState]] | None = None,
    demo: bool = False,
    static_root: str = "/static",
) -> DashboardContext:
    """Add the dashboard's routes to an application, and return the context that they share.

    The application serves `web/static` at `/static`, its packed files at `static_root`, and owns the pool.
    `announcer` tells screens of new entries. `news` must be a second connection, since following a topic
    replaces the set that the chat follows.
    """
    admin = build_dashboard_stores(pool, settings)
    following = Live(admin.jobs.load_pulse, news=news)
    context = DashboardContext(
        stores=stores or build_stores(pool, timezone=settings.timezone),
        admin=admin,
        settings=settings,
        commands=commands,
        handovers=handovers,
        context_inspector=context_inspector,
        job_admin=job_admin,
        playground=playground,
        live=following,
        scrape=Scrape.from_stores(admin),
        proxies=Proxies(settings.trusted_proxies, public_url=settings.public_url),
        provider=_provider(settings),
        breakers=breakers,
        announcer=announcer,
        demo=demo,
        static_root=static_root,
    )
    for one in OPERATIONS:
        app.router.add_route(one.method, one.path, build_handler(one, context))

    async def close(_: web.Application) -> None:
        await admin.operators.close()

    async def end_streams(_: web.Application) -> None:
        await following.close()

    app.on_shutdown.append(end_streams)
    app.on_cleanup.append(close)
    return context


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
