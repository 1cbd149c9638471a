"""Posts alerts to an operator's address: signed, to the open internet or this machine, never redirected."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import aiohttp
import structlog

from shared.adapters.files.web_pages import Pinned, Resolve, resolved
from shared.core.ops.alerts import AlertRefused, NotSent, Outcome, Sending, Sent, payload, signature
from shared.core.tools.web_address import Address, BadWebAddress, is_public, web_address

log = structlog.get_logger(__name__)

SECONDS = 15.0
RESOLVE_SECONDS = 5.0
TIME_HEADER = "X-Evertalk-Timestamp"
SIGNATURE_HEADER = "X-Evertalk-Signature"
KEY_HEADER = "Idempotency-Key"
_LATER = frozenset({408, 409, 425, 429})
"""Client errors that pass by themselves."""


class AlertWebhook:
    """One address. A repeated message has the same key and the same bytes, so that trying again is safe."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        dashboard_url: str,
        resolve: Resolve = resolved,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self._secret = secret
        self._dashboard_url = dashboard_url
        self._resolve = resolve
        self._clock = clock

    async def send(self, sending: Sending) -> Outcome:
        body = payload(sending, dashboard_url=self._dashboard_url)
        at = int(self._clock())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Evertalk/0.1 (alerts)",
            KEY_HEADER: sending.send_key,
            TIME_HEADER: str(at),
            SIGNATURE_HEADER: signature(self._secret, at, body),
        }
        try:
            async with asyncio.timeout(SECONDS):
                return await self._post(body, headers)
        except BadWebAddress as error:
            log.warning("alert_webhook_refused", reason=str(error))
            return AlertRefused(code="address_refused")
        except TimeoutError:
            return NotSent(code="timeout")
        except (ssl.SSLError, aiohttp.ClientSSLError):
            return NotSent(code="tls")
        except (aiohttp.ClientError, OSError) as error:
            # The error's own words may repeat the whole address.
            log.info("alert_webhook_failed", error=type(error).__name__)
            return NotSent(code="no_connection")

    async def _post(self, body: bytes, headers: dict[str, str]) -> Outcome:
        host, addresses = await self._addresses()
        connector = aiohttp.TCPConnector(
            resolver=Pinned(host, addresses), use_dns_cache=False, limit=1, force_close=True
        )
        async with (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            session.post(self._url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return _outcome(response.status, response.headers.get("Retry-After", ""))

    async def _addresses(self) -> tuple[str, Sequence[Address]]:
        """Resolved once; what is on this machine must have been written as such. Raises BadWebAddress."""
        parts = urlsplit(self._url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if host == "localhost" or _is_loopback(host):
            found = await self._looked_up(host, port)
            if not all(one.is_loopback for one in found):
                raise BadWebAddress(f"{host} is not on this machine.")
            return host, found
        if parts.scheme != "https":
            raise BadWebAddress("Only https leaves this machine.")
        address = web_address(self._url)
        found = [address.literal] if address.literal else await self._looked_up(address.host, address.port)
        if not found or not all(map(is_public, found)):
            raise BadWebAddress(f"{address.host} is not on the public web.")
        return address.host, found

    async def _looked_up(self, host: str, port: int) -> Sequence[Address]:
        async with asyncio.timeout(RESOLVE_SECONDS):
            return await self._resolve(host, port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _outcome(status: int, retry_after: str) -> Outcome:
    code = f"http_{status}"
    if 200 <= status < 300:
        return Sent()
    if status >= 500 or status in _LATER:
        return NotSent(code=code, retry_after=float(retry_after) if retry_after.isdecimal() else None)
    return AlertRefused(code=code)
