"""Sites of the widget for operators: how each looks and for whom it is, its secrets, and a preview."""

from __future__ import annotations

import asyncio
import html
import secrets
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from shared.adapters.encryption import Encryption
from shared.config.bots import DEFAULT_AGENT
from shared.config.settings import BadSettings, resolve_secret_key
from shared.config.sites import (
    ROW_FIELDS,
    BadSiteConfig,
    SiteShown,
    build_public_config,
    check_site,
    read_site_config,
    secret_about,
    site_from,
    whole_of,
)
from shared.core.session.client_payloads import iso
from web.dashboard.access import HEADERS, AuthedRequest, DashboardRefusal, Route, answer
from web.dashboard.requests.etag import new_name, seen_version, stale, told
from web.dashboard.requests.request_json import read_json
from web.dashboard.sign_in.login import PAGES

SITES = "/api/v1/sites"
SETTINGS = f"{SITES}/{{name}}/settings"
SECRETS = f"{SITES}/{{name}}/secrets"
_PREVIEW_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
}


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path="/dashboard/preview", need="viewer", handler=preview),
        Route(method="GET", path=SITES, need="viewer", handler=sites),
        Route(method="POST", path=SITES, need="admin", handler=make),
        Route(method="GET", path=SETTINGS, need="viewer", handler=site),
        Route(method="PUT", path=SETTINGS, need="admin", handler=change),
        Route(method="POST", path=f"{SITES}/{{name}}/check", need="viewer", handler=check),
        Route(method="POST", path=f"{SITES}/{{name}}/origins", need="admin", handler=allow),
        Route(method="POST", path=SECRETS, need="admin", handler=add_secret),
        Route(method="DELETE", path=f"{SECRETS}/{{id}}", need="admin", handler=revoke_secret),
    )


async def preview(visit: AuthedRequest) -> web.StreamResponse:
    """The widget itself without a server behind it, for the frame beside the form."""
    text = (PAGES / "preview.html").read_text(encoding="utf-8")
    return web.Response(text=text, content_type="text/html", headers=_PREVIEW_HEADERS)


async def sites(visit: AuthedRequest) -> web.StreamResponse:
    rows = await visit.desk.stores.sites.all()
    return answer({"sites": [_listed(row) for row in rows]})


async def make(visit: AuthedRequest) -> web.StreamResponse:
    """`{"name"}`: on our own page only until it has origins, to be changed on its page."""
    name, store = await new_name(visit), visit.desk.stores.sites
    whole = {"agent": DEFAULT_AGENT, "audience": "personal", "origins": []}
    if problems := await _problems(visit, whole):
        raise DashboardRefusal(409, "no_default_agent", problems[0])
    if not await store.add(site_from(name, whole, version=1), by=visit.operator.name):
        raise DashboardRefusal(409, "name_taken", "There is a site of that name already.")
    return answer({"name": name}, status=201)


async def site(visit: AuthedRequest) -> web.StreamResponse:
    return answer(await _whole(visit, await _row(visit)))


async def check(visit: AuthedRequest) -> web.StreamResponse:
    """`{"settings", "language"?}` as typed so far: its problems, and how it would look."""
    await _row(visit)
    body = await read_json(visit)
    settings, language = _settings(body), body.get("language", "en")
    problems = await _problems(visit, settings)
    config = {key: value for key, value in settings.items() if key not in ROW_FIELDS and value is not None}
    look = None
    if not problems and isinstance(language, str):
        look = build_public_config(read_site_config(config), language[:40])
    return answer({"problems": problems, "look": look})


async def change(visit: AuthedRequest) -> web.StreamResponse:
    """`{"settings"}` with `If-Match`; a running Evertalk follows within ten seconds."""
    row, settings, seen = await _row(visit), _settings(await read_json(visit)), seen_version(visit)
    if problems := await _problems(visit, settings):
        words = "This cannot be used; nothing was changed."
        return told(visit, 422, "bad_site_config", words, {"problems": problems})
    wanted = site_from(row.name, settings, version=seen)
    if await visit.desk.stores.sites.change(wanted, by=visit.operator.name) is None:
        return stale(visit, yours=settings, theirs=await _whole(visit, await _row(visit)))
    return answer(await _whole(visit, await _row(visit)))


async def allow(visit: AuthedRequest) -> web.StreamResponse:
    """`{"origin"}`: one more that may use the chat; a running Evertalk follows within ten seconds."""
    row, origin = await _row(visit), (await read_json(visit)).get("origin")
    settings = whole_of(row)
    if not isinstance(origin, str) or await _problems(
        visit, {**settings, "origins": [*settings["origins"], origin]}
    ):
        raise DashboardRefusal(422, "bad_site_config", "This is no origin such as https://shop.example.")
    await visit.desk.stores.sites.allow(row.name, origin, by=visit.operator.name)
    return answer(await _whole(visit, await _row(visit)))


async def add_secret(visit: AuthedRequest) -> web.StreamResponse:
    """A second secret beside the first, shown this once; the old one is revoked when the site has changed."""
    row = await _row(visit)
    try:
        key = await asyncio.to_thread(resolve_secret_key, visit.desk.settings)
    except (BadSettings, OSError):
        raise DashboardRefusal(
            503, "no_secret_key", "EVERTALK_SECRET_KEY cannot be read: nothing was made."
        ) from None
    secret_id, secret = secrets.token_hex(4), secrets.token_urlsafe(48)
    sealed = Encryption(key).seal(secret.encode(), about=secret_about(row.name, secret_id))
    store = visit.desk.stores.sites
    if not await store.add_secret(row.name, secret_id, sealed, by=visit.operator.name):
        raise DashboardRefusal(409, "two_secrets", "There are two secrets already; revoke one of them first.")
    return answer({"id": secret_id, "secret": secret})


async def revoke_secret(visit: AuthedRequest) -> web.StreamResponse:
    row, secret_id = await _row(visit), visit.request.match_info["id"].replace("\x00", "")
    if not await visit.desk.stores.sites.revoke_secret(row.name, secret_id, by=visit.operator.name):
        raise DashboardRefusal(404, "not_found", "There is no such secret.")
    return answer({"success": True})


async def _row(visit: AuthedRequest) -> SiteShown:
    row = await visit.desk.stores.sites.find(visit.request.match_info["name"].replace("\x00", ""))
    if row is None:
        raise DashboardRefusal(404, "not_found", "There is no such site.")
    return row


def _settings(body: Mapping[str, Any]) -> Mapping[str, Any]:
    settings = body.get("settings")
    if not isinstance(settings, Mapping) or not set(body) <= {"settings", "language"}:
        raise DashboardRefusal(
            400, "bad_input", "Send `settings`, an object with agent, audience and origins."
        )
    return settings


async def _problems(visit: AuthedRequest, settings: Mapping[str, Any]) -> list[str]:
    try:
        check_site(settings)
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
