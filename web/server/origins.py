"""Where a request comes from: its own address behind trusted proxies, its scheme, and the page's origin."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from shared.core.tools.web_address import is_local_name

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    scheme: str
    host: str
    port: int


def parse_origin(text: str) -> Origin | None:
    """Return the origin of a text; None if it is not exactly scheme, host and port."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    odd = parts.path or parts.query or parts.fragment or "@" in parts.netloc
    if odd or parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return None
    return Origin(scheme=parts.scheme, host=parts.hostname, port=port or _DEFAULT_PORTS[parts.scheme])


def origin_matches(origin: Origin, pattern: str) -> bool:
    """Return whether an origin matches `https://shop.example`, or `https://*.shop.example` for subdomains."""
    if "://" not in pattern:
        pattern = f"https://{pattern}"
    wanted = parse_origin(pattern.rstrip("/"))
    if wanted is None or (origin.scheme, origin.port) != (wanted.scheme, wanted.port):
        return False
    if wanted.host.startswith("*."):
        below = wanted.host[1:]
        return "*" not in below and origin.host.endswith(below) and len(origin.host) > len(below)
    return "*" not in wanted.host and origin.host == wanted.host


class Proxies:
    """Reads what trusted proxies say about a request; what others say is not believed."""

    def __init__(self, trusted: Iterable[str], *, public_url: str | None) -> None:
        self._trusted: tuple[Network, ...] = tuple(
            ipaddress.ip_network(word, strict=False) for word in trusted
        )
        self._public = parse_origin(public_url_origin(public_url)) if public_url else None

    def client_address(self, request: web.Request) -> str:
        """Return the client's address: the last one in the chain that is no trusted proxy."""
        hops = [
            part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()
        ]
        address = request.remote or "unknown"
        while hops and self._is_trusted(address):
            address = _plain_address(hops.pop())
        return address

    def client_key(self, request: web.Request) -> str:
        """Return the key of rate limits: the address, for IPv6 the network."""
        return network_key(self.client_address(request))

    def network(self, request: web.Request) -> str | None:
        """Return the network that a visitor's spending counts for: an IPv4 address, or the /56 of IPv6.

        None for this machine and for a proxy that speaks for many clients.
        """
        address = self.client_address(request)
        if not self.is_direct_and_unknown(address):
            return None
        try:
            found = ipaddress.ip_address(_plain_address(address))
        except ValueError:
            return None
        return str(ipaddress.ip_network((found, 32 if found.version == 4 else 56), strict=False))

    def is_ours(self, request: web.Request) -> bool:
        """Return whether the Host header names this server; foreign names that resolve to us are refused.

        Numeric addresses are allowed, and trusted proxies have checked the name.
        """
        name = _host_name(request.host)
        if self._public is not None and name == self._public.host:
            return True
        if is_local_name(name) or _is_figures(name):
            return True
        return self._is_trusted(request.remote or "")

    def is_direct_and_unknown(self, address: str) -> bool:
        """Neither this machine nor a proxy that speaks for many."""
        return not (_is_loopback(address) or self._is_trusted(address))

    def is_local(self, request: web.Request) -> bool:
        """Came straight from this machine.

        Where people come by a public address, or a proxy here is trusted, loopback tells nothing: a proxy on
        this machine may pass strangers on without a word about it.
        """
        remote = request.remote or ""
        passed_on = any(
            name in request.headers for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")
        )
        speaks_for_others = passed_on or self._public is not None or self._is_trusted(remote)
        return not speaks_for_others and _is_loopback(remote)

    def own_origin(self, request: web.Request) -> Origin | None:
        """Return the origin of this server's pages, as this request shows it."""
        return parse_origin(f"{self.scheme(request)}://{request.host}")

    def scheme(self, request: web.Request) -> str:
        if self._is_trusted(request.remote or ""):
            said = request.headers.get("X-Forwarded-Proto", "").split(",")[-1].strip().lower()
            if said in _DEFAULT_PORTS:
                return said
        if request.secure:
            return "https"
        public = self._public
        if public is not None and public.scheme == "https":
            seen = parse_origin(f"https://{request.host}")
            if seen == public:
                return "https"
        return "http"

    def is_same_origin(self, request: web.Request, origin: Origin) -> bool:
        return origin == self.own_origin(request) or (self._public is not None and origin == self._public)

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(_plain_address(address))
        except ValueError:
            return False
        return any(found in network for network in self._trusted)


def network_key(address: str) -> str:
    """Return an IPv4 address unchanged, and for IPv6 the /56 network that one customer gets."""
    try:
        found = ipaddress.ip_address(_plain_address(address))
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 56), strict=False))


def public_url_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _plain_address(text: str) -> str:
    """Return an address without port, brackets, or the IPv6 prefix of an IPv4 address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return text.removeprefix("::ffff:")[:64]


def _host_name(host: str) -> str:
    """Return the name of a Host header without port; an invalid one matches no name."""
    found = _HOST.fullmatch(host.lower())
    return found[1].strip("[]").rstrip(".") if found else "unreadable.invalid"


def _is_figures(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    if address == "":
        return True  # a unix socket
    try:
        return ipaddress.ip_address(_plain_address(address)).is_loopback
    except ValueError:
        return False


PROXIES = web.AppKey("proxies", Proxies)
