"""Rules for web addresses that may be fetched for a model: their syntax, and the IP addresses behind them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

MOST_URL_CHARS = 2_000
"""Most characters of an address."""
PORTS = {"http": 80, "https": 443}
"""Allowed schemes and their usual ports."""
LEAST_OTHER_PORT = 1_024
"""Smallest port allowed besides the web's own; ports below belong to mail, remote shells and the like."""
_UNWRITTEN = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE)
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_HOUSE_NAMES = (
    ".localhost", ".local", ".lan", ".home", ".home.arpa", ".internal", ".intranet", ".localdomain",
)  # fmt: skip

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
_V4_COMPATIBLE = ipaddress.ip_network("::/96")
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
"""IPv4 or IPv6 address."""


class BadWebAddress(ValueError):
    """Address that may not be fetched; the exception's text says why, for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddress:
    """Parsed http or https address that may be fetched."""

    url: str
    """Address without its fragment."""
    scheme: str
    host: str
    port: int

    @property
    def literal(self) -> Address | None:
        """IP address that the host spells; None for a host name."""
        return _parse_literal(self.host)


def is_this_machine(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address; names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def web_address(text: str) -> WebAddress:
    """Return a parsed http or https address, without contacting it.

    Raises BadWebAddress for other schemes, user names and passwords, ports below 1,024 except 80 and 443, and
    hosts that cannot be read or belong to private networks by name. IP addresses pass; check them by
    `is_public`.
    """
    parts = _split(text.strip())
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise BadWebAddress(f"Only http and https addresses can be fetched, not {scheme[:20] or 'others'}.")
    if parts.username is not None or parts.password is not None:
        raise BadWebAddress("An address with a name or a password in it is not fetched.")
    host = _host(parts)
    port = _port(parts, scheme)
    bracketed = f"[{host}]" if ":" in host else host
    place = bracketed if port == PORTS[scheme] else f"{bracketed}:{port}"
    url = urlunsplit((scheme, place, parts.path or "/", parts.query, ""))
    return WebAddress(url=url, scheme=scheme, host=host, port=port)


def resolve_redirect(address: WebAddress, location: str) -> WebAddress:
    """Return the address to which a redirect leads, checked as by `web_address`.

    `location` is the response's header and may be relative to `address`. Raises BadWebAddress if the address
    may not be fetched.
    """
    try:
        joined = urljoin(address.url, location.strip())
    except ValueError as error:
        raise BadWebAddress("The page leads on to an address that cannot be read.") from error
    return web_address(joined)


def is_public(address: Address) -> bool:
    """Return whether an IP address belongs to the public internet.

    For an IPv6 address that leads to an IPv4 address, that one decides.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    if address.scope_id is not None or address in _SITE_LOCAL or address in _NAT64_LOCAL:
        return False
    if address.teredo is not None:
        return False
    inner = _find_inner_address(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _find_inner_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that is contacted through this IPv6 address; None if there is none."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or address in _V4_COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _split(text: str) -> SplitResult:
    if len(text) > MOST_URL_CHARS:
        raise BadWebAddress(f"The address has {len(text):,} characters; {MOST_URL_CHARS:,} is the most.")
    if _UNWRITTEN.search(text):
        raise BadWebAddress("The address holds blanks or characters that no address has; encode them.")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise BadWebAddress("That is not an address that can be read.") from error
    if not parts.scheme or not parts.netloc:
        raise BadWebAddress("Give the whole address, such as https://example.org/page.")
    return parts


def _host(parts: SplitResult) -> str:
    raw = (parts.hostname or "").rstrip(".")
    if _parse_literal(raw) is not None:
        return raw
    try:
        host = raw.encode("idna").decode("ascii").lower() if not raw.isascii() else raw.lower()
    except UnicodeError as error:
        raise BadWebAddress("The name of the host cannot be read.") from error
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise BadWebAddress("The name of the host cannot be read.")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        # Some programs read 0x7f.1, 2130706433 and 0177.0.0.1 as IP addresses.
        raise BadWebAddress("The host looks like a number, but is no plain address.")
    if is_local_name(host) or host.endswith(".onion"):
        raise BadWebAddress("That host is not on the public web.")
    return host


def is_local_name(host: str) -> bool:
    """Return whether a host name belongs to a private network: without a dot, or below a domain such as
    `.local`.
    """
    name = host.rstrip(".").lower()
    return "." not in name or name.endswith(_HOUSE_NAMES)


def _port(parts: SplitResult, scheme: str) -> int:
    port = PORTS[scheme] if parts.port is None else parts.port
    if port not in PORTS.values() and port < LEAST_OTHER_PORT:
        raise BadWebAddress(f"Port {port} is not one that pages are fetched from.")
    return port


def _parse_literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
