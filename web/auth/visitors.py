"""Recognises visitors by the page's cookie or a widget's token, signs them in, and creates new ones."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from aiohttp import web

from shared.adapters.encryption import CannotUnseal, Encryption
from shared.adapters.postgres.people.visitors import SiteRow, VisitorRow, generate_token, hash_token
from shared.config.settings import Settings, resolve_secret_key
from shared.config.sites import (
    BadSiteConfig,
    SiteConfig,
    build_public_config,
    build_secret_context,
    read_site_config,
)
from shared.core.identity.identity_claims import Identity
from shared.core.values.errors import BadInput
from web.auth.site_tokens import BadIdentity, IdentityExpired, IdentityRequired, StillAnswering, read_identity
from web.protocol import wire
from web.server.origins import Origin, Proxies, origin_matches, parse_origin

log = structlog.get_logger(__name__)

COOKIE = "evertalk_visitor"
"""Name of the visitor cookie of the site `default`; see `Visitors.cookie_name` for the others."""
SITE_HEADER = "X-Evertalk-Site"
"""Header with the name of the site whose page sent the request; it selects which visitor cookie counts."""
DASHBOARD_HEADER = "X-Evertalk-Dashboard"
"""Header of the dashboard's requests, which come from an operator even if the browser has a visitor
cookie.
"""
YEAR_SECONDS = 365 * 24 * 3600
"""Lifetime of a visitor cookie, in seconds."""
SITES_SECONDS = 2.0
"""Seconds for which the sites are cached."""
MOST_ORIGIN_CHARS = 200
"""Maximum length of a refused origin that is stored."""


class UnknownToken(BadInput):
    """Unknown visitor token; the browser gets a new conversation."""

    sentence = "This browser's key is not known here."
    code = "unknown_token"
    advice = "Your earlier conversation could not be opened. A new one begins."


class UnknownSite(BadInput):
    """Unknown site, or a page whose origin the site does not allow."""

    sentence = "This page may not use the chat."
    code = "unknown_site"
    advice = "This page is not allowed to use the chat. Its operator can add it to the site's list."


class NobodyYet(Exception):
    """Raised for a new visitor whose hello does not ask for a conversation; nothing is stored.

    `site` and `audience` are those of the page, for its welcome.
    """

    def __init__(self, site: Site, audience: Literal["public", "personal"]) -> None:
        super().__init__("nobody yet")
        self.site = site
        self.audience = audience


class VisitorStore(Protocol):
    """Store of sites and visitors."""

    async def load_sites(self) -> Mapping[str, SiteRow]:
        """Return all widget sites by name."""
        ...

    async def find(self, token: str, *, network: str | None = None) -> VisitorRow | None:
        """Return the visitor of a token; None if it is invalid.

        `network` is a hash of the client's network, to which spending is attributed.
        """
        ...

    async def create(
        self, token: str, *, site: str, timezone: str | None = None, network: str | None = None
    ) -> VisitorRow | None:
        """Create a visitor with session and address; return None if there is no such site."""
        ...

    async def find_conversation(self, address_id: int, session: UUID | None = None) -> VisitorRow | None:
        """Return a conversation of the visitor at this address; None if there is none.

        `session` names it; None means the last active one.
        """
        ...

    async def revoke(self, token: str) -> None:
        """Delete a token, so that it opens nothing."""
        ...

    async def note_refused(self, site: str, origin: str) -> None:
        """Record an origin from which a page was refused the chat of a site."""
        ...


class IdentityStore(Protocol):
    """Store that signs visitors in."""

    async def identify(
        self,
        *,
        site: str,
        place: str,
        name: str,
        timezone: str | None,
        former: str | None,
        contact: Mapping[str, Any] | None = None,
    ) -> tuple[VisitorRow, str] | Literal["busy", "later", "no_site"]:
        """Return the conversation of a signed-in person, the same for every browser, with a new token.

        `former` is this browser's token; its anonymous conversation becomes the person's. "busy" passes in a
        moment, "later" may last, and "no_site" means that the site is unknown.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Site that embeds a widget, as described by its database row; an empty name means no site.

    `secrets` are decrypted signing secrets, without those that cannot be decrypted.
    """

    name: str = ""
    audience: str = ""
    allowed_origins: tuple[str, ...] = ()
    config: SiteConfig = field(default_factory=SiteConfig)
    secrets: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Admitted visitor, with the current conversation in `row`."""

    row: VisitorRow
    audience: str
    site: Site = field(default_factory=Site)
    token: str | None = field(default=None, repr=False)
    """New token that the browser must store; None if it keeps the one that it has."""
    key: str = field(default="", repr=False)
    """Token that the browser sent or was given; empty if unknown."""
    admitted_by: bytes | int | None = field(default=None, repr=False)
    """Hash of the visitor's token, or id of the API key; the connection is closed when it is revoked."""
    locale: str = ""
    """Language tag that the site states for a signed-in visitor; empty if none."""
    moved: bool = False
    """Whether signing in may have moved the visitor to another conversation."""
    network: str | None = None
    """Hash of the client's network; None if it is not needed. Signing out does not change it."""

    @property
    def may_import(self) -> bool:
        """True if the site lets this visitor import their past; by default, signed-in people may."""
        wanted = self.site.config.imports
        return self.row.identified or self.audience == "personal" if wanted is None else wanted

    def build_site_config(self, language: str) -> dict[str, Any]:
        """Return the public configuration of the site for the browser, in the given language."""
        return build_public_config(self.site.config, language or self.locale)


