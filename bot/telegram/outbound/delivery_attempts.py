"""One attempt to send a part: its row says so while the request is under way, and not a moment longer."""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.telegram.client.outcomes import CallNotSent, CallUnknown, MessageSent
from shared.adapters.postgres.turns.deliveries import PostgresDeliveries
from shared.core.values.errors import StorageUnavailable
from shared.runtime.crash_points import CrashPoint

PartKey = tuple[int, int, int]
"""Session, turn, part."""


class SendClaimedElsewhere(Exception):
    """Somebody else sends this part, or it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempts:
    """Remembers what became of a request until it is stored: while this process lives, that is known."""

    store: PostgresDeliveries
    crash_point: CrashPoint
    _ended: dict[PartKey, MessageSent | CallUnknown | CallNotSent] = field(default_factory=dict)

    def for_part(self, key: PartKey) -> DeliveryAttempt:
        return DeliveryAttempt(self, key)

    async def begin(self, key: PartKey) -> None:
        try:
            begun = await self.store.begin(*key)
        except StorageUnavailable:
            # Its row may say that a request is on its way: `catch_up` puts that right, none went out.
            self._ended[key] = CallNotSent(reason="storage did not answer before it was sent")
            raise
        self._ended.pop(key, None)
        if not begun:
            raise SendClaimedElsewhere
        self.crash_point("telegram_before_send")

    async def record_outcome(self, key: PartKey, outcome: MessageSent | CallUnknown | CallNotSent) -> None:
        """Raises StorageUnavailable; `catch_up` stores it then."""
        self._ended[key] = outcome
        match outcome:
            case MessageSent(message_id=message_id):
                await self.store.delivered(*key, remote_id=message_id)
            case CallUnknown(reason=reason):
                await self.store.give_up(*key, state="uncertain", error=reason)
            case CallNotSent(reason=reason):
                await self.store.surely_not_sent(*key, error=reason)
        self._ended.pop(key, None)

    async def store_pending_outcome(self, key: PartKey) -> bool:
        """Whether nothing is left to do: not while it is being sent, nor where the next holder decides."""
        outcome = self._ended.get(key)
        if outcome is not None:
            await self.record_outcome(key, outcome)
        return isinstance(outcome, MessageSent | CallUnknown)


class DeliveryAttempt:
    """What the sender tells when the request goes out, and when it was surely not heard."""

    def __init__(self, attempts: DeliveryAttempts, key: PartKey) -> None:
        self._attempts = attempts
        self._key = key

    async def before_send(self) -> None:
        """Raises TakenByOther, and nothing must be sent then."""
        await self._attempts.begin(self._key)

    async def on_refused(self, reason: str) -> None:
        await self._attempts.record_outcome(self._key, CallNotSent(reason=reason))
