"""The updates that a bot has not confirmed yet, numbered and in order; they lapse as at Telegram."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.kit.fakes.bot_api.clock import Clock
from tests.kit.fakes.bot_api.shapes import Json

DAY = 24 * 3_600.0
LIVES = {"callback_query": 150.0}
UNASKED = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
"""Kinds of updates that only bots get that name them in `allowed_updates`."""
MAX_PENDING = 100_000


@dataclass(slots=True, kw_only=True, eq=False)
class Pending:
    id: int
    kind: str
    content: Json
    lane: str
    expires_at: float
    repeats: int = 0
    """How often the update is delivered again after it has been confirmed."""
    again: bool = False
    copies: int = 1
    """How many posts of the update a webhook gets at the same time."""

    def as_json(self) -> Json:
        return {"update_id": self.id, self.kind: self.content}


@dataclass(slots=True, kw_only=True)
class Oddities:
    """Oddities of delivery that the next updates meet: repeats, parallel copies, or a reversed order."""

    duplicate: int = 0
    repeats: int = 1
    copies: int = 1
    held: list[Pending] = field(default_factory=list)
    hold: int = 0


class Inbox:
    """The queue of one bot's unconfirmed updates."""

    def __init__(self, clock: Clock, *, first_id: int) -> None:
        self._clock = clock
        self._next_id = first_id
        self._pending: dict[int, Pending] = {}
        self._allowed: frozenset[str] | None = None
        self._oddities = Oddities()
        self.arrived = asyncio.Event()

    def put(self, kind: str, content: Json, *, lane: str) -> int | None:
        """Queue an update, and return its number; None if the bot has not asked for this kind."""
        if not self.wants(kind):
            return None
        pending = Pending(
            id=self._next_id,
            kind=kind,
            content=content,
            lane=lane,
            expires_at=self._clock.now() + LIVES.get(kind, DAY),
        )
        self._next_id += 1
        odd = self._oddities
        if odd.duplicate > 0:
            odd.duplicate -= 1
            pending.repeats, pending.copies = odd.repeats, odd.copies
        if odd.hold > 0:
            self._hold(pending)
        else:
            self._queue(pending)
        return pending.id

    def put_raw(self, update: Json) -> int:
        """Queue an update of any shape, also of a kind that this fake does not know, and return its
        number.
        """
        number = int(update.get("update_id", self._next_id))
        self._next_id = max(self._next_id, number + 1)
        kind = next((name for name in update if name != "update_id"), "unknown")
        pending = Pending(
            id=number, kind=kind, content=update.get(kind, {}), lane="raw", expires_at=self._clock.now() + DAY
        )
        self._queue(pending)
        return number

    def wants(self, kind: str) -> bool:
        """Return whether the bot has asked for this kind of update."""
        return kind not in UNASKED if not self._allowed else kind in self._allowed

    def allow(self, kinds: list[str] | None) -> None:
        """Set the kinds of updates that the bot asks for.

        An empty list is Telegram's default choice; None changes nothing.
        """
        if kinds is not None:
            self._allowed = frozenset(kinds)

    @property
    def allowed(self) -> list[str]:
        return sorted(self._allowed or ())

    def duplicate(self, count: int, *, repeats: int, copies: int) -> None:
        """Deliver the next `count` updates `repeats` times again, or as `copies` parallel posts to a
        webhook.
        """
        self._oddities.duplicate = count
        self._oddities.repeats, self._oddities.copies = repeats, copies

    def reorder(self, count: int) -> None:
        """Hold the next `count` updates until all have arrived, and deliver them in reverse order."""
        self._oddities.hold = count

    def ready(self) -> list[Pending]:
        """Return the waiting updates in order, without lapsed ones."""
        self._expire()
        return list(self._pending.values())

    def first_of(self, lane: str) -> Pending | None:
        """Return the first waiting update of a lane; None if there is none."""
        self._expire()
        return next((one for one in self._pending.values() if one.lane == lane), None)

    def confirm_below(self, offset: int) -> None:
        """Confirm every update with a number below `offset`."""
        for one in [one for one in self._pending.values() if one.id < offset]:
            self.confirm(one)

    def keep_last(self, count: int) -> None:
        """Drop all waiting updates but the last `count`."""
        ids = list(self._pending)
        for number in ids[: max(0, len(ids) - count)]:
            del self._pending[number]

    def confirm(self, one: Pending) -> None:
        """Drop a delivered update, or keep it for one more delivery if it is to be repeated."""
        if one.repeats > 0:
            one.repeats -= 1
            one.again = True
        else:
            self._pending.pop(one.id, None)

    def clear(self) -> None:
        """Drop all waiting updates and all planned oddities."""
        self._pending.clear()
        self._oddities = Oddities()

    def __len__(self) -> int:
        self._expire()
        return len(self._pending)

    def wake(self) -> None:
        """Wake those who wait for updates."""
        waiting, self.arrived = self.arrived, asyncio.Event()
        waiting.set()

    def _hold(self, pending: Pending) -> None:
        odd = self._oddities
        odd.held.append(pending)
        odd.hold -= 1
        if odd.hold == 0:
            held, odd.held = odd.held, []
            for one in reversed(held):
                self._queue(one)

    def _queue(self, pending: Pending) -> None:
        self._pending[pending.id] = pending
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        self.wake()

    def _expire(self) -> None:
        now = self._clock.now()
        for number in [one.id for one in self._pending.values() if one.expires_at <= now]:
            del self._pending[number]
