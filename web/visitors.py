"""Who talks: by the page's cookie, by a widget's token, or somebody new."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aiohttp import web

from shared.adapters.postgres.visitors import SiteRow, VisitorRow, new_token
from shared.core.errors import BadInput
from shared.settings import Settings
from web import wire
from web.origins import Origin, Proxies, origin_matches, parse_origin

COOKIE = "evertalk_visitor"
YEAR_SECONDS = 365 * 24 * 3600
SITES_SECONDS = 10.0


class UnknownToken(BadInput):
    """This browser's key is not known here."""

    code = "unknown_token"
    advice = "Your earlier conversation could not be opened. A new one begins."


class UnknownSite(BadInput):
    """This page may not use the chat."""

    code = "unknown_site"
    advice = "This page is not allowed to use the chat. Its operator can add it to the site's list."


class VisitorStore(Protocol):
    async def sites(self) -> Mapping[str, SiteRow]: ...
    async def find(self, token: str) -> VisitorRow | None: ...
    async def create(self, token: str, *, site: str, timezone: str | None = None) -> VisitorRow | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A visitor let in; `token` only when the browser must keep a new one."""

    row: VisitorRow
    audience: str
    token: str | None = None


class Visitors:
    def __init__(self, store: VisitorStore, *, settings: Settings, proxies: Proxies) -> None:
        self._store = store
        self._settings = settings
        self._proxies = proxies
        self._sites: Mapping[str, SiteRow] = {}
        self._sites_read = float("-inf")

    async def sites(self) -> Mapping[str, SiteRow]:
        """At most ten seconds old."""
        now = time.monotonic()
        if now - self._sites_read > SITES_SECONDS:
            self._sites = await self._store.sites()
            self._sites_read = now
        return self._sites

    def forget_sites(self) -> None:
        """The list changed: read it at the next question."""
        self._sites_read = float("-inf")

    async def admits(self, request: web.Request, *, site: str | None = None) -> bool:
        """Whether the page that asks may use us; without a site, whether it may use any."""
        origin = parse_origin(request.headers.get("Origin", ""))
        if origin is None:
            return False
        if self._proxies.is_same_origin(request, origin):
            return True
        if any(origin_matches(origin, pattern) for pattern in self._settings.allowed_origins):
            return True
        rows = await self.sites()
        asked = [row for row in rows.values() if site in (None, row.name)]
        return any(origin_matches(origin, pattern) for row in asked for pattern in row.allowed_origins)

    async def greet(self, request: web.Request, hello: wire.Hello) -> Known:
        """Raises UnknownToken, UnknownSite, StorageUnavailable."""
        rows = await self.sites()
        if hello.site not in rows or not await self.admits(request, site=hello.site):
            raise UnknownSite(hello.site)
        if hello.token is not None:
            return self._known(await self._by_token(hello.token, hello.site))
        cookie = self.cookie(request, hello.site) if self._from_our_page(request) else None
        if cookie is not None:
            return self._known(await self._find_or_create(cookie, hello))
        token = new_token()
        return self._known(await self._find_or_create(token, hello), token=token)

    async def caller(self, request: web.Request) -> Known | None:
        """The visitor of a REST call: a bearer token, else the page's cookie."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and wire.is_token(token.strip()):
            row = await self._store.find(token.strip())
            return self._known(row) if row else None
        for site in await self.sites():
            cookie = self.cookie(request, site)
            if cookie is not None and (row := await self._store.find(cookie)) is not None:
                return self._known(row)
        return None

    def cookie_name(self, request: web.Request, site: str) -> str:
        """`__Host-` needs https; on plain loopback http Safari would drop it."""
        name = COOKIE if site == "default" else f"{COOKIE}_{site}"
        return f"__Host-{name}" if self._proxies.scheme(request) == "https" else name

    def cookie(self, request: web.Request, site: str) -> str | None:
        token = request.cookies.get(self.cookie_name(request, site), "")
        return token if len(token) >= 40 and wire.is_token(token) else None

    def set_cookie(self, request: web.Request, response: web.StreamResponse, site: str) -> None:
        """One year from now, the same token as before; its row is made when somebody says hello."""
        response.set_cookie(
            self.cookie_name(request, site),
            self.cookie(request, site) or new_token(),
            max_age=YEAR_SECONDS,
            path="/",
            httponly=True,
            secure=self._proxies.scheme(request) == "https",
            samesite="Lax",
        )

    def _from_our_page(self, request: web.Request) -> bool:
        origin: Origin | None = parse_origin(request.headers.get("Origin", ""))
        return origin is not None and self._proxies.is_same_origin(request, origin)

    async def _by_token(self, token: str, site: str) -> VisitorRow:
        row = await self._store.find(token) if wire.is_token(token) else None
        if row is None or row.site != site:
            raise UnknownToken
        return row

    async def _find_or_create(self, token: str, hello: wire.Hello) -> VisitorRow:
        row = await self._store.find(token)
        if row is None or row.site != hello.site:
            row = await self._store.create(token, site=hello.site, timezone=_zone(hello.tz))
        if row is None:
            raise UnknownSite(hello.site)
        return row

    def _known(self, row: VisitorRow, *, token: str | None = None) -> Known:
        public = "public" in (self._settings.profile, row.audience)
        return Known(row=row, audience="public" if public else "personal", token=token)


def _zone(name: str) -> str | None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return name


def describe(known: Known) -> dict[str, Any]:
    """For logs: ids, never tokens."""
    return {"session_id": known.row.session_id, "site": known.row.site}
