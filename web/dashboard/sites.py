"""Sites of the widget for operators: how each looks and for whom it is, its secrets, and a preview."""

from __future__ import annotations

import asyncio
import html
import secrets
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.encryption import Encryption
from shared.config.bots import DEFAULT_AGENT
from shared.config.settings import BadSettings, resolve_secret_key
from shared.config.sites import (
    ROW_FIELDS,
    BadSiteConfig,
    SiteShown,
    build_public_config,
    read_site_config,
    secret_about,
    site_from,
    whole_of,
)
from shared.config.sites import check_site as check_config
from shared.core.session.events import iso
from web.dashboard.access import HEADERS, AuthedRequest
from web.dashboard.agents import Made
from web.dashboard.requests import NewName, Seen, stale, version_of
from web.dashboard.sign_in.login import PAGES
from web.rest.kinds import DONE, Success, Thing, told
from web.rest.operation import Reply, Room
from web.security import HttpRefusal
from web.server.words import language_of, page_in

room = Room()
_PREVIEW_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'; "
    "connect-src http://{host}/static/locales/"
)
"""Nothing but the widget's words can be asked for; `http` stands for `https`, too."""
Language = Annotated[Any, Field(json_schema_extra={"type": "string", "maxLength": 40})]
Name = Annotated[str, told("of a site", json_schema_extra={"minLength": 1, "maxLength": 64})]

Sites = TypedDict("Sites", {"sites": list[Thing]})
SiteWhole = TypedDict("SiteWhole", {
    "name": str, "settings": Thing, "version": int, "secrets": list[Thing], "refused": list[Thing],
    "snippet": str,
})  # fmt: skip
SiteJudged = TypedDict("SiteJudged", {"problems": list[str], "look": Thing | None})

SiteSecret = TypedDict("SiteSecret", {"id": str, "secret": str})


@room.page("GET /dashboard/preview", role="viewer")
async def preview(visit: AuthedRequest) -> Reply:
    """The widget itself without a server behind it, for the frame beside the form."""
    text = page_in(language_of(visit.request), (PAGES / "preview.html").read_text(encoding="utf-8"))
    policy = _PREVIEW_POLICY.format(host=quote(visit.request.host, safe=":[]"))
    headers = {**HEADERS, "Content-Security-Policy": policy}
    return web.Response(text=text, content_type="text/html", headers=headers)


@room.on("GET /sites", Sites, role="viewer")
async def list_sites(visit: AuthedRequest) -> Reply:
    """Where the widget lives."""
    return {"sites": [_listed(row) for row in await visit.desk.stores.sites.all()]}


@room.on("POST /sites", Made, status=201, role="admin", body="NewName", strict=True, refusals=(409,))
async def make_site(visit: AuthedRequest, *, name: NewName) -> Reply:
    """Make a site, which no page may use until it has origins."""
    whole = {"agent": DEFAULT_AGENT, "audience": "personal", "origins": []}
    if problems := await _problems(visit, whole):
        raise HttpRefusal(409, "no_default_agent", problems[0])
    if not await visit.desk.stores.sites.add(site_from(name, whole, version=1), by=visit.operator.name):
        raise HttpRefusal(409, "name_taken", "There is a site of that name already.")
    return {"name": name}


@room.on("GET /sites/{name}/settings", SiteWhole, role="viewer")
async def site(visit: AuthedRequest, name: Name) -> Reply:
    """A site: settings, secrets' ids, snippet."""
    return await _whole(visit, await _row(visit, name))


@room.on(
    "POST /sites/{name}/check", SiteJudged, role="viewer", body="SiteSettings", strict=True,
    refusals=(404, 413),
)  # fmt: skip
async def check_site(
    visit: AuthedRequest, name: Name, *, settings: Thing, language: Language = "en"
) -> Reply:
    """What would be wrong with settings, and how they look."""
    await _row(visit, name)
    problems = await _problems(visit, settings)
    config = {key: value for key, value in settings.items() if key not in ROW_FIELDS and value is not None}
    look = None
    if not problems and isinstance(language, str):
        look = build_public_config(read_site_config(config), language[:40])
    return {"problems": problems, "look": look}


