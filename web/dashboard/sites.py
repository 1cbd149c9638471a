"""Sites of the widget for operators: how each looks and for whom it is, its secrets, and a preview."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from aiohttp import web
from pydantic import Field

from shared.config.bots import DEFAULT_AGENT
from shared.config.settings import BadSettings, Settings, resolve_secret_key
from shared.config.sites import (
    ROW_FIELDS,
    BadSiteConfig,
    SiteView,
    build_public_config,
    build_site_form,
    read_site_config,
)
from shared.services.admin.site_service import SiteService, StaleSite, UnknownSiteAgent
from web.dashboard.access import HEADERS, AuthedRequest
from web.dashboard.agents import CreatedObject
from web.dashboard.requests import NewName, Seen, build_stale_refusal, parse_version
from web.dashboard.sign_in.login import PAGES
from web.rest.kinds import DONE, Success, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal
from web.server.words import language_of, translate_page

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import PostgresAgents
    from shared.adapters.postgres.people.sites import PostgresSites

router = OperationRouter()
_PREVIEW_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'; "
    "connect-src http://{host}/static/locales/"
)
"""Content policy of the preview, which loads nothing but the widget. `http` covers `https`, too."""
Language = Annotated[Any, Field(json_schema_extra={"type": "string", "maxLength": 40})]
Name = Annotated[str, describe("name of a site", json_schema_extra={"minLength": 1, "maxLength": 64})]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSite:
    name: str
    agent: str
    audience: str
    origins: list[str]
    verified: str
    title: str | None
    visitors: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    sites: list[ListedSite]


SiteSettings = Annotated[
    dict[str, Any], describe("agent, audience, origins and texts of the site; docs/widget.md lists them")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSecretId:
    id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedOrigin:
    origin: str
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteWhole:
    name: str
    settings: SiteSettings
    version: int
    visitors: int
    secrets: list[SiteSecretId]
    refused: list[RefusedOrigin]
    snippet: str
    agents: list[str]


SiteLook = Annotated[dict[str, Any], describe("public settings of the widget, as a page receives them")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteJudged:
    problems: list[str]
    look: SiteLook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSecret:
    id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteHandlers:
    """Handlers of sites, their origins and secrets."""

    sites: PostgresSites
    site_service: SiteService
    settings: Settings
    agents: PostgresAgents

    @router.page("GET /dashboard/preview", role="viewer")
    async def preview(self, authed: AuthedRequest) -> Reply:
        """Serve the widget page without a server behind it, for the frame beside the form."""
        text = translate_page(
            language_of(authed.request), (PAGES / "preview.html").read_text(encoding="utf-8")
        )
        policy = _PREVIEW_POLICY.format(host=quote(authed.request.host, safe=":[]"))
        headers = {**HEADERS, "Content-Security-Policy": policy}
        return web.Response(text=text, content_type="text/html", headers=headers)

    @router.on("GET /sites", role="viewer")
    async def list_sites(self, authed: AuthedRequest) -> Sites:
        """List sites."""
        return Sites(sites=[_listed(row) for row in await self.sites.list_all()])

    @router.on("POST /sites", status=201, role="admin", body="NewName", strict=True, refusals=(409,))
    async def make_site(self, authed: AuthedRequest, *, name: NewName) -> CreatedObject:
        """Create a site.

        Pages can use it once it has allowed origins.
        """
        form = {"agent": DEFAULT_AGENT, "audience": "personal", "origins": []}
        try:
            await self.site_service.add_site(name, form, by=authed.operator.name)
        except UnknownSiteAgent as error:
            raise HttpRefusal(409, "no_default_agent", error.problems[0]) from None
        return CreatedObject(name=name)

    @router.on("GET /sites/{name}/settings", role="viewer")
    async def site(self, authed: AuthedRequest, name: Name) -> SiteWhole:
        """Get a site with settings, secret ids and snippet."""
        return await self._whole(await self._row(name))

    @router.on(
        "POST /sites/{name}/check", role="viewer", body="SiteSettings", strict=True,
        refusals=(404, 413),
    )  # fmt: skip
    async def check_site(
        self, authed: AuthedRequest, name: Name, *, settings: SiteSettings, language: Language = "en"
    ) -> SiteJudged:
        """Validate site settings and preview them."""
        await self._row(name)
        problems = await self._problems(settings)
        config = {
            key: value for key, value in settings.items() if key not in ROW_FIELDS and value is not None
        }
        look = None
        if not problems and isinstance(language, str):
            look = build_public_config(read_site_config(config), language[:40])
        return SiteJudged(problems=problems, look=look)

    @router.on(
        "PUT /sites/{name}/settings", role="admin", body="SiteSettings", strict=True,
        refusals=(404, 409, 413, 422, 428),
    )  # fmt: skip
    async def change_site(
        self,
        authed: AuthedRequest,
        name: Name,
        *,
        settings: SiteSettings,
        language: Language = "en",
        if_match: Seen = "",
    ) -> SiteWhole:
        """Change a site.

        Takes effect within two seconds.
        """
        await self._row(name)
        seen, by = parse_version(if_match), authed.operator.name
        try:
            await self.site_service.change_site(name, settings, seen=seen, by=by)
        except BadSiteConfig as error:
            words = "This cannot be used; nothing was changed."
            raise HttpRefusal(422, error.code, words, problems=list(error.problems)) from None
        except StaleSite:
            theirs = await self._whole(await self._row(name))
            raise build_stale_refusal(yours=settings, theirs=theirs) from None
        return await self._whole(await self._row(name))

    @router.on("POST /sites/{name}/origins", role="admin", body="SiteOrigin", refusals=(404, 422))
    async def allow_origin(
        self,
        authed: AuthedRequest,
        name: Name,
        *,
        origin: Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 300})],
    ) -> SiteWhole:
        """Allow an origin to use a site.

        Takes effect within two seconds.
        """
        try:
            await self.site_service.allow_origin(name, origin, by=authed.operator.name)
        except BadSiteConfig as error:
            words = "This is not an origin such as https://shop.example."
            raise HttpRefusal(422, error.code, words) from None
        return await self._whole(await self._row(name))

    @router.on("POST /sites/{name}/secrets", role="admin", refusals=(404, 409, 503))
    async def make_site_secret(self, authed: AuthedRequest, name: Name) -> SiteSecret:
        """Create a secret that signs visitors' identities.

        The secret is returned only once.
        """
        await self._row(name)
        try:
            key = await asyncio.to_thread(resolve_secret_key, self.settings)
        except OSError as error:
            raise BadSettings(()) from error
        made = await self.site_service.add_secret(name, key, by=authed.operator.name)
        return SiteSecret(id=made.id, secret=made.secret)

    @router.on(
        "DELETE /sites/{name}/secrets/{id}", role="admin", refusals=(404,),
        missing="There is no such secret.",
    )  # fmt: skip
    async def revoke_site_secret(
        self,
        authed: AuthedRequest,
        name: Name,
        secret: Annotated[
            str, describe("id of a secret", json_schema_extra={"minLength": 1, "maxLength": 40})
        ],
    ) -> Success | None:
        """Revoke a secret.

        Visitors who were signed in with it must sign in again.
        """
        revoked = await self.site_service.revoke_secret(name, secret, by=authed.operator.name)
        return DONE if revoked else None

    async def _row(self, name: str) -> SiteView:
        row = await self.sites.find(name)
        if row is None:
            raise HttpRefusal(404, "not_found", "There is no such site.")
        return row

    async def _problems(self, settings: Mapping[str, Any]) -> list[str]:
        try:
            await self.site_service.check_form(settings)
        except BadSiteConfig as error:
            return list(error.problems)
        return []

    async def _whole(self, row: SiteView) -> SiteWhole:
        found = await self.sites.list_secrets(row.name)
        place = html.escape(self.settings.base_url.rstrip("/"), quote=True)
        return SiteWhole(
            name=row.name,
            settings=build_site_form(row),
            version=row.version,
            visitors=row.visitors,
            secrets=[SiteSecretId(id=secret_id, created_at=at) for secret_id, at in found],
            refused=[
                RefusedOrigin(origin=one.origin, count=one.refused, last_at=one.last_at)
                for one in await self.sites.list_refused_origins(row.name)
            ],
            snippet=f'<script src="{place}/widget.js" data-site="{row.name}" async></script>',
            agents=[agent.name for agent in await self.agents.list_all()],
        )


def _listed(row: SiteView) -> ListedSite:
    return ListedSite(
        name=row.name,
        agent=row.agent,
        audience=row.audience,
        origins=list(row.origins),
        verified=row.config.get("verified", "off"),
        title=row.config.get("title"),
        visitors=row.visitors,
        version=row.version,
    )
