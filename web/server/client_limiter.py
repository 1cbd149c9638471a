"""Rate limits of the clients of this process, and the counts of each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from web.server.origins import Proxies
from web.server.rate_limits import LOCAL, ClientLimits, Places, RateWindows, Tries

KEY_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class ClientLimiter:
    """Limits of clients and their counts; each process counts frames and open sockets alone."""

    proxies: Proxies
    is_personal: bool
    """True for one person's own installation, where clients on this machine are not limited."""
    limits: ClientLimits
    local_limits: ClientLimits
    sessions: RateWindows
    addresses: RateWindows
    streams: RateWindows
    keys: RateWindows
    frames: RateWindows
    session_places: Places
    address_places: Places
    recovery_tries: Tries

    @classmethod
    def create(
        cls, proxies: Proxies, *, is_personal: bool, limits: ClientLimits | None = None
    ) -> ClientLimiter:
        """Build the limiter; `limits` replaces the limits of all clients, also local ones."""
        usual = limits or ClientLimits()
        return cls(
            proxies=proxies,
            is_personal=is_personal,
            limits=usual,
            local_limits=limits or LOCAL,
            sessions=RateWindows(usual.messages_seconds),
            addresses=RateWindows(usual.messages_seconds),
            streams=RateWindows(usual.messages_seconds),
            keys=RateWindows(KEY_SECONDS),
            frames=RateWindows(usual.frames_seconds),
            session_places=Places(),
            address_places=Places(),
            recovery_tries=Tries(),
        )

    @property
    def common_windows(self) -> Mapping[str, RateWindows]:
        """Rate windows that all web processes share."""
        return {
            "sessions": self.sessions, "addresses": self.addresses, "streams": self.streams,
            "keys": self.keys,
        }  # fmt: skip

    def client_key(self, request: web.Request) -> str:
        """Return the key by which a client's address is counted."""
        return self.proxies.client_key(request)

    def limits_for(self, request: web.Request) -> ClientLimits:
        """Return the limits for a client; on the machine of a personal installation other limits apply."""
        return self.local_limits if self.is_personal and self.proxies.is_local(request) else self.limits

    def take_newcomer(self, request: web.Request) -> float:
        """Count a new visitor; return 0 if the address may have one more, else the seconds to wait."""
        most = self.limits_for(request).newcomers
        return self.addresses.take(f"new {self.client_key(request)}", most)
