"""Closes open connections whose token or API key has been revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog

from shared.core.values.errors import StorageUnavailable
from web.auth.visitors import UnknownToken
from web.protocol import wire
from web.server.hub import Hub, Subscriber

log = structlog.get_logger(__name__)

CHECK_SECONDS = 15.0
"""Seconds between two checks. A token must be missing in two of them, since a visitor may sign in between."""


class Tokens(Protocol):
    """Store that finds tokens and API keys that are no longer valid."""

    async def find_ended(
        self, token_hashes: Iterable[bytes], key_ids: Iterable[int]
    ) -> tuple[frozenset[bytes], frozenset[int]]:
        """Return those of the token hashes and API key ids that are no longer valid."""
        ...


class TokenRevocation:
    """Regular check of all connections of this process, by one database query and without Redis."""

    def __init__(self, hub: Hub, tokens: Tokens, *, every: float = CHECK_SECONDS) -> None:
        self._hub = hub
        self._tokens = tokens
        self._every = every
        self._doubted: frozenset[Subscriber] = frozenset()

    async def watch(self) -> None:
        """Run `check` every `every` seconds until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            await self.check()

    async def check(self) -> None:
        """Close connections whose token or API key was invalid in this check and in the previous one.

        A client gets the error `unknown_token` first. A database outage skips the check.
        """
        subscribers = [
            subscriber
            for subscriber in self._hub.list_subscribers()
            if subscriber.admitted_by is not None and not subscriber.send_queue.closing
        ]
        if not subscribers:
            self._doubted = frozenset()
            return
        try:
            hashes, keys = await self._tokens.find_ended(
                {
                    subscriber.admitted_by
                    for subscriber in subscribers
                    if isinstance(subscriber.admitted_by, bytes)
                },
                {
                    subscriber.admitted_by
                    for subscriber in subscribers
                    if isinstance(subscriber.admitted_by, int)
                },
            )
        except StorageUnavailable:
            return
        without = frozenset(
            subscriber
            for subscriber in subscribers
            if subscriber.admitted_by in hashes or subscriber.admitted_by in keys
        )
        for subscriber in without & self._doubted:
            _disconnect(subscriber)
        self._doubted = without - self._doubted


def _disconnect(subscriber: Subscriber) -> None:
    """Send the error frame of an unknown token, and close the connection."""
    log.info("screen_disconnected", address_id=subscriber.address_id)
    subscriber.send_queue.put(wire.encode(wire.error(UnknownToken("ended"), public=subscriber.public)))
    subscriber.send_queue.close(wire.CLOSE_TOKEN, "unknown token")