@room.on(
    "PUT /sites/{name}/settings", SiteWhole, role="admin", body="SiteSettings", strict=True,
    refusals=(404, 409, 413, 422, 428),
)  # fmt: skip
async def change_site(
    visit: AuthedRequest, name: Name, *, settings: Thing, language: Language = "en", if_match: Seen = ""
) -> Reply:
    """Change a site; it holds within ten seconds."""
    row, seen = await _row(visit, name), version_of(if_match)
    if problems := await _problems(visit, settings):
        words = "This cannot be used; nothing was changed."
        raise HttpRefusal(422, "bad_site_config", words, problems=problems)
    wanted = site_from(row.name, settings, version=seen)
    if await visit.desk.stores.sites.change(wanted, by=visit.operator.name) is None:
        raise stale(yours=settings, theirs=await _whole(visit, await _row(visit, name)))
    return await _whole(visit, await _row(visit, name))


@room.on("POST /sites/{name}/origins", SiteWhole, role="admin", body="SiteOrigin", refusals=(404, 422))
async def allow_origin(
    visit: AuthedRequest,
    name: Name,
    *,
    origin: Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 300})],
) -> Reply:
    """Let the pages of an origin use a site's chat; it holds within ten seconds."""
    row = await _row(visit, name)
    settings = whole_of(row)
    if await _problems(visit, {**settings, "origins": [*settings["origins"], origin]}):
        raise HttpRefusal(422, "bad_site_config", "This is no origin such as https://shop.example.")
    await visit.desk.stores.sites.allow(row.name, origin, by=visit.operator.name)
    return await _whole(visit, await _row(visit, name))


@room.on("POST /sites/{name}/secrets", SiteSecret, role="admin", refusals=(404, 409, 503))
async def make_site_secret(visit: AuthedRequest, name: Name) -> Reply:
    """A secret that signs people in, shown this once."""
    row = await _row(visit, name)
    try:
        key = await asyncio.to_thread(resolve_secret_key, visit.desk.settings)
    except OSError as error:
        raise BadSettings(()) from error
    secret_id, secret = secrets.token_hex(4), secrets.token_urlsafe(48)
    sealed = Encryption(key).seal(secret.encode(), about=secret_about(row.name, secret_id))
    store = visit.desk.stores.sites
    if not await store.add_secret(row.name, secret_id, sealed, by=visit.operator.name):
        raise HttpRefusal(409, "two_secrets", "There are two secrets already; revoke one of them first.")
    return {"id": secret_id, "secret": secret}


@room.on(
    "DELETE /sites/{name}/secrets/{id}", Success, role="admin", refusals=(404,),
    missing="There is no such secret.",
)  # fmt: skip
async def revoke_site_secret(
    visit: AuthedRequest,
    name: Name,
    secret: Annotated[str, told("of the secret", json_schema_extra={"minLength": 1, "maxLength": 40})],
) -> Reply:
    """Revoke a secret; whoever it signed in has to come again."""
    row = await _row(visit, name)
    revoked = await visit.desk.stores.sites.revoke_secret(row.name, secret, by=visit.operator.name)
    return DONE if revoked else None


async def _row(visit: AuthedRequest, name: str) -> SiteShown:
    row = await visit.desk.stores.sites.find(name)
    if row is None:
        raise HttpRefusal(404, "not_found", "There is no such site.")
    return row


async def _problems(visit: AuthedRequest, settings: Mapping[str, Any]) -> list[str]:
    try:
        check_config(settings)
    except BadSiteConfig as error:
        return list(error.problems)
    if "\x00" in settings["agent"] or await visit.desk.stores.agents.find(settings["agent"]) is None:
        return ["agent: there is no such agent"]
    return []


async def _whole(visit: AuthedRequest, row: SiteShown) -> dict[str, Any]:
    found = await visit.desk.stores.sites.secrets(row.name)
    place = html.escape(visit.desk.settings.base_url.rstrip("/"), quote=True)
    return {
        "name": row.name,
        "settings": whole_of(row),
        "version": row.version,
        "visitors": row.visitors,
        "secrets": [{"id": secret_id, "created_at": iso(at)} for secret_id, at in found],
        "refused": [
            {"origin": one.origin, "count": one.refused, "last_at": iso(one.last_at)}
            for one in await visit.desk.stores.sites.refused(row.name)
        ],
        "snippet": f'<script src="{place}/widget.js" data-site="{row.name}" async></script>',
        "agents": [agent.name for agent in await visit.desk.stores.agents.all()],
    }


def _listed(row: SiteShown) -> dict[str, Any]:
    return {
        "name": row.name, "agent": row.agent, "audience": row.audience, "origins": list(row.origins),
        "verified": row.config.get("verified", "off"), "title": row.config.get("title"),
        "visitors": row.visitors, "version": row.version,
    }  # fmt: skip
