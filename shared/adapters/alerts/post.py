"""HTTP POST to addresses outside of the deployment: https to public addresses, without redirects."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

import aiohttp
import structlog

from shared.adapters.certificates import find_certificate_fault
from shared.adapters.files.web_pages import PinnedResolver, Resolve, resolve_host
from shared.core.ops.alerts import ADVICE, AlertRefused, NotSent, Outcome, Sent
from shared.core.tools.web_address import Address, BadWebAddress, is_public, is_this_machine, web_address

log = structlog.get_logger(__name__)

SECONDS = 15.0
"""Maximum seconds of a whole `Poster.post`."""
RESOLVE_SECONDS = 5.0
"""Maximum seconds for resolving a host name."""
_LATER = frozenset({408, 409, 425, 429})
"""HTTP statuses below 500 that are temporary: the request may be sent again."""

Permits = Callable[[Address], bool]
"""Function that returns whether a connection to an address is allowed."""
OwnServers = Callable[[SplitResult], Permits | None]
"""Function that returns the check of addresses for the URL of one of the operator's own servers.

It returns None for other hosts, which need https and a public address.
"""


class Poster:
    """HTTP client that resolves a host name once and connects only to the addresses that were checked."""

    def __init__(self, own: OwnServers, *, resolve: Resolve = resolve_host) -> None:
        self._own = own
        self._resolve = resolve

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """POST `body` within SECONDS and return the outcome; the answer's body is not read.

        Status 2xx is `Sent`; 408, 409, 425, 429 and 5xx are `NotSent`, which may be repeated; others are
        `AlertRefused`.
        """
        outcome, _ = await self.ask(url, body, headers, seconds=SECONDS, most_bytes=0)
        return outcome

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, most_bytes: int
    ) -> tuple[Outcome, bytes]:
        """POST `body` and return the outcome with at most the first `most_bytes` of the answer.

        Failures become outcomes; nothing is raised for them.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(url, body, headers, most_bytes)
        except BadWebAddress as error:
            log.warning("post_refused", reason=str(error))
            return AlertRefused(code="address_refused"), b""
        except TimeoutError:
            return NotSent(code="timeout"), b""
        except (ssl.SSLError, aiohttp.ClientSSLError) as error:
            return NotSent(code=find_tls_code(error)), b""
        except (aiohttp.ClientError, OSError) as error:
            # The text of the error may contain the whole address.
            log.info("post_failed", error=type(error).__name__)
            return NotSent(code="no_connection"), b""

    async def _ask(
        self, url: str, body: bytes, headers: Mapping[str, str], most_bytes: int
    ) -> tuple[Outcome, bytes]:
        host, addresses = await self._addresses(url)
        connector = aiohttp.TCPConnector(
            resolver=PinnedResolver(host, addresses), use_dns_cache=False, limit=1, force_close=True
        )
        async with (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False,
                auto_decompress=False,
            ) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):  # fmt: skip
            outcome = _outcome(response.status, response.headers.get("Retry-After", ""))
            answer = bytearray()
            while len(answer) < most_bytes and (
                piece := await response.content.read(most_bytes - len(answer))
            ):
                answer += piece
            return outcome, bytes(answer)

    async def _addresses(self, url: str) -> tuple[str, Sequence[Address]]:
        """Return the host of a URL with its addresses.

        Raises BadWebAddress if no address is found, one is not allowed, or the URL is not https; http is
        allowed to this machine. Raises OSError and TimeoutError if the look-up fails.
        """
        parts = urlsplit(url)
        if (permits := self._own(parts)) is not None:
            host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
            found = await self._look_up(host, port)
        elif parts.scheme != "https":
            raise BadWebAddress("Only https leaves this machine.")
        else:
            address, permits = web_address(url), is_public
            host = address.host
            found = [address.literal] if address.literal else await self._look_up(host, address.port)
        if not found or not all(map(permits, found)):
            raise BadWebAddress(f"{host} is not where it may be.")
        return host, found

    async def _look_up(self, host: str, port: int) -> Sequence[Address]:
        async with asyncio.timeout(RESOLVE_SECONDS):
            return await self._resolve(host, port)


def permit_this_machine(parts: SplitResult) -> Permits | None:
    """Return a check that allows only loopback addresses if the URL's host is this machine.

    Returns None for another host.
    """
    if not is_this_machine(parts.hostname or ""):
        return None
    return lambda address: address.is_loopback


def find_tls_code(error: BaseException) -> str:
    """Return the outcome code of a failed TLS connection, such as `tls_expired` or `tls`."""
    fault = find_certificate_fault(error)
    code = f"tls_{fault.kind}" if fault is not None else "tls"
    return code if code in ADVICE else "tls"


def _outcome(status: int, retry_after: str) -> Outcome:
    code = f"http_{status}"
    if 200 <= status < 300:
        return Sent()
    if status >= 500 or status in _LATER:
        return NotSent(code=code, retry_after=float(retry_after) if retry_after.isdecimal() else None)
    return AlertRefused(code=code)
