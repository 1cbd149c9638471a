"""Rate limits of clients, and their counts in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from web.server.origins import Proxies
from web.server.rate_limits import LOCAL, ClientLimits, Places, RateWindows, Tries

KEY_SECONDS = 60.0
"""Seconds of the window in which the requests of an API key are counted."""


@dataclass(slots=True, kw_only=True)
class ClientLimiter:
    """Limits and counts of clients; frames and open connections are counted by each process alone."""

    proxies: Proxies
    is_personal: bool
    """Whether this is a personal installation, where clients on the same machine get `local_limits`."""
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
        """Return a limiter with empty counts.

        `limits` replaces the limits of all clients, also of local ones; None uses the usual limits.
        """
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
        """Rate windows whose counts all web processes share, by name."""
        return {
            "sessions": self.sessions, "addresses": self.addresses, "streams": self.streams,
            "keys": self.keys,
        }  # fmt: skip

    def client_key(self, request: web.Request) -> str:
        """Return the key by which a client's address is counted; for IPv6 its network."""
        return self.proxies.client_key(request)

    def limits_for(self, request: web.Request) -> ClientLimits:
        """Return the limits for the client of a request."""
        return self.local_limits if self.is_personal and self.proxies.is_local(request) else self.limits

    def take_newcomer(self, request: web.Request) -> float:
        """Count a new visitor; return 0 if the client's address may have one, else the seconds to wait."""
        most = self.limits_for(request).newcomers
        return self.addresses.take(f"new {self.client_key(request)}", most)
