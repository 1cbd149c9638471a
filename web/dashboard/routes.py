"""Routes of the dashboard, and the roles that may use them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from shared.adapters.oidc import OidcProvider, ProviderConfig
from shared.adapters.postgres.db.pool import Pool
from shared.bootstrap.dashboard_stores import (
    DashboardStores,
    build_dashboard_stores,
    build_handover_actions,
    change_dashboard_timezone,
)
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import Stores, build_stores
from shared.config.settings import Settings
from shared.core.verdicts.breaker import BreakerState
from shared.locales import ENGLISH
from shared.runtime import build_crash_point
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.admin.push_sender import PushSender
from shared.services.privacy.erasure import ErasureAnnouncer
from shared.services.privacy.export import DataExporter
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
from web.dashboard.access import AuthedRequest, DashboardDoor, build_handler
from web.dashboard.agents import AgentHandlers
from web.dashboard.alerts import AlertHandlers
from web.dashboard.api import OverviewHandlers, ProcessOffer
from web.dashboard.audit import AuditHandlers
from web.dashboard.handover import HandoverHandlers
from web.dashboard.live import LiveHandlers
from web.dashboard.memory import NoteHandlers
from web.dashboard.metrics import MetricsHandlers, Scrape
from web.dashboard.money import CostHandlers
from web.dashboard.operators import OperatorHandlers
from web.dashboard.pairing import PairingHandlers
from web.dashboard.people import PeopleHandlers
from web.dashboard.search import SearchHandlers
from web.dashboard.series import SeriesHandlers
from web.dashboard.session import SessionHandlers
from web.dashboard.setup import checklist, knowledge, mcp, probes
from web.dashboard.setup import settings as settings_page
from web.dashboard.setup.checklist import ChecklistHandlers
from web.dashboard.setup.knowledge import KnowledgeHandlers
from web.dashboard.setup.mcp import McpHandlers
from web.dashboard.setup.probes import ProbeHandlers
from web.dashboard.setup.settings import SettingsHandlers
from web.dashboard.sign_in import login, oidc, push, second_factor
from web.dashboard.sign_in.login import LoginHandlers
from web.dashboard.sign_in.oidc import ProviderLoginHandlers
from web.dashboard.sign_in.push import OperatorPushHandlers
from web.dashboard.sign_in.second_factor import SecondFactorHandlers
from web.dashboard.sites import SiteHandlers
from web.dashboard.work import WorkHandlers
from web.ports import CommandRunner, FileUploads
from web.protocol.answers import to_plain
from web.rest.operation import HandlerTable, Operation, OperationRouter
from web.server.client_limiter import ClientLimiter
from web.server.dashboard_streams import DashboardNews, Live
from web.server.origins import Proxies
from web.server.words import dashboard_languages, language_of, serve_texts, translate_page

_OF_THE_LIST = frozenset({"q", "channel", "state", "min_pct", "sort", "cursor"})
"""Filters in old bookmarks, from when the list of conversations was the first page; later ones never stood
there, and `from` and `to` are the overview's own.
"""
_PAGES = (
    "sessions", "sessions/{id}", "search", "costs", "inbox", "jobs", "deliveries", "alerts", "account",
    "memory", "people", "people/{id}", "pairing", "agents", "agents/{name}", "sites", "sites/{name}",
)  # fmt: skip
pages = OperationRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHandlers:
    """Handlers of the pages that browsers load."""

    static_root: str
    offer: ProcessOffer

    async def serve_page(self, authed: AuthedRequest) -> web.StreamResponse:
        """Serve the page that all dashboard addresses share; its script shows the view of the address."""
        language = language_of(authed.request)
        page = (login.PAGES / "index.html").read_text(encoding="utf-8")
        text = translate_page(language, page, static_root=self.static_root)
        me = json.dumps(api.build_me(authed.operator, self.offer), default=to_plain)
        text = text.replace("[[me]]", me.replace("<", "\\u003c"))
        if language != ENGLISH:
            early = f'<link rel="preload" as="fetch" crossorigin href="/dashboard/words/{language}">\n</head>'
            text = text.replace("</head>", early)
        return web.Response(text=text, content_type="text/html")

    @pages.page("GET /dashboard/words/{language}", role="viewer")
    async def serve_language(self, authed: AuthedRequest) -> web.StreamResponse:
        """Return the texts of a language, which pages in other languages than English load first."""
        return await serve_texts(authed.request)

    @pages.page("GET /dashboard/words", role="viewer")
    async def serve_languages(self, authed: AuthedRequest) -> web.StreamResponse:
        """Return the languages of the dashboard."""
        return web.json_response(dashboard_languages())

    @pages.page("GET /dashboard", role="viewer")
    async def serve_first_page(self, authed: AuthedRequest) -> web.StreamResponse:
        """Serve the first page; redirect an address with filters to the list of conversations."""
        if authed.request.query.keys() & _OF_THE_LIST:
            return web.Response(
                status=303,
                headers={"Location": f"/dashboard/sessions?{authed.request.rel_url.raw_query_string}"},
            )
        return await self.serve_page(authed)


for _place in _PAGES:
    pages.page(f"GET /dashboard/{_place}", role="viewer")(PageHandlers.serve_page)
pages.page("GET /dashboard/settings", role="operator")(PageHandlers.serve_page)
pages.page("GET /dashboard/operators", role="admin")(PageHandlers.serve_page)
pages.page("GET /dashboard/audit", role="admin")(PageHandlers.serve_page)

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
"""All operations and pages of the dashboard, in the order of the OpenAPI document."""


def build_handlers(
    *,
    settings: Settings,
    stores: Stores,
    dashboard_stores: DashboardStores,
    commands: CommandRunner | None,
    handovers: HandoverService | None,
    context_inspector: ContextInspector | None,
    job_admin: JobAdmin | None,
    playground: Playground | None,
    announcer: ErasureAnnouncer | None,
    live: Live,
    scrape: Scrape,
    breakers: Callable[[], Mapping[str, BreakerState]] | None,
    provider: OidcProvider | None,
    files: FileUploads | None,
    limiter: ClientLimiter | None,
    push_sender: PushSender | None,
    demo: bool,
    static_root: str,
) -> tuple[object, ...]:
    """Build the objects whose methods are the handlers of the dashboard, each with its services.

    A service that is None makes its operations answer 503.
    """
    offer = ProcessOffer(
        runs_commands=commands is not None,
        hands_over=handovers is not None,
        takes_over=settings.has_handover,
        inspects=context_inspector is not None,
    )
    services = build_operator_services(
        stores, announcer=announcer, crash_point=build_crash_point(settings.crash_point)
    )
    exporter = DataExporter(store=stores.export, clock=SystemClock())
    actions = None if handovers is None else build_handover_actions(handovers, stores, dashboard_stores)
    logging_in = LoginHandlers(
        settings=settings,
        operators=dashboard_stores.operators,
        live=live,
        static_root=static_root,
        provider=provider,
    )
    return (
        PageHandlers(static_root=static_root, offer=offer),
        logging_in,
        ProviderLoginHandlers(
            settings=settings, login=logging_in, login_tries=dashboard_stores.login_tries,
            operator_admin=stores.operator_admin, operators=dashboard_stores.operators, provider=provider,
        ),
        OverviewHandlers(
            offer=offer, settings=settings, demo=demo, insights=dashboard_stores.overview,
            alert_insights=dashboard_stores.alerts, breakers=breakers, uploads=stores.uploads,
            commands=commands,
        ),
        HandoverHandlers(
            settings=settings, files=files, limiter=limiter, inbox=stores.inbox, handovers=handovers,
            actions=actions,
        ),
        SearchHandlers(message_search=stores.message_search, session_insights=dashboard_stores.sessions),
        SessionHandlers(
            session_insights=dashboard_stores.sessions, exporter=exporter, commands=commands,
            context_inspector=context_inspector,
        ),
        WorkHandlers(job_insights=dashboard_stores.jobs, job_admin=job_admin),
        LiveHandlers(live=live, operators=dashboard_stores.operators),
        AlertHandlers(
            settings=settings, alert_insights=dashboard_stores.alerts, alerts=stores.alerts,
            alert_service=services.alerts,
        ),
        MetricsHandlers(settings=settings, scrape=scrape),
        OperatorHandlers(operator_admin=stores.operator_admin, settings=settings),
        SecondFactorHandlers(
            settings=settings, login=logging_in, second_factors=dashboard_stores.second_factors
        ),
        OperatorPushHandlers(settings=settings, push=stores.push, push_sender=push_sender),
        AuditHandlers(audit_insights=dashboard_stores.audit),
        CostHandlers(
            settings=settings, cost_insights=dashboard_stores.costs, insights=dashboard_stores.overview
        ),
        SeriesHandlers(settings=settings, hourly_stats=stores.hourly_stats),
        NoteHandlers(memory_insights=dashboard_stores.memory, notes=stores.notes, announcer=announcer),
        PeopleHandlers(
            people_insights=dashboard_stores.people, exporter=exporter, person_service=services.people,
        ),
        PairingHandlers(
            pairing_service=services.pairing, telegram_access=stores.telegram_access,
            telegram_bots=stores.telegram_bots,
        ),
        AgentHandlers(
            settings=settings, agents=stores.agents, agent_service=services.agents, playground=playground,
            sites=stores.sites, stored_settings=dashboard_stores.stored_settings,
        ),
        KnowledgeHandlers(knowledge=stores.knowledge, agents=stores.agents),
        McpHandlers(
            stored_settings=dashboard_stores.stored_settings, mcp_tool_lists=stores.mcp_tool_lists,
            settings=settings, agents=stores.agents,
        ),
        SiteHandlers(
            sites=stores.sites, site_service=services.sites, settings=settings, agents=stores.agents
        ),
        SettingsHandlers(stored_settings=dashboard_stores.stored_settings, settings=settings),
        ProbeHandlers(stored_settings=dashboard_stores.stored_settings),
        ChecklistHandlers(
            settings=settings, insights=dashboard_stores.overview, telegram_bots=stores.telegram_bots,
            demo=demo, operators=dashboard_stores.operators,
        ),
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Dashboard:
    """Dashboard of this process: its access checks, its handlers, and its followers of changes."""

    door: DashboardDoor
    dashboard_stores: DashboardStores
    live: Live
    handlers: HandlerTable
    build: Callable[..., Iterable[object]]
    """`build_handlers` with all that no setting replaces."""

    def follow(
        self,
        *,
        settings: Settings,
        stores: Stores,
        context_inspector: ContextInspector | None,
        playground: Playground | None,
        demo: bool,
    ) -> None:
        """Rebuild the handlers with these settings, stores and services, after stored settings changed.

        Logins and open streams are kept.
        """
        self.dashboard_stores = change_dashboard_timezone(
            self.dashboard_stores, settings, former=self.door.settings
        )
        self.door.settings = settings
        self.handlers.replace(
            self.build(
                settings=settings,
                stores=stores,
                dashboard_stores=self.dashboard_stores,
                context_inspector=context_inspector,
                playground=playground,
                demo=demo,
            )
        )

    def build_handler(self, operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the aiohttp handler of an operation, with this dashboard's access checks."""
        return build_handler(operation, self.door, self.handlers)

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application, which ends the streams when it shuts down."""
        for one in OPERATIONS:
            # Visitors' routes were added before and win; they pass an operator's request to the same handler.
            app.router.add_route(one.method, one.pattern, self.build_handler(one))
        app.on_shutdown.append(self._end_streams)
        app.on_cleanup.append(self._close)

    async def _end_streams(self, _: web.Application) -> None:
        await self.live.close()

    async def _close(self, _: web.Application) -> None:
        await self.door.operators.close()


def build_dashboard(
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
    files: FileUploads | None = None,
    limiter: ClientLimiter | None = None,
    push_sender: PushSender | None = None,
    demo: bool = False,
    static_root: str = "/static",
) -> Dashboard:
    """Build the dashboard; `add_to` adds its routes to an application.

    The application serves `web/static` at `/static`, its packed files at `static_root`, and owns the pool.
    `announcer` announces new entries to clients. `news` must be a second connection, since following a topic
    replaces the set that the chat follows. Operations of a service that is None answer 503.
    """
    dashboard_stores = build_dashboard_stores(pool, settings)
    live = Live(dashboard_stores.jobs.load_pulse, news=news)
    build = partial(
        build_handlers,
        commands=commands,
        handovers=handovers,
        job_admin=job_admin,
        announcer=announcer,
        live=live,
        scrape=Scrape(dashboard_stores.durations, dashboard_stores.metrics, dashboard_stores.running_sums),
        breakers=breakers,
        provider=_provider(settings),
        files=files,
        limiter=limiter,
        push_sender=push_sender,
        static_root=static_root,
    )
    dashboard = Dashboard(
        door=DashboardDoor(
            operators=dashboard_stores.operators,
            settings=settings,
            proxies=Proxies(settings.trusted_proxies, public_url=settings.public_url),
        ),
        dashboard_stores=dashboard_stores,
        live=live,
        handlers=HandlerTable(),
        build=build,
    )
    dashboard.follow(
        settings=settings,
        stores=stores or build_stores(pool, timezone=settings.timezone),
        context_inspector=context_inspector,
        playground=playground,
        demo=demo,
    )
    return dashboard


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
