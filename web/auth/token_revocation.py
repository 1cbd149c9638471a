"""Asks again, while screens are open, whether what let them in still lives: what ended lets nobody stay."""

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

LOOK_SECONDS = 15.0
"""Gone twice in a row is gone: in between, a screen may have signed in as somebody else."""


class Tokens(Protocol):
    async def ended(
        self, token_hashes: Iterable[bytes], key_ids: Iterable[int]
    ) -> tuple[frozenset[bytes], frozenset[int]]: ...


class TokenRevocation:
    """One statement for all screens of the process; Redis may be away, Postgres knows who was let in."""

    def __init__(self, hub: Hub, tokens: Tokens, *, every: float = LOOK_SECONDS) -> None:
        self._hub = hub
        self._tokens = tokens
        self._every = every
        self._doubted: frozenset[Subscriber] = frozenset()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.look()

    async def look(self) -> None:
        """Whoever was found without a living token in the look before, too, is sent away."""
        seats = [
            seat for seat in self._hub.seats() if seat.admitted_by is not None and not seat.outbox.closing
        ]
        if not seats:
            self._doubted = frozenset()
            return
        try:
            hashes, keys = await self._tokens.ended(
                {seat.admitted_by for seat in seats if isinstance(seat.admitted_by, bytes)},
                {seat.admitted_by for seat in seats if isinstance(seat.admitted_by, int)},
            )
        except StorageUnavailable:
            return
        without = frozenset(seat for seat in seats if seat.admitted_by in hashes or seat.admitted_by in keys)
        for seat in without & self._doubted:
            _send_away(seat)
        self._doubted = without - self._doubted


def _send_away(seat: Subscriber) -> None:
    log.info("screen_sent_away", address_id=seat.address_id)
    seat.outbox.put(wire.encode(wire.error(UnknownToken("ended"), public=seat.public)))
    seat.outbox.close(wire.CLOSE_TOKEN, "unknown token")
