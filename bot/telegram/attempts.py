"""One attempt to send a part: its row says so while the request is under way, and not a moment longer."""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.telegram.outcomes import NotSent, Sent, Unknown
from shared.adapters.postgres.turns.deliveries import PostgresDeliveries
from shared.core.values.errors import StorageUnavailable
from shared.runtime.crash_points import CrashPoint

PartKey = tuple[int, int, int]
"""Session, turn, part."""


class TakenByOther(Exception):
    """Somebody else sends this part, or it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Remembers what became of a request until it is stored: while this process lives, that is known."""

    store: PostgresDeliveries
    crash_point: CrashPoint
    _ended: dict[PartKey, Sent | Unknown | NotSent] = field(default_factory=dict)

    def of(self, key: PartKey) -> Attempt:
        return Attempt(self, key)

    async def begins(self, key: PartKey) -> None:
        try:
            begun = await self.store.begin(*key)
        except StorageUnavailable:
            # Its row may say that a request is on its way: `catch_up` puts that right, none went out.
            self._ended[key] = NotSent(reason="storage did not answer before it was sent")
            raise
        self._ended.pop(key, None)
        if not begun:
            raise TakenByOther
        self.crash_point("telegram_before_send")

    async def ended(self, key: PartKey, outcome: Sent | Unknown | NotSent) -> None:
        """Raises StorageUnavailable; `catch_up` stores it then."""
        self._ended[key] = outcome
        match outcome:
            case Sent(message_id=message_id):
                await self.store.delivered(*key, remote_id=message_id)
            case Unknown(reason=reason):
                await self.store.give_up(*key, state="uncertain", error=reason)
            case NotSent(reason=reason):
                await self.store.surely_not_sent(*key, error=reason)
        self._ended.pop(key, None)

    async def catch_up(self, key: PartKey) -> bool:
        """Whether nothing is left to do: not while it is being sent, nor where the next holder decides."""
        outcome = self._ended.get(key)
        if outcome is not None:
            await self.ended(key, outcome)
        return isinstance(outcome, Sent | Unknown)


class Attempt:
    """What the sender tells when the request goes out, and when it was surely not heard."""

    def __init__(self, attempts: Attempts, key: PartKey) -> None:
        self._attempts = attempts
        self._key = key

    async def begins(self) -> None:
        """Raises TakenByOther, and nothing must be sent then."""
        await self._attempts.begins(self._key)

    async def was_refused(self, reason: str) -> None:
        await self._attempts.ended(self._key, NotSent(reason=reason))