class Visitors:
    """Finds, creates and signs in the visitors of all sites."""

    def __init__(
        self,
        store: VisitorStore,
        *,
        identities: IdentityStore,
        settings: Settings,
        proxies: Proxies,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._identities = identities
        self.settings = settings
        """Settings of this process; replaced when stored settings change."""
        self._proxies = proxies
        self._clock = clock
        self._sites: Mapping[str, Site] = {}
        self._sites_read = float("-inf")
        self._encryption: Encryption | None = None
        self._key: bytes | None = None

    async def sites(self) -> Mapping[str, Site]:
        """Return all readable sites by name, at most `SITES_SECONDS` old. Raises StorageUnavailable."""
        now = time.monotonic()
        if now - self._sites_read > SITES_SECONDS:
            read = [self._build_site(row) for row in (await self._store.load_sites()).values()]
            self._sites = {site.name: site for site in read if site is not None}
            self._sites_read = now
        return self._sites

    def forget_sites(self) -> None:
        """Drop the cached sites, so that the next call of `sites` reads them from the database."""
        self._sites_read = float("-inf")

    def _build_site(self, row: SiteRow) -> Site | None:
        """Return the site of a row.

        None if its configuration cannot be read, since that may restrict access.
        """
        try:
            config = read_site_config(row.config)
        except BadSiteConfig as error:
            log.error("site_unreadable", site=row.name, problems=list(error.problems))
            return None
        secrets = tuple(found for name in row.secrets if (found := self._decrypt_secret(row, name)))
        return Site(
            name=row.name, audience=row.audience, allowed_origins=row.allowed_origins, config=config,
            secrets=secrets,
        )  # fmt: skip

    def _decrypt_secret(self, row: SiteRow, name: str) -> bytes | None:
        """Return a decrypted signing secret of a site; None if it cannot be decrypted."""
        if self._encryption is None:
            self._encryption = Encryption(resolve_secret_key(self.settings))
        try:
            return self._encryption.open(row.secrets[name], about=build_secret_context(row.name, name))
        except CannotUnseal as error:
            log.error("site_secret_unreadable", site=row.name, id=name, reason=str(error))
            return None

    async def is_page_allowed(self, request: web.Request, *, site: str | None = None) -> bool:
        """Return whether the requesting page may use the site; with `site` None, whether it may use any site.

        A request without Origin, or with the Origin `null`, passes only if the site allows web views. Raises
        StorageUnavailable.
        """
        said = request.headers.get("Origin", "null")
        origin = parse_origin(said)
        if origin is None and said != "null":
            return False
        if origin is not None and self._is_origin_allowed(request, origin):
            return True
        asked = [one for one in (await self.sites()).values() if site in (None, one.name)]
        if origin is None:
            return any(one.config.webview for one in asked)
        return any(origin_matches(origin, pattern) for one in asked for pattern in one.allowed_origins)

    def is_public(self, audience: str) -> bool:
        """Return whether visitors count as public; in an installation with profile `public` all do."""
        return "public" in (self.settings.profile, audience)

    async def note_refused(self, site: str, origin: str) -> None:
        """Store the origin of a refused page for the site's operators. Raises StorageUnavailable.

        A malformed or too long origin is ignored.
        """
        if len(origin) <= MOST_ORIGIN_CHARS and parse_origin(origin) is not None:
            await self._store.note_refused(site, origin)

    def _is_origin_allowed(self, request: web.Request, origin: Origin) -> bool:
        if self._proxies.is_same_origin(request, origin):
            return True
        return any(origin_matches(origin, pattern) for pattern in self.settings.allowed_origins)

    async def greet(
        self, request: web.Request, hello: wire.Hello, *, wait: Callable[[], float] = lambda: 0.0
    ) -> Known:
        """Admit the visitor of a hello, created if new.

        `wait` returns the seconds for which a new visitor must wait, 0 for none. Raises UnknownToken,
        UnknownSite, BadIdentity, StillAnswering, RateLimited, StorageUnavailable, and NobodyYet for a new
        visitor whose hello does not ask for a conversation.
        """
        network = self._hash_network(request)
        known = await self._admit(request, hello, network=network, wait=wait)
        known = await self.open(known, hello.session) or await self.open(known, "") or known
        return replace(known, network=network)

    async def open(self, known: Known, session: str) -> Known | None:
        """Return the visitor with another of their conversations; None if that conversation is not theirs.

        `session` is its public id, empty for the last used one. With one conversation per visitor, only that
        one is found.
        """
        if known.site.config.conversations == "one":
            return known if session in ("", str(known.row.session_public_id)) else None
        try:
            wanted = UUID(session) if session else None
        except ValueError:
            return None
        row = await self._store.find_conversation(known.row.address_id, wanted)
        return None if row is None else replace(known, row=row)

    async def _admit(
        self, request: web.Request, hello: wire.Hello, *, network: str | None, wait: Callable[[], float]
    ) -> Known:
        """Admit the visitor of a hello without choosing a conversation."""
        site = (await self.sites()).get(hello.site)
        if site is None or not await self.is_page_allowed(request, site=hello.site):
            raise UnknownSite(hello.site)
        cookie = self.read_cookie(request, hello.site) if self.is_own_page(request) else None
        if hello.identity is not None:
            key = hello.token if hello.token is not None else cookie
            return await self._admit_signed(site, hello.identity, key=key, tz=hello.tz)
        if hello.token is not None:
            row = await self._load_by_token(hello.token, hello.site, network=network)
            return self._build_known(site, row, key=hello.token)
        if site.config.verified == "required" and cookie is None:
            raise IdentityRequired
        found = None if cookie is None else await self._store.find(cookie, network=network)
        if found is not None and found.site != site.name:
            cookie = found = None  # a token of another site opens nothing here
        token, is_known = cookie or generate_token(), found is not None
        if not (hello.begin or is_known or site.config.verified == "required"):
            raise NobodyYet(site, self._find_audience(site.audience))
        row = await self._find_or_create(token, site, hello.tz, network=network, wait=wait)
        return self._build_known(site, row, key=token, token=None if cookie else token)

    async def _admit_signed(self, site: Site, signed: str, *, key: str | None, tz: str) -> Known:
        """Admit a signed-in visitor.

        An expired identity token counts as long as the visitor's own token is valid and belongs to the same
        person; on a shared computer it may belong to another.
        """
        try:
            identity = self._read(site, signed)
        except IdentityExpired as expired:
            row = await self._store.find(key) if key is not None and wire.is_token(key) else None
            if row is None or row.site != site.name or not row.identified or row.place != expired.place:
                raise
            return self._build_known(site, row, key=key or "")
        return await self._sign_in(site, identity, key=key, tz=tz)

    async def identify(self, known: Known, signed: str) -> Known:
        """Sign the visitor in with an identity token; return the signed-in visitor.

        Raises BadIdentity, StillAnswering and StorageUnavailable.
        """
        site = (await self.sites()).get(known.site.name, known.site)
        signed_in = await self._sign_in(site, self._read(site, signed), key=known.key, tz="")
        return replace(await self.open(signed_in, "") or signed_in, network=known.network)

    async def sign_out(self, known: Known) -> Known:
        """Revoke the visitor's token; return a new anonymous visitor with a new token.

        A visitor who is not signed in is returned without a new token, and nothing is revoked. Raises
        IdentityRequired, after the revocation, if the site admits only signed-in visitors.
        """
        if not known.row.identified:
            return replace(known, token=None, moved=False)
        await self._store.revoke(known.key)
        site = (await self.sites()).get(known.site.name, known.site)
        if site.config.verified == "required":
            raise IdentityRequired
        token = generate_token()
        row = await self._find_or_create(token, site, "", network=known.network)
        return replace(self._build_known(site, row, key=token, token=token), network=known.network)

    def _read(self, site: Site, signed: str) -> Identity:
        """Return the identity in a token that the site signed. Raises BadIdentity."""
        if site.config.verified == "off":
            raise BadIdentity("this site has no signed-in people")
        return read_identity(signed, site=site.name, secrets=site.secrets, now=self._clock())

    async def _sign_in(self, site: Site, identity: Identity, *, key: str | None, tz: str) -> Known:
        """Sign a person in by their identity, and join the anonymous visitor of `key` with them.

        `key` None joins none. Raises StillAnswering and UnknownSite.
        """
        former = key if key is not None and wire.is_token(key) else None
        done = await self._identities.identify(
            site=site.name, place=identity.place, name=identity.name, timezone=_check_zone(tz), former=former,
            contact=identity.contact,
        )  # fmt: skip
        if done == "later" and former is not None:
            return await self._keep_former(site, identity, former, tz)
        if done == "busy":
            raise StillAnswering
        if isinstance(done, str):
            raise UnknownSite(site.name)
        row, token = done
        known = self._build_known(site, row, key=token, token=token)
        return replace(known, locale=identity.locale, moved=former is not None)

    async def _keep_former(self, site: Site, identity: Identity, former: str, tz: str) -> Known:
        """Admit the anonymous visitor while the person cannot be signed in; the next visit signs them in.

        If the site admits only signed-in visitors, sign in without joining the anonymous conversation.
        """
        if site.config.verified == "required":
            return await self._sign_in(site, identity, key=None, tz=tz)
        return self._build_known(site, await self._load_by_token(former, site.name), key=former)

    async def find_caller(self, request: web.Request, *, site: str | None = None) -> Known | None:
        """Return the visitor of a REST request, by bearer token or by the page's cookie.

        None if there is none. A browser may hold cookies of several sites: `site` or a header selects one,
        else only a single cookie counts. Requests of the dashboard have no visitor. Raises IdentityRequired
        and StorageUnavailable.
        """
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind:
            # A request with an Authorization header is never identified by its cookies.
            bearer = kind.lower() == "bearer" and wire.is_token(token.strip())
            return await self._find_by_bearer(token.strip(), self._hash_network(request)) if bearer else None
        if DASHBOARD_HEADER in request.headers:
            return None
        named = site or request.headers.get(SITE_HEADER)
        found = [
            known
            for name in (await self.sites() if named is None else (named,))
            if (cookie := self.read_cookie(request, name))
            and (known := await self._find_by_bearer(cookie, self._hash_network(request))) is not None
        ]
        return found[0] if len(found) == 1 else None

    async def load_known(self, row: VisitorRow) -> Known:
        """Return the visitor of a row as admitted. Raises UnknownToken and IdentityRequired.

        Used for visitors who were admitted before, as by a ticket.
        """
        site = (await self.sites()).get(row.site)
        if site is None:
            raise UnknownToken
        return self._build_known(site, row, key="")

    async def _find_by_bearer(self, token: str, network: str | None) -> Known | None:
        """Return the visitor with this token; None if there is none. Raises IdentityRequired."""
        row = await self._store.find(token, network=network)
        site = (await self.sites()).get(row.site) if row is not None else None
        if row is None or site is None:
            return None
        try:
            return self._build_known(site, row, key=token)
        except UnknownToken:
            return None

    def cookie_name(self, request: web.Request, site: str) -> str:
        """Return the name of a site's visitor cookie; over https it has the prefix `__Host-`.

        Over http Safari would drop a cookie with that prefix, also on the local machine.
        """
        name = COOKIE if site == "default" else f"{COOKIE}_{site}"
        return f"__Host-{name}" if self._proxies.scheme(request) == "https" else name

    def read_cookie(self, request: web.Request, site: str) -> str | None:
        """Return the token in a site's visitor cookie; None without a valid one."""
        token = request.cookies.get(self.cookie_name(request, site), "")
        return token if len(token) >= 40 and wire.is_token(token) else None

    def set_cookie(
        self, request: web.Request, response: web.StreamResponse, site: str, *, token: str = ""
    ) -> None:
        """Set the visitor's cookie for a year.

        An empty `token` keeps the token of the request or generates one, for which the first hello creates a
        visitor.
        """
        response.set_cookie(
            self.cookie_name(request, site),
            token or self.read_cookie(request, site) or generate_token(),
            max_age=YEAR_SECONDS,
            path="/",
            httponly=True,
            secure=self._proxies.scheme(request) == "https",
            samesite="Lax",
        )

    def is_own_page(self, request: web.Request) -> bool:
        """Return whether the request comes from a page of this server."""
        origin: Origin | None = parse_origin(request.headers.get("Origin", ""))
        return origin is not None and self._proxies.is_same_origin(request, origin)

    def _hash_network(self, request: web.Request) -> str | None:
        """Return a keyed hash of the client's network.

        None unless the profile is `public`, whose spending caps need it.
        """
        network = self._proxies.network(request) if self.settings.profile == "public" else None
        if network is None:
            return None
        if self._key is None:
            self._key = resolve_secret_key(self.settings)
        return hmac.digest(self._key, b"evertalk.network.1 " + network.encode(), "sha256").hex()[:32]

    async def _load_by_token(self, token: str, site: str, *, network: str | None = None) -> VisitorRow:
        """Return the visitor with this token on this site. Raises UnknownToken."""
        row = await self._store.find(token, network=network) if wire.is_token(token) else None
        if row is None or row.site != site:
            raise UnknownToken
        return row

    async def _find_or_create(
        self,
        token: str,
        site: Site,
        tz: str,
        *,
        network: str | None = None,
        wait: Callable[[], float] = lambda: 0.0,
    ) -> VisitorRow:
        """Return the visitor with this token, created if new.

        Raises IdentityRequired, RateLimited and UnknownSite.
        """
        row = await self._store.find(token, network=network)
        if row is None or row.site != site.name:
            if site.config.verified == "required":
                raise IdentityRequired
            if seconds := wait():
                raise wire.RateLimited(retry_after_seconds=seconds, what="newcomers")
            row = await self._store.create(token, site=site.name, timezone=_check_zone(tz), network=network)
        if row is None:
            raise UnknownSite(site.name)
        return row

    def _build_known(self, site: Site, row: VisitorRow, *, key: str, token: str | None = None) -> Known:
        """Return an admitted visitor.

        Raises IdentityRequired or UnknownToken if the site's setting for signed-in visitors forbids this one.
        """
        if site.config.verified == "required" and not row.identified:
            raise IdentityRequired
        if site.config.verified == "off" and row.identified:
            raise UnknownToken
        return Known(
            row=row, audience=self._find_audience(row.audience), site=site, token=token, key=key,
            admitted_by=hash_token(key) if key else None,
        )  # fmt: skip

    def _find_audience(self, said: str) -> Literal["public", "personal"]:
        return "public" if "public" in (self.settings.profile, said) else "personal"


def _check_zone(name: str) -> str | None:
    """Return the time zone's name if it is valid, else None."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return name


def describe(known: Known) -> dict[str, Any]:
    """Return `{session_id, site}` of a visitor for the log, without tokens."""
    return {"session_id": known.row.session_id, "site": known.row.site}


VISITORS = web.AppKey("visitors", Visitors)
"""Application key of the visitors, for middlewares, which get no services as handlers do."""
