"""Determines where a request comes from: client address behind trusted proxies, scheme, and origin of the
page.
"""

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
    """Origin of a page: scheme, host and port, which is that of the scheme if the text names none."""

    scheme: str
    host: str
    port: int


def parse_origin(text: str) -> Origin | None:
    """Return the origin in a text; None unless it is exactly scheme http or https, host, and maybe port."""
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
    """Return whether an origin matches a pattern such as `https://shop.example` or `https://*.shop.example`.

    The second form matches all subdomains, but not `shop.example` itself. Without a scheme https is meant,
    and without a port that of the scheme.
    """
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
    """Reader of proxy headers, which count only if the request comes from a trusted proxy."""

    def __init__(self, trusted: Iterable[str], *, public_url: str | None) -> None:
        self._trusted: tuple[Network, ...] = tuple(
            ipaddress.ip_network(word, strict=False) for word in trusted
        )
        self._public = parse_origin(public_url_origin(public_url)) if public_url else None

    def client_address(self, request: web.Request) -> str:
        """Return the client's address: the last one in the proxy chain that is not a trusted proxy."""
        hops = [
            part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()
        ]
        address = request.remote or "unknown"
        while hops and self._is_trusted(address):
            address = _strip_address(hops.pop())
        return address

    def client_key(self, request: web.Request) -> str:
        """Return the key of rate limits for a client: its address, for IPv6 its network."""
        return network_key(self.client_address(request))

    def network(self, request: web.Request) -> str | None:
        """Return the network for which a visitor's spending counts: an IPv4 address, or the /56 of an IPv6
        address.

        None for the local machine and for trusted proxies.
        """
        address = self.client_address(request)
        if not self.is_direct_and_unknown(address):
            return None
        try:
            found = ipaddress.ip_address(_strip_address(address))
        except ValueError:
            return None
        return str(ipaddress.ip_network((found, 32 if found.version == 4 else 56), strict=False))

    def is_ours(self, request: web.Request) -> bool:
        """Return whether the Host header names this server; other names may point here by DNS rebinding.

        Numeric addresses and local names count as this server, and so does any name from a trusted proxy.
        """
        name = _parse_host_name(request.host)
        if self._public is not None and name == self._public.host:
            return True
        if is_local_name(name) or _is_numeric_address(name):
            return True
        return self._is_trusted(request.remote or "")

    def is_direct_and_unknown(self, address: str) -> bool:
        """Return whether an address is neither the local machine nor a trusted proxy."""
        return not (_is_loopback(address) or self._is_trusted(address))

    def is_local(self, request: web.Request) -> bool:
        """Return whether the client runs on this machine.

        False if there is a public URL or the request came through a proxy, since a proxy on this machine may
        pass on requests of strangers.
        """
        remote = request.remote or ""
        passed_on = any(
            name in request.headers for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")
        )
        speaks_for_others = passed_on or self._public is not None or self._is_trusted(remote)
        return not speaks_for_others and _is_loopback(remote)

    def own_origin(self, request: web.Request) -> Origin | None:
        """Return the origin of this server's pages as the client sees it.

        None if the Host header is invalid.
        """
        return parse_origin(f"{self.scheme(request)}://{request.host}")

    def scheme(self, request: web.Request) -> str:
        """Return `http` or `https` as the client sees it."""
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
        """Return whether an origin is that of this server's pages."""
        return origin == self.own_origin(request) or (self._public is not None and origin == self._public)

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(_strip_address(address))
        except ValueError:
            return False
        return any(found in network for network in self._trusted)


def network_key(address: str) -> str:
    """Return the key of an address for limits: IPv4 unchanged, IPv6 as the /56 network of one customer."""
    try:
        found = ipaddress.ip_address(_strip_address(address))
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 56), strict=False))


def public_url_origin(url: str) -> str:
    """Return the origin of a URL as text."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _strip_address(text: str) -> str:
    """Return an address without port, brackets, and the IPv6 prefix of an IPv4 address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return text.removeprefix("::ffff:")[:64]


def _parse_host_name(host: str) -> str:
    """Return the name in a Host header without port; for an invalid header a name that matches none."""
    found = _HOST.fullmatch(host.lower())
    return found[1].strip("[]").rstrip(".") if found else "unreadable.invalid"


def _is_numeric_address(name: str) -> bool:
    """Return whether a name is a numeric address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    """Return whether an address is this machine; an empty one is a Unix socket."""
    if address == "":
        return True  # a unix socket
    try:
        return ipaddress.ip_address(_strip_address(address)).is_loopback
    except ValueError:
        return False


PROXIES = web.AppKey("proxies", Proxies)
"""Application key of the proxy settings."""
